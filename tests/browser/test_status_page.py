"""The status page of a real service with real traffic, as Chromium renders it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import Chromium, Theme
from tests.edge.status.scene import HOSTILE, busy_service, patient
from whymiss.config import parse
from whymiss.edge.service import Service, serving

pytestmark = pytest.mark.server("chromium")

WIDTHS = (380, 1000, 1600)

OVERFLOW = """
[...document.querySelectorAll('body *')]
  .filter(e => !e.closest('svg') && !e.matches('caption, .unseen') && e.getBoundingClientRect().right > innerWidth + 0.5)
  .map(e => e.outerHTML.slice(0, 120))
"""
"""Everything that reaches out of the window."""

ROWS = "[...document.querySelectorAll(`#${NAME} tbody tr`)].map(r => [...r.cells].map(c => c.innerText.trim()))"

CONTRAST = """
(() => {
  const channels = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = e => {
    for (; e; e = e.parentElement) {
      const found = channels(getComputedStyle(e).backgroundColor);
      if (found.length < 4 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const e of document.querySelectorAll('body *')) {
    if (e.closest('svg') || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const [a, b] = [light(channels(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(e.outerHTML.slice(0, 100));
  }
  return poor;
})()
"""
"""Texts below the contrast of WCAG 2.2 AA, 4.5 to 1."""


async def rows(browser: Chromium, section: str) -> dict[str, list[str]]:
    """The rows of a section's table, by the first line of their names."""
    found: list[list[str]] = await browser.evaluate(ROWS.replace("NAME", section).replace("${", "").replace("}", ""))
    return {name.split("\n")[0]: cells for name, *cells in found}


def address(service: Service) -> str:
    return f"http://127.0.0.1:{service.health_port}/status"


def keep(name: str, picture: bytes) -> None:
    """Leave a picture where the variable says, for whoever wants to look."""
    if directory := os.environ.get("WHYMISS_PICTURES"):
        Path(directory, f"{name}.png").write_bytes(picture)


@patient
async def test_what_went_through_the_service_is_on_the_page() -> None:
    async with Chromium() as browser, busy_service() as service:
        await browser.open(address(service), width=1600)
        verdicts = await rows(browser, "verdicts")
        assert {"evicted", "extra_key_mismatch", "none: no miss"} <= set(verdicts)
        owner, lookups, total, _, lost, *_ = verdicts["evicted"]
        assert owner == "platform"
        assert int(lookups) == int(total) > 0
        assert int(lost.replace(",", "")) > 0
        sources = await rows(browser, "sources")
        assert sorted(cells[0] for cells in sources.values()) == ["heard", "never heard"]
        records = await rows(browser, "records")
        assert records["vllm-replica-0"][2] == "whole"
        spans = await rows(browser, "spans")
        assert int(spans["claimed vllm"][0]) > 20
        assert int(spans["passed through"][0]) > 3
        assert int(spans["claimed vllm"][0]) + int(spans["passed through"][0]) == int(spans["accepted"][0])
        destinations = await rows(browser, "destinations")
        assert destinations["collector"][0] == "ok"
        assert destinations["archive"][0].startswith("retrying for ")
        assert "http traces refused: bad_input" in await rows(browser, "requests")
        assert "a request was refused" in await rows(browser, "troubles")
        urgent: str = await browser.evaluate("document.querySelector('#attention').innerText")
        assert "archive has not taken anything" in urgent
        assert await browser.evaluate("document.querySelectorAll('svg.timeline rect').length") > 1


@patient
async def test_the_page_fits_every_window_and_can_be_read_in_both_themes() -> None:
    async with Chromium() as browser, busy_service() as service:
        for width in WIDTHS:
            for theme in ("light", "dark"):
                await look(browser, service, width, theme)
        assert browser.complaints == []


async def look(browser: Chromium, service: Service, width: int, theme: Theme) -> None:
    await browser.open(address(service), width=width, theme=theme)
    keep(f"busy-{width}-{theme}", await browser.picture())
    assert await browser.evaluate("document.documentElement.scrollWidth") <= width
    assert await browser.evaluate(OVERFLOW) == []
    assert await browser.evaluate(CONTRAST) == []
    ground: str = await browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, ground.removeprefix("rgb(").removesuffix(")").split(","))) < 64) is (theme == "dark")


@patient
async def test_a_worker_with_a_hostile_name_is_a_row_and_nothing_else() -> None:
    async with Chromium() as browser, busy_service() as service:
        await browser.open(address(service), width=380)
        shown = [name for name in await rows(browser, "records") if name.startswith("<img")]
        assert len(shown) == 1
        assert HOSTILE.startswith(shown[0].removesuffix("…"))
        assert await browser.evaluate("document.title") == "whymiss: ok"
        assert await browser.evaluate("document.querySelectorAll('img, script').length") == 0


@patient
async def test_a_screen_reader_finds_landmarks_and_tables_in_a_narrow_window_too() -> None:
    async with Chromium() as browser, busy_service() as service:
        for width in (380, 1600):
            await browser.open(address(service), width=width)
            told = await browser.roles()
            roles: list[Any] = [role for role, _ in told]
            assert [roles.count(one) for one in ("main", "banner", "navigation")] == [1, 1, 1]
            assert roles.count("table") >= 8
            assert roles.count("rowheader") > 20
            assert any(role == "image" and name.startswith("Lookups in the last 15 min") for role, name in told)


@patient
async def test_a_service_that_has_seen_nothing_says_so() -> None:
    text = """
receivers: {grpc: {endpoint: null}, http: {endpoint: "127.0.0.1:0"}}
telemetry: {metrics_endpoint: null}
health: {endpoint: "127.0.0.1:0"}
"""
    async with Chromium() as browser, serving(parse(text, {})) as service:
        for width in WIDTHS:
            await browser.open(address(service), width=width)
            keep(f"empty-{width}-light", await browser.picture())
            assert await browser.evaluate(OVERFLOW) == []
        words: str = await browser.evaluate("document.body.innerText")
        assert "There is no source of KV events" in words
        assert "No lookup has been judged yet." in words
        assert browser.complaints == []
