"""The accounts of the workers: what the record and the request log know, as accounting asks for it.

One account a worker, of all its ranks: requests of different workers never share a store. Batches are taken over from the
record when a verdict needs them, and let go when no request that is still held can need them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence

import msgspec

from ..accounting import Account, Batch, Habits, Limits, Outcome, Request, RequestId, Store, Stream
from ..model import SECOND, EngineRequest, FleetView, PublishedBatch, Residency, Span, StreamId, StreamView
from ..model import Store as Recorded
from .requests.report import lookup_bounds

KEPT_NANOS = 120 * SECOND
"""Stores are kept at least this long behind the newest batch: a request's spans come seconds after its end,"""

KEPT_STORES = 256
"""and so many in any case, for completeness is measured by the last ones,"""


STORE_BYTES = 700
KEY_BYTES = 220
"""What a store, and each of its blocks, are counted as."""

DEPTH_MAX = 256
"""Blocks of one depth that are looked at one by one; of more, one is taken to have been resident."""

KEPT_LONG_NANOS = 900 * SECOND
"""Of a stream that stores seldom."""

LEARNED_STORES = 8
"""Stores that continue a block, before a habit is learned from them,"""

LEARNED_SHARE = 0.8
"""and the share of them that must show it. An engine that does not drop its last matched block never does."""

LIVES_KEPT = 3
"""Former lives of a publisher that spans may still come of."""

RANKS_MAX = 16
"""Ranks that one request may have been served by."""

REQUESTS_MAX = 1 << 17
"""Requests in all accounts together; beyond it the one that was told of first goes."""

UNPLACED_WORKERS_MAX = 8
"""A request without a worker may have been served by any; in a larger fleet such a one is not counted as anybody's."""


class RecordResidence:
    """Residency on the device of the dense group, as a stream's record has it."""

    def __init__(self, record: StreamView) -> None:
        self._record = record

    def surely(self, key: int, position: int) -> bool:
        """Whether a block was certainly resident at a position."""
        return self._record.as_of((key,), position)[0].state is Residency.RESIDENT

    def maybe(self, key: int, first: int, last: int) -> Sequence[tuple[int, int]]:
        """Runs of positions in ``[first, last]``, both inclusive, at which a block may have been resident."""
        edges = [first, *(ordinal + 1 for ordinal in self._record.changes(key, first, last))]
        runs: list[tuple[int, int]] = []
        for begin, after in zip(edges, [*edges[1:], last + 1], strict=True):
            if begin >= after or self._surely_absent(key, begin):
                continue
            if runs and runs[-1][1] == begin - 1:
                runs[-1] = runs[-1][0], after - 1
            else:
                runs.append((begin, after - 1))
        return runs

    def _surely_absent(self, key: int, position: int) -> bool:
        state = self._record.as_of((key,), position)[0].state
        return state is Residency.EVICTED or (state is Residency.NEVER_SEEN and self._record.knows_all_held)

    def maybe_at_depth(self, depth: int, first: int, last: int) -> tuple[int, int] | None:
        """The first and the last position in ``[first, last]`` at which any block of a depth may have been resident."""
        if not self._record.knows_all_held:
            return first, last
        keys = self._record.keys_at_depth(depth, last, DEPTH_MAX)
        if keys is None:
            return first, last
        runs = [run for key in keys for run in self.maybe(key, first, last)]
        return (min(run[0] for run in runs), max(run[1] for run in runs)) if runs else None


class Life(msgspec.Struct):
    """One life of a publisher: from its first batch to the first one of the next life."""

    stream: Stream
    begins: int
    """In Unix nanoseconds on the publisher's clock,"""
    ends: int = 1 << 63
    """and when the next one began."""


