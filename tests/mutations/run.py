"""Take out one guard at a time, and see whether a test notices: ``python tests/mutations/run.py``.

Exit code 1 when a mutation survives its tests, no longer applies or cannot be judged.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.mutations.copies import Copy
from tests.mutations.listed import MUTATIONS
from tests.mutations.mutation import Mutation

SECONDS_MAX = 600.0
"""A run that takes longer is no answer: a guard less must make a test fail, not hang."""

PASSED, FAILED = 0, 1
"""Pytest's exit codes; any other says that the tests did not run, which proves nothing about a guard."""

_FIRST_FAILED = re.compile(r"^FAILED (\S+)", re.MULTILINE)


class Outcome(NamedTuple):
    """What became of one mutation: ``killed``, ``survived`` or ``broken``."""

    mutation: Mutation
    verdict: str
    detail: str
    seconds: float


def judge(copy: Copy, mutation: Mutation) -> Outcome:
    """Run the tests of one mutation."""
    try:
        with copy.without(mutation):
            ran = copy.test(mutation.tests.split(), SECONDS_MAX, "-x")
    except ValueError as problem:
        return Outcome(mutation, "broken", str(problem), 0.0)
    except TimeoutError:
        return Outcome(mutation, "broken", "its tests do not end", SECONDS_MAX)
    failed = _FIRST_FAILED.search(ran.said)
    if ran.code == FAILED and failed is not None:
        return Outcome(mutation, "killed", failed[1], ran.seconds)
    if ran.code == PASSED:
        return Outcome(mutation, "survived", mutation.tests, ran.seconds)
    return Outcome(mutation, "broken", ran.said.strip().rpartition("\n")[2], ran.seconds)


_copies: list[Copy] = []


def _begin(folder: str) -> None:
    _copies.append(Copy(Path(tempfile.mkdtemp(dir=folder))))


def _judge(mutation: Mutation) -> Outcome:
    return judge(_copies[0], mutation)


def judged(mutations: Sequence[Mutation], jobs: int, folder: Path) -> Iterator[Outcome]:
    """Judge all, several at a time, each job on a copy of its own; outcomes in the order of the list."""
    with get_context("fork").Pool(jobs, _begin, (str(folder),)) as pool:
        yield from pool.imap(_judge, mutations)


def unmutated(mutations: Sequence[Mutation], folder: Path) -> str | None:
    """What is said of tests that fail with all guards in place, for they notice nothing; or ``None``."""
    selection = dict.fromkeys(part for mutation in mutations for part in mutation.tests.split())
    ran = Copy(folder / "whole").test(selection, 2 * SECONDS_MAX)
    return None if ran.code == PASSED else ran.said[-2000:]


def main(arguments: Sequence[str]) -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="NAME", help="mutations whose name or file contains this")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="runs at a time")
    parser.add_argument("--tests", default="", metavar="SELECTION", help="other tests than those of the list")
    options = parser.parse_args(arguments)
    chosen = [one for one in MUTATIONS if options.only in one.name or options.only in one.file]
    if options.tests:
        chosen = [one._replace(tests=options.tests) for one in chosen]
    if not chosen:
        parser.error(f"no mutation is called {options.only}")
    began = time.monotonic()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        problem = unmutated(chosen, Path(folder))
        if problem is not None:
            print(f"{problem}\nthese tests fail with every guard in place", file=sys.stderr)
            return 1
        for outcome in judged(chosen, options.jobs, Path(folder)):
            outcomes.append(outcome)
            number, name = f"{len(outcomes):>3}/{len(chosen)}", outcome.mutation.name
            print(f"{number} {outcome.verdict:<8} {outcome.seconds:5.1f} s  {name:<28} {outcome.detail}", flush=True)
    return report(outcomes, time.monotonic() - began)


def report(outcomes: Sequence[Outcome], seconds: float) -> int:
    """A line a file, and what is left to do."""
    print(f"\n{'file':<36}{'guards':>8}{'killed':>8}{'left':>6}")
    for file in dict.fromkeys(outcome.mutation.file for outcome in outcomes):
        verdicts = [outcome.verdict for outcome in outcomes if outcome.mutation.file == file]
        killed = verdicts.count("killed")
        print(f"{file:<36}{len(verdicts):>8}{killed:>8}{len(verdicts) - killed:>6}")
    left = [outcome for outcome in outcomes if outcome.verdict != "killed"]
    for outcome in left:
        print(f"{outcome.verdict}: {outcome.mutation.name} ({outcome.mutation.why}): {outcome.detail}")
    print(f"{len(outcomes) - len(left)} of {len(outcomes)} guards are watched by a test; {seconds:.0f} s")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
