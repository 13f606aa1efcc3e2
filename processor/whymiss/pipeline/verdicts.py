"""Verdicts remembered for the spans that come too late for theirs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from ..config import JoinConfig
from ..model import Span, Verdict, request_ids, served_ids

VERDICT_BYTES = 768
"""What a remembered verdict is counted as, under each of its names (measured below it: tests/pipeline/test_verdicts.py)."""


class Verdicts:
    """By the traces and names of their requests, until their time is over or there are too many."""

    def __init__(self, config: JoinConfig) -> None:
        self._config = config
        self._known: OrderedDict[bytes | str, tuple[Verdict, float]] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Bytes of all that is remembered."""
        return len(self._known) * VERDICT_BYTES

    def remember(self, spans: Iterable[Span], subject: Span, verdict: Verdict, now: float) -> None:
        """Remember the verdict of a request with these spans."""
        until = now + self._config.remembered_seconds
        keys: tuple[bytes | str, ...] = (*(span.trace_id for span in spans), *request_ids(subject))
        for key in keys:
            self._known[key] = (verdict, until)
            self._known.move_to_end(key)
        # The oldest come first, because all are remembered equally long.
        while self._known and (len(self._known) > self._config.remembered_max or self._oldest < now):
            self._known.popitem(last=False)

    def of(self, span: Span, now: float) -> Verdict | None:
        """The verdict of the request that a late span belongs to."""
        keys: tuple[bytes | str, ...] = (span.trace_id, *span.linked_trace_ids, *served_ids(span))
        known = next((one for key in keys if (one := self._known.get(key)) is not None), None)
        return known[0] if known is not None and known[1] >= now else None

    @property
    def _oldest(self) -> float:
        return next(iter(self._known.values()))[1]
