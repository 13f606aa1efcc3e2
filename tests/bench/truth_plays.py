"""The simulated fleets that ``bench_truth.py`` plays: complete evidence, every kind of cause, and every fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from tests.fleet.compare import CONFIG
from tests.fleet.prompts import Injection
from tests.fleet.spec import Faults, FleetSpec
from tests.fleet.tier import TierSpec

ALL = 1 << 30
CONVERSATION, SYNTHETIC = "mooncake_conversation_full", "mooncake_synthetic_full"


class Replayed(NamedTuple):
    """A trace as it is played with complete evidence: its first requests."""

    trace: str
    capacity: int
    routing: Literal["pa", "sticky"]
    requests: int = ALL
    injection: Injection = Injection()

    @property
    def name(self) -> str:
        """The trace, and whether its requests were changed."""
        return self.trace if self.injection == Injection() else f"{self.trace}, injected"


INJECTED = Injection(edited=0.3, edit_within=0.9, salted=0.3, adapted=0.3)
TRACES = (
    Replayed(CONVERSATION, 1500, "pa"),
    Replayed(SYNTHETIC, 1500, "pa"),
    Replayed("weka_60", 2048, "pa"),
    Replayed("weka_200", 8192, "sticky"),
    Replayed("miniswe", 3072, "pa"),
    Replayed("miniswe", 3072, "pa", injection=INJECTED),
)
RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2)
SKEWS = (0.0, 0.01, 0.05, 0.2, 1.0, 5.0)


SPOILT = TierSpec(capacity=20_000, unasked=0.2, timeouts=0.2, failures=0.2, stale=0.2)
EDITED = Injection(edited=0.4, edit_within=0.9)
IGNORANT = FleetSpec(
    capacity=3000,
    routing="pa",
    router_spans=True,
    index_ignores_clears=True,
    faults=Faults(clears=tuple((60.0 * n, n % 4) for n in range(1, 30))),
)


@dataclass(frozen=True, kw_only=True)
class Play:
    """One run: a share of a trace's first requests on a fleet. ``curve`` and ``rate`` place it on a fault's curve."""

    name: str
    trace: str
    requests: int
    share: float
    spec: FleetSpec
    config: str = CONFIG
    curve: str = ""
    rate: float = 0.0


def complete(share: float) -> Iterator[Play]:
    """Every trace on one, four and sixteen workers, with the engine's own word and without it."""
    for one in TRACES:
        for workers in (1, 4, 16):
            for direct in (True, False):
                yield Play(
                    name=f"{one.name} x{workers} {'direct' if direct else 'derived'}",
                    trace=one.trace,
                    requests=one.requests,
                    share=share,
                    spec=FleetSpec(
                        workers=workers,
                        capacity=one.capacity,
                        routing=one.routing,
                        lookup_spans=direct,
                        injection=one.injection,
                    ),
                )


