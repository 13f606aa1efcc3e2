"""The fast fleet model: what it counts adds up, and it is the plain model, only faster."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.fleet.plainly import PlainFleet
from tests.tools.fleet.requests import BLOCK_TOKENS, LONGEST, made, setups, traces
from whymiss.model import Cause, Reason
from whymiss.tools.fleet.grid import _in_a_pool, replay, replay_all
from whymiss.tools.fleet.replay import Fleet, Outcome, Why
from whymiss.tools.fleet.routing import SEED
from whymiss.tools.fleet.setup import ROUTINGS, Setup, Tier
from whymiss.tools.fleet.trace import Trace

NEW = {Cause.NEW_CONTENT, Cause.NO_RECENT_MATCH}


def new_tokens(outcome: Outcome) -> int:
    return sum(tokens for why, tokens in outcome.missed_tokens.items() if why.cause in NEW)


def lost_tokens(outcome: Outcome) -> int:
    return outcome.missed_tokens.total() - new_tokens(outcome)


@given(trace=traces(), setup=setups)
def test_every_missed_block_has_the_cause_that_the_plain_model_gives_it(trace: Trace, setup: Setup) -> None:
    fleet, plain = Fleet(setup, BLOCK_TOKENS), PlainFleet(setup)
    for ask in trace.asks:
        plain.pass_time(ask.at)
        served = fleet.serve(ask)
        assert served is not None
        found = [run.why for run in served.missed for _ in range(run.begin, run.end)]
        wanted = plain.missed(ask, served.worker, served.queried)
        stale = sum(why.cause is Cause.STALE_INDEX for why in found)
        routed = [why._replace(reason="") if why.cause is Cause.ROUTING_MISS else why for why in found]
        assert routed[stale:] == wanted[stale:]
        assert served.hits == served.queried - len(wanted)
        plain.use(ask, served.worker)


@given(trace=traces(), setup=setups)
def test_queried_is_hit_and_lost_and_new_and_ends_of_prompts(trace: Trace, setup: Setup) -> None:
    outcome = replay(trace, setup)
    assert outcome.queried_tokens == sum(ask.prompt_tokens for ask in trace.asks)
    missed = lost_tokens(outcome) + new_tokens(outcome) + outcome.unmatchable_tokens
    assert outcome.hit_tokens + missed == outcome.queried_tokens
    assert sum(outcome.computed_tokens_of) == missed
    assert outcome.loaded_tokens <= outcome.hit_tokens
    assert sum(outcome.requests_of) == outcome.lookups.total() == outcome.requests == len(trace.asks)


@given(trace=traces(), one=setups, other=setups)
def test_no_fleet_changes_what_is_new(trace: Trace, one: Setup, other: Setup) -> None:
    assert new_tokens(replay(trace, one)) == new_tokens(replay(trace, other))


@given(trace=traces(), capacity=st.integers(LONGEST, 30), more=st.integers(1, 20))
def test_one_worker_with_more_room_never_loses_more(trace: Trace, capacity: int, more: int) -> None:
    small, large = (replay(trace, Setup(capacity=blocks)) for blocks in (capacity, capacity + more))
    assert lost_tokens(large) <= lost_tokens(small)


@given(trace=traces(), setup=setups, more=st.none() | st.integers(0, 30))
def test_a_tier_never_loses_more_where_routing_does_not_look_at_it(
    trace: Trace, setup: Setup, more: int | None
) -> None:
    routing = {"prefix": "random", "prefix_greedy": "sticky", "least_loaded": "round_robin"}
    setup = msgspec.structs.replace(setup, routing=routing.get(setup.routing, setup.routing))
    room = None if more is None or setup.tier is None or setup.tier.blocks is None else setup.tier.blocks + more
    larger = msgspec.structs.replace(setup, tier=Tier(room, shared=setup.tier is not None and setup.tier.shared))
    assert lost_tokens(replay(trace, larger)) <= lost_tokens(replay(trace, setup))


@given(trace=traces(), setup=setups)
def test_one_endless_tier_for_all_loses_nothing_but_promises(trace: Trace, setup: Setup) -> None:
    setup = msgspec.structs.replace(setup, tier=Tier(None, shared=True), keep_seconds=None)
    assert lost_tokens(replay(trace, setup)) == 0


@given(trace=traces(), setup=setups)
def test_the_same_trace_and_fleet_give_the_same_outcome(trace: Trace, setup: Setup) -> None:
    assert replay(trace, setup) == replay(trace, setup)


@given(trace=traces(), setup=setups, routing=st.sampled_from(["prefix", "prefix_greedy"]))
def test_an_index_that_never_learns_routes_by_load_alone(trace: Trace, setup: Setup, routing: str) -> None:
    blind = msgspec.structs.replace(setup, routing=routing, index_lag_seconds=1e9)
    by_load = msgspec.structs.replace(setup, routing="least_loaded")
    assert replay(trace, blind).requests_of == replay(trace, by_load).requests_of


@given(trace=traces(), setup=setups, routing=st.sampled_from(["prefix", "prefix_greedy"]))
def test_an_index_that_learns_before_the_next_request_is_exact(trace: Trace, setup: Setup, routing: str) -> None:
    apart = trace._replace(asks=tuple(ask._replace(at=float(at)) for at, ask in enumerate(trace.asks)))
    # Blocks that age leave between two requests, which an index hears of a little later.
    setup = msgspec.structs.replace(setup, routing=routing, keep_seconds=None)
    exact = msgspec.structs.replace(setup, index_lag_seconds=0.0)
    quick = msgspec.structs.replace(setup, index_lag_seconds=0.5)
    assert replay(apart, quick) == replay(apart, exact)


def test_an_old_index_promises_what_is_gone() -> None:
    # Worker 0 gets a prompt, then loses it to two others, of which the index has not heard.
    prompts = [range(4), range(10, 14), range(20, 24), range(30, 34), range(4)]
    setup = Setup(workers=2, capacity=4, routing="prefix", index_lag_seconds=2.5)
    fleet = Fleet(setup, BLOCK_TOKENS)
    last = [fleet.serve(ask) for ask in made(*prompts).asks][-1]
    assert last is not None
    assert last.missed[0].why == Why(Cause.STALE_INDEX)
    assert (last.missed[0].begin, last.missed[0].end) == (0, 4)


@pytest.mark.parametrize(
    ("setup", "reason"),
    [
        (Setup(workers=2), Reason.HOLDER_UNKNOWN),
        (Setup(workers=2, routing="prefix"), Reason.HOLDER_KNOWN),
    ],
)
def test_a_routing_miss_says_whether_the_router_knew(setup: Setup, reason: Reason) -> None:
    # Less than half of the second prompt is held, so that the router goes by load.
    fleet = Fleet(setup, BLOCK_TOKENS)
    served = [fleet.serve(ask) for ask in made(range(9), (*range(4), *range(20, 26))).asks][-1]
    assert served is not None
    assert served.missed[0] == (Why(Cause.ROUTING_MISS, reason), 0, 4)


def test_a_session_on_its_worker_is_pinned() -> None:
    first, again = made(range(4), range(4)).asks
    fleet = Fleet(Setup(workers=2, routing="sticky"), BLOCK_TOKENS)
    fleet.serve(first)
    served = fleet.serve(again._replace(session=1))
    assert served is not None
    assert served.missed[0].why == Why(Cause.ROUTING_MISS, Reason.PINNED)


def test_what_was_not_used_for_too_long_has_expired() -> None:
    outcome = replay(made(range(4), [9], [9], range(4)), Setup(keep_seconds=2.5))
    assert outcome.lookups[Why(Cause.EVICTED, "expired")] == 1


def test_a_tier_gives_back_what_the_worker_dropped() -> None:
    outcome = replay(made(range(4), range(10, 14), range(4)), Setup(capacity=4, tier=Tier(8)))
    assert outcome.loaded_tokens == outcome.hit_tokens == 4 * BLOCK_TOKENS


def test_a_request_longer_than_the_cache_is_refused_and_seen_by_nobody() -> None:
    outcome = replay(made(range(4), range(5), range(4)), Setup(capacity=4))
    assert (outcome.refused, outcome.requests, outcome.hit_tokens) == (1, 2, 4 * BLOCK_TOKENS)


def test_time_that_goes_back_is_the_time_before() -> None:
    first, second, third = made(range(4), [9], range(4)).asks
    late = [first, second._replace(at=100.0), third._replace(at=1.0)]
    outcome = replay(Trace("made", BLOCK_TOKENS, tuple(late), 0, 0), Setup(keep_seconds=50.0))
    assert outcome.lookups[Why(Cause.EVICTED, "expired")] == 1


def test_processes_give_what_one_gives_and_tell_how_far_they_are() -> None:
    trace = made(*[range(100 * (number % 7), 100 * (number % 7) + 5) for number in range(30)])
    fleets = [Setup(workers=3, capacity=6, routing=routing) for routing in ROUTINGS]
    told: list[int] = []
    alone = replay_all(trace, fleets, 1, told.append)
    assert told[-1] == len(fleets) * len(trace.asks)
    assert told == sorted(told)
    assert _in_a_pool(trace, fleets, 2, told.append) == alone
    assert told[-1] == len(fleets) * len(trace.asks)


def test_the_random_policy_uses_every_worker() -> None:
    outcome = replay(made(*[[number] for number in range(60)]), Setup(workers=4, routing="random"))
    assert min(outcome.requests_of) > 5, SEED
