"""Hold the spans of a request until they are complete, overdue or too many.

The spans of one request come from several processes, each with its own batch exporter, so they
arrive up to five seconds apart (``OTEL_BSP_SCHEDULE_DELAY``). They are kept together by trace id and,
because offload tiers start traces of their own, by request id. A group is complete when the engine's
span is there and every role that recent requests had; it then lingers a little, and it is released at
the latest when its hold ends.

Over-joining is harmless here: which span belongs to which lookup is decided later, from all of them.
Time is a parameter. The joiner never reads a clock, calls back or logs.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable

from .config import JoinConfig
from .model import JoinOutcome, Late, Released, ReleaseReason, Role, Span, request_ids

SPAN_OVERHEAD_BYTES = 700
"""Measured upper bound of what a held span costs beside its bytes (tests/bench/bench_join.py)."""


class _Open:
    """The spans of one or more requests that share a trace or a request id."""

    __slots__ = ("arrived", "held_bytes", "overdue", "released", "spans", "wake")

    def __init__(self, now: float, overdue: float) -> None:
        self.spans: dict[tuple[bytes, bytes], Span] = {}
        self.arrived = now
        self.overdue = overdue
        self.wake = overdue
        self.held_bytes = 0
        self.released = False


class _Remembered:
    """What is kept of a released request: enough to know a late span when it comes."""

    __slots__ = ("begin", "end", "span_ids", "until")

    def __init__(self, until: float, begin: int, end: int, span_ids: frozenset[bytes]) -> None:
        self.until = until
        self.begin = begin
        self.end = end
        self.span_ids = span_ids


class Joiner:
    """Hold spans; release them together. One task owns it.

    Call ``expire`` before ``accept`` at the same instant.
    """

    def __init__(self, config: JoinConfig) -> None:
        self._config = config
        self._by_trace: dict[bytes, _Open] = {}
        self._by_request: dict[str, _Open] = {}
        self._order: OrderedDict[int, _Open] = OrderedDict()
        self._wakes: list[tuple[float, int, _Open]] = []
        self._counter = 0
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()
        self._role_seen: dict[Role, float] = {}
        self._learned_at: float | None = None
        self.held_spans = 0
        self.held_bytes = 0
        self.duplicates = 0

    # --- the four members -----------------------------------------------------------------------

    def accept(self, spans: Iterable[Span], now: float) -> list[JoinOutcome]:
        """Take spans; returns what left because of them (late ones, and the oldest over a limit)."""
        outcomes: list[JoinOutcome] = []
        if self._learned_at is None:
            self._learned_at = now + self._config.hold_seconds
        for span in spans:
            self._role_seen[span.role] = now
            if self._is_late(span, now):
                outcomes.append(Late(span))
                continue
            group = self._group_of(span, now)
            self._hold(group, span)
            self._schedule(group, now)
        outcomes.extend(self._shed(now))
        return outcomes

    def expire(self, now: float) -> list[JoinOutcome]:
        """Release every group whose time has come."""
        outcomes: list[JoinOutcome] = []
        while self._wakes and self._wakes[0][0] <= now:
            wake, _, group = heapq.heappop(self._wakes)
            if group.released or wake < group.wake:
                continue
            reason = ReleaseReason.HOLD if now >= group.overdue else ReleaseReason.COMPLETE
            outcomes.append(self._release(group, now, reason))
        return outcomes

    def drain(self) -> list[JoinOutcome]:
        """Release all groups, oldest first, at shutdown."""
        return [self._release(group, group.overdue, ReleaseReason.DRAIN) for group in list(self._order.values())]

    @property
    def next_deadline(self) -> float | None:
        """When ``expire`` next has work."""
        while self._wakes and (self._wakes[0][2].released or self._wakes[0][0] < self._wakes[0][2].wake):
            heapq.heappop(self._wakes)
        return self._wakes[0][0] if self._wakes else None

    # --- and the one for evidence that is still on its way ------------------------------------------

    def hold_on(self, released: Released, arrived: float, now: float) -> bool:
        """Take a completed group back until its hold ends; False when that is already over."""
        overdue = arrived + self._config.hold_seconds
        if now >= overdue or released.reason is not ReleaseReason.COMPLETE:
            return False
        group = self._open(arrived)
        for span in released.spans:
            self._remembered.pop(span.trace_id, None)
            self._index(group, span)
            self._hold(group, span)
        group.wake = overdue
        self._push(group)
        return True

    @property
    def open_groups(self) -> int:
        """How many groups are held."""
        return len(self._order)

    # --- inside -----------------------------------------------------------------------------------

    def _is_late(self, span: Span, now: float) -> bool:
        known = self._remembered.get(span.trace_id)
        if known is None or known.until < now or span.trace_id in self._by_trace:
            return False
        if span.span_id in known.span_ids:
            return True
        # A trace may hold many requests, minutes apart: another engine span is another request.
        return span.role is not Role.ENGINE and (
            span.start_unix_nanos <= known.end and span.end_unix_nanos >= known.begin
        )

    def _open(self, arrived: float) -> _Open:
        self._counter += 1
        group = _Open(arrived, arrived + self._config.hold_seconds)
        self._order[id(group)] = group
        return group

    def _group_of(self, span: Span, now: float) -> _Open:
        found: list[_Open] = []
        named = [self._by_request.get(name) for name in request_ids(span)]
        for group in (self._by_trace.get(span.trace_id), *named):
            if group is not None and group not in found:
                found.append(group)
        group = min(found, key=lambda one: one.arrived) if found else self._open(now)
        for other in found:
            if other is not group:
                self._merge(group, other)
        self._index(group, span)
        return group

    def _index(self, group: _Open, span: Span) -> None:
        self._by_trace[span.trace_id] = group
        for name in request_ids(span):
            self._by_request[name] = group

    def _merge(self, group: _Open, other: _Open) -> None:
        for span in other.spans.values():
            self._index(group, span)
        group.spans.update(other.spans)
        group.held_bytes += other.held_bytes
        other.released = True
        del self._order[id(other)]

    def _hold(self, group: _Open, span: Span) -> None:
        key = (span.trace_id, span.span_id)
        if key in group.spans:
            self.duplicates += 1
            return
        group.spans[key] = span
        size = len(span.raw) + SPAN_OVERHEAD_BYTES
        group.held_bytes += size
        self.held_bytes += size
        self.held_spans += 1

    def _schedule(self, group: _Open, now: float) -> None:
        roles = {span.role for span in group.spans.values()}
        wake = group.overdue
        # Until a first hold has passed, nobody knows yet which companions requests have here.
        learned = self._learned_at is not None and now >= self._learned_at
        if learned and Role.ENGINE in roles and self._expected(now) <= roles:
            wake = min(wake, now + self._config.linger_seconds)
        group.wake = wake
        self._push(group)

    def _push(self, group: _Open) -> None:
        self._counter += 1
        heapq.heappush(self._wakes, (group.wake, self._counter, group))

    def _expected(self, now: float) -> set[Role]:
        recent = now - self._config.remembered_seconds
        return {role for role, seen in self._role_seen.items() if seen >= recent}

    def _shed(self, now: float) -> list[JoinOutcome]:
        outcomes: list[JoinOutcome] = []
        limit_spans, limit_bytes = self._config.open_spans_max, self._config.open_bytes_max
        while self._order and (self.held_spans > limit_spans or self.held_bytes > limit_bytes):
            oldest = next(iter(self._order.values()))
            outcomes.append(self._release(oldest, now, ReleaseReason.SHED))
        return outcomes

    def _release(self, group: _Open, now: float, reason: ReleaseReason) -> Released:
        group.released = True
        del self._order[id(group)]
        spans = tuple(sorted(group.spans.values(), key=_span_order))
        self.held_spans -= len(spans)
        self.held_bytes -= group.held_bytes
        for span in spans:
            if self._by_trace.get(span.trace_id) is group:
                del self._by_trace[span.trace_id]
            for name in request_ids(span):
                if self._by_request.get(name) is group:
                    del self._by_request[name]
        self._remember(spans, now)
        return Released(spans, reason, group.arrived)

    def _remember(self, spans: tuple[Span, ...], now: float) -> None:
        by_trace: dict[bytes, list[Span]] = {}
        for span in spans:
            by_trace.setdefault(span.trace_id, []).append(span)
        until = now + self._config.remembered_seconds
        for trace_id, members in by_trace.items():
            known = self._remembered.pop(trace_id, None)
            earlier = known.span_ids if known is not None and known.until >= now else frozenset()
            self._remembered[trace_id] = _Remembered(
                until,
                min(span.start_unix_nanos for span in members),
                max(span.end_unix_nanos for span in members),
                earlier | {span.span_id for span in members},
            )
        while len(self._remembered) > self._config.remembered_max:
            self._remembered.popitem(last=False)


def _span_order(span: Span) -> tuple[int, bytes, bytes]:
    return (span.start_unix_nanos, span.trace_id, span.span_id)
