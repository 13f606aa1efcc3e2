"""Three hot kernels as the ledger has them (numpy) against the same in C and by numba, and what those cost to have.

    python tests/bench/bench_compiled.py [--operations 5000000] [--rounds 9]

Each kernel's results are compared with the ledger's before it is timed. All are timed in turn, as processor time
of the one thread, because the machine's pace changes. What is missing is skipped, and why is printed. The last
columns say what it would mean: which part of the whole the kernel is now, measured in the same run, and how fast
the whole would be if only that part changed.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

from tests.bench import ledger_peers as peers
from tests.bench.bench_ledger import in_turn, operations_of, processor, seconds
from tests.bench.compiled_kernels import InC, InNumba, Kernels, Numbers, Unavailable
from tests.bench.ledger_history import WHOLE, Asked, History, timed
from tests.bench.ledger_load import batches
from whymiss.edge.service import spare_collections
from whymiss.ledger.columnar.bloom_filter import FOR_KEYS, Probe, marks_of
from whymiss.ledger.decode.token_column import Covered, cover_tokens, read_tokens
from whymiss.ledger.segment.pruning import Pruning
from whymiss.ledger.segment.segment import Place
from whymiss.model import Tier

T = TypeVar("T")

BLOCK_TOKENS = 16
BLOCKS_A_TURN = 1 << 16
MASKS = 1 << 14
LOOKUPS_A_TURN = 200
MIB = 1 << 20


def ways(directory: Path) -> Iterator[Kernels]:
    """Each way that is there; says of the others why they are not."""
    makers: tuple[tuple[str, Callable[[], Kernels]], ...] = (("C", lambda: InC(directory)), ("numba", InNumba))
    for name, make in makers:
        try:
            made = make()
        except Unavailable as reason:
            print(f"  {name}: skipped, {reason}")
        else:
            print(f"  {made.prepared}")
            yield made


def constants(tokens: int) -> tuple[Numbers, int]:
    """The multipliers of a block's tokens and its constant, read off the digester: its digests are linear."""
    one_each = np.eye(tokens, dtype=np.uint64).reshape(-1)
    none = int(peers.DIGESTER.block_digests(np.zeros(tokens, np.uint64), tokens, 1)[0])
    found = peers.DIGESTER.block_digests(one_each, tokens, tokens) - np.uint64(none)
    return found, none


