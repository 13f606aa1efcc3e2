"""Where reuse ended: the readings of a request that its evidence allows. The one place where they are made.

A reading says which stream served the request, how many of its tokens were cached, which blocks it
expected from the first missed one on, and at which position of the stream it looked. The engine's own
word (a lookup span) gives one reading. Without it the KV events are read: a prefill stores its new blocks
as a chain that ends at the prompt's last full block, so the chain's first depth is where reuse ended, and
in an unbroken record the absence of any chain is a full hit. Several readings are kept apart; the
caller judges each and speaks only where they agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain as joined
from typing import TypeAlias

import msgspec

from ..config import AttributionConfig
from ..model import SECOND, EngineRequest, FleetView, Grade, Lookup, Reason, Request, Store, StreamId, StreamView
from .requests.report import CLOCK_GRAIN_NANOS, engine_says, lookup_bounds, lookup_says
from .requests.request_log import RequestLog


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
    lookup_seen: bool = False
    decodes: tuple[bytes, ...] = ()
    """As in ``Request``: their stores are the request's own doing."""


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """All readings with their grade, or the gap that left none."""

    grade: Grade
    readings: tuple[Reading, ...] = ()
    gap: Reason = Reason.NONE
    block_size: int | None = None


_Whose: TypeAlias = tuple[StreamId, int, tuple[bytes, ...]]
"""A stream, the tokens a block of it, and the decode halves of the request that is read."""


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What one stream shows of a request: its possible chains, the full hit where that may be it, or a gap.

    ``solid`` says that one of the chains is surely its own.
    """

    chains: tuple[Reading, ...] = ()
    solid: bool = False
    full: Reading | None = None
    gap: Reason = Reason.NONE


class Reader:
    """Reads requests against the record of their workers' caches."""

    def __init__(self, config: AttributionConfig, fleet: FleetView, log: RequestLog) -> None:
        self._config = config
        self._fleet = fleet
        self._log = log
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
        seen = [self._of_stream(request, said, record, size) for record in records]
        solid = any(one.solid for one in seen)
        # The rank may be taken from the only chain that fits: then an idle rank, or one on which the
        # request would have been a full hit, is no rival.
        # guard: derived-idle-rank, derived-idle-only
        gaps = [one.gap for one in seen if one.gap and not (solid and one.gap is Reason.EVIDENCE_LATE)]
        if gaps:  # guard: derived-rank-gap
            return Readings(grade=Grade.NONE, gap=gaps[0], block_size=size)
        found = [reading for one in seen for reading in one.chains]
        full = [one.full for one in seen if one.full is not None and not solid]  # guard: derived-full-rival
        if full and len(records) > 1:
            full = [msgspec.structs.replace(full[0], stream=None)]  # guard: derived-full-rank
        readings = self._agreeing([*found, *full[:1]], cached_tokens)
        if not readings:
            # guard: derived-nothing-agrees
            return Readings(grade=Grade.NONE, gap=Reason.AMBIGUOUS_CHAIN, block_size=size)
        grade = Grade.DERIVED if len(readings) == 1 else Grade.CONSENSUS  # guard: derived-grade
        return Readings(grade=grade, readings=tuple(readings), block_size=size)

    def _agreeing(self, readings: Sequence[Reading], cached_tokens: int | None) -> list[Reading]:
        if cached_tokens is None:
            return list(readings)
        return [reading for reading in readings if reading.cached_tokens == cached_tokens]  # guard: derived-agreeing

    def _of_stream(self, request: Request, said: EngineRequest, record: StreamView, size: int) -> _Seen:
        assert request.engine is not None, "checked by the caller"
        assert said.prompt_tokens is not None, "checked by the caller"
        earliest, latest, first_token = lookup_bounds(request.engine, said)
        begin, end = earliest - CLOCK_GRAIN_NANOS, first_token + CLOCK_GRAIN_NANOS
        coverage = record.coverage(begin, end)
        gap = coverage.gap_since(begin)
        if gap:  # guard: stream-begins
            return _Seen(gap=gap)
        blocks = said.prompt_tokens // size
        stores = record.stores_between(begin, end)
        # guard: stream-unplaced, stream-unplaced-reported
        if any(store.start is None and not store.reported for store in stores):
            return _Seen(gap=Reason.HISTORY_SHORT)
        certain, possible = self._chains(stores, blocks, latest)
        whose = record.stream, size, request.decodes
        chains = tuple([self._reading(whose, chain, earliest, latest) for chain in (*certain, *possible)])
        solid = [chain for chain in certain if not self._may_be_decoding(record, chain)]  # guard: stream-decoding
        # guard: stream-solid, stream-outnumbered
        if solid and not self._outnumbered(request, record.stream, size, solid):
            return _Seen(chains=chains, solid=True)
        full = self._full_hit(record, whose, said.prompt_tokens, earliest, latest)
        if chains:
            return _Seen(chains=chains, full=full)  # guard: stream-full-too
        if any(store.reported and _end(store) == blocks for store in stores):  # guard: stream-reported
            return _Seen(gap=Reason.LOOKUP_UNSEEN)
        if coverage.confirmed_unix_nanos <= end:  # guard: stream-unconfirmed
            return _Seen(gap=Reason.EVIDENCE_LATE)
        return _Seen(full=full)

    def _chains(
        self, stores: Sequence[Store], blocks: int, latest: int
    ) -> tuple[list[tuple[Store, ...]], list[tuple[Store, ...]]]:
        """Chains that end at the prompt's last full block: surely after the lookup, and perhaps after it."""
        fresh = [store for store in stores if not store.reported]  # guard: chains-reported
        certain: list[tuple[Store, ...]] = []
        possible: list[tuple[Store, ...]] = []
        for index, store in enumerate(fresh):
            chain = [store]
            for later in fresh[index + 1 :]:
                if _end(chain[-1]) >= blocks:  # guard: chains-full-stop
                    break
                # guard: chains-parent, chains-start
                if later.parent == chain[-1].keys[-1] and later.start == _end(chain[-1]):
                    chain.append(later)
            if _end(chain[-1]) != blocks:  # guard: chains-end
                continue
            sort = certain if store.unix_nanos > latest else possible  # guard: chains-certain
            if not any(_continues(known, chain) for known in (*certain, *possible)):  # guard: chains-tail
                sort.append(tuple(chain))
        return certain, possible

    def _reading(self, whose: _Whose, chain: Sequence[Store], earliest: int, latest: int) -> Reading:
        stream, size, decodes = whose
        start = chain[0].start or 0
        return Reading(  # guard: reading-latest
            stream=stream,
            cached_tokens=start * size,
            block_size=size,
            first=start,
            chain=tuple(joined.from_iterable([store.keys for store in chain])),
            last_hit_key=chain[0].parent,
            chain_known=True,
            position=chain[0].position,
            earliest=earliest,
            latest=max(earliest, min(latest, chain[0].unix_nanos)),
            decodes=decodes,
        )

    def _full_hit(self, record: StreamView, whose: _Whose, prompt_tokens: int, earliest: int, latest: int) -> Reading:
        stream, size, decodes = whose
        matchable = (prompt_tokens - 1) // size
        return Reading(
            stream=stream,
            cached_tokens=matchable * size,
            block_size=size,
            first=matchable,
            position=record.position_at(latest),
            earliest=earliest,
            latest=latest,
            decodes=decodes,
        )

    def _rivals(self, request: Request, stream: StreamId, size: int, chain: Sequence[Store]) -> int:
        """Other known requests of the stream for which this chain is as certain."""
        return self._log.claimants(request.subject, stream.worker, size, _end(chain[-1]), chain[0].unix_nanos)

    def _outnumbered(self, request: Request, stream: StreamId, size: int, chains: Sequence[Sequence[Store]]) -> bool:
        """Whether more requests claim these chains than there are chains."""
        claimants = max(self._rivals(request, stream, size, chain) for chain in chains)
        return claimants + 1 > len(chains)  # guard: rivals-number

    def _may_be_decoding(self, record: StreamView, chain: Sequence[Store]) -> bool:
        """Whether a single block may be one that another request filled while it decoded.

        A decode fill extends a tail that its own request stored. It cannot be one if that tail is older
        than a block of the slowest decode steps, or if the request that stored it is known to have ended.
        """
        store = chain[0]
        # guard: decoding-tail
        if len(chain) > 1 or len(store.keys) > 1 or store.parent_tail_unix_nanos is None or store.start is None:
            return False
        size = record.block_size() or 0
        age = store.unix_nanos - store.parent_tail_unix_nanos
        if age > size * round(self._config.decode_step_seconds_max * SECOND):  # guard: decoding-age
            return False
        worker = record.stream.worker
        # guard: decoding-ended
        return not self._log.ended_at(worker, size, store.start, store.parent_tail_unix_nanos, store.unix_nanos)

    def _block_size(self, records: Sequence[StreamView]) -> int | None:
        if self._config.block_size is not None:
            return self._config.block_size
        sizes = {size for record in records if (size := record.block_size()) is not None}
        return sizes.pop() if len(sizes) == 1 else None  # guard: size-agrees


def _end(store: Store) -> int:
    return (store.start or 0) + len(store.keys)


def _continues(known: Sequence[Store], chain: Sequence[Store]) -> bool:
    """Whether a chain is only the tail of one that is known already (a later chunk of one prefill)."""
    # guard: continues-same
    return len(chain) < len(known) and all(a is b for a, b in zip(known[-len(chain) :], chain, strict=True))
