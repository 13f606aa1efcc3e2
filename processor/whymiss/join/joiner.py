"""Hold the spans of a request until they are complete, overdue or too many.

The spans of one request come from several processes, each with its own batch exporter, so they
arrive up to five seconds apart (``OTEL_BSP_SCHEDULE_DELAY``). They are kept together by trace id and,
because offload tiers start traces of their own, by request id and by the links of their spans. A group is
complete when the engine's span is there (both halves' of a disaggregated pair) and every role that recent
requests of that service had; it then lingers a little, and it is released at the latest when its hold ends.

Over-joining is harmless here: which span belongs to which lookup is decided later, from all of them.
Time is a parameter. The joiner never reads a clock, calls back or logs.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator

from ..config import JoinConfig
from ..model import Envelope, JoinOutcome, Late, Released, ReleaseReason, Role, Span
from .groups import (
    HALF,
    SERVICES_OF_GROUP_MAX,
    Company,
    Open,
    Service,
    company_of,
    linked_to,
    names_of,
    service_of,
    span_order,
)
from .past import Past, Remembered

SPAN_OVERHEAD_BYTES = 1024
"""What a held span is counted as beside its bytes (measured below it: tests/bench/bench_join.py)."""


SERVICES_MAX = 1024
"""Kinds of engines whose companions are remembered; the one unseen for longest is forgotten first."""


_HALVES = 2
"""Engine spans of a disaggregated request."""


class _Habits:
    """What the requests of one service had, and when each was last seen with one."""

    __slots__ = ("known_from", "seen")

    def __init__(self, known_from: float) -> None:
        self.known_from = known_from
        self.seen: dict[Company, float] = {}


class Joiner:
    """Hold spans; release them together. One task owns it.

    Call ``expire`` before ``accept`` at the same instant, and neither with a time before the last.

    Groups wait in queues that are in order by themselves, because a hold and a linger always last equally
    long: ``_holding`` by arrival and ``_lingering`` by completion. Only groups that were taken back wait in a heap.
    """

    def __init__(self, config: JoinConfig) -> None:
        self._config = config
        self._by_trace: dict[bytes, Open] = {}
        self._by_request: dict[str, Open] = {}
        self._holding: deque[Open] = deque()
        self._lingering: deque[tuple[float, Open]] = deque()
        self._again: list[tuple[float, int, Open]] = []
        self._counter = 0
        self._past = Past(config)
        self._habits: OrderedDict[Service, _Habits] = OrderedDict()
        self.open_groups = 0
        self.held_spans = 0
        self.held_bytes = 0
        self.duplicates = 0
        self._tickets: dict[int, int] = {}
        self._envelopes: dict[int, int] = {}

    # --- the four members -----------------------------------------------------------------------

    def accept(self, spans: Iterable[Span], now: float) -> list[JoinOutcome]:
        """Take spans; returns what left because of them (late ones, and the oldest over a limit)."""
        outcomes: list[JoinOutcome] = []
        touched: dict[int, Open] = {}
        for span in spans:
            missed = self._missed(span, now)
            if missed is not None:  # guard: join-late
                self._learn(missed.services, company_of([span] if span.says else []), now)  # guard: join-late-learnt
                outcomes.append(Late(span))
                continue
            if span.role is Role.ENGINE:
                self._know(service_of(span), now)
            group = self._group_of(span, now)
            self._hold(group, span)
            touched[id(group)] = group
        # Once for all spans of a group that came together, whatever their order.
        for group in {id(group.root): group.root for group in touched.values()}.values():
            self._linger(group, now)
        outcomes.extend(self.shed(self._config.open_bytes_max, now))
        return outcomes

    def expire(self, now: float) -> list[JoinOutcome]:
        """Release every group whose time has come."""
        outcomes: list[JoinOutcome] = []
        while (due := self._next()) is not None and self._wake(due) <= now:
            overdue = now >= due.arrived + self._config.hold_seconds
            outcomes.append(self._release(due, now, ReleaseReason.HOLD if overdue else ReleaseReason.COMPLETE))
        return outcomes

    def shed(self, bytes_max: int, now: float) -> list[JoinOutcome]:
        """Release the oldest groups early, until no more than so many bytes are held."""
        outcomes: list[JoinOutcome] = []
        # guard: join-shed-spans, join-shed-bytes
        while self.held_spans > self._config.open_spans_max or self.held_bytes > bytes_max:
            oldest = self._next_by_arrival()
            if oldest is None:
                break
            outcomes.append(self._release(oldest, now, ReleaseReason.SHED))
        return outcomes

    def drain(self) -> list[JoinOutcome]:
        """Release all groups at shutdown."""
        places = [*self._holding, *(group for _, _, group in self._again)]
        waiting = sorted({id(one.root): one.root for one in places}.values(), key=lambda group: group.arrived)
        return [
            self._release(group, group.arrived + self._config.hold_seconds, ReleaseReason.DRAIN)
            for group in waiting
            if not group.released
        ]

    @property
    def next_deadline(self) -> float | None:
        """When `expire` next has work."""
        due = self._next()
        return None if due is None else self._wake(due)

    @property
    def oldest_arrived(self) -> float | None:
        """When the group that is held longest began, on the clock of ``accept``."""
        oldest = self._next_by_arrival()
        return None if oldest is None else oldest.arrived

    # --- and the one for evidence that is still on its way ------------------------------------------

    def hold_on(self, released: Released, arrived: float, now: float) -> bool:
        """Take a completed group back until its hold ends; False when that is already over."""
        overdue = arrived + self._config.hold_seconds
        if now >= overdue or released.reason is not ReleaseReason.COMPLETE:  # guard: join-hold-on, join-hold-on-late
            return False
        group = Open(arrived)
        self.open_groups += 1
        for span in released.spans:
            self._hold(group, span)
        self._counter += 1
        heapq.heappush(self._again, (overdue, self._counter, group))
        return True

    @property
    def remembered_bytes(self) -> int:
        """Bytes of what is kept of released requests."""
        return self._past.nbytes

    def holds(self, ticket: int) -> bool:
        """Whether a span that came with this ticket is held."""
        return ticket in self._tickets

    # --- inside -----------------------------------------------------------------------------------

    def _wake(self, group: Open) -> float:
        until = group.lingers_until
        return group.arrived + self._config.hold_seconds if until is None else until

    def _next(self) -> Open | None:
        """The group that is due first, over the heads of the three queues."""
        # A group that another one took in keeps its places: they stand for the whole.
        while self._holding and self._holding[0].root.released:
            self._holding.popleft()
        while self._lingering and _is_over(*self._lingering[0]):
            self._lingering.popleft()
        while self._again and self._again[0][2].root.released:
            heapq.heappop(self._again)
        heads = [self._holding[0].root] if self._holding else []
        if self._lingering:
            heads.append(self._lingering[0][1].root)
        if self._again:
            heads.append(self._again[0][2].root)
        # A group that lingers waits in both queues; its wake is the earlier of the two.
        return min(heads, key=self._wake, default=None)

    def _missed(self, span: Span, now: float) -> Remembered | None:
        """The released request that a span comes too late for."""
        known = self._past.of_trace(span.trace_id, now)
        if known is not None and span.trace_id not in self._by_trace:
            if span.span_id in known.span_ids:  # guard: join-late-repeated
                return known
            # A trace may hold many requests, minutes apart: another engine span is another request.
            # guard: join-late-engine, join-late-time
            return known if span.role is not Role.ENGINE and known.meets(span, now) else None
        if span.role is Role.ENGINE or any(True for _ in self._open_groups(span)):  # guard: join-late-open
            return None
        return self._past.met_elsewhere(span, now)

    def _open_groups(self, span: Span) -> Iterator[Open]:
        """The open groups that a span belongs to; some may come twice."""
        for trace_id in (span.trace_id, *linked_to(span)):  # guard: join-linked
            if (group := self._by_trace.get(trace_id)) is not None:
                yield group
        for name in names_of(span):
            if (group := self._by_request.get(name)) is not None:
                yield group

    def _group_of(self, span: Span, now: float) -> Open:
        found: list[Open] = []
        for group in self._open_groups(span):
            if group not in found:
                found.append(group)
        if not found:
            group = Open(now)
            self._holding.append(group)
            self.open_groups += 1
            return group
        group = max(found, key=lambda one: len(one.spans))
        for other in found:
            if other is not group:  # guard: join-merge
                self._merge(group, other)
        return group

    def _index(self, group: Open, span: Span) -> None:
        for trace_id in (span.trace_id, *linked_to(span)):
            self._by_trace[trace_id] = group
        for name in names_of(span):
            self._by_request[name] = group

    def _merge(self, group: Open, other: Open) -> None:
        """Make two groups one: the smaller's spans move, so that each moves a logarithmic number of times."""
        self.open_groups -= 1
        for span in other.spans:
            self._index(group, span)
        group.absorb(other)

    def _hold(self, group: Open, span: Span) -> None:
        if not group.add(span):
            self.duplicates += 1
            return
        # Only what is held: on release the index is emptied by the held spans' names.
        self._index(group, span)
        if span.ticket:
            self._tickets[span.ticket] = self._tickets.get(span.ticket, 0) + 1
        self.held_bytes += len(span.raw) + SPAN_OVERHEAD_BYTES
        self.held_spans += 1
        # One that many spans came in is held once.
        sharers = self._envelopes.get(id(span.envelope), 0)
        self._envelopes[id(span.envelope)] = sharers + 1
        if not sharers:
            self.held_bytes += _size_of(span.envelope)

    def _linger(self, group: Open, now: float) -> None:
        """Once all that requests have here has come, wait only a little longer."""
        # guard: join-engine, join-halves
        if not group.engines or (HALF in group.company and group.engines < _HALVES):
            return
        if len(group.services) > SERVICES_OF_GROUP_MAX:
            return
        # guard: join-all-services
        if not all(self._is_complete(service, group.company, now) for service in group.services):
            return
        # guard: join-linger-hold
        wake = min(group.arrived + self._config.hold_seconds, now + self._config.linger_seconds)
        if wake != group.lingers_until:
            group.lingers_until = wake
            self._lingering.append((wake, group))

    def _is_complete(self, service: Service, company: set[Company], now: float) -> bool:
        habits = self._habits.get(service)
        # Until a first hold has passed, nobody knows yet which companions requests have here.
        if habits is None or now < habits.known_from:  # guard: join-hold-known
            return False
        recent = now - self._config.remembered_seconds
        # guard: join-roles, join-habits-change
        return all(one in company for one, seen in habits.seen.items() if seen >= recent)

    def _know(self, service: Service, now: float) -> _Habits:
        habits = self._habits.get(service)
        if habits is None:
            habits = self._habits[service] = _Habits(now + self._config.hold_seconds)
            if len(self._habits) > SERVICES_MAX:
                self._habits.popitem(last=False)
        else:
            self._habits.move_to_end(service)
        return habits

    def _learn(self, services: Iterable[Service], company: set[Company], now: float) -> None:
        for service in services:
            seen = self._know(service, now).seen
            seen.update(dict.fromkeys(company, now))

    def _next_by_arrival(self) -> Open | None:
        self._next()
        heads = [self._holding[0].root] if self._holding else []
        if self._again:
            heads.append(self._again[0][2].root)
        return min(heads, key=lambda group: group.arrived, default=None)

    def _release(self, group: Open, now: float, reason: ReleaseReason) -> Released:
        group.released = True
        self.open_groups -= 1
        spans = tuple(sorted(group.spans, key=span_order))  # guard: join-again-order
        self.held_spans -= len(spans)
        self.held_bytes -= sum(len(span.raw) + SPAN_OVERHEAD_BYTES for span in spans)
        for span in spans:
            self._let_envelope_go(span.envelope)
            if span.ticket:
                self._let_go(span.ticket)
            for trace_id in (span.trace_id, *linked_to(span)):
                if self._by_trace.get(trace_id) is group:
                    del self._by_trace[trace_id]
            for name in names_of(span):
                if self._by_request.get(name) is group:
                    del self._by_request[name]
        services = frozenset(group.services)
        self._learn(services, company_of([span for span in spans if span.says]), now)  # guard: join-silent-companion
        # Each late span teaches for all of them: a request of very many kinds of engines teaches once, here.
        few = services if len(services) <= SERVICES_OF_GROUP_MAX else frozenset()
        self._past.remember(spans, few, now)
        return Released(spans, reason, group.arrived)

    def _let_envelope_go(self, envelope: Envelope) -> None:
        self._envelopes[id(envelope)] -= 1
        if not self._envelopes[id(envelope)]:
            del self._envelopes[id(envelope)]
            self.held_bytes -= _size_of(envelope)

    def _let_go(self, ticket: int) -> None:
        self._tickets[ticket] -= 1
        if not self._tickets[ticket]:
            del self._tickets[ticket]


def _is_over(wake: float, group: Open) -> bool:
    """Whether a place in the queue of those that linger stands for nothing any more."""
    return group.root.released or group.root.lingers_until != wake


def _size_of(envelope: Envelope) -> int:
    return len(envelope.resource) + len(envelope.scope)
