from __future__ import annotations

import socket
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import zmq.asyncio

from tests.edge.cores import SequenceCore, counted
from tests.edge.loops import looped
from tests.edge.publisher import Publisher, numbered
from whymiss.config import KvSourceConfig
from whymiss.edge.kv.listener import KvListener, source_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def listening(
    core: SequenceCore, *sources: KvSourceConfig, sockets_max: int | None = None
) -> AsyncIterator[None]:
    """Listen to all sources, with a patience that no test has to wait out."""
    context = zmq.asyncio.Context()
    if sockets_max is not None:
        context.set(zmq.MAX_SOCKETS, sockets_max)
    async with AsyncExitStack() as stack:
        stack.callback(context.destroy, linger=0)
        for source in sources:
            listener = KvListener(source, core, context, lambda: None, replay_silence_seconds=0.2)
            stack.push_async_callback(listener.stop)
            await listener.start()
        yield


def source(publisher: Publisher, *, replay: bool = True, topic: str = "") -> KvSourceConfig:
    return KvSourceConfig(
        endpoint=publisher.endpoint,
        replay_endpoint=publisher.replay_endpoint if replay else None,
        worker="w",
        topic=topic,
    )


@looped
async def test_what_is_published_reaches_the_core_in_order() -> None:
    core = SequenceCore()
    async with Publisher() as publisher, listening(core, source(publisher, replay=False)):
        await publisher.subscribed()
        await publisher.publish(300)
        await core.until(lambda: len(core.applied.get(publisher.endpoint, ())) == 300)
    assert core.applied[publisher.endpoint] == list(range(300))


@looped
async def test_without_a_socket_for_the_replay_the_source_is_still_followed() -> None:
    core = SequenceCore()
    async with Publisher() as publisher, listening(core, source(publisher), sockets_max=1):
        await publisher.subscribed()
        await publisher.publish(3)
        await core.until(lambda: core.applied.get(publisher.endpoint) == [0, 1, 2])
    assert counted(core.measures, "whymiss.ledger.replays") == 0


@looped
async def test_lost_messages_are_asked_for_and_come_in_order() -> None:
    core = SequenceCore()
    async with Publisher() as publisher, listening(core, source(publisher)):
        await publisher.subscribed()
        await publisher.publish(3)
        await core.until(lambda: core.applied.get(publisher.endpoint) == [0, 1, 2])
        await publisher.publish(4, lost=True)
        await publisher.publish(2)
        await publisher.publish(5, lost=True)
        await publisher.publish(1)
        await core.until(lambda: len(core.applied[publisher.endpoint]) == 15)
        assert publisher.asked[1] == 2  # one that is known: it shows that the life is the same
        await publisher.publish(1)  # the listener is back at the live stream
        await core.until(lambda: len(core.applied[publisher.endpoint]) == 16)
    assert core.applied[publisher.endpoint] == list(range(16))
    assert counted(core.measures, "whymiss.ledger.replays", source=publisher.endpoint) >= 1


@looped
async def test_what_was_published_before_we_came_is_asked_for_at_once() -> None:
    core = SequenceCore()
    async with Publisher() as publisher:
        await publisher.publish(5, lost=True)
        async with listening(core, source(publisher)):
            await core.until(lambda: core.applied.get(publisher.endpoint) == [0, 1, 2, 3, 4])
    assert publisher.asked == [0]


@looped
async def test_a_first_message_past_zero_is_a_gap_from_zero() -> None:
    core = SequenceCore()
    async with Publisher() as publisher, listening(core, source(publisher)):
        await publisher.subscribed()
        await publisher.until_asked()
        await publisher.publish(3, lost=True)
        await publisher.publish(1)
        await core.until(lambda: core.applied.get(publisher.endpoint) == [0, 1, 2, 3])


@looped
async def test_a_replay_that_is_not_answered_ends_and_the_stream_goes_on() -> None:
    core = SequenceCore()
    async with Publisher(answers=False) as publisher, listening(core, source(publisher)):
        await publisher.subscribed()
        await publisher.publish(1)
        await publisher.publish(1, lost=True)
        await publisher.publish(2)
        await core.until(lambda: core.waiting.get(publisher.endpoint) == {2, 3})
        assert publisher.asked == [0, 0]
        await publisher.publish(1)
        await core.until(lambda: core.waiting.get(publisher.endpoint) == {2, 3, 4})
    assert counted(core.measures, "whymiss.ledger.replays") == 0


@looped
async def test_without_a_replay_endpoint_a_gap_stays_the_cores_business() -> None:
    core = SequenceCore()
    async with Publisher() as publisher, listening(core, source(publisher, replay=False)):
        await publisher.subscribed()
        await publisher.publish(1)
        await publisher.publish(1, lost=True)
        await publisher.publish(1)
        await core.until(lambda: core.waiting.get(publisher.endpoint) == {2})
    assert publisher.asked == []


@looped
async def test_garbage_and_mistakes_cost_one_message_of_one_source() -> None:
    core = SequenceCore()
    async with (
        Publisher() as bad,
        Publisher() as good,
        listening(core, source(bad, replay=False), source(good, replay=False)),
    ):
        await bad.subscribed()
        await good.subscribed()
        await bad.send(b"one frame")
        await bad.send(b"", numbered(0), core.poison)
        await bad.send(*[b"x"] * 40)
        await bad.publish(2)
        await good.publish(2)
        await core.until(lambda: len(core.applied) == 2 and all(len(one) == 2 for one in core.applied.values()))
    assert counted(core.measures, "whymiss.stage.failures", stage="ledger", error_type="ZeroDivisionError") == 1


@looped
async def test_a_listener_that_binds_takes_many_publishers_and_their_return() -> None:
    core = SequenceCore()
    context = zmq.asyncio.Context()
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    async with listening(core, KvSourceConfig(endpoint=endpoint, bind=True, worker="w")):
        for life in range(2):
            live = context.socket(zmq.XPUB)
            live.connect(endpoint)
            await live.recv()
            await live.send_multipart([b"", numbered(life), b"p"])
            await core.until(lambda seen=life: core.applied.get(endpoint) == list(range(seen + 1)))  # type: ignore[misc]
            live.close(linger=0)
    context.destroy(linger=0)


@looped
async def test_only_the_topic_that_was_asked_for_is_subscribed() -> None:
    core = SequenceCore()
    async with Publisher(topic=b"kv@w@m") as publisher:
        settings = source(publisher, replay=False, topic="kv@")
        async with listening(core, settings):
            assert await publisher.subscribed() == b"kv@"
            await publisher.send(b"other", numbered(0), b"p")
            await publisher.publish(1)
            await core.until(lambda: core.applied.get(source_name(settings)) == [0])
    assert list(core.applied) == [f"{publisher.endpoint}#kv@"]


@looped
async def test_an_address_that_cannot_be_bound_is_an_os_error() -> None:
    async with Publisher() as publisher:
        with pytest.raises(OSError, match="kv_events"):
            async with listening(SequenceCore(), KvSourceConfig(endpoint=publisher.endpoint, bind=True, worker="w")):
                pass
