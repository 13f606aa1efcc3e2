"""Verdicts of the service against the truth of simulated fleets over public traces."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from tests.fleet.compare import CONFIG, Score, compare
from tests.fleet.prompts import Injection
from tests.fleet.spec import Faults, FleetSpec
from tests.fleet.tier import TierSpec
from tests.fleet.traces import load

CAPACITY = {"mooncake_conversation_full": 1500, "mooncake_synthetic_full": 1500, "weka_60": 2048, "miniswe": 3072}
FAST = {"mooncake_conversation_full": 200, "mooncake_synthetic_full": 150, "weka_60": 60, "miniswe": 60}
DEEP = {"mooncake_conversation_full": 4000, "mooncake_synthetic_full": 2886, "weka_60": 2000, "miniswe": 207}
SLICES = [
    *(
        pytest.param(key, count, 4, direct, id=f"{key}-4-{direct}")
        for key, count in FAST.items()
        for direct in (True, False)
    ),
    *(
        pytest.param(key, count, workers, direct, id=f"deep-{key}-{workers}-{direct}", marks=pytest.mark.deep)
        for key, count in DEEP.items()
        for workers in (1, 4, 16)
        for direct in (True, False)
    ),
]


def check_complete(score: Score) -> None:
    """Nothing wrong, nothing unknown, and every figure of every verdict the true one."""
    print(score.table())
    assert not [pair.line() for pair in (*score.wrong, *score.unnamed)][:5]
    misstated = [f"{what}: {pair.line()}" for what, pair in score.misstated()]
    assert not [line for line in misstated if not (line.startswith("lost_tokens") and "token_divergence" in line)][:5]


def check_honest(score: Score, *, direct: bool = True) -> None:
    """Nothing wrong, and unknown only where evidence was lost.

    What is derived by elimination rests on all stores around a lookup, so losing one costs its neighbours too.
    """
    print(score.table())
    assert not [pair.line() for pair in score.wrong][:5]
    if not direct:
        assert any(pair.named for pair in score.pairs)
        return
    unexplained = [one for one in score.unnamed if not one.truth.touched and not one.truth.undecided]
    assert not [pair.line() for pair in unexplained][:5]
    assert 1 - score.coverage <= 2 * score.touched


@pytest.mark.parametrize(("key", "count", "workers", "direct"), SLICES)
def test_complete_evidence_names_every_cause(key: str, count: int, workers: int, *, direct: bool) -> None:
    spec = FleetSpec(workers=workers, capacity=CAPACITY[key], routing="pa", lookup_spans=direct)
    check_complete(compare(load(key).first(count), spec))


@pytest.mark.parametrize("routing", ["rr", "load", "sticky"])
def test_what_a_router_said_is_in_the_verdict(routing: Literal["rr", "load", "sticky"]) -> None:
    spec = FleetSpec(workers=4, capacity=300, routing=routing, router_spans=True, lookup_spans=True)
    check_complete(compare(load("mooncake_conversation_full").first(250), spec))


def test_promise_of_an_old_index_is_stale() -> None:
    spec = FleetSpec(workers=4, capacity=400, routing="pa", router_spans=True, lookup_spans=True, index_lag_seconds=20)
    score = compare(load("mooncake_conversation_full").first(400), spec)
    check_complete(score)
    assert score.confusion()["stale_index", "stale_index"] >= 4


@pytest.mark.parametrize(
    "injection",
    [Injection(salted=0.5), Injection(adapted=0.5), Injection(salted=0.3, adapted=0.3), Injection(edited=0.3)],
    ids=["salts", "adapters", "both", "edits"],
)
def test_changed_identity_and_changed_tokens_are_told_apart(injection: Injection) -> None:
    spec = FleetSpec(workers=2, capacity=6000, routing="sticky", injection=injection, lookup_spans=True)
    check_complete(compare(load("miniswe").first(50), spec))


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "derived"])
@pytest.mark.parametrize(
    ("key", "count", "routing"),
    [("mooncake_synthetic_full", 250, "rr"), ("miniswe", 50, "rr"), ("miniswe", 50, "pa"), ("weka_60", 60, "rr")],
)
def test_same_prompt_under_another_hash_seed_is_an_identity_mismatch(
    key: str, count: int, routing: Literal["rr", "pa"], *, direct: bool
) -> None:
    spec = FleetSpec(workers=4, capacity=9000, routing=routing, router_spans=True, hash_seeds=2, lookup_spans=direct)
    trace = load(key).first(count)
    score = compare(trace, spec)
    check_complete(score)
    assert score.confusion()["identity_mismatch", "identity_mismatch"] >= 2
    alike = compare(trace, replace(spec, hash_seeds=1))
    assert not alike.confusion()["identity_mismatch", "identity_mismatch"]


def test_draft_model_costs_the_last_matched_block() -> None:
    spec = FleetSpec(workers=2, capacity=6000, routing="sticky", eagle=True, lookup_spans=True)
    score = compare(load("miniswe").first(50), spec)
    check_complete(score)
    assert score.confusion()["speculative_replay", "speculative_replay"] > 40


def test_lookups_that_were_skipped_or_found_nothing_are_the_engines() -> None:
    spec = FleetSpec(workers=2, capacity=6000, routing="sticky", blind=0.3, opted_out=0.3, lookup_spans=True)
    score = compare(load("miniswe").first(60), spec)
    check_complete(score)
    assert score.confusion()["lookup_failure", "lookup_failure"] >= 8
    assert score.confusion()["cache_disabled", "cache_disabled"] >= 8


TIERS = {
    "loads": TierSpec(capacity=2000),
    "spoilt": TierSpec(capacity=2000, unasked=0.2, timeouts=0.2, failures=0.2, stale=0.2),
}


@pytest.mark.parametrize("name", TIERS)
def test_tier_that_promised_answers_for_it(name: str) -> None:
    spec = FleetSpec(workers=1, capacity=300, lookup_spans=True, tier=TIERS[name])
    check_complete(compare(load("mooncake_conversation_full").first(300), spec))


@pytest.mark.parametrize("unit", [1, 34])
@pytest.mark.parametrize("direct", [True, False])
def test_state_that_was_not_kept_answers_for_it(unit: int, *, direct: bool) -> None:
    spec = FleetSpec(workers=1, capacity=500, sparse=True, unit_blocks=unit, lookup_spans=direct)
    check_complete(compare(load("mooncake_conversation_full").first(200), spec))


@pytest.mark.parametrize("direct", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_window_that_was_let_go_answers_for_it(*, direct: bool) -> None:
    spec = FleetSpec(workers=1, capacity=1500, sparse=True, window_blocks=3, lookup_spans=direct)
    score = compare(load("weka_60").first(300), spec)
    check_complete(score)
    assert score.confusion()["sparse_retention", "sparse_retention"] >= 2


@pytest.mark.parametrize("direct", [True, False])
def test_answers_that_fill_blocks_take_nothing_from_the_verdicts(*, direct: bool) -> None:
    spec = FleetSpec(workers=2, capacity=500, routing="pa", answer_tokens_max=60, lookup_spans=direct)
    check_complete(compare(load("mooncake_conversation_full").first(250), spec))


@pytest.mark.parametrize("direct", [True, False])
def test_requests_that_overlap_leave_at_most_an_unknown(*, direct: bool) -> None:
    spec = FleetSpec(workers=2, capacity=2000, routing="pa", lanes="worker", running_max=4, lookup_spans=direct)
    check_honest(compare(load("mooncake_conversation_full").first(300), spec))


PAIRS = FleetSpec(workers=2, decoders=2, capacity=600, routing="pa", router_spans=True)


@pytest.mark.parametrize("direct", [True, False])
def test_prefill_half_is_judged_and_what_its_decode_half_received_is_no_evidence(*, direct: bool) -> None:
    check_complete(compare(load("mooncake_conversation_full").first(150), replace(PAIRS, lookup_spans=direct)))


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("name", ["lost", "late", "drop-1%", "unrouted"])
def test_half_of_a_pair_alone_is_never_another_cause(name: str, *, direct: bool) -> None:
    spec = replace(PAIRS, lookup_spans=direct, faults=FAULTS[name])
    check_honest(compare(load("mooncake_conversation_full").first(150), spec))


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("key", ["mooncake_synthetic_full", "mooncake_conversation_full"])
def test_short_window_says_what_it_shows(key: str, *, direct: bool) -> None:
    config = CONFIG.replace("1000000", "60")
    spec = FleetSpec(workers=4, capacity=700, routing="pa", lookup_spans=direct, window_seconds=60)
    score = compare(load(key).first(500), spec, config)
    check_honest(score)
    assert any(pair.said == pair.truth.in_window != pair.truth.cause for pair in score.pairs)


FAULTS = {
    "drop-0.1%": Faults(drop_batches=0.001),
    "drop-1%": Faults(drop_batches=0.01),
    "drop-20%": Faults(drop_batches=0.2),
    "drop-and-replay": Faults(drop_batches=0.2, replay=True),
    "twice": Faults(duplicate_batches=0.2),
    "restarts": Faults(restarts=((40, 1), (60, 2), (80, 0))),
    "clears": Faults(clears=((40, 1), (60, 2), (80, 0), (90, 3))),
    "late": Faults(late_spans=0.1),
    "lost": Faults(lost_spans=0.1),
    "unrouted": Faults(lost_routes=0.5),
    "spans-twice": Faults(duplicate_spans=0.2),
    "announced-again": Faults(reannounced=0.1),
    "all": Faults(
        drop_batches=0.002,
        duplicate_batches=0.05,
        restarts=((60, 1),),
        clears=((50, 0),),
        late_spans=0.05,
        lost_spans=0.05,
        duplicate_spans=0.1,
        reannounced=0.05,
    ),
}


QUICK = {"drop-1%", "clears", "all"}


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "derived"])
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.deep) for name in FAULTS]
)
def test_lost_evidence_is_never_another_cause(name: str, *, direct: bool) -> None:
    spec = FleetSpec(workers=4, capacity=400, routing="pa", router_spans=True, lookup_spans=direct, faults=FAULTS[name])
    check_honest(compare(load("mooncake_conversation_full").first(250), spec), direct=direct)


@pytest.mark.deep
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "derived"])
@pytest.mark.parametrize("name", FAULTS)
def test_lost_evidence_is_never_another_cause_on_a_longer_run(name: str, *, direct: bool) -> None:
    spec = FleetSpec(
        workers=4, capacity=1500, routing="pa", router_spans=True, lookup_spans=direct, faults=FAULTS[name]
    )
    check_honest(compare(load("mooncake_synthetic_full"), spec), direct=direct)


@pytest.mark.deep
@pytest.mark.parametrize("seconds", [0.01, 0.2, 1.0, 5.0])
def test_clocks_within_the_stated_tolerance_are_never_another_cause(seconds: float) -> None:
    tolerance = 2 * seconds + 0.05
    config = f"{CONFIG}attribution: {{clock_tolerance_seconds: {tolerance}}}\njoin: {{hold_seconds: 30}}\n"
    spec = FleetSpec(
        workers=4, capacity=1000, routing="pa", clock_tolerance_seconds=tolerance, faults=Faults(skew_seconds=seconds)
    )
    score = compare(load("mooncake_conversation_full").first(1500), spec, config)
    assert not [pair.line() for pair in score.wrong]


@pytest.mark.deep
def test_append_only_turns_never_end_in_a_change_cause() -> None:
    spec = FleetSpec(workers=4, capacity=8192, routing="sticky")
    pairs = [*compare(load("weka_60"), spec).pairs, *compare(load("weka_200").first(1500), spec).pairs]
    turns = [pair for pair in pairs if pair.truth.label == "X"]
    assert len(turns) >= 4000
    assert not [pair.line() for pair in turns if pair.said in {"token_divergence", "extra_key_mismatch"}]