class Followed:
    """One stream as its account follows it, a life at a time: an engine takes the spans that it has not sent along."""

    def __init__(self, record: StreamView, habits: Habits, account: Account) -> None:
        self.record = record
        self.lives: list[Life] = []
        self._habits = habits
        self._account = account
        self._taken = 0
        """The position up to which batches were taken over."""
        self._begun = 0
        self._continued = self._replayed = 0
        """Stores that continue a block, of several blocks; and those of them whose first block was resident."""

    @property
    def replays_last(self) -> bool:
        """Whether every hit ends one block short: a draft model drops the last matched block, which is stored again."""
        return self._habits.replays_last

    def follow(self) -> None:
        """Take over what was published since; nothing while the size of a block is not known."""
        record, size = self.record, self.record.block_size()
        if size is None:
            return
        if record.pairs and not self._habits.pairs:  # guard: accounts-pairs
            self._change(msgspec.structs.replace(self._habits, pairs=True))
        if self._taken < record.end:
            self._take(record, record.batches_from(self._taken), size)
        if self.lives:
            self.lives[-1].stream.other_sizes |= record.other_sizes
            # A batch without events says that there was none.
            self.lives[-1].stream.confirm(record.coverage(0, 0).confirmed_unix_nanos)

    def _take(self, record: StreamView, batches: Sequence[PublishedBatch], size: int) -> None:
        if not batches:
            return
        pending = list(reversed(record.stores_in(batches[0].first, batches[-1].after)))
        for batch in batches:
            stream = self._life(batch, size)
            if batch.lost_before:
                stream.lost()
            stores: list[Store] = []
            while pending and pending[-1].ordinal < batch.after:
                store = pending.pop()
                self._learn(store)
                stores.append(_store(store, stream.block_size))
            stream.append(
                Batch(unix_nanos=batch.unix_nanos, first=batch.first, after=batch.after, stores=tuple(stores))
            )
        self._taken = batches[-1].after

    def _learn(self, store: Recorded) -> None:
        """Learn from stores whether the last matched block is stored again; a declared habit is never unlearned."""
        if (
            self._habits.replays_last
            or self._habits.deferred
            or not store.start
            or len(store.keys) < 2
            or store.session
        ):
            return
        self._continued += 1
        self._replayed += self.record.as_of(store.keys[:1], store.position)[0].state is Residency.RESIDENT
        if self._continued >= LEARNED_STORES and self._replayed >= LEARNED_SHARE * self._continued:
            self._change(msgspec.structs.replace(self._habits, replays_last=True))

    def _change(self, habits: Habits) -> None:
        """Count anew with another habit. What was learned of one life holds for those before it."""
        self._habits = habits
        for life in self.lives:
            life.stream.habits = habits
        self._account.renew()

    def _life(self, batch: PublishedBatch, size: int) -> Stream:
        if self.lives and not batch.restarted_before:
            return self.lives[-1].stream
        record = self.record
        birth = batch.restarted_before or (not self._begun and record.knows_all_held)
        name = StreamId(f"{record.stream.worker}#{self._begun}", record.stream.rank)
        stream = Stream(name, RecordResidence(record), size, self._habits, from_birth=birth and not batch.lost_before)
        if self.lives:
            self.lives[-1].ends = batch.unix_nanos
        self.lives = [*self.lives[-LIVES_KEPT:], Life(stream, batch.unix_nanos if self._begun else 0)]
        self._begun += 1
        self._account.add(stream)
        return stream

    def names_at(self, end: int, tolerance: int) -> tuple[StreamId, ...]:
        """The lives in which a request can have been served that ended at a time."""
        return tuple(
            life.stream.name for life in self.lives if life.begins <= end + tolerance and life.ends >= end - tolerance
        )


def _store(store: Recorded, block_size: int) -> Store:
    return Store(
        keys=store.keys,
        parent=store.parent,
        start=store.start,
        block_size=block_size,
        ordinal=store.ordinal,
        position=store.position,
        session=store.session or store.reported,
    )


