"""What routers and tiers had promised of the worker that served a request, and when."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...model import FleetView, Moment, Reason, Request, RouteDecision, Span, StreamId
from ..requests.workers import Workers


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """A routing decision as far as it concerns one stream.

    ``route`` promises nothing (``predicted_blocks`` is absent) where the promise was about another
    worker; ``gap`` says why it is not known what was promised.
    """

    route: RouteDecision | None = None
    at: Moment | None = None
    gap: Reason = Reason.NONE
    best_is_elsewhere: bool = True


class PromiseReader:
    """Ties routing decisions to streams. ``tolerance`` is how far clocks may differ, in nanoseconds."""

    def __init__(self, workers: Workers, fleet: FleetView, tolerance: int) -> None:
        self._workers = workers
        self._fleet = fleet
        self._tolerance = tolerance

    def of(self, request: Request, stream: StreamId | None, looked: int, *, expected: bool) -> Promise:
        """The decision on a request that was looked up at a time (the latest possible).

        ``expected`` says that a router on the way promises: then a missing promise was lost.
        """
        if not request.routes and not expected:
            return Promise()
        spoken = [(span, said) for span in request.routes for said in span.says if isinstance(said, RouteDecision)]
        promising = [pair for pair in spoken if pair[1].predicted_blocks is not None]
        if not promising:
            missing = Reason.PARTIAL_TRACE if expected else Reason.NONE  # guard: promise-lost
            anytime = Moment(earliest_unix_nanos=0, latest_unix_nanos=looked + self._tolerance)
            return self._promise(_latest(spoken), stream, at=anytime, gap=missing)
        own = [pair for pair in promising if self._concerns(pair[1], stream)]
        unclear = [pair for pair in promising if self._concerns(pair[1], stream) is None]
        chosen = _latest(own) or _latest(unclear)  # guard: promise-own-first
        if chosen is None:
            foreign = _latest(promising)
            assert foreign is not None, "there is a promise"
            silent = msgspec.structs.replace(foreign[1], predicted_blocks=None)  # guard: promise-other-worker
            return self._promise((foreign[0], silent), stream, at=None, gap=Reason.NONE)
        begin, end = self._decided(request, *chosen, looked)
        gap = Reason.NONE if own else Reason.NO_WORKER  # guard: promise-name-unknown
        if begin > end:
            # Decided after the lookup: these clocks differ by more than they may.
            begin, gap = 0, gap or Reason.CLOCK_SKEW  # guard: promise-skew
        return self._promise(chosen, stream, at=Moment(earliest_unix_nanos=begin, latest_unix_nanos=end), gap=gap)

    def _decided(self, request: Request, span: Span, said: RouteDecision, looked: int) -> tuple[int, int]:
        """The bounds of a decision in time.

        One that is made before its span begins is made after the request came to whatever called the router.
        """
        begin, end = span.start_unix_nanos, min(span.end_unix_nanos, looked)  # guard: promise-before-lookup
        chosen = _choice_before(request, span) if said.made_before else None
        if chosen is not None:  # guard: promise-choice-seen
            begin, end = chosen.start_unix_nanos, min(chosen.end_unix_nanos, looked)
        elif said.made_before:  # guard: promise-made-before
            begin, end = 0, min(begin, looked)
            callers = [
                one.start_unix_nanos
                for one in (*request.routes, *request.gateways)
                if one.span_id != span.span_id and one.start_unix_nanos <= end
            ]
            begin = min(callers, default=self._tolerance)  # guard: promise-made-after-call
        return begin - self._tolerance, end + self._tolerance  # guard: promise-tolerance-begin, promise-tolerance-end

    def _promise(
        self, pair: tuple[Span, RouteDecision] | None, stream: StreamId | None, *, at: Moment | None, gap: Reason
    ) -> Promise:
        route = pair[1] if pair is not None else None
        best = route.best_worker if route is not None else None
        here = best is not None and self._names(best, None, stream) is True
        return Promise(route=route, at=at, gap=gap, best_is_elsewhere=not here)  # guard: promise-best-here

    def _concerns(self, said: RouteDecision, stream: StreamId | None) -> bool | None:
        """Whether a decision picked the stream; ``None`` where its name for a worker is not known."""
        return True if said.worker is None else self._names(said.worker, said.rank, stream)

    def _names(self, name: str, rank: int | None, stream: StreamId | None) -> bool | None:
        worker, suffixed = self._workers.known(self._fleet.streams()).find(name)
        if worker is None or stream is None:
            return None  # guard: promise-unknown-name
        rank = suffixed if rank is None else rank
        return worker == stream.worker and (rank is None or rank == stream.rank)  # guard: promise-rank


def _choice_before(request: Request, span: Span) -> Span | None:
    """The span of the choice that a decision rests on: the last under the same parent that ended before it was sent."""
    # guard: choice-parent, choice-before, choice-said
    choices = [
        one
        for one in request.routes
        if one.trace_id == span.trace_id
        and one.parent_span_id == span.parent_span_id
        and one.end_unix_nanos <= span.start_unix_nanos
        and any(isinstance(said, RouteDecision) and said.choice for said in one.says)
    ]
    return max(choices, key=lambda one: one.end_unix_nanos, default=None)


def _latest(spoken: Sequence[tuple[Span, RouteDecision]]) -> tuple[Span, RouteDecision] | None:
    """The last decision that names a worker, or the last of those that name none."""
    # guard: latest-named
    return max(spoken, key=lambda pair: (pair[1].worker is not None, pair[0].end_unix_nanos), default=None)
