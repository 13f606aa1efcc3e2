"""Where reuse ended: the readings of a request that its evidence allows. The one place where they are made.

A reading says which stream served the request, how many of its tokens were cached, which blocks it
expected from the first missed one on, and at which position of the stream it looked. The engine's own
word (a lookup span) gives one reading. Without it the stores of the stream are accounted for: what all assignments of stores
to requests agree on is one reading, and where they differ there is one for each way in which reuse may have ended.
Several readings are kept apart; the caller judges each and speaks only where they agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ..accounting import Outcome, Result, Why
from ..config import AttributionConfig
from ..model import SECOND, EngineRequest, FleetView, Grade, Lookup, Reason, Request, Store, StreamId, StreamView
from .accounts import Accounts
from .requests.report import CLOCK_GRAIN_NANOS, engine_says, lookup_bounds, lookup_says


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One way to understand a lookup.

    ``chain`` holds the expected keys from the first missed block (index ``first``) on; empty where
    nothing was missed or nothing is known. ``earliest`` and ``latest`` bound the lookup in time.
    """

    stream: StreamId | None
    cached_tokens: int
    block_size: int
    first: int
    chain: tuple[int, ...] = ()
    last_hit_key: int | None = None
    chain_known: bool = False
    position: int = 0
    undecided: bool = False
    """An event on the first missed key falls between the bounds of the position."""
    earliest: int
    latest: int
    stored_unix_nanos: int | None = None
    """When the request's own first block was stored, where that is known from events."""
    loads_unproven: bool = False
    """A count holds what a connector was to load, and nothing says that it came: a load that failed is not taken out."""
    speculative: bool = False
    """The engine is known to drop its last matched block for a draft model."""
    exact: bool = True
    """``False``: some tokens of the first missed block may have been found too, where ends of prompts are kept."""
    lookup_seen: bool = False
    decodes: tuple[bytes, ...] = ()
    """As in ``Request``: their stores are the request's own doing."""


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """All readings with their grade, or the gap that left none."""

    grade: Grade
    readings: tuple[Reading, ...] = ()
    gap: Reason = Reason.NONE
    block_size: int | None = None
    doubt: Reason = Reason.NONE
    """Where readings differ: the hole in a record before the lookup that may be why."""