class Accounts:
    """One account a worker. ``connectors`` are workers that load blocks from elsewhere."""

    def __init__(self, fleet: FleetView, connectors: Collection[str], limits: Limits | None = None) -> None:
        self._fleet = fleet
        self._connectors = connectors
        self._limits = limits or Limits()
        self._accounts: dict[str, Account] = {}
        self._followed: dict[StreamId, Followed] = {}
        self._where: OrderedDict[RequestId, tuple[str, ...]] = OrderedDict()
        """In which accounts each request is."""
        self._known: tuple[Sequence[StreamId], Mapping[str, Sequence[StreamId]]] = ((), {})

    def note(self, span: Span, said: EngineRequest, worker: str | None, streams: Sequence[StreamId]) -> None:
        """Take a request, or what more is known of where it was served. Call it before any of its neighbours is asked about.

        Without a worker it may have been served by any.
        """
        if said.prompt_tokens is None:
            return
        name = id_of(span)
        if worker is not None:
            self._place(name, {worker: self._request(span, said, streams)})
        elif name not in self._where:
            workers = self._workers()
            if len(workers) <= UNPLACED_WORKERS_MAX:
                placed = {other: self._request(span, said, theirs, elsewhere=True) for other, theirs in workers.items()}
                self._place(name, placed)

    def _request(
        self, span: Span, said: EngineRequest, streams: Sequence[StreamId], *, elsewhere: bool = False
    ) -> Request:
        # Of more ranks none is looked at: a span that does not name its own would cost as many walks.
        records = [self._fleet.stream(stream) for stream in streams] if len(streams) <= RANKS_MAX else []
        habits = habits_of(span, said, records)
        end = max(span.end_unix_nanos, lookup_bounds(span, said)[2])
        names: list[StreamId] = []
        for record in records:
            followed = self._follow(record, habits)
            names += followed.names_at(end, self._limits.tolerance_nanos)
        return request_of(id_of(span), span, said, names, elsewhere=elsewhere)

    def _follow(self, record: StreamView, habits: Habits) -> Followed:
        worker = record.stream.worker
        followed = self._followed.get(record.stream)
        if followed is None or followed.record is not record:
            if worker in self._connectors:
                habits = msgspec.structs.replace(habits, connector=True)
            account = self._accounts.setdefault(worker, Account(self._limits))
            followed = self._followed[record.stream] = Followed(record, habits, account)
        followed.follow()
        return followed

    def _workers(self) -> Mapping[str, Sequence[StreamId]]:
        streams = self._fleet.streams()
        if streams is not self._known[0]:
            workers: dict[str, list[StreamId]] = {}
            for stream in streams:
                workers.setdefault(stream.worker, []).append(stream)
            self._known = streams, workers
        return self._known[1]

    def _place(self, name: RequestId, placed: Mapping[str, Request]) -> None:
        for worker in self._where.get(name, ()):
            if worker not in placed:
                self._accounts[worker].drop(name)
        for worker, request in placed.items():
            self._accounts.setdefault(worker, Account(self._limits)).note(request)
        self._where[name] = tuple(placed)
        self._where.move_to_end(name)
        if len(self._where) > REQUESTS_MAX:
            old, workers = self._where.popitem(last=False)
            for worker in workers:
                self._accounts[worker].drop(old)

    def outcome(self, span: Span, said: EngineRequest, records: Sequence[StreamView]) -> Outcome | None:
        """What can be said of a request on a worker's streams; ``None`` where the size of their blocks is not known."""
        worker = records[0].stream.worker
        if not all(record.block_size() or record.knows_all_held for record in records):
            return None
        records = [record for record in records if record.block_size()]
        if not records:
            return None
        self.note(span, said, worker, [record.stream for record in records])
        account = self._accounts[worker]
        outcome = account.outcome(id_of(span))
        self._forget(records, account)
        results = [msgspec.structs.replace(result, stream=_served(result.stream)) for result in outcome.results]
        return msgspec.structs.replace(outcome, results=tuple(results))

    def replays_last(self, stream: StreamId) -> bool:
        """Whether every hit of a stream's engine ends one block short."""
        followed = self._followed.get(stream)
        return followed is not None and followed.replays_last

    def _forget(self, records: Sequence[StreamView], account: Account) -> None:
        """Let go of what no request that is still to come can need, in lots, so that it costs little."""
        lives = [
            self._followed[record.stream].lives[-1].stream for record in records if self._followed[record.stream].lives
        ]
        newest = max((stream.confirmed_unix_nanos for stream in lives), default=0)
        oldest = min((stream.begins_unix_nanos for stream in lives), default=newest)
        many = all(len(stream.stores) > 2 * KEPT_STORES for stream in lives)
        kept = KEPT_NANOS if many else KEPT_LONG_NANOS
        if newest - oldest > 2 * kept:
            account.forget(newest - kept)


def _served(life: StreamId) -> StreamId:
    """The stream of a life."""
    return StreamId(life.worker.rpartition("#")[0], life.rank)


def habits_of(span: Span, said: EngineRequest, records: Sequence[StreamView]) -> Habits:
    """How the engine of a request stores, as far as its span and its record tell."""
    method = (span.resource.speculative_method or "").lower()
    return Habits(
        replays_last=any(word in method for word in ("eagle", "mtp")),
        connector=said.decode_only or any(record.tiers() for record in records),
        deferred=span.dialect == "sglang",
    )


def id_of(span: Span) -> RequestId:
    """The name of a span's request."""
    return RequestId(span.trace_id + span.span_id)


def request_of(
    name: RequestId, span: Span, said: EngineRequest, streams: Sequence[StreamId], *, elsewhere: bool = False
) -> Request:
    """A request as accounting is told of it."""
    assert said.prompt_tokens is not None, "checked by the caller"
    low, high, first = lookup_bounds(span, said)
    return Request(
        id=name,
        streams=tuple(streams),
        prompt_tokens=said.prompt_tokens,
        completion_tokens=said.completion_tokens,
        low=low,
        high=high,
        first=first,
        end=max(span.end_unix_nanos, first),
        prefill_nanos=None if said.prefill_seconds is None else round(said.prefill_seconds * SECOND),
        told_tokens=said.cached_tokens,
        elsewhere=elsewhere,
    )
