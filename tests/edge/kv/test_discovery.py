"""The subscribers that run are the publishers that there are. No clock: a look ends where it would sleep."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from zmq import ZMQError

from tests.edge.cores import counted, measures
from tests.edge.loops import looped
from whymiss.config import KvEventsConfig, KvSourceConfig, parse
from whymiss.edge.kv.discovery import Discovery, World, addresses_of
from whymiss.edge.telemetry import logs


class Looks:
    """A sleep that ends when the test says so."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._asleep = asyncio.Semaphore(0)
        self._awake = asyncio.Semaphore(0)

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        self._asleep.release()
        await self._awake.acquire()

    async def first(self, count: int = 1) -> None:
        """Wait until so many lookups have had their first look."""
        for _ in range(count):
            await self._asleep.acquire()

    async def again(self) -> None:
        """Let the only lookup look once more, and wait for it."""
        self._awake.release()
        await self._asleep.acquire()


class Subscribers:
    """Subscribers that run nothing, and addresses that cannot be used."""

    def __init__(self) -> None:
        self.running: list[KvSourceConfig] = []
        self.started: list[str] = []
        self.unusable: set[str] = set()
        self.failure: Exception = OSError("unusable")

    def subscribe(self, source: KvSourceConfig) -> Follower:
        return Follower(self, source)

    @property
    def endpoints(self) -> list[str]:
        return sorted(one.endpoint for one in self.running)


class Follower:
    def __init__(self, all_of_them: Subscribers, source: KvSourceConfig) -> None:
        self._all, self._source = all_of_them, source

    async def start(self) -> None:
        if self._source.endpoint in self._all.unusable:
            raise self._all.failure
        assert self._source.endpoint not in self._all.endpoints, "two of one address at a time"
        self._all.running.append(self._source)
        self._all.started.append(self._source.endpoint)

    async def stop(self) -> None:
        if self._source in self._all.running:
            self._all.running.remove(self._source)


class Names:
    """A name server: addresses, or an error."""

    def __init__(self, **answers: Sequence[str] | OSError) -> None:
        self.answers = dict(answers)

    async def resolve(self, name: str) -> Sequence[str]:
        answer = self.answers[name]
        if isinstance(answer, OSError):
            raise answer
        return answer


class Scene:
    def __init__(self, section: str, names: Names | None = None) -> None:
        self.looks, self.subscribers, self.names = Looks(), Subscribers(), names or Names()
        self.measures = measures()
        self.config: KvEventsConfig = parse(f"kv_events: {section}", {}).kv_events
        self.discovery = Discovery(
            self.config,
            self.subscribers.subscribe,
            self.measures,
            World({"HOST": "e"}, self.names.resolve, self.looks.sleep),
        )

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[None]:
        await self.discovery.start()
        await self.looks.first(len(self.config.discovery))
        yield
        await self.discovery.stop()
        assert self.subscribers.running == []
        assert self.discovery.sources == ()

    @property
    def failures(self) -> float:
        return counted(self.measures, "whymiss.ledger.discovery_failures")


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure("info", stream)
    yield stream
    logs.configure("info")


