"""Who says nothing is counted once a silence, on a clock of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.edge.cores import counted, measures
from tests.edge.loops import looped
from whymiss.edge.kv.silence import Attended, Heard, Silence


class Clock:
    def __init__(self) -> None:
        self.now = 100.0


class Speaker:
    def __init__(self, taken: Callable[[], None]) -> None:
        self.speak = taken

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Scene:
    def __init__(self) -> None:
        self.clock, self.measures, self.taken = Clock(), measures(), 0
        self.silence = Silence(self.measures, 60.0, now=lambda: self.clock.now, sleep=self._sleep)
        self.speakers: list[Speaker] = []
        self.slept: list[float] = []

    def attend(self, name: str) -> Attended:
        return Attended(name, self.silence, self._subscribe, self._take)

    def _subscribe(self, taken: Callable[[], None]) -> Speaker:
        self.speakers.append(Speaker(taken))
        return self.speakers[-1]

    def _take(self) -> None:
        self.taken += 1

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.now += seconds
        if len(self.slept) > 4:
            raise asyncio.CancelledError

    def at(self, now: float) -> tuple[float, float]:
        """Look at a time; returns who is silent now, and how many silences there were."""
        self.clock.now = now
        self.silence.look()
        return (
            counted(self.measures, "whymiss.ledger.silent_sources"),
            counted(self.measures, "whymiss.ledger.silences"),
        )


@looped
async def test_a_silence_is_counted_once_and_ends_with_a_message() -> None:
    scene = Scene()
    one, other = scene.attend("a"), scene.attend("b")
    await one.start()
    await other.start()
    assert scene.at(159.9) == (0, 0)
    scene.speakers[1].speak()
    assert scene.at(160) == (1, 1)
    assert scene.at(200) == (1, 1)
    scene.speakers[0].speak()
    assert counted(scene.measures, "whymiss.ledger.silent_sources") == 0
    assert scene.at(219.8) == (0, 1)
    assert scene.at(300) == (2, 3)
    assert counted(scene.measures, "whymiss.ledger.silences", source="a") == 2
    assert scene.taken == 2


@looped
async def test_nobody_waits_for_a_publisher_that_left() -> None:
    scene = Scene()
    one = scene.attend("a")
    await one.start()
    await one.stop()
    await one.stop()
    scene.speakers[0].speak()
    assert scene.at(1000) == (0, 0)


@looped
async def test_a_silence_is_noticed_within_a_quarter_of_its_length() -> None:
    scene = Scene()
    await scene.attend("a").start()
    task = asyncio.create_task(scene.silence.run())
    await asyncio.gather(task, return_exceptions=True)
    assert scene.slept == [15.0] * 5
    assert counted(scene.measures, "whymiss.ledger.silences", source="a") == 1


@looped
async def test_a_source_that_never_spoke_has_no_age_however_long_it_is_followed() -> None:
    scene = Scene()
    await scene.attend("a").start()
    await scene.attend("b").start()
    scene.clock.now = 130
    scene.speakers[1].speak()
    scene.at(185)
    assert scene.silence.heard() == {"a": Heard(None, silent=True), "b": Heard(55, silent=False)}
