"""Batch decoder: from a publisher's bytes to a write batch (vLLM, SGLang, LMCache, Mooncake, llm-d).

What costs time here is Python objects, so there is none a block: the keys of all events of a batch are
cut from the bytes into one column, the token ids go through one column into one multiplication, and
each event gets its slice. A batch of maps is decoded in one call; only where that fails is each event
looked at on its own, so that a bad one loses itself and not the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Raw

from ...errors import BadInput
from ..events import KvBatch
from ..hashing import Digester
from .block_keys import DECODE_ERRORS, array_header, read_anything, read_array
from .builder import BatchBuilder, Witness
from .removal_runs import RemovalRun, split_removal_runs
from .schema import (
    Found,
    WireBatch,
    WireBatchCut,
    WireBatchUnread,
    WireCleared,
    WireEvent,
    WireRemoved,
    WireStored,
    WireStoredUnread,
    read_event,
)
from .token_column import (
    COVERED_FROM,
    NO_TOKENS,
    READ_FROM,
    Covered,
    TokenField,
    cover_tokens,
    covered_by,
    is_covered,
    read_tokens,
)

_MILLISECONDS_FROM = 1e11
# What an int64 of nanoseconds holds: the year 2262.
_UNIX_SECONDS_MAX = 9.2e9
_RANKS_MAX = 1 << 20
_MAP_HEADERS = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})

_REMOVALS_FROM = 8
"""Events from which a batch may be read as runs."""

_batch = msgspec.msgpack.Decoder(WireBatch)
_batch_unread = msgspec.msgpack.Decoder(WireBatchUnread)
_batch_cut = msgspec.msgpack.Decoder(WireBatchCut)
_event = msgspec.msgpack.Decoder(WireStored | WireRemoved | WireCleared)
_event_unread = msgspec.msgpack.Decoder(WireStoredUnread | WireRemoved | WireCleared)
_map = msgspec.msgpack.Decoder(dict[str, Raw])
_numbers = msgspec.msgpack.Decoder(list[int])


def decode_batch(payload: bytes, digester: Digester, *, tokens: bool = True, witness: Witness | None = None) -> KvBatch:
    """Read one message's payload; ``tokens=False`` skips the token ids and leaves ``own`` out.

    A ``witness`` is shown the tokens of each store before they are forgotten.

    Raises ``BadInput`` where the payload as a whole is not a batch of events.
    """
    if len(payload) >= (READ_FROM if tokens else COVERED_FROM):
        covered = cover_tokens(payload, _event_count(payload))
        found = None if covered is None else _of_covered(payload, covered, digester, tokens=tokens, witness=witness)
        if found is not None:
            return found
    if not _mostly_removals(payload, len(payload)):
        batch: WireBatch | WireBatchUnread
        try:
            batch = _batch.decode(payload) if tokens else _batch_unread.decode(payload)
        except DECODE_ERRORS:
            pass
        else:
            return _of_usual_shape(batch, BatchBuilder(digester, tokens=tokens, witness=witness))
    return _one_by_one(payload, digester, tokens=tokens, witness=witness)


def _event_count(payload: bytes) -> int:
    """Events of [float, [event, ...], ...]; 0 for a batch of another form."""
    if len(payload) < 15 or payload[1] != 0xCB:
        return 0
    try:
        return array_header(payload[10:15])[0]
    except BadInput:
        return 0


def _mostly_removals(payload: bytes, size: int) -> bool:
    # Guessed from the bytes an event: a removal takes 60 to 90, a store of one block 250 and more. Where there are
    # several to a store they come in runs. A wrong guess costs time only.
    if size < _REMOVALS_FROM * 40:
        return False
    count = _event_count(payload)
    return count >= _REMOVALS_FROM and size < count * 160 and payload.count(b"BlockStored") * _REMOVALS_FROM < count


def _of_usual_shape(batch: WireBatch | WireBatchUnread, columns: BatchBuilder) -> KvBatch:
    events, at = batch.events, 0
    while at < len(events):
        taken = columns.add_singles(at, events, at)
        if not taken:
            try:
                columns.add(at, events[at])
            except BadInput:
                columns.bad_events += 1
        at += taken or 1
    return columns.batch(len(events), _unix_nanos(batch.ts), _rank(batch.rank))


def _of_covered(
    payload: bytes, covered: Covered, digester: Digester, *, tokens: bool, witness: Witness | None
) -> KvBatch | None:
    """The same of a batch whose token ids are covered; ``None`` where they or the events are not as usual."""
    column = read_tokens(payload, covered.spans) if tokens else None
    if tokens and column is None:
        return None
    columns = BatchBuilder(digester, tokens=tokens, read=column, witness=witness)
    spans, row = iter(covered.spans), 0
    try:
        batch, parts = _parts_of(payload, covered)
        for part in parts:
            if isinstance(part, RemovalRun):
                columns.add_removal_run(part)
                continue
            index, events = part
            at = 0
            while at < len(events):
                taken = columns.add_singles(index + at, events, at)
                if not taken:
                    row += _add_covered(columns, index + at, events[at], spans, row)
                at += taken or 1
    except (*DECODE_ERRORS, BadInput):
        return None
    left = next(spans, None)
    return None if left is not None else columns.batch(len(batch.events), _unix_nanos(batch.ts), _rank(batch.rank))


def _add_covered(columns: BatchBuilder, index: int, event: WireEvent, spans: Iterator[TokenField], row: int) -> int:
    """Take one event; returns how many token ids it covers."""
    if type(event) is WireStoredUnread:
        field = bytes(event.token_ids)
        if is_covered(field):
            count = covered_by(field, next(spans, None))
            columns.add_covered(index, event, row, count)
            return count
        if columns.digests_tokens and field not in NO_TOKENS:
            columns.add_read(index, event, _numbers.decode(field))
            return 0
    columns.add(index, event)
    return 0


def _parts_of(
    payload: bytes, covered: Covered
) -> tuple[WireBatchUnread | WireBatchCut, Iterable[tuple[int, Sequence[WireEvent]] | RemovalRun]]:
    if not _mostly_removals(payload, covered.uncovered_bytes):
        batch = _batch_unread.decode(covered.payload)
        return batch, [(0, batch.events)]
    cut = _batch_cut.decode(covered.payload)
    return cut, _parts_of_cut(cut.events)


def _parts_of_cut(events: Sequence[Raw]) -> Iterator[tuple[int, Sequence[WireEvent]] | RemovalRun]:
    for part in split_removal_runs(events, _event_unread.decode):
        yield part if isinstance(part, RemovalRun) else (part.index, list(map(_event_unread.decode, part.events)))


def _one_by_one(payload: bytes, digester: Digester, *, tokens: bool, witness: Witness | None) -> KvBatch:
    def read(encoded: Raw) -> WireEvent | Found:
        try:
            event: WireEvent = _event.decode(encoded) if tokens else _event_unread.decode(encoded)
        except DECODE_ERRORS:
            return read_event(encoded)
        return event

    outer, events = _cut(payload)
    columns = BatchBuilder(digester, tokens=tokens, lost=outer.lost, witness=witness)
    for part in split_removal_runs(events, read):
        if isinstance(part, RemovalRun):
            try:
                columns.add_removal_run(part)
            except BadInput:
                columns.bad_events += part.count
            continue
        for index, encoded in enumerate(part.events, part.index):
            try:
                columns.add(index, read(encoded))
            except BadInput:
                columns.bad_events += 1
    return columns.batch(len(events), outer.unix_nanos, outer.rank, incarnation=outer.incarnation, cursor=outer.cursor)


class _Outer(msgspec.Struct):
    """What a batch says beside its events."""

    unix_nanos: int
    rank: int | None
    lost: bool = False
    incarnation: int | None = None
    cursor: int | None = None


def _cut(payload: bytes) -> tuple[_Outer, list[Raw]]:
    """A batch and its events as they are encoded."""
    try:
        batch = _batch_cut.decode(payload)
    except DECODE_ERRORS:
        pass
    else:
        return _Outer(_unix_nanos(batch.ts), _rank(batch.rank)), batch.events
    # Outside of the handler, so that no error of ours carries the decoder's own, which quotes.
    return _read_outer(payload)


def _read_outer(payload: bytes) -> tuple[_Outer, list[Raw]]:
    if not payload or payload[0] not in _MAP_HEADERS:
        elements = read_array(payload)
        if len(elements) < 2:
            raise BadInput("a batch of KV events has fewer than two elements")
        rank = read_anything(elements[2]) if len(elements) > 2 else None
        return _Outer(_unix_nanos(read_anything(elements[0])), _rank(rank)), read_array(elements[1])
    try:
        fields = _map.decode(payload)
    except DECODE_ERRORS:
        raise BadInput("a batch of KV events is a map that cannot be read") from None
    if "events" not in fields:
        raise BadInput("a batch of KV events is a map without events")
    values = {name: read_anything(value) for name, value in fields.items() if name in _OUTER_FIELDS}
    # LMCache's batches carry no time.
    stamp = next((values[name] for name in ("ts", "timestamp") if name in values), 0)
    rank = next((values[name] for name in ("data_parallel_rank", "dp_rank") if name in values), None)
    outer = _Outer(
        _unix_nanos(stamp),
        _rank(rank),
        lost=values.get("lost") not in (None, False, 0),
        incarnation=_whole(values.get("incarnation")),
        cursor=_whole(values.get("next_cursor")),
    )
    return outer, read_array(fields["events"])


_OUTER_FIELDS = frozenset({"ts", "timestamp", "data_parallel_rank", "dp_rank", "lost", "incarnation", "next_cursor"})


def _unix_nanos(stamp: object) -> int:
    # Float seconds (vLLM, SGLang, llm-d) or whole milliseconds (Mooncake): the magnitude tells.
    if isinstance(stamp, bool) or not isinstance(stamp, (int, float)) or not math.isfinite(stamp) or stamp < 0:
        raise BadInput("the time of a batch of KV events is not a number")
    if stamp > _MILLISECONDS_FROM:
        if stamp > _UNIX_SECONDS_MAX * 1e3:
            raise BadInput("the time of a batch of KV events is out of range")
        return int(stamp) * 1_000_000
    if stamp > _UNIX_SECONDS_MAX:
        raise BadInput("the time of a batch of KV events is out of range")
    return int(stamp * 1e9)


def _rank(rank: object) -> int | None:
    number = _whole(rank)
    return number if number is not None and number < _RANKS_MAX else None


def _whole(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
