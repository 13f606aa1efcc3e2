"""What pruning leaves out says nothing, and what it leaves in is what each filter and each segment's bounds allow."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whymiss.ledger.columnar.bloom_filter import Probe
from whymiss.ledger.segment.chain_table import PIECE, ChainTable, empty_chain_table
from whymiss.ledger.segment.operations import Run
from whymiss.ledger.segment.pruning import Pruning
from whymiss.ledger.segment.segment import Place, Segment
from whymiss.model import Tier

DEVICE: Place = (Tier.DEVICE, 0)
HOST: Place = (Tier.HOST, 0)
KEYS = st.integers(0, (1 << 64) - 1) | st.integers(0, 5)


def run(keys: list[int], *, chained: bool) -> Run:
    return Run(np.array(sorted(keys), np.uint64), np.ones(len(keys), np.uint32), chained=chained)


def chains(keys: list[int]) -> ChainTable:
    if not keys:
        return empty_chain_table()
    column = np.array(keys, np.uint64)
    first, ordinals = np.zeros(1, np.uint32), np.zeros(1, np.int64)
    return ChainTable(column, (column, column, None), first, ordinals, np.zeros(1, PIECE))


@st.composite
def segments(draw: st.DrawFn) -> list[Segment]:
    """Neighbouring segments, of which some have no run in a place."""
    made: list[Segment] = []
    begin = 0
    for keys, below in draw(st.lists(st.tuples(st.lists(KEYS, max_size=8), st.lists(KEYS, max_size=4)), max_size=6)):
        end = begin + draw(st.integers(1, 9))
        runs = {place: run(some, chained=place == DEVICE) for place, some in ((DEVICE, keys), (HOST, below)) if some}
        made.append(Segment((begin, end), runs, chains(keys)))
        begin = end
    return made


@given(segments(), st.lists(KEYS, min_size=1, max_size=9), st.integers(0, 60), st.integers(0, 60))
def test_the_runs_that_are_left_are_those_whose_filter_and_bounds_allow_it(
    parts: list[Segment], asked: list[int], first: int, last: int
) -> None:
    keys = asked + [int(one.runs[DEVICE].keys[0]) for one in parts if DEVICE in one.runs]
    pruning = Pruning(parts)
    for place in (DEVICE, HOST):
        of_place = [(part.runs[place], part) for part in parts if place in part.runs]
        for key in keys:
            expected = [
                (run, part)
                for run, part in of_place
                if part.begin < last and part.end > first and run.filter.may_hold(key)
            ]
            assert list(pruning.runs_naming(place, key, first, last)) == expected
        probe = Probe(np.array(keys, np.uint64))
        left = {id(part): some.tolist() for _, part, some in pruning.runs_naming_any(place, probe, last)}
        passing = {id(part): run.filter.passing(probe).tolist() for run, part in of_place if part.begin < last}
        assert left == {part: some for part, some in passing.items() if some}


@given(segments(), st.lists(KEYS, min_size=1, max_size=9), st.integers(0, 60))
def test_chained_runs_come_newest_first_and_segments_by_digest_oldest_first(
    parts: list[Segment], asked: list[int], last: int
) -> None:
    pruning = Pruning(parts)
    keys = asked + [int(one.chains.keys[0]) for one in parts if len(one.chains)]
    for key in keys:
        chained = [(one.runs[DEVICE], one) for one in reversed(parts) if DEVICE in one.runs]
        assert list(pruning.chained_runs_naming(key)) == [pair for pair in chained if pair[0].filter.may_hold(key)]
        known = [(one.chains.own_filter, one) for one in parts if one.begin < last]
        expected = [part for own, part in known if own is not None and own.may_hold(key)]
        assert list(pruning.segments_with_digest(key, last)) == expected
    probe = Probe(np.array(keys, np.uint64))
    left = [(part, some.tolist()) for part, some in pruning.segments_with_any_digest(probe, last)]
    passing = [(one, own.passing(probe).tolist()) for one in parts if (own := one.chains.own_filter) is not None]
    assert left == [(part, some) for part, some in passing if some and part.begin < last]
