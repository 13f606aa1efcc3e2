"""Builders of KV-event payloads, and a plain form in which two decoded batches compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from whymiss.ledger.decode.batch import decode_batch
from whymiss.ledger.events import Cleared, Event, KvBatch, Removed, Singles, Stored
from whymiss.ledger.hashing import Digester

DIGESTER = Digester(b"a key of 16 byte")

Fields = dict[str, object]
Plain = list[tuple[object, ...]]


def stored(hashes: Iterable[object] = (1,), tokens: object = (7, 8), **fields: object) -> Fields:
    """vLLM's map of a store; ``...`` as a value leaves a field out."""
    event: Fields = {
        "type": "BlockStored",
        "block_hashes": list(hashes),
        "parent_block_hash": None,
        "token_ids": list(tokens) if isinstance(tokens, tuple) else tokens,
        "block_size": 2,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
    }
    return {name: value for name, value in (event | fields).items() if value is not ...}


def removed(*hashes: object, **fields: object) -> Fields:
    """vLLM's map of a removal."""
    return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU"} | fields


CLEARED: Fields = {"type": "AllBlocksCleared"}


def payload(*events: object, ts: object = 1.0, rank: object = 0) -> bytes:
    """A batch of events."""
    return msgspec.msgpack.encode([ts, list(events), rank])


def plain(batch: KvBatch) -> Plain:
    """One row an event on the wire, in order, made of numbers and strings."""
    rows: Plain = []
    for event in apart(batch.events):
        if isinstance(event, Stored):
            rows.append(plain_stored(event))
        elif isinstance(event, Removed):
            place = (event.tier, event.medium, event.group, event.remote, event.ownership)
            pairs = zip(event.at.tolist(), event.keys.tolist(), strict=True)
            rows.extend(("removed", at, key, *place) for at, key in pairs)
        else:
            assert isinstance(event, Cleared)
            rows.append(("cleared", event.index, event.tier))
    return rows


def apart(events: Iterable[Event]) -> Iterator[Stored | Removed | Cleared]:
    """Events, with those that were gathered one after the other."""
    for event in events:
        if isinstance(event, Singles):
            yield from event.expanded()
        else:
            yield event


def plain_stored(event: Stored) -> tuple[object, ...]:
    """A store's fields in their order."""
    own = None if event.own is None else event.own.tolist()
    numbers = ("index", "keys", "own")
    rest = tuple(getattr(event, name) for name in event.__struct_fields__ if name not in numbers)
    return ("stored", event.index, event.keys.tolist(), own, *rest)


def decode(*events: object, tokens: bool = True) -> KvBatch:
    """The events, encoded and decoded again."""
    return decode_batch(payload(*events), DIGESTER, tokens=tokens)


def one(event: object) -> Stored:
    """The one store that an event is."""
    batch = decode(event)
    assert (batch.bad_events, batch.unknown_events) == (0, 0)
    (found,) = batch.events
    assert isinstance(found, Stored)
    return found


def own_of(tokens: list[int], block_size: int) -> list[int]:
    """Digests of the blocks that token ids fill."""
    own: list[int] = DIGESTER.block_digests(tokens, block_size, len(tokens) // block_size).tolist()
    return own
