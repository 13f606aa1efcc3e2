"""The ledger against its targets: ingest, memory, a verdict's questions and pauses, beside three peers in one run.

    python tests/bench/bench_ledger.py [--operations 50000000] [--engines 8] [--rounds 5]

Ingest begins with a message's bytes and is processor time of the one thread, so that what else the machine
does is not counted; the radix tree has a thread of its own and is given time on the wall. The peer of an
index needs `pip install ai-dynamo-runtime` (the dependency group `bench`).
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import msgspec
import numpy as np

from tests.bench import ledger_peers as peers
from tests.bench.ledger_history import Column, History, columns_of, timed
from tests.bench.ledger_load import BLOCKS, FORMS, GROWING, SHAPES, WITH_REMOVALS, Words, batches, payload
from whymiss.edge.service import spare_collections
from whymiss.ledger.decode.batch import decode_batch
from whymiss.ledger.decode.schema import WireBatch
from whymiss.ledger.events import Cleared
from whymiss.ledger.ledger import Delivery, Ledger
from whymiss.model import StreamId

BLOCKS_A_TURN = 1 << 17
SMALL_BLOCKS_A_TURN = 1 << 14
PEER_BLOCKS_A_TURN = 1 << 16
MIB = 1 << 20


def processor() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def operations_of(contents: Sequence[bytes]) -> int:
    """Block operations in some batches."""
    return sum(
        event.keys.size
        for content in contents
        for event in decode_batch(content, peers.DIGESTER, tokens=False).events
        if not isinstance(event, Cleared)
    )


def seconds(
    make: Callable[[], peers.Keep], contents: Sequence[bytes], *, tokens: bool = True, decoding: bool = True
) -> float:
    """Processor time over all batches, into something new; ``decoding`` counts the reading in."""
    keep, spent = make(), 0.0
    gc.collect()
    for content in contents:
        # As it comes from a socket: just written, and nowhere else than here.
        message = bytes(bytearray(content))
        begin = time.thread_time()
        batch = decode_batch(message, peers.DIGESTER, tokens=tokens)
        begin = begin if decoding else time.thread_time()
        keep(batch)
        spent += time.thread_time() - begin
    return spent


def seconds_of_msgspec(contents: Sequence[bytes]) -> float:
    """The same of msgspec's decoder alone, into structs, lists and integers."""
    decode, spent = msgspec.msgpack.Decoder(WireBatch).decode, 0.0
    gc.collect()
    for content in contents:
        message = bytes(bytearray(content))
        begin = time.thread_time()
        decode(message)
        spent += time.thread_time() - begin
    return spent


def in_turn(rounds: int, *turns: Callable[[], float]) -> list[list[float]]:
    """The times of each, one round after the other of all: the machine's pace changes within seconds."""
    taken = [[turn() for turn in turns] for _ in range(rounds)]
    return [list(times) for times in zip(*taken, strict=True)]


def rate(count: int, times: Sequence[float]) -> str:
    """Millions a second: the median, and the best."""
    return f"{count / statistics.median(times) / 1e6:6.2f} ({count / min(times) / 1e6:5.2f})"


def ingest(rounds: int) -> None:
    """Block operations a second, by shape of batch, form of hash, and with and without token digests.

    Beside them msgspec alone on the same bytes, which keeps and digests nothing: how fast the machine is just now. The
    last column is the rate with all features as a part of that one.
    """
    print("\n## Ingest, M block operations a second, decode included: median (best)")
    columns = ("all features", "digests off", "read and digest", "msgspec alone")
    print(f"{'batch':>14} {'hashes':>9} " + " ".join(f"{name:>15}" for name in columns) + "  part")
    for shape in ("4 x 64", WITH_REMOVALS, "1 x 64", GROWING, "1 x 4", "1 x 1"):
        for form in FORMS:
            an_event, _ = SHAPES.get(shape, (1 if shape == GROWING else BLOCKS, 4))
            contents = batches(shape, form, BLOCKS_A_TURN if an_event >= BLOCKS else SMALL_BLOCKS_A_TURN)
            count = operations_of(contents)
            spent = in_turn(
                rounds,
                partial(seconds, peers.ours, contents),
                partial(seconds, peers.ours, contents, tokens=False),
                partial(seconds, peers.nothing, contents),
                partial(seconds_of_msgspec, contents),
            )
            rates = " ".join(rate(count, times) for times in spent)
            print(f"{shape:>14} {form:>9}  {rates}  {paired(spent[3], spent[0]):.2f}", flush=True)


