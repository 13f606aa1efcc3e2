"""A simulated fleet through the real service, and its verdicts against the truth.

Three figures and never one: how often a named cause is the true one (accuracy), how many lookups get a name
(coverage), and how many get a wrong one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.fleet.simulate import simulate
from tests.fleet.spec import EPOCH, SECOND, FleetSpec, KvFrames, OtlpRequest, Truth
from tests.fleet.traces import Trace
from whymiss.config import Config, parse
from whymiss.model import Cause, Verdict
from whymiss.pipeline import KvSource, Pipeline

CONFIG = """
ledger: {window_seconds: 1000000}
kv_events: {sources: [{endpoint: 'tcp://engines:5557'}]}
"""
PROCESS_KEY = b"the simulated fleet has no secrets"


@dataclass(frozen=True)
class Pair:
    """One lookup: what is true, and what the service said; ``None``: it said nothing."""

    truth: Truth
    verdict: Verdict | None

    @property
    def said(self) -> str:
        """The cause in the verdict."""
        return self.verdict.cause.value if self.verdict is not None else "missing"

    @property
    def named(self) -> bool:
        """Whether the verdict names a cause."""
        return self.said not in {Cause.UNKNOWN.value, "missing"}

    @property
    def wrong(self) -> bool:
        """Whether it names another cause than the true one."""
        return self.named and self.said not in {self.truth.cause, self.truth.in_window}

    def line(self) -> str:
        """Both in one line, for a failing test."""
        truth, verdict = self.truth, self.verdict
        said = (
            "nothing"
            if verdict is None
            else (
                f"{verdict.cause.value}/{verdict.reason.value} grade={verdict.grade.value} cached={verdict.cached_tokens}"
                f" block={verdict.block_index} lost={verdict.lost_tokens}"
            )
        )
        return (
            f"request {truth.number} on {truth.worker}: true {truth.cause}/{truth.reason} cached={truth.cached_tokens}"
            f" block={truth.block_index} lost={truth.lost_tokens} touched={sorted(truth.touched)}; said {said}"
        )


@dataclass(frozen=True)
class Score:
    """What a comparison came to."""

    pairs: Sequence[Pair]

    @property
    def accuracy(self) -> float:
        """Share of the named causes that are true; 1 of none."""
        named = [pair for pair in self.pairs if pair.named]
        return 1 - sum(pair.wrong for pair in named) / len(named) if named else 1.0

    @property
    def coverage(self) -> float:
        """Share of the lookups with a named cause."""
        return sum(pair.named for pair in self.pairs) / len(self.pairs) if self.pairs else 0.0

    @property
    def wrong(self) -> Sequence[Pair]:
        """Lookups with another cause than the true one."""
        return [pair for pair in self.pairs if pair.wrong]

    @property
    def unnamed(self) -> Sequence[Pair]:
        """Lookups without a named cause."""
        return [pair for pair in self.pairs if not pair.named]

    @property
    def touched(self) -> float:
        """Share of the lookups whose evidence a fault took away or left without an order."""
        return sum(bool(pair.truth.touched) or pair.truth.undecided for pair in self.pairs) / max(1, len(self.pairs))

    def confusion(self) -> Counter[tuple[str, str]]:
        """How often each true cause (with its reason where there is one) got each verdict."""
        return Counter((pair.truth.cause, pair.said) for pair in self.pairs)

    def misstated(self) -> Iterator[tuple[str, Pair]]:
        """Verdicts with the right cause whose figures or reason are not the true ones."""
        for pair in self.pairs:
            truth, verdict = pair.truth, pair.verdict
            if verdict is None or self.said_in_window(pair) or not pair.named or pair.wrong:
                continue
            if verdict.cached_tokens != truth.cached_tokens:
                yield "cached_tokens", pair
            if truth.cause != "below_match_unit" and verdict.block_index != truth.block_index:
                yield "block_index", pair
            if verdict.reason.value != truth.reason:
                yield "reason", pair
            if (
                verdict.lost_tokens is not None
                and truth.lost_tokens is not None
                and verdict.lost_tokens != truth.lost_tokens
            ):
                yield "lost_tokens", pair
            if verdict.worker != truth.worker:
                yield "worker", pair

    @staticmethod
    def said_in_window(pair: Pair) -> bool:
        """Whether the service had forgotten what the true cause rests on."""
        return pair.said != pair.truth.cause

    def table(self) -> str:
        """The confusion matrix and the three figures, to print."""
        counts = self.confusion()
        causes = [cause.value for cause in Cause]
        rows = [cause for cause in causes if any(true == cause for true, _ in counts)]
        columns = [cause for cause in (*causes, "missing") if any(said == cause for _, said in counts)]
        width = max(map(len, columns), default=0) + 1
        lines = ["".ljust(20) + "".join(column.rjust(width) for column in columns)]
        lines.extend(
            row.ljust(20) + "".join(str(counts[row, column]).rjust(width) for column in columns) for row in rows
        )
        figures = f"accuracy {self.accuracy:.4f}, coverage {self.coverage:.4f}, wrong {len(self.wrong)}"
        return "\n".join([*lines, f"{figures}, touched {self.touched:.4f}, of {len(self.pairs)}"])


class Play:
    """One simulation through one pipeline, in virtual time."""

    def __init__(self, config: Config) -> None:
        self._pipeline = Pipeline(config, process_key=PROCESS_KEY, start_unix_nanos=EPOCH)
        self._pipeline.judged = []
        self._sources: dict[str, KvSource] = {}
        self._kept: dict[str, dict[int, KvFrames]] = {}

    def run(self, trace: Trace, spec: FleetSpec) -> Score:
        """Play to the end, and pair every truth with its verdict."""
        # Who decodes loads its blocks: that has to be declared.
        for index in range(spec.engines):
            self._sources[spec.name(index)] = KvSource(
                name="fleet", kv_connector=index >= spec.workers, can_replay=spec.faults.replay
            )
        truths = []
        for event in simulate(trace, spec):
            if isinstance(event, Truth):
                truths.append(event)
            else:
                self._take(event)
        while (deadline := self._pipeline.next_deadline) is not None:
            self._pipeline.advance(deadline)
        self._pipeline.drain()
        said = list(self._verdicts())
        verdicts = {number: verdict for number, verdict in said if not self._of_decoder(spec, verdict)}
        return Score([Pair(truth, verdicts.get(truth.number)) for truth in truths])

    def _hear(self, event: KvFrames, now: float) -> None:
        """Take a message, and ask its publisher for all from one before those that it shows to be missing."""
        source = self._sources[event.worker]
        kept = self._kept.setdefault(event.worker, {})
        if source.can_replay:
            kept[int.from_bytes(event.frames[1], "big")] = event
        if event.lost:
            return
        outcome = self._pipeline.kv_frames(source, event.frames, event.received_unix_nanos, now=now)
        if outcome.missing_first is None:
            return
        for seq in sorted(seq for seq in kept if seq >= outcome.missing_first - 1):
            frames = kept[seq].frames
            self._pipeline.kv_frames(source, frames, event.received_unix_nanos, now=now, replayed=True)

    @staticmethod
    def _of_decoder(spec: FleetSpec, verdict: Verdict) -> bool:
        """Whether this is about a decode half whose other half came too late or not at all: nothing is named then."""
        if verdict.worker not in {spec.name(index) for index in range(spec.workers, spec.engines)}:
            return False
        assert verdict.cause in {Cause.UNKNOWN, Cause.NONE}, "a decode half has no miss of its own"
        return True

    def _take(self, event: KvFrames | OtlpRequest) -> None:
        now = event.received_unix_nanos / SECOND
        while (deadline := self._pipeline.next_deadline) is not None and deadline <= now:
            self._pipeline.advance(deadline)
        if isinstance(event, KvFrames):
            self._hear(event, now)
        else:
            self._pipeline.traces(event.body, now)

    def _verdicts(self) -> Iterator[tuple[int, Verdict]]:
        for one in self._pipeline.judged or ():
            span = one.request.engine
            if span is not None:
                yield _number(span.says), one.verdict


def _number(says: Iterable[object]) -> int:
    names = [name for said in says if isinstance(name := getattr(said, "request_id", None), str)]
    return int(names[0].split("-")[2])


def compare(trace: Trace, spec: FleetSpec, config: str = CONFIG) -> Score:
    """Play a trace on a fleet through the service."""
    return Play(parse(config, {})).run(trace, spec)
