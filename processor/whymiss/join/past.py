"""What is kept of released requests, so that a late span is known when it comes."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple, TypeVar

from ..config import JoinConfig
from ..model import Role, Span
from .groups import Service, linked_to, names_of

REMEMBERED_BYTES = 1024
"""What a released request is counted as in each of its traces (measured below it: tests/test_join.py)."""

NAME_BYTES = 256
"""And each of its names."""

SPAN_ID_BYTES = 128
"""And each of its spans."""

SPAN_IDS_EACH = 16
"""Spans remembered for each request that ``remembered_max`` allows; beyond it the oldest requests are forgotten early."""

_Key = TypeVar("_Key")


class Remembered(NamedTuple):
    """What is kept of a released request: enough to know a late span when it comes."""

    until: float
    begin: int
    end: int
    span_ids: set[bytes]
    services: frozenset[Service]

    def meets(self, span: Span, now: float) -> bool:
        """Whether a span ran while the request did, and the request is not forgotten."""
        # guard: join-meets, join-forgotten
        return self.until >= now and span.start_unix_nanos <= self.end and span.end_unix_nanos >= self.begin


class Past:
    """Released requests by trace and by name, until their time is over or there are too many."""

    def __init__(self, config: JoinConfig) -> None:
        self._config = config
        self._by_trace: OrderedDict[bytes, Remembered] = OrderedDict()
        self._by_name: OrderedDict[str, Remembered] = OrderedDict()
        self._span_ids = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all that is remembered."""
        traces, names = len(self._by_trace), len(self._by_name)
        return traces * REMEMBERED_BYTES + names * NAME_BYTES + self._span_ids * SPAN_ID_BYTES

    def of_trace(self, trace_id: bytes, now: float) -> Remembered | None:
        """What was released of a trace."""
        known = self._by_trace.get(trace_id)
        return known if known is not None and known.until >= now else None  # guard: join-of-trace-forgotten

    def met_elsewhere(self, span: Span, now: float) -> Remembered | None:
        """A request in another trace that a span worked for."""
        found = [self._by_trace.get(trace_id) for trace_id in linked_to(span)]  # guard: join-late-linked
        found += [self._by_name.get(name) for name in names_of(span)]  # guard: join-late-named
        return next((one for one in found if one is not None and one.meets(span, now)), None)

    def remember(self, spans: tuple[Span, ...], services: frozenset[Service], now: float) -> None:
        """Remember a request that was released."""
        by_trace: dict[bytes, list[Span]] = {}
        for span in spans:
            by_trace.setdefault(span.trace_id, []).append(span)
        until = now + self._config.remembered_seconds
        for trace_id, members in by_trace.items():
            known = self._by_trace.pop(trace_id, None)
            # One set for all releases of a trace, or each of them would copy those before.
            span_ids: set[bytes] = set()
            if known is not None:
                self._span_ids -= len(known.span_ids)
                if known.until >= now and len(known.span_ids) + len(members) <= self._config.remembered_max:
                    span_ids = known.span_ids
            span_ids.update(span.span_id for span in members)
            self._span_ids += len(span_ids)
            self._by_trace[trace_id] = remembered = Remembered(
                until,
                min(span.start_unix_nanos for span in members),
                max(span.end_unix_nanos for span in members),
                span_ids,
                services,
            )
            for name in [name for span in members if span.role is Role.ENGINE for name in names_of(span)]:
                self._by_name.pop(name, None)
                self._by_name[name] = remembered
        # The oldest come first, because all are remembered equally long.
        most = self._config.remembered_max
        while self._by_trace and (
            len(self._by_trace) > most or self._span_ids > most * SPAN_IDS_EACH or _is_past(self._by_trace, now)
        ):
            self._span_ids -= len(self._by_trace.popitem(last=False)[1].span_ids)
        while self._by_name and (len(self._by_name) > most or _is_past(self._by_name, now)):
            self._by_name.popitem(last=False)


def _is_past(kept: OrderedDict[_Key, Remembered], now: float) -> bool:
    return next(iter(kept.values())).until < now
