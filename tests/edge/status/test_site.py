"""What the page is served with, and beside what."""

from __future__ import annotations

import base64
import hashlib
import re

import aiohttp
import msgspec
import pytest

from tests.edge.loops import looped
from tests.edge.status.snapshots import BUSY
from whymiss.edge.status.site import StatusSite, refresh_seconds
from whymiss.edge.status.snapshot import Snapshot
from whymiss.edge.telemetry.health import Probes, Readiness
from whymiss.edge.telemetry.site import Site


class Looks:
    def __init__(self) -> None:
        self.now, self.count = 100.0, 0

    def take(self) -> Snapshot:
        self.count += 1
        return msgspec.structs.replace(BUSY, uptime_seconds=float(self.count))


async def get(port: int, path: str) -> tuple[aiohttp.ClientResponse, str]:
    async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer, await answer.text()


@looped
async def test_the_page_runs_nothing_and_its_only_style_is_the_one_it_allows() -> None:
    looks = Looks()
    health = Site("127.0.0.1:0", {**StatusSite(looks.take).routes, **Probes(Readiness()).routes})
    await health.start()
    try:
        answer, page = await get(health.port, "/status")
    finally:
        await health.stop()
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = answer.headers["Content-Security-Policy"]
    style = re.search("<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    allowed = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{allowed}';")
    assert "frame-ancestors 'none'" in policy
    assert (answer.headers["X-Content-Type-Options"], answer.headers["Cache-Control"]) == ("nosniff", "no-store")


@looped
async def test_the_twin_in_json_is_the_whole_snapshot() -> None:
    looks = Looks()
    health = Site("127.0.0.1:0", {**StatusSite(looks.take).routes, **Probes(Readiness()).routes})
    await health.start()
    try:
        answer, text = await get(health.port, "/status.json")
        probe, _ = await get(health.port, "/livez")
    finally:
        await health.stop()
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert msgspec.json.decode(text, type=Snapshot) == msgspec.structs.replace(BUSY, uptime_seconds=1.0)
    assert probe.status == 200


@looped
async def test_however_many_look_the_service_is_looked_at_once_a_second() -> None:
    looks = Looks()
    health = Site("127.0.0.1:0", {**StatusSite(looks.take, now=lambda: looks.now).routes, **Probes(Readiness()).routes})
    await health.start()
    try:
        for now in (100.0, 100.4, 100.99, 101.0, 101.9):
            looks.now = now
            await get(health.port, "/status")
            await get(health.port, "/status.json")
    finally:
        await health.stop()
    assert looks.count == 2


@looped
async def test_without_pages_there_are_probes_only() -> None:
    health = Site("127.0.0.1:0", Probes(Readiness()).routes)
    await health.start()
    try:
        answer, _ = await get(health.port, "/status")
    finally:
        await health.stop()
    assert answer.status == 404


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        (None, None),
        ("10", 10),
        ("0", None),
        ("-5", None),
        ("1e3", None),
        ("99999", 3600),
        ("1" * 5000, None),
        ("٣", None),
        ('5"><script>', None),
    ],
)
def test_only_a_sensible_number_makes_the_page_reload(asked: str | None, seconds: int | None) -> None:
    assert refresh_seconds(asked) == seconds
