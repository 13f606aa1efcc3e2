"""Whose store is whose: where the reuse of a request ended, as far as all assignments of stores to requests agree.

Over a stretch of a stream every fresh dense device store is explained by exactly one request, seen or not. Of a request's
component (requests that share stores) every cover is asked: what all of them say is known, and where two that both fit
differ, both are handed out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from .completeness import around
from .cover import Bounded, Budget, Cover, Covers, StoreId, stores_of
from .gaps import gap_of
from .outcome import Completeness, Outcome, Result, Said, Share, Support, Why, result_of
from .ownership import Ownership
from .path import Path
from .stream import UNKNOWN, Placed, Stream
from .values import Key, Limits, Request, RequestId

UNSURE_MAX = 1 << 10
"""Requests with a gap in their record that are looked at; where they are more the record is no ground for elimination."""

SOLVED_MAX = 1 << 12
"""Components of which it is remembered whether they have a cover."""


class Account:
    """The account of some streams that serve the same requests."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._ownership = Ownership(self._limits)
        self._solved: dict[tuple[tuple[RequestId, int], ...], bool] = {}

    def add(self, stream: Stream) -> None:
        """Take a stream, once."""
        self._ownership.add(stream)

    def note(self, request: Request) -> None:
        """Take a request, or what more is known of it."""
        self._ownership.note(request)
        for number in range(request.unseen):
            self._ownership.note(_sibling(request, number))

    def drop(self, name: RequestId) -> None:
        """Forget a request: it was served elsewhere."""
        self._ownership.drop(name)

    def renew(self) -> None:
        """Look for all paths anew: more is known of how a stream's engine stores."""
        for request in list(self._ownership.requests.values()):
            self._ownership.note(request)
        self._solved.clear()

    def forget(self, before_unix_nanos: int) -> None:
        """Let go of what ended before a time."""
        self._ownership.forget(before_unix_nanos)
        self._solved.clear()

    def outcome(self, name: RequestId) -> Outcome:
        """What can be said of a request that was noted. Ask when all requests that overlap it had time to be noted."""
        own = self._ownership
        own.refresh()
        request = own.requests[name]
        gap = self._gap(request)
        if gap:
            return Outcome(request=name, said=Said.OPEN, why=gap)
        members = own.component(name)
        if members is None or not own.bounded.isdisjoint(members):
            return Outcome(request=name, said=Said.OPEN, why=Why.BOUNDED, component=len(members or ()))
        question = Question(own, members, self._limits)
        try:
            outcome = self._say(request, question)
            return (
                Outcome(request=name, said=Said.OPEN, why=Why.LATE) if self._unconfirmed(outcome, request) else outcome
            )
        except Bounded:
            return Outcome(request=name, said=Said.OPEN, why=Why.BOUNDED, component=len(members))

    # --- the answer ---------------------------------------------------------------------------------

    def _say(self, request: Request, question: Question) -> Outcome:
        name, component = request.id, len(question.members)
        if not question.paths[name]:
            return Outcome(request=name, said=Said.OPEN, why=Why.NO_PATH, component=component)
        cover = question.covers.find()
        if cover is None:
            return Outcome(request=name, said=Said.OPEN, why=Why.NO_COVER, component=component)
        seen = question.alternatives(name, cover, question.covers)
        anyone = question.alternatives(name, cover, question.open)
        if len(anyone) == len(seen):
            return self._outcome(request, question, seen, Support.OWN, None)
        completeness = self._completeness(request)
        if self._limits.elimination and completeness.whole and self._all_shown(question.members):
            return self._outcome(request, question, seen, Support.ELIMINATION, completeness)
        return self._outcome(request, question, anyone, Support.OWN, completeness)

    def _unconfirmed(self, outcome: Outcome, request: Request) -> bool:
        """Whether it is said that a request stored nothing, and its own store may still be on its way."""
        if outcome.said is not Said.AGREED or outcome.results[0].stored_unix_nanos is not None:
            return False
        streams = [self._ownership.streams[index] for index in self._ownership.streams_of(request)]
        last = request.first + self._limits.tolerance_nanos
        return all(stream.confirmed_unix_nanos <= last for stream in streams)

    def _outcome(
        self,
        request: Request,
        question: Question,
        covers: Sequence[Cover],
        support: Support,
        completeness: Completeness | None,
    ) -> Outcome:
        """``covers``: one for each result of the request."""
        name = request.id
        paths = [cover[name] for cover in covers]
        results = [self._result(path, question.paths[name]) for path in paths]
        known = tuple(result for result in results if result is not None)
        counts = {(result.cached_blocks, result.first_key is None) for result in known}
        said, why = Said.AGREED, Why.NONE
        if len(known) < len(results):
            said, why = (Said.AMBIGUOUS, Why.TWO_COVERS) if known else (Said.OPEN, Why.UNCOUNTED)
        elif len(known) > 1:
            said = Said.COUNT if len(counts) == 1 else Said.AMBIGUOUS
            why = Why.NONE if said is Said.COUNT else Why.TWO_COVERS
        if said is Said.AMBIGUOUS and completeness is not None and support is Support.OWN:
            why = Why.INCOMPLETE
        return Outcome(
            request=name,
            said=said,
            why=why,
            results=known,
            all_known=len(known) == len(results),
            support=support,
            component=len(question.members),
            completeness=completeness,
            covers=self._shares(covers[0], covers[-1]) if len(covers) > 1 else (),
        )

    def _result(self, path: Path, among: Sequence[Path]) -> Result | None:
        if path.hit is None or path.hit.blocks == UNKNOWN:
            return None
        stream = self._ownership.streams[path.stream]
        paths = [one for one in among if result_of(one) == result_of(path)]
        alike = [one.hit for one in paths if one.hit is not None]
        return Result(
            stream=stream.name,
            block_size=stream.block_size,
            cached_blocks=path.hit.blocks,
            first_key=path.hit.key,
            chain=_shared_beginning([one.chain for one in paths]),
            last_hit_key=path.above if all(one.above == path.above for one in paths) else None,
            early=min(hit.early for hit in alike),
            late=max(hit.late for hit in alike),
            position=min(hit.position for hit in alike),
            loaded_blocks=path.loaded,
            loaded_blocks_max=_loadable(path, stream),
            exact=not stream.other_sizes,
            stored_unix_nanos=stream.store(path.stores[0]).unix_nanos if path.chain and path.stores else None,
        )

    def _shares(self, first: Cover, second: Cover) -> tuple[tuple[Share, ...], ...]:
        differing = [name for name in first if _differ(first[name], second[name])]
        return tuple(tuple(self._share(name, cover[name]) for name in differing) for cover in (first, second))

    def _share(self, name: RequestId, path: Path) -> Share:
        if path.hit is None:
            return Share(name, None, None, ())
        stream = self._ownership.streams[path.stream]
        blocks = None if path.hit.blocks == UNKNOWN else path.hit.blocks
        return Share(name, stream.name, blocks, tuple(stream.store(number).ordinal for number in path.stores))

    def _all_shown(self, members: Sequence[RequestId]) -> bool:
        """Whether the record shows all that the requests have stored that lived beside some, and these themselves.

        An idle rank that has not gone on is no doubt, where another one shows the request.
        """
        own = self._ownership
        if len(own.unsure) > UNSURE_MAX:
            return False
        alive = [own.requests[member] for member in members]
        first, last = min(one.low for one in alive), max(one.end for one in alive)
        streams = {stream for one in alive for stream in one.streams}
        for name, why in own.unsure.items():
            one = own.requests[name]
            beside = one.low <= last and one.end >= first and not streams.isdisjoint(one.streams)
            if beside and not (why is Why.LATE and len(one.streams) > 1):
                return False
        return True

    # --- what keeps from answering ------------------------------------------------------------------

    def _gap(self, request: Request) -> Why:
        """Why nothing is asked: no stream, a record with a hole or too short, or none that goes on behind the prefill.

        Of several ranks an idle one need not go on: that it was not there may follow from what another one shows.
        """
        own = self._ownership
        gaps = [gap_of(request, own.streams[index], self._limits.tolerance_nanos) for index in own.streams_of(request)]
        if not gaps:
            return Why.NO_STREAM
        late = all(gap is Why.LATE for gap in gaps)
        return next((gap for gap in gaps if gap and (late or gap is not Why.LATE)), Why.NONE)

    def _completeness(self, request: Request) -> Completeness:
        own = self._ownership
        parts = [
            around(request, own.streams[index], self._limits, partial(self._explained, index))
            for index in own.streams_of(request)
        ]
        return Completeness(
            stores=sum(part.stores for part in parts),
            unexplained=tuple(ordinal for part in parts for ordinal in part.unexplained),
            before=sum(part.before for part in parts),
            unexplained_before=sum(part.unexplained_before for part in parts),
            share_max=self._limits.unexplained_share_max,
        )

    def _explained(self, index: int, placed: Placed) -> bool:
        """Whether a store lies on a path of a request whose component has a cover."""
        own = self._ownership
        owners = own.owners.get((index, placed.number))
        if not owners:
            return False
        members = own.component(next(iter(owners)))
        if members is None or not own.bounded.isdisjoint(members):
            return False
        state = tuple(sorted((member, id(own.paths[member])) for member in members))
        if len(self._solved) > SOLVED_MAX:
            self._solved.clear()
        if state not in self._solved:
            try:
                self._solved[state] = Question(own, members, self._limits).covers.find() is not None
            except Bounded:
                self._solved[state] = False
        return self._solved[state]