class TokenWork:
    """Batches of 4 x 64 blocks as they come, and their token ids."""

    def __init__(self) -> None:
        self.contents = batches("4 x 64", "integers", BLOCKS_A_TURN)
        covered = [cover_tokens(content, 4) for content in self.contents]
        self.covered: list[Covered] = [one for one in covered if one is not None]
        assert len(self.covered) == len(self.contents), "batches of this shape are covered"
        self.multipliers, self.constant = constants(BLOCK_TOKENS)
        self.bytes = [np.frombuffer(content, np.uint8) for content in self.contents]
        self.begins = [np.array([span.begin for span in one.spans]) for one in self.covered]
        self.ends = [np.array([span.end for span in one.spans]) for one in self.covered]
        self.blocks = [sum(span.numbers for span in one.spans) // BLOCK_TOKENS for one in self.covered]
        self.tokens = [self._tokens(number) for number in range(len(self.contents))]

    def _tokens(self, number: int) -> Numbers:
        column = read_tokens(self.contents[number], self.covered[number].spans)
        assert column is not None, "all token ids of these batches are read as a column"
        column.flags.writeable = False
        return column

    def read_today(self, number: int) -> Numbers:
        """From bytes to digests, as the ledger does it."""
        return peers.DIGESTER.block_digests(self._tokens(number), BLOCK_TOKENS, self.blocks[number])

    def read_by(self, kernels: Kernels, number: int) -> Numbers:
        """The same in one pass."""
        own = np.empty(self.blocks[number], np.uint64)
        count = kernels.digest_tokens(
            self.bytes[number], self.begins[number], self.ends[number], self.multipliers, self.constant, own
        )
        assert count == own.size
        return own

    def digest_today(self, number: int) -> Numbers:
        """From token ids to digests, as the ledger does it."""
        return peers.DIGESTER.block_digests(self.tokens[number], BLOCK_TOKENS, self.blocks[number])

    def digest_by(self, kernels: Kernels, number: int) -> Numbers:
        """The same by a kernel."""
        own = np.empty(self.blocks[number], np.uint64)
        kernels.digest_column(self.tokens[number], self.multipliers, self.constant, own)
        return own


class FilterWork:
    """Chains of up to 201 blocks, and the Bloom filters of all streams of a fleet's history."""

    def __init__(self, filled: History) -> None:
        self.filled = filled
        self.asked: Sequence[Asked] = filled.inside()[:LOOKUPS_A_TURN]
        ledger = filled.ledger
        self.prunings: list[tuple[Pruning, Place, int]] = []
        self.words: list[Numbers] = []
        self.offsets: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
        for stream in ledger.streams():
            record = ledger.stream(stream)
            place = (Tier.DEVICE, record.cache_groups.dense)
            pruning = record.history.pruning()
            self.prunings.append((pruning, place, record.end + 1))
            parts = [
                part.runs[place].filter.opened_for(None)[0] for part in record.history.parts() if place in part.runs
            ]
            columns = [np.frombuffer(view, np.uint64) for view in parts]
            self.words.append(np.concatenate(columns))
            self.offsets.append(np.array([0, *np.cumsum([column.size for column in columns])]))
        self.masks = marks_of(np.arange(MASKS, dtype=np.uint64) << np.uint64(8), FOR_KEYS.marks)
        self.masks.flags.writeable = False
        most = max(offsets.size for offsets in self.offsets) * max(len(one.keys) for one in self.asked)
        self.room = np.empty(most, np.int64)

    def chain_today(self, one: Asked) -> list[int]:
        """How many blocks pass in all filters of each stream, as the ledger does it."""
        probe = Probe(np.array(one.keys, np.uint64))
        return [
            sum(some.size for _, _, some in pruning.runs_naming_any(place, probe, end))
            for pruning, place, end in self.prunings
        ]

    def block_today(self, one: Asked) -> list[int]:
        """The same of a chain's first block."""
        return [len(list(pruning.runs_naming(place, one.keys[0], 0, end))) for pruning, place, end in self.prunings]

    def chain_by(self, kernels: Kernels, one: Asked) -> list[int]:
        """The same of a chain by a kernel."""
        return self._by(kernels, np.array(one.keys, np.uint64))

    def block_by(self, kernels: Kernels, one: Asked) -> list[int]:
        """The same of its first block by a kernel."""
        return self._by(kernels, np.array(one.keys[:1], np.uint64))

    def _by(self, kernels: Kernels, keys: Numbers) -> list[int]:
        return [
            kernels.probe_filters(words, offsets, keys, self.masks, self.room)
            for words, offsets in zip(self.words, self.offsets, strict=True)
        ]


def spent(work: Callable[[], object]) -> float:
    """Processor seconds of one call."""
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


def every(each: Callable[[T], object], given: Sequence[T]) -> Callable[[], float]:
    """What measures the processor seconds of ``each`` on all that is given."""
    return lambda: spent(lambda: [each(one) for one in given])


def show(title: str, names: Sequence[str], times: Sequence[Sequence[float]], calls: float, part: float) -> None:
    """One kernel's lines: microseconds a call, ratios to today's round by round, and what the whole would gain."""
    for name, own in zip(names, times, strict=True):
        ratio = statistics.median(today / mine for today, mine in zip(times[0], own, strict=True))
        print(
            f"{title:>34} {name:>6} {statistics.median(own) / calls * 1e6:8.2f} us {ratio:5.2f}x   "
            f"{part:5.1%} of the whole, which would be {1 / (1 - part + part / ratio):4.2f}x as fast"
        )


def kernels_of_ingest(made: Sequence[Kernels], rounds: int) -> None:
    """Reading token ids and digesting them, beside all of taking the same batches in."""
    work = TokenWork()
    count = len(work.contents)
    numbers = range(count)
    for number in numbers:
        wanted = work.read_today(number)
        for one in made:
            assert np.array_equal(work.read_by(one, number), wanted)
            assert np.array_equal(work.digest_by(one, number), wanted)
    names = ["today", *(one.name for one in made)]
    turns: list[Callable[[], float]] = [
        partial(seconds, peers.ours, work.contents),
        every(work.read_today, numbers),
        *(every(partial(work.read_by, one), numbers) for one in made),
        every(work.digest_today, numbers),
        *(every(partial(work.digest_by, one), numbers) for one in made),
    ]
    whole, *parts = in_turn(rounds, *turns)
    pace = operations_of(work.contents) / statistics.median(whole) / 1e6
    print(f"  taken in at {pace:.2f} M block operations a second, batches of 4 x 64 blocks; a line is of one batch")
    middle = len(names)
    for title, times in (
        ("token ids from bytes to digests", parts[:middle]),
        ("token ids to digests", parts[middle:]),
    ):
        show(title, names, times, count, statistics.median(times[0]) / statistics.median(whole))


def kernels_of_questions(made: Sequence[Kernels], operations: int, rounds: int) -> None:
    """The Bloom filters of all segments of 8 streams, beside all of a verdict's questions."""
    filled = History(operations, 8)
    filled.fill()
    filled.ledger.finish_compaction()
    work = FilterWork(filled)
    for one in work.asked:
        for kernels in made:
            assert work.chain_by(kernels, one) == work.chain_today(one)
            assert work.block_by(kernels, one) == work.block_today(one)
    took = timed(filled)
    verdicts, whole = len(took[WHOLE]), statistics.mean(took[WHOLE]) / 1e3
    count = len(work.asked) * len(work.prunings)
    filters = sum(offsets.size - 1 for offsets in work.offsets)
    print(
        f"  {filled.retained:,} operations in {filters} segments of {len(work.prunings)} streams; a line is of one stream"
    )
    print(f"  a verdict's questions take {whole * 1e6:,.0f} us on average")
    names = ["today", *(one.name for one in made)]
    for title, today, by, questions in (
        ("a chain in a stream's filters", work.chain_today, work.chain_by, ("as_of, all 201 blocks",)),
        ("a block in a stream's filters", work.block_today, work.block_by, ("as_of, first block", "touched")),
    ):
        turns = [every(today, work.asked), *(every(partial(by, one), work.asked) for one in made)]
        times = in_turn(rounds, *turns)
        asked = sum(len(took.get(one, ())) for one in questions) / verdicts
        show(title, names, times, count, asked * statistics.median(times[0]) / count / whole)
        print(f"{'':>34} asked {asked:.1f} times a verdict")


def installed(name: str) -> str:
    """What a distribution weighs where it is installed."""
    try:
        files = metadata.files(name) or []
    except metadata.PackageNotFoundError:
        return f"{name}: not installed"
    size = sum(path.stat().st_size for file in files if (path := Path(str(file.locate()))).is_file())
    return f"{name} {metadata.version(name)}: {size / MIB:,.0f} MiB installed"


def importing(modules: str) -> str:
    """Seconds and resident memory of a fresh interpreter that imports modules; the median of five."""
    code = (
        "import time, os; begin = time.perf_counter()\n"
        f"import {modules}\n"
        "print(time.perf_counter() - begin,"
        " int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE'))"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False) for _ in range(5)]
    if any(run.returncode for run in runs):
        return f"import {modules}: skipped, it cannot be imported"
    found = [tuple(map(float, run.stdout.split())) for run in runs]
    took, held = (statistics.median(column) for column in zip(*found, strict=True))
    return f"import {modules}: {took:.2f} s, {held / MIB:,.0f} MiB resident"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Measures compiled kernels.")
    parser.add_argument("--operations", type=int, default=5_000_000, help="operations retained for the filters")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each")
    chosen = parser.parse_args()
    print(
        f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}; "
        f"load average {os.getloadavg()[0]:.1f}; {chosen.rounds} rounds, one thread, its processor time"
    )
    spare_collections()  # as the service does
    with tempfile.TemporaryDirectory() as directory:
        print("\n## Getting the kernels ready")
        made = list(ways(Path(directory)))
        print("\n## Taking events in")
        kernels_of_ingest(made, chosen.rounds)
        print("\n## Questions")
        kernels_of_questions(made, chosen.operations, chosen.rounds)
    print("\n## What it costs to have")
    for line in (installed("numpy"), installed("numba"), installed("llvmlite")):
        print(f"  {line}")
    for line in (importing("numpy"), importing("whymiss.edge.service"), importing("whymiss.edge.service, numba")):
        print(f"  {line}")


if __name__ == "__main__":
    main()