def of_each_kind(share: float) -> Iterator[Play]:
    """What the plain traces do not show: blind routing, tiers, drafts, sparse state, changed identities and tokens."""
    plays: dict[str, tuple[str, int, FleetSpec]] = {
        "round robin": (CONVERSATION, 2500, FleetSpec(capacity=1500, routing="rr", router_spans=True)),
        "old index": (
            CONVERSATION,
            5000,
            FleetSpec(capacity=400, routing="pa", router_spans=True, index_lag_seconds=60),
        ),
        "old index, long": (
            SYNTHETIC,
            ALL,
            FleetSpec(capacity=400, routing="pa", router_spans=True, index_lag_seconds=60),
        ),
        "resets ignored": (CONVERSATION, 2500, IGNORANT),
        "tier": (CONVERSATION, 3000, FleetSpec(workers=1, capacity=300, tier=TierSpec(capacity=4000))),
        "tier that fails": (SYNTHETIC, ALL, FleetSpec(workers=1, capacity=300, tier=SPOILT)),
        "tier that fails, turns": (CONVERSATION, 3000, FleetSpec(workers=1, capacity=300, tier=SPOILT)),
        "draft model": ("weka_60", 1000, FleetSpec(workers=2, capacity=6000, routing="sticky", eagle=True)),
        "blind lookups": (
            "weka_60",
            2500,
            FleetSpec(workers=2, capacity=6000, routing="sticky", blind=0.3, opted_out=0.3),
        ),
        "sliding window": ("weka_60", 3000, FleetSpec(workers=1, capacity=1500, sparse=True, window_blocks=3)),
        "states by four": ("weka_60", 1500, FleetSpec(workers=1, capacity=3000, sparse=True, unit_blocks=4)),
        "pairs": (CONVERSATION, 3000, FleetSpec(workers=2, decoders=2, capacity=1500, routing="pa", router_spans=True)),
        "identities": (
            "weka_60",
            1000,
            FleetSpec(workers=2, capacity=20000, routing="sticky", injection=Injection(salted=0.3, adapted=0.3)),
        ),
        "edits": ("weka_60", 1000, FleetSpec(workers=2, capacity=20000, routing="sticky", injection=EDITED)),
        "tokens, salts and adapters": (
            "miniswe",
            ALL,
            FleetSpec(workers=2, capacity=20000, routing="sticky", injection=Injection(salted=0.3, adapted=0.3)),
        ),
        "tokens, edits": ("miniswe", ALL, FleetSpec(workers=2, capacity=20000, routing="sticky", injection=EDITED)),
        "unlike seeds": (SYNTHETIC, ALL, FleetSpec(workers=4, capacity=9000, routing="rr", hash_seeds=4)),
        "unlike seeds, turns": ("weka_60", 1000, FleetSpec(workers=4, capacity=6000, routing="rr", hash_seeds=2)),
        "edits, fleet": (SYNTHETIC, 2000, FleetSpec(workers=4, capacity=9000, routing="pa", injection=EDITED)),
    }
    for capacity in (700, 1000, 1500, 2500):
        for trace in (SYNTHETIC, CONVERSATION):
            name = f"states, {capacity} blocks, {trace.split('_')[1]}"
            plays[name] = (
                trace,
                ALL if trace == SYNTHETIC else 3000,
                FleetSpec(workers=1, capacity=capacity, sparse=True),
            )
    for name, (trace, count, spec) in plays.items():
        direct = replace(spec, lookup_spans=True)
        yield Play(name=name, trace=trace, requests=count, share=share, spec=direct)


def faulty(share: float) -> Iterator[Play]:
    """Every fault at growing rates, with the engine's own word and without it."""
    for direct in (True, False):
        for curve, rate, faults in _faults():
            tolerance = max(0.05, 2 * rate + 0.05) if curve == "skew, s" else 0.05
            # Held until clocks that are this far apart have shown what came later.
            hold = max(30.0, 8 * tolerance)
            settings = f"attribution: {{clock_tolerance_seconds: {tolerance}}}\njoin: {{hold_seconds: {hold}}}\n"
            yield Play(
                name=f"{curve} {rate:g} {'direct' if direct else 'derived'}",
                trace=SYNTHETIC if curve in {"drop", "drop and replay", "duplicate", "reannounced"} else CONVERSATION,
                requests=1200,
                share=share,
                spec=FleetSpec(
                    capacity=1000,
                    routing="pa",
                    router_spans=True,
                    lookup_spans=direct,
                    clock_tolerance_seconds=tolerance,
                    faults=faults,
                ),
                config=CONFIG + settings if curve == "skew, s" else CONFIG,
                curve=f"{curve} ({'direct' if direct else 'derived'})",
                rate=rate,
            )


def forgetful(share: float) -> Iterator[Play]:
    """Windows that are shorter than the trace."""
    for direct in (True, False):
        for seconds in (60, 300, 1800):
            yield Play(
                name=f"window {seconds} s {'direct' if direct else 'derived'}",
                trace=SYNTHETIC if seconds < 600 else CONVERSATION,
                requests=2886,
                share=share,
                spec=FleetSpec(capacity=1500, routing="pa", lookup_spans=direct, window_seconds=seconds),
                config=CONFIG.replace("1000000", str(seconds)),
                curve=f"window ({'direct' if direct else 'derived'})",
                rate=seconds,
            )


def _faults() -> Iterator[tuple[str, float, Faults]]:
    for rate in RATES:
        yield "drop", rate, Faults(drop_batches=rate)
        yield "drop and replay", rate, Faults(drop_batches=rate, replay=True)
    for rate in (0.01, 0.1, 0.3):
        yield "duplicate", rate, Faults(duplicate_batches=rate)
        yield "late spans", rate, Faults(late_spans=rate)
        yield "lost spans", rate, Faults(lost_spans=rate)
        yield "unsampled routers", rate, Faults(lost_routes=rate)
        yield "reannounced", rate, Faults(reannounced=rate)
    for count in (1, 4, 16):
        moments = tuple((600.0 * (n + 1) / (count + 1), n % 4) for n in range(count))
        yield "restarts", count, Faults(restarts=moments)
        yield "clears", count, Faults(clears=moments)
    for seconds in SKEWS:
        yield "skew, s", seconds, Faults(skew_seconds=seconds)