def written(lines: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


@looped
async def test_new_addresses_are_followed_and_gone_ones_let_go() -> None:
    scene = Scene("{discovery: [{dns: 'engines:5557', refresh_seconds: 7}]}", Names(engines=["10.0.0.1", "10.0.0.2"]))
    async with scene.playing():
        assert scene.subscribers.endpoints == ["tcp://10.0.0.1:5557", "tcp://10.0.0.2:5557"]
        scene.names.answers["engines"] = ["10.0.0.2", "fd00::3"]
        await scene.looks.again()
        assert scene.subscribers.endpoints == ["tcp://10.0.0.2:5557", "tcp://[fd00::3]:5557"]
        assert counted(scene.measures, "whymiss.ledger.sources") == 2
    assert scene.subscribers.started.count("tcp://10.0.0.2:5557") == 1
    assert scene.looks.asked == [7.0, 7.0]


@looped
async def test_each_rank_of_each_address_is_followed() -> None:
    scene = Scene("{discovery: [{dns: 'engines:5557', ranks: 2, replay_port: 6000}]}", Names(engines=["10.0.0.1"]))
    async with scene.playing():
        assert [
            (one.endpoint, one.replay_endpoint, one.rank, one.default_worker) for one in scene.discovery.sources
        ] == [
            ("tcp://10.0.0.1:5557", "tcp://10.0.0.1:6000", 0, "10.0.0.1"),
            ("tcp://10.0.0.1:5558", "tcp://10.0.0.1:6001", 1, "10.0.0.1"),
        ]


def test_while_a_name_cannot_be_resolved_the_last_answer_holds(lines: io.StringIO) -> None:
    @looped
    async def play() -> None:
        scene = Scene("{discovery: [{dns: 'engines:5557'}]}", Names(engines=["10.0.0.1"]))
        async with scene.playing():
            scene.names.answers["engines"] = OSError(-2, "Name or service not known")
            await scene.looks.again()
            await scene.looks.again()
            assert scene.subscribers.endpoints == ["tcp://10.0.0.1:5557"]
            assert scene.failures == 2
            scene.names.answers["engines"] = ["10.0.0.9"]
            await scene.looks.again()
            assert scene.subscribers.endpoints == ["tcp://10.0.0.9:5557"]

    play()
    messages = [line["message"] for line in written(lines)]
    assert messages.count("name not resolved, the last answer holds") == 1
    assert messages.count("name resolved again") == 1


@looped
async def test_a_name_that_never_resolves_does_not_hold_up_the_start() -> None:
    scene = Scene("{sources: [{endpoint: 'tcp://a:1'}], discovery: [{dns: 'engines:5557'}]}", Names(engines=OSError()))
    async with scene.playing():
        assert scene.subscribers.endpoints == ["tcp://a:1"]
        assert counted(scene.measures, "whymiss.ledger.sources") == 1
        assert scene.failures == 1


@looped
async def test_what_is_configured_wins_over_what_is_found() -> None:
    section = "{sources: [{endpoint: 'tcp://10.0.0.1:5557', worker: w}], discovery: [{dns: 'a:5557'}, {dns: 'b:5557'}]}"
    scene = Scene(section, Names(a=["10.0.0.1", "10.0.0.2"], b=["10.0.0.2"]))
    async with scene.playing():
        assert [(one.endpoint, one.worker) for one in scene.subscribers.running] == [
            ("tcp://10.0.0.1:5557", "w"),
            ("tcp://10.0.0.2:5557", None),
        ]


@looped
@pytest.mark.parametrize("failure", [OSError("unusable"), ZMQError(24)])
async def test_an_address_that_cannot_be_used_is_tried_again(failure: Exception) -> None:
    scene = Scene("{discovery: [{dns: 'engines:5557'}]}", Names(engines=["10.0.0.1", "10.0.0.2"]))
    scene.subscribers.unusable, scene.subscribers.failure = {"tcp://10.0.0.1:5557"}, failure
    async with scene.playing():
        assert scene.subscribers.endpoints == ["tcp://10.0.0.2:5557"]
        scene.subscribers.unusable.clear()
        await scene.looks.again()
        assert scene.subscribers.endpoints == ["tcp://10.0.0.1:5557", "tcp://10.0.0.2:5557"]


@looped
async def test_a_configured_address_that_cannot_be_used_ends_the_start() -> None:
    scene = Scene("{sources: [{endpoint: 'tcp://a:1'}, {endpoint: 'tcp://b:1'}]}")
    scene.subscribers.unusable = {"tcp://b:1"}
    with pytest.raises(OSError, match="unusable"):
        await scene.discovery.start()
    await scene.discovery.stop()
    assert scene.subscribers.running == []


@looped
async def test_a_failure_of_ours_costs_one_look() -> None:
    scene = Scene("{discovery: [{dns: 'engines:5557'}]}", Names())
    async with scene.playing():
        assert scene.failures == 1
        scene.names.answers["engines"] = ["10.0.0.1"]
        await scene.looks.again()
        assert scene.subscribers.endpoints == ["tcp://10.0.0.1:5557"]


def test_a_file_is_read_again_when_it_changes_and_a_broken_one_changes_nothing(
    tmp_path: Path, lines: io.StringIO
) -> None:
    path = tmp_path / "engines.yaml"
    path.write_text("- {endpoint: 'tcp://${env:HOST}:1', ranks: 2}\n")

    @looped
    async def play() -> None:
        scene = Scene(f"{{discovery: [{{file: '{path}'}}]}}")
        async with scene.playing():
            assert scene.subscribers.endpoints == ["tcp://e:1", "tcp://e:2"]
            path.write_text("- {endpoint: 'tcp://e:1', wroker: secret-name}\n")
            await scene.looks.again()
            await scene.looks.again()
            assert scene.subscribers.endpoints == ["tcp://e:1", "tcp://e:2"]
            assert scene.failures == 2
            path.unlink()
            await scene.looks.again()
            await scene.looks.again()
            assert scene.subscribers.endpoints == ["tcp://e:1", "tcp://e:2"]
            assert scene.failures == 4
            path.write_text("- {endpoint: 'tcp://e:2', worker: w, rank: 1}\n- {endpoint: 'tcp://f:1'}\n")
            await scene.looks.again()
            assert scene.subscribers.endpoints == ["tcp://e:2", "tcp://f:1"]
            assert scene.failures == 4
            path.write_text("[]")
            await scene.looks.again()
            assert scene.subscribers.endpoints == []

    play()
    broken = [line for line in written(lines) if line["level"] == "error"]
    assert [line["error.message"] for line in broken] == [
        "[0].wroker: unknown key; did you mean [0].worker? (line 1)",
        f"No such file or directory: {path}",
    ]
    assert all(line["file"] == str(path) for line in broken)
    assert "secret-name" not in lines.getvalue()


@looped
async def test_a_file_without_an_end_is_not_read_to_its_end() -> None:
    scene = Scene("{discovery: [{file: /dev/zero}]}")
    async with scene.playing():
        assert scene.failures == 1
        assert scene.subscribers.running == []


@looped
async def test_the_system_resolves_addresses() -> None:
    assert set(await addresses_of("127.0.0.1")) == {"127.0.0.1"}


def section(text: str) -> KvEventsConfig:
    return parse(f"kv_events: {text}", {}).kv_events


@looped
async def test_a_change_starts_what_is_new_stops_what_is_gone_and_leaves_the_rest_alone() -> None:
    scene = Scene("{sources: [{endpoint: 'tcp://a:1'}, {endpoint: 'tcp://b:1'}, {endpoint: 'tcp://c:1', worker: x}]}")
    async with scene.playing():
        await scene.discovery.change(
            section("{sources: [{endpoint: 'tcp://c:1', worker: y}, {endpoint: 'tcp://d:1'}, {endpoint: 'tcp://a:1'}]}")
        )
        assert scene.subscribers.endpoints == ["tcp://a:1", "tcp://c:1", "tcp://d:1"]
        assert [one.worker for one in scene.subscribers.running if one.endpoint == "tcp://c:1"] == ["y"]
        assert scene.subscribers.started.count("tcp://a:1") == 1
        assert counted(scene.measures, "whymiss.ledger.sources") == 3


@looped
async def test_a_name_that_stays_keeps_what_it_found_and_a_new_one_is_looked_up() -> None:
    scene = Scene("{discovery: [{dns: 'a:1'}, {dns: 'b:1'}]}", Names(a=["10.0.0.1"], b=["10.0.0.2"], c=["10.0.0.3"]))
    async with scene.playing():
        scene.names.answers["a"] = OSError()  # from now on only the last answer tells where it is
        await scene.discovery.change(section("{discovery: [{dns: 'c:1'}, {dns: 'a:1'}]}"))
        await scene.looks.first()
        assert scene.subscribers.endpoints == ["tcp://10.0.0.1:1", "tcp://10.0.0.3:1"]
        assert scene.subscribers.started.count("tcp://10.0.0.1:1") == 1


@looped
async def test_an_entry_that_is_given_twice_is_let_go_once() -> None:
    scene = Scene("{discovery: [{dns: 'a:1'}, {dns: 'a:1'}]}", Names(a=["10.0.0.1"]))
    async with scene.playing():
        await scene.discovery.change(section("{discovery: [{dns: 'a:1'}]}"))
        assert scene.subscribers.endpoints == ["tcp://10.0.0.1:1"]
        await scene.discovery.change(section("{}"))
        assert scene.subscribers.endpoints == []


@looped
async def test_a_new_source_that_cannot_be_used_does_not_cost_the_others() -> None:
    scene = Scene("{sources: [{endpoint: 'tcp://a:1'}]}")
    scene.subscribers.unusable = {"tcp://b:1"}
    async with scene.playing():
        both = section("{sources: [{endpoint: 'tcp://b:1'}, {endpoint: 'tcp://a:1'}, {endpoint: 'tcp://c:1'}]}")
        await scene.discovery.change(both)
        assert scene.subscribers.endpoints == ["tcp://a:1", "tcp://c:1"]
        scene.subscribers.unusable.clear()
        await scene.discovery.change(both)
        assert scene.subscribers.endpoints == ["tcp://a:1", "tcp://b:1", "tcp://c:1"]
