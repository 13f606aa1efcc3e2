"""Ready is a statement about us, alive about the event loop, and neither about the next hop."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from whymiss.edge.telemetry.health import Probes, Readiness, Status
from whymiss.edge.telemetry.site import Site

LOOPBACK = "127.0.0.1:0"


async def codes(port: int) -> dict[str, tuple[int, str]]:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        found = {}
        for path in ("/", "/readyz", "/livez"):
            async with session.get(path) as response:
                found[path] = response.status, (await response.json())["status"]
        return found


@pytest.mark.parametrize(("status", "ready"), [(Status.STARTING, 503), (Status.OK, 200), (Status.STOPPING, 503)])
def test_only_ok_is_ready_and_everything_is_alive(status: Status, ready: int) -> None:
    async def run() -> dict[str, tuple[int, str]]:
        readiness = Readiness()
        health = Site(LOOPBACK, Probes(readiness).routes)
        await health.start()
        readiness.become(status)
        found = await codes(health.port)
        await health.stop()
        return found

    assert asyncio.run(run()) == {"/": (ready, status), "/readyz": (ready, status), "/livez": (200, status)}


def test_service_is_starting_until_it_says_otherwise() -> None:
    async def run() -> int:
        health = Site(LOOPBACK, Probes(Readiness()).routes)
        await health.start()
        found = await codes(health.port)
        await health.stop()
        return found["/"][0]

    assert asyncio.run(run()) == 503


def test_address_in_use_is_said_at_start() -> None:
    async def run() -> None:
        first = Site(LOOPBACK, Probes(Readiness()).routes)
        await first.start()
        second = Site(f"127.0.0.1:{first.port}", Probes(Readiness()).routes)
        try:
            with pytest.raises(OSError, match="address already in use"):
                await second.start()
        finally:
            await second.stop()
            await first.stop()

    asyncio.run(run())


def test_stopping_what_never_started_is_harmless() -> None:
    asyncio.run(Site(LOOPBACK, Probes(Readiness()).routes).stop())


def test_probe_over_ipv6_is_answered() -> None:
    async def run() -> int:
        health = Site("[::1]:0", Probes(Readiness()).routes)
        await health.start()
        async with aiohttp.ClientSession() as session, session.get(f"http://[::1]:{health.port}/livez") as response:
            code = response.status
        await health.stop()
        return code

    assert asyncio.run(run()) == 200
