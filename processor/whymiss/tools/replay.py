"""``whymiss replay``: a recording through the same pipeline, in virtual time.

Spans and events are handed in at the times at which they were received when the recording was made; holds
end when they would have ended. The same recording gives the same lines on any day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from ..config import Config, parse
from ..edge.references import load
from ..model import SECOND
from ..pipeline import KvOutcome, KvSource, Pipeline, row_of
from ..redaction import Redacted
from ..reference import Reference
from .recording import KvMessage, OtlpRequest, Recording

PROCESS_KEY = b"whymiss replay: digests of a replay are for comparing inside it."
"""Fixed, so that a verdict can be recomputed byte for byte."""

COLUMNS = (
    *("trace_id", "span_id", "request_id", "worker", "prompt_tokens", "cached_tokens", "block_index"),
    *("cause", "owner", "reason", "evidence", "lost_tokens"),
)
SOLE_SOURCE = "{workers: {sole_source: true}, kv_events: {sources: [{endpoint: 'tcp://127.0.0.1:5557'}]}}"


def default_config() -> Config:
    """A recording of one engine needs no mapping: its only source is the spans' worker."""
    return parse(SOLE_SOURCE, {})


class Replay:
    """Plays a recording; ``rows`` and ``outgoing`` are what came of it."""

    def __init__(self, recording: Recording, config: Config, references: Sequence[Reference] = ()) -> None:
        self._recording = recording
        begin = min((part[0].received_unix_nanos for part in (recording.otlp, recording.kv_events) if part), default=0)
        self.pipeline = Pipeline(config, process_key=PROCESS_KEY, start_unix_nanos=begin)
        self.pipeline.judged = []
        self.pipeline.adopt(config.redaction, references, config.references.scope)
        told = config.kv_events.sources
        self._source = KvSource(
            name="recording",
            worker=told[0].worker if len(told) == 1 else None,
            model=told[0].model if len(told) == 1 else None,
            kv_connector=any(source.kv_connector for source in told),
            can_replay=bool(recording.replay),
        )
        self.outgoing: list[Redacted] = []
        self.problems: list[str] = []

    def play(self) -> Sequence[Mapping[str, str | int | None]]:
        """Play to the end; returns one record a lookup, in the order of the lookups' requests."""
        recording = self._recording
        arrivals: list[tuple[int, int, OtlpRequest | KvMessage]] = [
            *((message.received_unix_nanos, 0, message) for message in recording.kv_events),
            *((request.received_unix_nanos, 1, request) for request in recording.otlp),
        ]
        arrivals.sort(key=lambda arrival: arrival[:2])
        now = 0.0
        for received, _, arrival in arrivals:
            now = received / SECOND
            self._advance_to(now)
            if isinstance(arrival, KvMessage):
                self._take_events(arrival, now)
            else:
                accepted = self.pipeline.traces(arrival.body, now)
                self.outgoing.extend(accepted.outgoing)
                if accepted.message:
                    self.problems.append(accepted.message)
        while (deadline := self.pipeline.next_deadline) is not None:
            self.outgoing.extend(self.pipeline.advance(deadline))
        self.outgoing.extend(self.pipeline.drain())
        judged = sorted(self.pipeline.judged or (), key=lambda one: one.request.subject.start_unix_nanos)
        return [row_of(one) for one in judged]

    def _advance_to(self, now: float) -> None:
        while (deadline := self.pipeline.next_deadline) is not None and deadline <= now:
            self.outgoing.extend(self.pipeline.advance(deadline))

    def _take_events(self, message: KvMessage, now: float) -> None:
        outcome = self.pipeline.kv_frames(self._source, message.frames, message.received_unix_nanos, now=now)
        if outcome.kind == "gap":
            self._fill(outcome, now)
        if outcome.kind == "bad":
            self.problems.append("a KV-event message could not be read")

    def _fill(self, gap: KvOutcome, now: float) -> None:
        """Do as the subscriber does: ask the replay socket, here the recorded answer."""
        for message in self._recording.replay:
            self.pipeline.kv_frames(self._source, message.frames, message.received_unix_nanos, replayed=True, now=now)
        del gap


def run(directory: Path, *, config: Config | None, beside: Path | None = None, as_json: bool, out: TextIO) -> int:
    """Play a recording and print its verdicts, with the references that the configuration names.

    Raises:
        BadInput: the recording, or a reference, cannot be read.
        ConfigError: a reference is not there, or not under the configuration's key.
    """
    config = config or default_config()
    replay = Replay(Recording(directory), config, load(config, beside))
    rows = replay.play()
    if as_json:
        out.writelines(msgspec.json.encode(row).decode() + "\n" for row in rows)
        return 0
    _print(rows, replay.problems, out)
    return 0


def _print(rows: Sequence[Mapping[str, str | int | None]], problems: Sequence[str], out: TextIO) -> None:
    out.write(" ".join(COLUMNS) + "\n")
    out.writelines(" ".join("-" if row[key] in (None, "") else str(row[key]) for key in COLUMNS) + "\n" for row in rows)
    console = Console(file=out, highlight=False, width=100)
    table = Table(title=f"{len(rows)} lookups", box=box.SIMPLE, title_justify="left")
    for heading, justify in (
        ("cause", "left"),
        ("owner", "left"),
        ("lookups", "right"),
        ("recomputed", "right"),
        ("lost", "right"),
    ):
        table.add_column(heading, justify="left" if justify == "left" else "right")
    counts = Counter((str(row["cause"]), str(row["owner"])) for row in rows)
    for (cause, owner), count in counts.most_common():
        mine = [row for row in rows if row["cause"] == cause]
        table.add_row(cause, owner, str(count), _total(mine, _recomputed), _total(mine, _lost))
    console.print(table)
    out.writelines(f"note: {problem}\n" for problem in dict.fromkeys(problems))


def _recomputed(row: Mapping[str, str | int | None]) -> int | None:
    prompt, cached = row["prompt_tokens"], row["cached_tokens"]
    return prompt - cached if isinstance(prompt, int) and isinstance(cached, int) else None


def _lost(row: Mapping[str, str | int | None]) -> int | None:
    lost = row["lost_tokens"]
    return lost if isinstance(lost, int) else None


def _total(rows: Sequence[Mapping[str, str | int | None]], of: object) -> str:
    assert callable(of)
    known = [value for row in rows if (value := of(row)) is not None]
    if not known:
        return "-"
    return f"{sum(known)} tokens" + ("" if len(known) == len(rows) else f" (of {len(known)} known)")