class Question:
    """One component: its paths, its covers where all is seen, and where requests may be unseen."""

    def __init__(self, ownership: Ownership, members: Sequence[RequestId], limits: Limits) -> None:
        self.members = members
        self.paths: Mapping[RequestId, Sequence[Path]] = ownership.possible(members)
        stores: dict[StoreId, int] = {
            store: ownership.streams[store[0]].store(store[1]).batch
            for member in members
            for path in ownership.paths[member]
            for store in stores_of(path)
        }
        requests = {member: ownership.requests[member] for member in members}
        budget = Budget(limits.steps_max)
        self.covers = Covers(requests, self.paths, stores, limits, budget)
        self.open = Covers(requests, self.paths, {}, limits, budget)

    def alternatives(self, name: RequestId, cover: Cover, covers: Covers) -> list[Cover]:
        """For each result that a request has in some cover one that has it, the given one first. Raises `Bounded`."""
        found = {result_of(cover[name]): cover}
        others: dict[tuple[int, int, int | None], list[Path]] = {}
        for path in self.paths[name]:
            others.setdefault(result_of(path), []).append(path)
        for result, paths in others.items():
            if result not in found and (another := covers.find({name: paths})) is not None:
                found[result] = another
        return list(found.values())


def _differ(first: Path, second: Path) -> bool:
    return result_of(first) != result_of(second) or first.stores != second.stores


def _shared_beginning(chains: Sequence[tuple[Key, ...]]) -> tuple[Key, ...]:
    """What several chains begin with."""
    first = chains[0]
    shared = min(len(chain) for chain in chains)
    return first[: next((at for at in range(shared) if any(chain[at] != first[at] for chain in chains)), shared)]


def _loadable(path: Path, stream: Stream) -> int:
    if not stream.habits.connector or not path.stores:
        return 0
    return path.loaded or len(stream.store(path.stores[0]).keys)


def _sibling(request: Request, number: int) -> Request:
    """One of the siblings that were not seen: the same prompt at the same time, with an answer of any length."""
    return Request(
        id=RequestId(request.id + b"/" + str(number).encode()),
        streams=request.streams,
        prompt_tokens=request.prompt_tokens,
        completion_tokens=None,
        low=request.low,
        high=request.high,
        first=request.first,
        end=request.end,
        elsewhere=True,
    )