class Reader:
    """Reads requests against the record of their workers' caches."""

    def __init__(self, config: AttributionConfig, fleet: FleetView, accounts: Accounts) -> None:
        self._config = config
        self._fleet = fleet
        self._accounts = accounts
        self._tolerance = round(config.clock_tolerance_seconds * SECOND)

    def read(self, request: Request, streams: Sequence[StreamId], gap: Reason, cached_tokens: int | None) -> Readings:
        """The readings of a request whose own stream is among ``streams``.

        ``gap`` says why there are no streams; ``cached_tokens`` is a count that some span reported.
        """
        lookup, records = lookup_says(request.lookup), [self._fleet.stream(stream) for stream in streams]
        if lookup is not None and lookup.cached_tokens is not None:  # guard: direct-cached-needed
            return self._direct(request, lookup, records, gap)
        if not records:  # guard: read-no-streams
            return Readings(grade=Grade.NONE, gap=gap, block_size=self._config.block_size)
        return self._derived(request, records, cached_tokens)

    # --- the engine's word ------------------------------------------------------------------------

    def _direct(self, request: Request, lookup: Lookup, records: Sequence[StreamView], gap: Reason) -> Readings:
        cached = lookup.cached_tokens or 0
        size = lookup.block_size or self._block_size(records)
        if size is None:  # guard: direct-size-unknown
            return Readings(grade=Grade.NONE, gap=gap or Reason.NO_EVENT_SOURCE)
        first = cached // size
        chain = lookup.expected_keys[first:]  # guard: direct-chain-from-miss
        if not chain and lookup.first_miss_key is not None:  # guard: direct-first-key
            chain = (lookup.first_miss_key,)
        span = request.lookup
        assert span is not None, "a direct reading has a lookup span"
        at = span.start_unix_nanos
        until = request.engine.end_unix_nanos if request.engine is not None else span.end_unix_nanos + self._tolerance
        readings = []
        for record in records:
            position, undecided = self._at_lookup(record, chain, at, max(at, until))
            readings.append(  # guard: direct-last-hit, direct-chain-known
                Reading(
                    stream=record.stream,
                    cached_tokens=cached,
                    block_size=size,
                    first=first,
                    chain=chain,
                    last_hit_key=lookup.expected_keys[first - 1] if 0 < first <= len(lookup.expected_keys) else None,
                    chain_known=bool(lookup.expected_keys),
                    position=position,
                    undecided=undecided,
                    earliest=at,
                    latest=at,
                    lookup_seen=True,
                    decodes=request.decodes,
                )
            )
        if len(readings) > 1:  # guard: direct-own-rank
            readings = self._own_rank(readings)
        if not readings:
            bare = Reading(
                stream=None,
                cached_tokens=cached,
                block_size=size,
                first=first,
                chain=chain,
                chain_known=bool(lookup.expected_keys),
                earliest=at,
                latest=at,
                lookup_seen=True,
                decodes=request.decodes,
            )
            return Readings(grade=Grade.DIRECT, readings=(bare,), gap=gap, block_size=size)
        return Readings(grade=Grade.DIRECT, readings=tuple(readings), block_size=size)

    def _at_lookup(self, record: StreamView, chain: Sequence[int], at: int, until: int) -> tuple[int, bool]:
        """The place of a lookup of known time in its stream's order of events, and whether it is undecided.

        Batches published at or before it had happened. If the request's own store can be found later,
        everything before the run of removals that leads up to it had happened too.
        """
        low = record.position_at(at)
        if not chain:
            return low, False
        key = chain[0]
        stores = record.stores_between(at, until)
        # guard: direct-own-store-reported
        own = next((store for store in stores if key in store.keys and not store.reported), None)
        if own is not None:  # guard: direct-own-store
            return own.position, False
        confirmed = record.confirmed_position(at)
        # guard: direct-undecided-late, direct-undecided-touched
        return low, confirmed is None or record.touched(key, low, confirmed)

    def _own_rank(self, readings: Sequence[Reading]) -> list[Reading]:
        """Of several ranks keep those whose events show the request's own store; all if none does."""
        showing = []
        for reading in readings:
            assert reading.stream is not None, "a reading of a rank has its stream"
            if reading.chain and reading.position > 0 and not reading.undecided:  # guard: rank-undecided
                record = self._fleet.stream(reading.stream)
                stores = record.stores_between(reading.earliest, reading.earliest + 60 * SECOND)
                # guard: rank-own-store
                if any(store.position == reading.position and reading.chain[0] in store.keys for store in stores):
                    showing.append(reading)
        return showing or list(readings)

    # --- the events' word -------------------------------------------------------------------------

    def _derived(self, request: Request, records: Sequence[StreamView], cached_tokens: int | None) -> Readings:
        said = engine_says(request.engine)
        if said is None or request.engine is None or said.prompt_tokens is None:  # guard: derived-prompt-length
            return Readings(grade=Grade.NONE, gap=Reason.NO_FIRST_MISS_KEY)
        size = self._block_size(records)
        if size is None:  # guard: derived-size-unknown
            return Readings(grade=Grade.NONE, gap=Reason.NO_EVENT_SOURCE)
        if said.prompt_tokens < size and any(record.other_sizes for record in records):  # guard: derived-short-parts
            # Parts of a block can be found there, and nothing that is published says how many.
            return Readings(grade=Grade.NONE, gap=Reason.AMBIGUOUS_CHAIN, block_size=size)
        if said.prompt_tokens < size:
            earliest, latest, _ = lookup_bounds(request.engine, said)
            short = Reading(  # guard: derived-short-rank
                stream=records[0].stream if len(records) == 1 else None,
                cached_tokens=0,
                block_size=size,
                first=0,
                earliest=earliest,
                latest=latest,
                decodes=request.decodes,
            )
            return Readings(grade=Grade.DERIVED, readings=(short,), block_size=size)
        earliest, latest, first_token = lookup_bounds(request.engine, said)
        begin, end = earliest - CLOCK_GRAIN_NANOS, first_token + CLOCK_GRAIN_NANOS
        for record in records:
            gap = record.coverage(begin, end).gap_since(begin)
            if gap and gap is not Reason.HISTORY_SHORT:  # guard: derived-rank-gap
                return Readings(grade=Grade.NONE, gap=gap, block_size=size)
        if any(self._announced(record, begin, end, said.prompt_tokens // size) for record in records):
            # What is announced again may hide that nothing was looked up.
            return Readings(grade=Grade.NONE, gap=Reason.LOOKUP_UNSEEN, block_size=size)
        outcome = self._accounts.outcome(request.engine, said, records)
        if outcome is None:
            return Readings(grade=Grade.NONE, gap=Reason.NO_EVENT_SOURCE, block_size=size)
        readings = self._accounted(request, said, outcome, cached_tokens)
        if not readings.readings and readings.gap is Reason.AMBIGUOUS_CHAIN:
            return msgspec.structs.replace(readings, gap=_broken(records, end) or readings.gap)
        return msgspec.structs.replace(readings, doubt=_broken(records, end))

    @staticmethod
    def _announced(record: StreamView, begin: int, end: int, blocks: int) -> bool:
        """Whether a session announced a chain that ends where the prompt's full blocks end."""
        return any(
            store.session and (store.start or 0) + len(store.keys) == blocks
            for store in record.stores_between(begin, end)
        )

    def _accounted(
        self, request: Request, said: EngineRequest, outcome: Outcome, cached_tokens: int | None
    ) -> Readings:
        """The readings of what accounting says of a request."""
        assert request.engine is not None, "checked by the caller"
        size = outcome.results[0].block_size if outcome.results else self._config.block_size
        if not outcome.results or not outcome.all_known:  # guard: derived-all-known
            return Readings(grade=Grade.NONE, gap=_GAPS.get(outcome.why, Reason.AMBIGUOUS_CHAIN), block_size=size)
        bounds = lookup_bounds(request.engine, said)
        # guard: derived-agreeing
        readings = [
            self._reading(request, result, bounds, cached_tokens)
            for result in outcome.results
            if cached_tokens is None or _agrees(result, cached_tokens)
        ]
        if not readings:  # guard: derived-nothing-agrees
            return Readings(grade=Grade.NONE, gap=Reason.AMBIGUOUS_CHAIN, block_size=size)
        grade = Grade.DERIVED if len(readings) == 1 else Grade.CONSENSUS  # guard: derived-grade
        return Readings(grade=grade, readings=tuple(readings), block_size=size)

    def _reading(
        self, request: Request, result: Result, bounds: tuple[int, int, int], cached_tokens: int | None
    ) -> Reading:
        """What a result means; of what is stored the leading part may have been loaded, as far as a count says."""
        earliest, latest, _ = bounds
        first = result.cached_blocks if cached_tokens is None else cached_tokens // result.block_size
        loaded = first - result.cached_blocks
        chain = result.chain[loaded:] if result.first_key is not None else ()
        if result.stored_unix_nanos is not None:
            latest = max(earliest, min(latest, result.stored_unix_nanos))  # guard: reading-latest
        return Reading(
            stream=result.stream,
            cached_tokens=result.cached_tokens if cached_tokens is None else cached_tokens,
            block_size=result.block_size,
            first=first,
            chain=chain,
            last_hit_key=result.chain[loaded - 1] if loaded and result.chain else result.last_hit_key,
            chain_known=bool(chain),
            position=result.position,
            stored_unix_nanos=result.stored_unix_nanos,
            loads_unproven=loaded > 0 and not self._fleet.stream(result.stream).tiers() and not request.offloads,
            # At the first block a lookup that was skipped stores what is resident, too.
            speculative=first > 0 and self._accounts.replays_last(result.stream),
            exact=result.exact or cached_tokens is not None,
            undecided=bool(chain) and self._is_undecided(result, chain[0]),
            earliest=earliest,
            latest=latest,
            decodes=request.decodes,
        )

    def _is_undecided(self, result: Result, key: int) -> bool:
        """Whether a lookup that was in an earlier round than its first store may have come before or after a change."""
        if result.early >= result.late:
            return False
        record, first = self._fleet.stream(result.stream), result.cached_blocks
        # guard: derived-undecided, derived-sibling
        return record.touched(key, result.early, result.late) or any(
            _is_sibling(store, result.last_hit_key, first, key) for store in record.stores_in(result.early, result.late)
        )

    def _block_size(self, records: Sequence[StreamView]) -> int | None:
        if self._config.block_size is not None:
            return self._config.block_size
        sizes = {size for record in records if (size := record.block_size()) is not None}
        return sizes.pop() if len(sizes) == 1 else None  # guard: size-agrees


_GAPS: Mapping[Why, Reason] = {
    Why.LATE: Reason.EVIDENCE_LATE,
    Why.HOLE: Reason.EVENTS_DROPPED,
    Why.SHORT: Reason.HISTORY_SHORT,
    Why.NO_STREAM: Reason.NO_EVENT_SOURCE,
}
"""What keeps accounting from an answer, in the words of verdicts; of the rest several chains fit, or none."""


def _is_sibling(store: Store, parent: int | None, depth: int, key: int) -> bool:
    """Whether a store put another block than ``key`` under a parent, at a depth."""
    if store.start is None or not store.start <= depth < store.start + len(store.keys):
        return False
    index = depth - store.start
    return store.keys[index] != key and (store.keys[index - 1] if index else store.parent) == parent


def _broken(records: Sequence[StreamView], end: int) -> Reason:
    """Why not every store around a lookup can have an explanation."""
    gaps = (record.coverage(end - BROKEN_NANOS, end).gap_since(end - BROKEN_NANOS) for record in records)
    return next((gap for gap in gaps if gap), Reason.NONE)


BROKEN_NANOS = 900 * SECOND
"""A hole that is longer ago is no reason."""


def _agrees(result: Result, cached_tokens: int) -> bool:
    """Whether a count of others can be that of a result: what a connector loaded is among it."""
    loaded = result.loaded_blocks_max * result.block_size
    return result.cached_tokens <= cached_tokens <= result.cached_tokens + max(loaded, 0)
