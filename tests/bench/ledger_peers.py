"""What the ledger is measured against, each fed the same batches in the same run."""

from __future__ import annotations

import importlib
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import count, repeat
from typing import Any

import msgspec
from cachetools import TTLCache

from tests.bench.plain_ledger import PlainLedger
from tests.ledger.batches import apart
from whymiss.ledger.decode.batch import decode_batch
from whymiss.ledger.events import KvBatch, Removed, Singles, Stored
from whymiss.ledger.hashing import Digester
from whymiss.ledger.ledger import Delivery, Ledger
from whymiss.model import StreamId, Tier

DIGESTER = Digester(b"a key of 16 byte")
STREAM = StreamId("engine", 0)
LIVE = Delivery()

Keep = Callable[[KvBatch], object]
"""Takes one batch after the other."""


def ours() -> Keep:
    """The ledger."""
    ledger = Ledger(digester=DIGESTER)
    numbers = count()
    return lambda batch: ledger.accept(STREAM, next(numbers), batch, LIVE)


def nothing() -> Keep:
    """What all of them pay for reading."""
    return lambda batch: batch


def plain() -> Keep:
    """The dictionaries of lists that give the same answers."""
    return PlainLedger(DIGESTER).apply


def agree(contents: Sequence[bytes]) -> int:
    """How many answers of the dictionaries and of the ledger were compared and are the same; fails where one is not."""
    ledger, rival = Ledger(digester=DIGESTER), PlainLedger(DIGESTER)
    chains: list[list[int]] = []
    for seq, content in enumerate(contents):
        batch = decode_batch(content, DIGESTER)
        ledger.accept(STREAM, seq, batch, LIVE)
        rival.apply(batch)
        chains.extend(event.keys.tolist() for event in apart(batch.events) if isinstance(event, Stored))
    compared = 0
    for position in range(0, rival.end + 1, max(1, rival.end // 16)):
        for chain in chains[:: max(1, len(chains) // 64)]:
            told = [fact.state for fact in ledger.stream(STREAM).as_of(chain, position)]
            assert told == rival.states(chain, position), "the dictionaries say something else of a chain"
            for key in chain[:4]:
                block = ledger.stream(STREAM).block(key)
                assert block is not None, "a block that was stored"
                parent = block.parent
                assert block.prefix == rival.blocks[key].prefix, "another digest"
                assert list(ledger.stream(STREAM).children(parent, position)) == rival.children(parent, position), (
                    "children"
                )
                equal_tokens = {equal.key for equal in ledger.stream(STREAM).same_tokens(key, position)}
                assert equal_tokens == rival.same_tokens(key, position), "twins"
            compared += len(chain) + 3 * 4
    return compared


def ttl_entries() -> Keep:
    """An entry of a ``TTLCache`` a block that says when it was stored or removed last. Answers no other question."""
    entries: TTLCache[int, tuple[bool, int]] = TTLCache(math.inf, 3600.0, timer=lambda: 0.0)

    def keep(batch: KvBatch) -> None:
        for event in batch.events:
            if isinstance(event, Singles):
                for key, parent in zip(event.keys.tolist(), event.parents, strict=True):
                    entries[key] = parent is not None, batch.unix_nanos
            elif isinstance(event, (Stored, Removed)):
                entry = isinstance(event, Stored), batch.unix_nanos
                for key in event.keys.tolist():
                    entries[key] = entry

    return keep


def ttl_facts() -> Keep:
    """The same as one would keep it for a fleet: each entry of its worker and place, with its time, its parent and its digest.

    With cachetools' own clock, and a bound that is not reached.
    """
    entries: TTLCache[tuple[StreamId, Tier, int, int], tuple[int, int | None, int | None]] = TTLCache(1 << 26, 3600.0)

    def keep(batch: KvBatch) -> None:
        nanos = batch.unix_nanos
        for event in batch.events:
            if isinstance(event, Singles):
                tier, group = event.first.tier, event.first.group
                digests = iter(() if event.own is None else event.own.tolist())
                for key, parent in zip(event.keys.tolist(), event.parents, strict=True):
                    entries[STREAM, tier, group, key] = nanos, parent, None if parent is None else next(digests, None)
            elif isinstance(event, Stored):
                tier, group, above = event.tier, event.group, event.parent
                own: Iterable[int | None] = repeat(None) if event.own is None else event.own.tolist()
                for key, digest in zip(event.keys.tolist(), own, strict=False):
                    entries[STREAM, tier, group, key] = nanos, above, digest
                    above = key
            elif isinstance(event, Removed):
                tier, group = event.tier, event.group or 0
                for key in event.keys.tolist():
                    entries[STREAM, tier, group, key] = nanos, None, None

    return keep


# --- the radix tree of ai-dynamo-runtime -----------------------------------------------------------------


def radix_tree() -> Any | None:
    """A tree that is empty, or ``None`` where the package is not installed."""
    try:
        return importlib.import_module("dynamo._core").RadixTree()
    except ImportError:
        return None


def as_radix_events(content: bytes, first: int) -> list[bytes]:
    """A batch as the tree takes it: JSON, with a hash of each block's tokens beside its key."""
    batch = msgspec.msgpack.decode(content)
    hashes_of = importlib.import_module("dynamo._core").compute_block_hash_for_seq
    events = []
    for number, event in enumerate(batch[1], first):
        keys = [_key(one) for one in event["block_hashes"]]
        if event["type"] == "BlockRemoved":
            said: dict[str, Any] = {"removed": {"block_hashes": keys}}
        else:
            parent = event["parent_block_hash"]
            tokens = hashes_of(event["token_ids"], event["block_size"])
            pairs = zip(keys, tokens, strict=True)
            blocks = [{"block_hash": key, "tokens_hash": one} for key, one in pairs]
            said = {"stored": {"parent_hash": None if parent is None else _key(parent), "blocks": blocks}}
        events.append(json.dumps({"event_id": number, "data": said}).encode())
    return events


def _key(one: int | bytes) -> int:
    return one if isinstance(one, int) else int.from_bytes(one[-8:], "big")


def seconds_of_radix(contents: Sequence[bytes]) -> tuple[float, float] | None:
    """Seconds for the batches: the tree's own, and with what makes its events of vLLM's; ``None`` without it.

    The tree works in a thread of its own, so time on the wall is what is taken; a question at the end waits for it.
    """
    tree = radix_tree()
    if tree is None:
        return None
    begin = time.perf_counter()
    events: list[bytes] = []
    for content in contents:
        events.extend(as_radix_events(content, len(events)))
    made = time.perf_counter()
    for event in events:
        tree.apply_event(0, event)
    tree.find_matches([0])
    own = time.perf_counter() - made
    return own, own + made - begin
