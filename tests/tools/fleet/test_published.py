"""The fast fleet model gives the published figures, request by request: what ``whymiss whatif`` rests on is right."""

from __future__ import annotations

import pytest

from tests.fleet.bounds import belady, consecutive_hits, ideal_hits, plain_lru, prefix_lru
from tests.fleet.published import Outcome, replay, share_within
from tests.fleet.traces import KEYS, expected, load

EXACT = (
    *("requests", "skipped", "requests_per_worker", "evictions", "block_refs", "hit_blocks", "hit_tokens"),
    *("first_miss", "missed_blocks", "recomputed_blocks", "held_elsewhere_and_evicted_here", "labels_sha256"),
)
ENGINE_RULE = ("hit_blocks", "first_miss", "recomputed_tokens", "labels_sha256")
FLEETS = {"mooncake_conversation": 4, "mooncake_conversation_full": 12, "mooncake_synthetic": 4}
FLEETS |= {"mooncake_synthetic_full": 10, "weka_60": 9, "weka_200": 9, "miniswe": 6}
FAST = {"mooncake_synthetic_full", "miniswe"}
"""Traces that are replayed by every test run; the others are checked by ``make deep``."""


def cases(count: dict[str, int]) -> list[object]:
    return [
        pytest.param(key, index, id=f"{key}-{index}", marks=() if key in FAST else pytest.mark.deep)
        for key in KEYS
        for index in range(count.get(key, 0))
    ]


def keys() -> list[object]:
    return [pytest.param(key, marks=() if key in FAST else pytest.mark.deep) for key in KEYS]


def row(key: str, part: str, index: int) -> dict[str, object]:
    rows = expected()[key][part]
    assert isinstance(rows, list)
    found: dict[str, object] = rows[index]
    return found


def replayed(key: str, wanted: dict[str, object], *, engine_rule: bool = False) -> Outcome:
    workers, capacity, routing = wanted["workers"], wanted["capacity"], wanted["routing"]
    assert isinstance(workers, int)
    assert isinstance(routing, str)
    assert capacity is None or isinstance(capacity, int)
    return replay(load(key), workers, capacity, routing, engine_rule=engine_rule)


def test_every_published_fleet_is_a_case() -> None:
    for key, count in FLEETS.items():
        rows = expected()[key]["fleet"]
        assert isinstance(rows, list)
        assert len(rows) == count


@pytest.mark.parametrize("key", keys())
def test_ideal_hit_ratios_are_the_published_ones(key: str) -> None:
    found = ideal_hits(load(key))
    wanted = expected()[key]["ideal_hit"]
    assert isinstance(wanted, dict)
    assert {name: round(found[name], 4) for name in wanted} == wanted


@pytest.mark.parametrize("key", keys())
def test_lru_tables_are_the_published_ones(key: str) -> None:
    table = expected()[key]["lru"]
    assert isinstance(table, dict)
    for wanted in table.values():
        hit, skipped = prefix_lru(load(key), wanted["capacity"])
        plain = plain_lru(load(key), wanted["capacity"])
        assert (round(plain, 4), round(hit, 4), skipped) == (wanted["plain"], wanted["prefix"], wanted["skipped"])


@pytest.mark.parametrize("key", keys())
def test_clairvoyant_hit_ratios_are_the_published_ones(key: str) -> None:
    shares = expected()[key].get("belady", {})
    table = expected()[key]["lru"]
    assert isinstance(shares, dict)
    assert isinstance(table, dict)
    for share, wanted in shares.items():
        assert round(belady(load(key), table[share]["capacity"]), 4) == wanted


@pytest.mark.deep
@pytest.mark.parametrize("key", ["weka_60", "weka_200"])
def test_consecutive_hit_rates_are_the_published_ones(key: str) -> None:
    rates = consecutive_hits(load(key))
    wanted = expected()[key]["consecutive_hit"]
    assert isinstance(wanted, dict)
    places = {"min": 0.0, "p25": 0.25, "p50": 0.5, "p75": 0.75, "max": 1.0}
    assert len(rates) == wanted["sessions"]
    assert round(sum(rates) / len(rates), 4) == wanted["mean"]
    for name, share in places.items():
        assert round(rates[int((len(rates) - 1) * share)], 4) == wanted[name]


@pytest.mark.parametrize(("key", "index"), cases(FLEETS))
def test_fleet_gives_every_published_figure_and_label(key: str, index: int) -> None:
    wanted = row(key, "fleet", index)
    outcome = replayed(key, wanted)
    assert {name: getattr(outcome, name) for name in EXACT} == {name: wanted[name] for name in EXACT}
    check_recalls(outcome, wanted)


def check_recalls(outcome: Outcome, wanted: dict[str, object]) -> None:
    """How much bounded history would still have named an eviction."""
    capacity = wanted["capacity"]
    if not outcome.ages or "recall_ring" not in wanted or not isinstance(capacity, int):
        return
    for prefix, ages, rings in (
        ("", outcome.ages, outcome.rings),
        ("first_miss_", outcome.first_ages, outcome.first_rings),
    ):
        by_ring, by_window = wanted[f"{prefix}recall_ring"], wanted[f"{prefix}recall_window"]
        assert isinstance(by_ring, dict)
        assert isinstance(by_window, dict)
        for name, share in by_ring.items():
            assert round(share_within(rings, round(float(name.removesuffix("xC")) * capacity)), 4) == share
        for name, share in by_window.items():
            assert round(share_within(ages, float(name.removesuffix("s"))), 4) == share


ENGINE = {"mooncake_conversation_full": 2, "mooncake_synthetic_full": 2, "weka_200": 3}


@pytest.mark.parametrize(("key", "index"), cases(ENGINE))
def test_fleet_under_the_engines_limit_gives_the_published_labels(key: str, index: int) -> None:
    wanted = row(key, "engine_rule", index)
    outcome = replayed(key, wanted, engine_rule=True)
    assert {name: getattr(outcome, name) for name in ENGINE_RULE} == {name: wanted[name] for name in ENGINE_RULE}
