"""How often a verdict is the truth: simulated fleets over the public traces, through the whole service.

    python tests/bench/bench_truth.py                 # a tenth of each trace: minutes
    python tests/bench/bench_truth.py --share 1       # all of it: about an hour on two cores
    python tests/bench/bench_truth.py --only faulty

Three figures and never one: accuracy among named causes, coverage (share that is not ``unknown``), and how
many are named wrong. The truth is the simulator's own (``tests/fleet``), which shares no code with the
ledger or the table. What is printed is stored too, after every play: a run that is cut leaves what it has played.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.truth_plays import Play, complete, faulty, forgetful, of_each_kind
from tests.fleet.compare import compare
from tests.fleet.traces import FOLDER, load

KINDS = {"complete": complete, "kinds": of_each_kind, "faulty": faulty, "forgetful": forgetful}
CHANGES = ("token_divergence", "extra_key_mismatch")
LATEST = Path(__file__).parent / "results" / "latest.md"
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Outcome:
    """What one play came to. ``pairs`` counts (true cause, said); ``turns`` are append-only ones."""

    play: Play
    seconds: float
    requests: int
    pairs: Counter[tuple[str, str]]
    unknown: int
    unexplained: tuple[str, ...]
    wrong: tuple[str, ...]
    touched: float
    turns: int
    changed_turns: int

    @property
    def accuracy(self) -> float:
        """Share of the named causes that are true."""
        named = self.requests - self.unknown
        return 1 - len(self.wrong) / named if named else 1.0

    @property
    def coverage(self) -> float:
        """Share of lookups with a named cause."""
        return 1 - self.unknown / max(1, self.requests)


def run(play: Play) -> Outcome:
    """Play one."""
    begin = time.perf_counter()
    trace = load(play.trace)
    count = max(30, round(min(play.requests, len(trace.asks)) * play.share))
    score = compare(trace.first(count), play.spec, play.config)
    turns = [pair for pair in score.pairs if pair.truth.cause == "new_content"]
    unexplained = [pair for pair in score.unnamed if not pair.truth.touched and not pair.truth.undecided]
    return Outcome(
        play=play,
        seconds=time.perf_counter() - begin,
        requests=len(score.pairs),
        pairs=score.confusion(),
        unknown=len(score.unnamed),
        unexplained=tuple(f"{play.name}: {pair.line()}" for pair in unexplained),
        wrong=tuple(f"{play.name}: {pair.line()}" for pair in score.wrong),
        touched=score.touched,
        turns=len(turns),
        changed_turns=sum(pair.said in CHANGES for pair in turns),
    )


def line(outcome: Outcome) -> str:
    """One play in one line."""
    return (
        f"{outcome.play.name:<52}{outcome.requests:>7}{outcome.accuracy:>10.4f}{outcome.coverage:>10.4f}"
        f"{len(outcome.wrong):>7}{outcome.unknown:>9}{outcome.touched:>10.4f}{outcome.seconds:>8.0f}"
    )


HEAD = f"{'':<52}{'lookups':>7}{'accuracy':>10}{'coverage':>10}{'wrong':>7}{'unknown':>9}{'touched':>10}{'s':>8}"


def matrix(outcomes: Iterable[Outcome]) -> list[str]:
    """All verdicts against all truths."""
    counts: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        counts.update(outcome.pairs)
    true = sorted({one for one, _ in counts}, key=lambda one: -sum(counts[one, said] for _, said in counts))
    lines = [f"{'true cause':<22}{'lookups':>9}{'said so':>9}{'unknown':>9}{'another':>9}   named as another"]
    for cause in true:
        row = {said: count for (one, said), count in counts.items() if one == cause}
        total, right = sum(row.values()), row.get(cause, 0)
        unknown = row.get("unknown", 0) + row.get("missing", 0)
        others = ", ".join(
            f"{said} {count}" for said, count in row.items() if said not in {cause, "unknown", "missing"}
        )
        lines.append(f"{cause:<22}{total:>9}{right:>9}{unknown:>9}{total - right - unknown:>9}   {others}".rstrip())
    return lines


def curves(outcomes: Iterable[Outcome]) -> list[str]:
    """``unknown`` and what a fault touched, against the fault's rate."""
    by_curve: defaultdict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_curve[outcome.play.curve].append(outcome)
    lines = [f"{'fault':<30}{'rate':>8}{'unknown':>10}{'touched':>10}{'ratio':>8}{'wrong':>7}"]
    for curve, points in by_curve.items():
        points.sort(key=lambda one: one.play.rate)
        shares = [1 - one.coverage for one in points]
        for one, share in zip(points, shares, strict=True):
            ratio = f"{share / one.touched:.2f}" if one.touched else ("-" if not share else "inf")
            lines.append(
                f"{curve:<30}{one.play.rate:>8g}{share:>10.4f}{one.touched:>10.4f}{ratio:>8}{len(one.wrong):>7}"
                f"  {BARS[min(7, int(share * 8))]}"
            )
    return lines


