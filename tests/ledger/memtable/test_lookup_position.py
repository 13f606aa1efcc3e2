"""The lookup behind a store stood before the removals that it caused."""

from __future__ import annotations

import pytest

from whymiss.ledger.memtable.lookup_position import LookupPositions

PARENT, OTHER = 7, 8


def positions(*events: tuple[str, int | None]) -> list[int]:
    """The lookup's position of each store, by events in order; a store of a second group is called ``sparse``."""
    lookups = LookupPositions()
    found = []
    for ordinal, (kind, parent) in enumerate(events):
        if kind in {"store", "sparse"}:
            found.append(lookups.store(ordinal, parent, int(kind == "sparse")))
        elif kind == "remove":
            lookups.remove(ordinal)
        else:
            lookups.clear()
    return found


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([("store", PARENT)], [0], id="nothing was evicted"),
        pytest.param([("remove", None), ("remove", None), ("store", PARENT)], [0], id="evicted, then stored"),
        pytest.param([("store", PARENT), ("sparse", PARENT)], [0, 0], id="groups of one request store side by side"),
        pytest.param([("store", PARENT), ("store", PARENT)], [0, 1], id="two stores of one group are two requests"),
        pytest.param(
            [("store", PARENT), ("sparse", PARENT), ("store", PARENT), ("sparse", PARENT)],
            [0, 0, 2, 2],
            id="two requests of two groups",
        ),
        pytest.param([("store", PARENT), ("store", OTHER)], [0, 1], id="another parent is another request"),
        pytest.param([("store", PARENT), ("remove", None), ("store", PARENT)], [0, 1], id="an eviction between"),
        pytest.param([("remove", None), ("clear", None), ("store", PARENT)], [2], id="a clear ends the run"),
        pytest.param([("store", None), ("sparse", None)], [0, 0], id="from the root"),
    ],
)
def test_a_lookup_stood_at_the_start_of_its_evictions(
    events: list[tuple[str, int | None]], expected: list[int]
) -> None:
    assert positions(*events) == expected