def against(rounds: int) -> None:
    """The same batches through what else could keep them."""
    print("\n## Beside peers, M block operations a second, the same batches: median (best)")
    rivals = {
        "TTLCache entry a block, bare": peers.ttl_entries,
        "TTLCache entry a block, with its facts": peers.ttl_facts,
        "dictionaries of lists, same answers": peers.plain,
    }
    for shape in ("4 x 64", WITH_REMOVALS, GROWING):
        contents = batches(shape, "digests", SMALL_BLOCKS_A_TURN if shape == GROWING else PEER_BLOCKS_A_TURN)
        count = operations_of(contents)
        print(f"{shape}, hashes of 32 bytes, {count:,} operations a round")
        print(f"  {peers.agree(contents):,} answers of the dictionaries and the ledger compared: the same")
        for title, tokens, decoding in (
            ("all features, decoding included", True, True),
            ("digests off, decoding included", False, True),
            ("all features, already decoded", True, False),
        ):
            makers = (peers.ours, *rivals.values())
            own, *others = in_turn(
                rounds, *(partial(seconds, make, contents, tokens=tokens, decoding=decoding) for make in makers)
            )
            print(f"  {title:>44} {rate(count, own)}")
            for name, theirs in zip(rivals, others, strict=True):
                print(f"  {name:>44} {rate(count, theirs)}  ledger {paired(theirs, own):.1f}x", flush=True)
        radix(contents, count, rounds)


def radix(contents: Sequence[bytes], count: int, rounds: int) -> None:
    """The public index beside the ledger: blocks and events a second."""
    if peers.radix_tree() is None:
        print(f"  {'radix tree of ai-dynamo-runtime':>44} not installed: pip install ai-dynamo-runtime")
        return
    pairs = [found for _ in range(rounds) if (found := peers.seconds_of_radix(contents)) is not None]
    own, whole = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    events = sum(decode_batch(content, peers.DIGESTER, tokens=False).count for content in contents)
    (told,) = in_turn(rounds, partial(seconds, peers.ours, contents))
    rows = {
        "ledger, all features": told,
        "radix tree of ai-dynamo-runtime, its JSON": own,
        "the same, JSON made of vLLM's batches": whole,
    }
    for name, spent in rows.items():
        pace = events / statistics.median(spent)
        print(f"  {name:>44} {rate(count, spent)}  {pace:12,.0f} events/s")