def report(outcomes: Sequence[Outcome]) -> list[str]:
    """Everything that is printed at the end."""
    lines = []
    for kind, title in (("complete", "Complete evidence"), ("kinds", "Each kind of cause"), ("faulty", "Faults")):
        some = [one for one in outcomes if _kind(one.play) == kind]
        if not some:
            continue
        lines += ["", f"## {title}", "", HEAD, *(line(one) for one in some), "", *matrix(some)]
        if kind == "faulty":
            lines += ["", *curves(some)]
    named = sum(one.requests - one.unknown for one in outcomes)
    wrong = [text for one in outcomes for text in one.wrong]
    unexplained = [text for one in outcomes for text in one.unexplained]
    requests = sum(one.requests for one in outcomes)
    turns, changed = sum(one.turns for one in outcomes), sum(one.changed_turns for one in outcomes)
    lines += [
        "",
        f"accuracy among named causes {1 - len(wrong) / max(1, named):.6f} ({named:,} named)",
        f"coverage {named / max(1, requests):.4f} (of {requests:,} lookups)",
        f"named wrong {len(wrong)}",
        f"append-only turns {turns:,}, of them called a change: {changed}",
        f"unknown without a fault on their evidence: {len(unexplained)}",
        *(f"WRONG {text}" for text in wrong[:20]),
        *(f"UNEXPLAINED {text}" for text in unexplained[:20]),
    ]
    return lines


def _kind(play: Play) -> str:
    if play.curve:
        return "faulty"
    return "complete" if " x" in play.name else "kinds"


def weight(play: Play) -> int:
    """What a play takes, roughly: the views of a fleet are asked worker by worker."""
    return min(play.requests, len(load(play.trace).asks)) * (8 + play.spec.workers)


def machine() -> str:
    """What this ran on."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next(
        (text.partition(":")[2].strip() for text in lines if text.startswith("model name")), platform.machine()
    )
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def document(plays: Sequence[Play], outcomes: Mapping[Play, Outcome], share: float) -> str:
    """What is printed and stored, of the plays that are done."""
    head = [
        "# Verdicts against the truth of simulated fleets",
        "",
        f"Measured {time.strftime('%Y-%m-%d')} by tests/bench/bench_truth.py --share {share:g} on {machine()}.",
        "Traces: mooncake conversation and synthetic (full blocks), weka_60, weka_200, miniswe; see tests/fleet.",
    ]
    if len(outcomes) < len(plays):
        head.append(f"Cut: {len(outcomes)} of {len(plays)} plays.")
    return "\n".join([*head, *report([outcomes[play] for play in plays if play in outcomes])])


def main() -> int:
    """Exit code 1 where a cause was named wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--share", type=float, default=0.1, help="share of each trace, from its beginning (default: %(default)s)"
    )
    parser.add_argument("--only", choices=KINDS, action="append", help="only these plays; may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--store", type=Path, default=LATEST, help="file for what is printed (default: %(default)s)")
    options = parser.parse_args()
    if not FOLDER.is_dir():
        print(f"the public traces are not here: {FOLDER} is missing", file=sys.stderr)
        return 0
    plays = [play for kind in options.only or KINDS for play in KINDS[kind](options.share)]
    outcomes: dict[Play, Outcome] = {}
    begin = time.perf_counter()
    print(HEAD, file=sys.stderr)
    with ProcessPoolExecutor(options.jobs) as pool:
        # The longest first, so that no core is left with one at the end.
        for done in as_completed([pool.submit(run, play) for play in sorted(plays, key=weight, reverse=True)]):
            outcome = done.result()
            outcomes[outcome.play] = outcome
            options.store.write_text(document(plays, outcomes, options.share) + "\n", encoding="utf-8")
            elapsed = (time.perf_counter() - begin) / 60
            print(f"{line(outcome)}  {len(outcomes)}/{len(plays)}, {elapsed:.1f} min", file=sys.stderr, flush=True)
    print(document(plays, outcomes, options.share))
    return 1 if any(outcome.wrong for outcome in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
