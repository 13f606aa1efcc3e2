"""Blocks a second through the decoder, by shape of traffic; the best of many turns, on one core.

The peer is a floor: msgspec reading the same payload into plain objects, and keeping and checking nothing. Run it by
itself (``python tests/bench/bench_decode.py``) or with ``make bench``.
"""

from __future__ import annotations

import os
import platform
import random
import time
from collections.abc import Callable

import msgspec
import numpy as np

from whymiss.ledger.decode.batch import decode_batch
from whymiss.ledger.hashing import Digester

BLOCK_TOKENS = 16
BLOCKS = 64
SECONDS = 0.4
DIGESTER = Digester(b"a key of 16 byte")
CHANCE = random.Random(7)

Fields = dict[str, object]


def a_hash(form: str) -> int | bytes:
    return CHANCE.getrandbits(64) if form == "integers" else CHANCE.randbytes(32)


def a_store(form: str, blocks: int = BLOCKS, adapter: str | None = None) -> Fields:
    """vLLM 0.33's event, with token ids spread as text spreads them over a vocabulary of 151 thousand."""
    hashes = [a_hash(form) for _ in range(blocks)]
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": a_hash(form),
        "token_ids": [min(151_000, int(20 * CHANCE.paretovariate(0.4))) for _ in range(blocks * BLOCK_TOKENS)],
        "block_size": BLOCK_TOKENS,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": adapter,
        "extra_keys": [[adapter] if adapter else None] * blocks,
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }


def a_removal(form: str) -> Fields:
    return {"type": "BlockRemoved", "block_hashes": [a_hash(form)], "medium": "GPU", "group_idx": 0}


def in_positions(event: Fields) -> list[object]:
    return list(event.values())


def in_pairs(event: Fields) -> Fields:
    tokens = event["token_ids"]
    assert isinstance(tokens, list)
    return event | {"token_ids": [[token, token + 1] for token in tokens]}


SHAPES: dict[str, Callable[[str], list[object]]] = {
    "1 store of 64": lambda form: [a_store(form)],
    "4 stores of 64": lambda form: [a_store(form) for _ in range(4)],
    "16 stores of 64": lambda form: [a_store(form) for _ in range(16)],
    "64 stores of 1": lambda form: [a_store(form, 1) for _ in range(64)],
    "256 removals": lambda form: [a_removal(form) for _ in range(256)],
    "4 x (64 removals, 1 store of 64)": lambda form: (
        [event for _ in range(4) for event in [*(a_removal(form) for _ in range(64)), a_store(form)]]
    ),
    "4 stores of 64 with an adapter": lambda form: [a_store(form, adapter="adapter") for _ in range(4)],
    "4 stores of 64 by position": lambda form: [in_positions(a_store(form)) for _ in range(4)],
    "4 stores of 64 in pairs": lambda form: [in_pairs(a_store(form)) for _ in range(4)],
}


def best_seconds(turn: Callable[[], object]) -> float:
    """Processor time of the fastest turn: what the code costs where nobody else is at work."""
    best = float("inf")
    deadline = time.perf_counter() + SECONDS
    while time.perf_counter() < deadline:
        begin = time.thread_time()
        for _ in range(10):
            turn()
        best = min(best, (time.thread_time() - begin) / 10)
    return best


def row(name: str, form: str, blocks: int, seconds: dict[str, float]) -> str:
    rates = "".join(f"{blocks / one / 1e6:11.2f}" for one in seconds.values())
    return f"{name:>34}, {form:8} {rates} {seconds['ours'] / seconds['floor']:10.2f}"


def decoding(shape: str, form: str) -> str:
    """One row: a shape of traffic through the decoder with and without token ids, and through the floor."""
    events = SHAPES[shape](form)
    payload = msgspec.msgpack.encode([1.7e9, events, 0])
    decoded = decode_batch(payload, DIGESTER)
    assert (decoded.bad_events, decoded.unknown_events) == (0, 0)
    blocks = sum(event.keys.size for event in decoded.events if hasattr(event, "keys"))
    floor = msgspec.msgpack.Decoder()
    return row(
        shape,
        form,
        blocks,
        {
            "ours": best_seconds(lambda: decode_batch(payload, DIGESTER)),
            "untold": best_seconds(lambda: decode_batch(payload, DIGESTER, tokens=False)),
            "floor": best_seconds(lambda: floor.decode(payload)),
        },
    )


def token_ids() -> str:
    """What no reader in Python can do without: token ids as integers, and as a column."""
    tokens = a_store("integers")["token_ids"]
    assert isinstance(tokens, list)
    encoded = msgspec.msgpack.encode(tokens)
    decoder = msgspec.msgpack.Decoder(list[int])
    read = best_seconds(lambda: decoder.decode(encoded))
    digested = best_seconds(lambda: DIGESTER.block_digests(tokens, BLOCK_TOKENS, BLOCKS))
    return f"{'1,024 token ids':>34}: {read * 1e6:.1f} us to decode, {digested * 1e6:.1f} us to pack and digest"


def prefixes() -> str:
    own = np.arange(BLOCKS, dtype=np.uint64)
    seconds = best_seconds(lambda: DIGESTER.prefix_digests(own, 1, 100))
    return f"{'prefix digests of 64 blocks':>34}: {seconds * 1e6:.2f} us, {BLOCKS / seconds / 1e6:.1f} M blocks/s"


def main() -> None:
    print(
        f"Python {platform.python_version()}, msgspec {msgspec.__version__}, numpy {np.__version__}, {platform.machine()}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; processor time of the best turn"
    )
    print(f"{'million blocks a second':>34}  {'':8} {'ours':>11}{'no tokens':>11}{'floor':>11} {'x floor':>10}")
    for form in ("integers", "digests"):
        for shape in SHAPES:
            print(decoding(shape, form))
    print(token_ids())
    print(prefixes())


if __name__ == "__main__":
    main()