def paired(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """How many times ours goes into theirs, round by round: the median."""
    return statistics.median(their / our for their, our in zip(theirs, ours, strict=True))


def resident_bytes() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory() -> None:
    """Bytes a retained store and a removal, merged and put in order as they stay for most of the window."""
    blocks, batch = 1 << 20, 4 * BLOCKS
    words = Words(3, "integers")
    ledger = Ledger(bytes_max=1 << 40, digester=peers.DIGESTER)
    stream, keys = StreamId("engine", 0), [words.keys(batch) for _ in range(blocks // batch)]
    seq, weights = 0, [(0, resident_bytes())]
    for removing in (False, True):
        for some in keys:
            events = words.removals(some) if removing else [words.store(some, words.tokens(batch), None)]
            content = payload(events, (1 + seq) * 1_000_000)
            ledger.accept(stream, seq, decode_batch(content, peers.DIGESTER), Delivery(now=seq / 1e3))
            seq += 1
        ledger.finish_compaction()
        gc.collect()
        weights.append((ledger.retained_bytes, resident_bytes()))
    print(
        f"\n## Memory, {blocks:,} stores and then as many removals, by nbytes of all arrays (resident set in brackets)"
    )
    for name, before, after in zip(("store", "removal"), weights, weights[1:], strict=False):
        print(f"  {name:>8} {(after[0] - before[0]) / blocks:5.1f} bytes ({(after[1] - before[1]) / blocks:5.1f})")
    memory_alone()


def memory_alone() -> None:
    """The same of stores of one block an event, each continuing another request's chain than the one before."""
    blocks, at_once = 1 << 17, 16
    words = Words(3, "integers")
    ledger = Ledger(bytes_max=1 << 40, digester=peers.DIGESTER)
    (root,) = words.keys(1)
    tails = [root] * 256
    for seq in range(blocks // at_once):
        events = []
        for number, key in enumerate(words.keys(at_once), seq * at_once):
            events.append(words.store([key], words.tokens(1), tails[number % len(tails)]))
            tails[number % len(tails)] = key
        batch = decode_batch(payload(events, (1 + seq) * 1_000_000), peers.DIGESTER)
        ledger.accept(StreamId("engine", 0), seq, batch, Delivery(now=seq / 1e3))
    ledger.finish_compaction()
    print(f"     store {ledger.retained_bytes / blocks:5.1f} bytes, where {blocks:,} are stored one an event")


def percentiles(values: Column, *wanted: float) -> str:
    """Milliseconds at some percentiles."""
    return " ".join(f"{np.percentile(values, one):9.3f}" for one in wanted)


def history(operations: int, engines: int) -> None:
    """A verdict's questions and the pauses of ingest, with so many operations retained."""
    filled = History(operations, engines)
    begin = resident_bytes()
    filled.fill()
    ledger = filled.ledger
    print(
        f"\n## History: {filled.retained:,} operations retained of {filled.taken:,} taken from {engines} engines, "
        f"{ledger.retained_bytes / MIB:,.0f} MiB by nbytes, resident set {(resident_bytes() - begin) / MIB:+,.0f} MiB"
    )
    spent = sum(filled.ingest.processor) / 1e3
    print(f"taken at {filled.taken / spent / 1e6:.2f} M operations a second, upkeep of the same calls included")
    print("\nOne call in ms, processor      median       p99     p99.9       max  max on the wall      calls")
    for name, pauses in (("ingest of a batch", filled.ingest), ("passing of time", filled.pruning)):
        values = np.array(pauses.processor)
        print(f"  {name:>24} {percentiles(values, 50, 99, 99.9, 100)}  {max(pauses.wall):15.3f} {values.size:10,}")
    tables = {
        "while the fleet publishes, 2 s after the lookup": columns_of(filled.live),
        "at the end, in no order": timed(filled),
    }
    for title, found in tables.items():
        print(f"\nQuestions {title}, in ms, processor\n{'':>36}   median       p99     p99.9       max      calls")
        for name, values in found.items():
            print(f"  {name:>34} {percentiles(values, 50, 99, 99.9, 100)} {values.size:10,}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measures the ledger.")
    parser.add_argument("--operations", type=int, default=5_000_000, help="operations retained for the questions")
    parser.add_argument("--engines", type=int, default=8, help="publishers that share them")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each rate")
    parser.add_argument("--only", choices=("ingest", "peers", "memory", "history"), help="one part of the table")
    chosen = parser.parse_args()
    print(
        f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}; "
        f"load average {os.getloadavg()[0]:.1f}; {chosen.rounds} rounds, one thread, its processor time unless said otherwise"
    )
    parts: dict[str, Callable[[], None]] = {
        "ingest": lambda: ingest(chosen.rounds),
        "peers": lambda: against(chosen.rounds),
        "memory": memory,
        "history": lambda: history(chosen.operations, chosen.engines),
    }
    spare_collections()  # as the service does
    for name, part in parts.items():
        if chosen.only in {None, name}:
            part()


if __name__ == "__main__":
    main()
