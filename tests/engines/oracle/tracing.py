"""What an engine's OpenTelemetry is given in a run: seeded ids, a place for what ended, and export in batches."""

from __future__ import annotations

import random

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator


class Ended(SpanProcessor):
    """Keeps every span that ended, in order."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)

    def requests(self, every_seconds: float) -> list[tuple[int, bytes]]:
        """As a batch exporter sends them: when received in Unix nanoseconds, and the body, in order of time."""
        sent: dict[int, list[ReadableSpan]] = {}
        for span in self.spans:
            sent.setdefault(int((span.end_time or 0) / 1e9 / every_seconds) + 1, []).append(span)
        return [
            (int((tick * every_seconds + 0.003) * 1e9), encode_spans(spans).SerializeToString(deterministic=True))
            for tick, spans in sorted(sent.items())
        ]


class Ids(RandomIdGenerator):
    """Trace and span ids of a seeded generator."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def generate_span_id(self) -> int:
        return self._rng.getrandbits(64) or 1

    def generate_trace_id(self) -> int:
        return self._rng.getrandbits(128) or 1
