from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.edge.loops import looped
from whymiss.edge.receivers.http_bodies import Budget, Held
from whymiss.errors import Overloaded


async def wait_for_ever(held: Held, size: int, begun: asyncio.Event) -> None:
    async with held.arriving():
        held.take(size)
        begun.set()
        await asyncio.Event().wait()


@looped
async def test_the_body_that_has_been_arriving_longest_makes_room() -> None:
    budget = Budget(100, undisturbed_seconds=0)
    waiting = []
    for size in (40, 50):
        begun = asyncio.Event()
        waiting.append(asyncio.create_task(wait_for_ever(Held(budget), size, begun)))
        await begun.wait()
    held = Held(budget)
    held.take(30)
    with pytest.raises(TimeoutError):
        await waiting[0]
    assert not waiting[1].done()
    assert budget.bytes_left == 20
    held.give_back()
    held = Held(budget)
    held.take(90)
    with pytest.raises(TimeoutError):
        await waiting[1]
    held.give_back()
    assert budget.bytes_left == 100


@looped
async def test_nobody_makes_room_before_a_moment_has_passed() -> None:
    budget = Budget(100, undisturbed_seconds=60)
    begun = asyncio.Event()
    waiting = asyncio.create_task(wait_for_ever(Held(budget), 80, begun))
    await begun.wait()
    with pytest.raises(Overloaded, match=r"receivers\.http\.max_body_bytes"):
        Held(budget).take(30)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


@looped
async def test_who_made_room_takes_no_more() -> None:
    budget = Budget(100, undisturbed_seconds=0)
    slow = Held(budget)
    begun = asyncio.Event()
    waiting = asyncio.create_task(wait_for_ever(slow, 80, begun))
    await begun.wait()
    Held(budget).take(70)
    with pytest.raises(Overloaded):
        slow.take(1)
    with pytest.raises(TimeoutError):
        await waiting
    assert budget.bytes_left == 30


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=30))
def test_what_is_held_and_what_is_left_are_all_there_is(steps: list[tuple[int, int]]) -> None:
    budget = Budget(100)
    held = [Held(budget) for _ in range(3)]
    taken = [0, 0, 0]
    for who, size in steps:
        if who == 3:
            oldest = size % 3
            held[oldest].give_back()
            held[oldest], taken[oldest] = Held(budget), 0
            continue
        try:
            asyncio.run(_take(held[who], size))
            taken[who] += size
        except Overloaded:
            assert sum(taken) + size > 100
        assert budget.bytes_left + sum(taken) == 100


async def _take(held: Held, size: int) -> None:
    held.take(size)


@looped
async def test_a_body_whose_time_is_just_over_costs_nobody_else_a_failure() -> None:
    budget = Budget(100, undisturbed_seconds=0, seconds_max=0)
    slow, quick = Held(budget), Held(budget)

    async def arrive() -> None:
        # In this turn of the loop the slow one's time ends; it hears of it in the next one.
        await asyncio.sleep(0)
        quick.take(50)

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(_expire(slow))
        tasks.create_task(arrive())
    assert waiting.result()
    quick.give_back()
    assert budget.bytes_left == 100


async def _expire(held: Held) -> bool:
    """Arrive with no time left; says whether it ended for want of time."""
    try:
        async with held.arriving():
            held.take(80)
            await asyncio.Event().wait()
    except TimeoutError:
        held.give_back()
        return True
    return False
