"""Accounting against an engine that knows the truth, in every mode, with requests and events left out."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accounting.engine import SIZE, Mode, Played, played
from whymiss.accounting import Account, Limits, Outcome, Request, Said, Stream

MODES = {
    "busy": Mode(),
    "small pool": Mode(blocks=26),
    "pipelined": Mode(pipelined=True),
    "pipelined, small pool": Mode(pipelined=True, blocks=28),
    "chunked": Mode(budget=14),
    "equal lengths": Mode(equal=True),
    "preempted decodes": Mode(answers=40, blocks=40),
}
SEEDS = st.integers(0, 1 << 32)
SMALL_ROUNDS = Limits(round_tokens_min=0)
"""The engine's rounds are as small as its blocks."""
UNSEEN_MAY_BE = Limits(round_tokens_min=0, elimination=False)


def answered(run: Played, requests: list[Request], limits: Limits = SMALL_ROUNDS) -> dict[bytes, Outcome]:
    account = Account(limits)
    account.add(run.stream())
    for request in requests:
        account.note(request)
    return {request.id: account.outcome(request.id) for request in requests}


def counts(outcome: Outcome) -> set[int]:
    return {result.cached_blocks for result in outcome.results}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
@given(seed=SEEDS)
def test_what_is_agreed_is_true(mode: Mode, seed: int) -> None:
    run = played(mode, seed)
    for name, outcome in answered(run, list(run.requests)).items():
        if outcome.cached_tokens is not None:
            assert outcome.cached_tokens == run.hits[name] * SIZE  # type: ignore[index]


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
def test_most_of_it_is_agreed(mode: Mode) -> None:
    outcomes = [outcome for seed in range(40) for outcome in _all(mode, seed)]
    assert sum(outcome.cached_tokens is not None for outcome in outcomes) / len(outcomes) > 0.85


def _all(mode: Mode, seed: int) -> list[Outcome]:
    run = played(mode, seed)
    return list(answered(run, list(run.requests)).values())


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
@given(seed=SEEDS, share=st.floats(0, 1))
def test_who_is_not_seen_makes_nothing_untrue_without_elimination(mode: Mode, seed: int, share: float) -> None:
    run, chance = played(mode, seed), Random(seed)
    all_seen = answered(run, list(run.requests), UNSEEN_MAY_BE)
    some = [request for request in run.requests if chance.random() < share]
    for name, outcome in answered(run, some, UNSEEN_MAY_BE).items():
        before = all_seen[name]
        if outcome.cached_tokens is not None:
            assert outcome.cached_tokens == run.hits[name] * SIZE  # type: ignore[index]
        if outcome.results and outcome.all_known and before.said is not Said.OPEN:
            assert counts(before) <= counts(outcome)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
@given(seed=SEEDS, data=st.data())
def test_a_lost_batch_makes_nothing_untrue(mode: Mode, seed: int, data: st.DataObject) -> None:
    run = played(mode, seed)
    lost = data.draw(st.integers(0, len(run.batches) - 1))
    account = Account(SMALL_ROUNDS)
    account.add(run.without(lost))
    for request in run.requests:
        account.note(request)
    for request in run.requests:
        outcome = account.outcome(request.id)
        if outcome.cached_tokens is not None:
            assert outcome.cached_tokens == run.hits[request.id] * SIZE


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
@given(seed=SEEDS, data=st.data())
def test_order_and_time_of_asking_make_nothing_untrue(mode: Mode, seed: int, data: st.DataObject) -> None:
    """Spans come late and in any order, questions as soon as the request's own span is there."""
    run = played(mode, seed)
    account = Account(UNSEEN_MAY_BE)
    stream = Stream(run.stream().name, run.book, SIZE, from_birth=True)
    account.add(stream)
    notes = data.draw(st.permutations(run.requests))
    batches = list(run.batches)
    for request in notes:
        while batches and (batches[0].unix_nanos <= request.end or data.draw(st.booleans())):
            stream.append(batches.pop(0))
        account.note(request)
        outcome = account.outcome(request.id)
        if outcome.cached_tokens is not None:
            assert outcome.cached_tokens == run.hits[request.id] * SIZE
    for batch in batches:
        stream.append(batch)
    stream.confirm(1 << 62)
    at_once = answered(run, list(run.requests), UNSEEN_MAY_BE)
    for request in run.requests:
        late, early = account.outcome(request.id), at_once[request.id]
        assert (late.said, counts(late)) == (early.said, counts(early))
