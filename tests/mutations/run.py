"""Take out one guard at a time, and see whether a test notices: ``python tests/mutations/run.py``.

The tests are collected once. For each mutation a child is forked that gives the functions of one module their
mutated code and runs the mutation's tests up to the first that fails. Exit code 1 when a mutation survives
its tests, no longer applies or cannot be judged.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.mutations.listed import MUTATIONS
from tests.mutations.markers import place_of
from tests.mutations.mutation import Mutation
from tests.mutations.trial import EVERYTHING, Ended, Trials, collected
from tests.mutations.unwatched import UNWATCHED


class Outcome(NamedTuple):
    """What became of one mutation: ``killed``, ``survived`` or ``broken``."""

    mutation: Mutation
    verdict: str
    detail: str
    seconds: float


def outcomes(trials: Trials, mutations: Sequence[Mutation], jobs: int) -> Iterator[Outcome]:
    """Try all, several at a time."""
    waiting = list(reversed(mutations))
    running = 0
    while waiting or running:
        while waiting and running < jobs:
            trials.begin(waiting.pop())
            running += 1
        ended = trials.wait()
        running -= 1
        yield Outcome(ended.mutation, *_read(ended), ended.seconds)


def _read(ended: Ended) -> tuple[str, str]:
    if ended.code == 0:
        return "survived", ended.mutation.tests
    if ended.code == 1:
        return "killed", ended.said
    if ended.code == -signal.SIGALRM:
        return "broken", "its tests do not end"
    return "broken", ended.said or f"exit code {ended.code}"


def main(arguments: Sequence[str]) -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="ID", help="a pattern in their file:id")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="runs at a time")
    parser.add_argument("--tests", default="", metavar="SELECTION", help="other tests than those of the list")
    options = parser.parse_args(arguments)
    chosen = [one for one in MUTATIONS if re.search(options.only, f"{place_of(one).file}:{one.id}")]
    if options.tests:
        chosen = [one._replace(tests=options.tests) for one in chosen]
    if not chosen:
        parser.error(f"no mutation is called {options.only}")
    selection = dict.fromkeys(part for mutation in chosen for part in mutation.tests.split())
    code = 1

    def judge(trials: Trials) -> None:
        nonlocal code
        code = _judge(trials, chosen, options.jobs)

    with tempfile.TemporaryDirectory() as folder:
        # Examples that fail against a mutation are none to try first against the product.
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = folder
        ran = collected(selection, judge)
    return code if ran == 0 else 1


def _judge(trials: Trials, chosen: Sequence[Mutation], jobs: int) -> int:
    began = time.monotonic()
    trials.begin(EVERYTHING)
    whole = trials.wait()
    if whole.code != 0:
        print(f"fails with every guard in place: {whole.said}", file=sys.stderr)
        return 1
    print(f"{trials.count} tests pass with every guard in place; {whole.seconds:.0f} s", flush=True)
    found: list[Outcome] = []
    for outcome in outcomes(trials, chosen, jobs):
        found.append(outcome)
        number, name = f"{len(found):>3}/{len(chosen)}", outcome.mutation.id
        print(f"{number} {outcome.verdict:<8} {outcome.seconds:5.1f} s  {name:<28} {outcome.detail}", flush=True)
    return report(found, time.monotonic() - began)


def report(found: Sequence[Outcome], seconds: float) -> int:
    """A line a file, and what is left to do."""
    print(f"\n{'file':<36}{'guards':>8}{'killed':>8}{'left':>6}")
    for file in _unique(place_of(outcome.mutation).file for outcome in found):
        verdicts = [outcome.verdict for outcome in found if place_of(outcome.mutation).file == file]
        killed = verdicts.count("killed")
        print(f"{file:<36}{len(verdicts):>8}{killed:>8}{len(verdicts) - killed:>6}")
    left = [outcome for outcome in found if outcome.verdict != "killed"]
    for outcome in left:
        print(f"{outcome.verdict}: {outcome.mutation.id} ({outcome.mutation.why}): {outcome.detail}")
    known = {outcome.mutation.id for outcome in left if outcome.verdict == "survived"} & UNWATCHED
    watched = sorted(outcome.mutation.id for outcome in found if outcome.verdict == "killed" and _is_known(outcome))
    for name in watched:
        print(f"watched by now, take it off the list of unwatched ones: {name}")
    print(f"{len(found) - len(left)} of {len(found)} guards are watched by a test; {seconds:.0f} s")
    print(f"{len(known)} of the others are known to be unwatched")
    return 1 if len(left) > len(known) or watched else 0


def _is_known(outcome: Outcome) -> bool:
    return outcome.mutation.id in UNWATCHED


def _unique(names: Iterable[str]) -> list[str]:
    return sorted(set(names))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
