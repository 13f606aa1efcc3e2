"""A few distinct lines with their numbers, and never the text of an exception."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from whymiss.edge.status.troubles import DETAIL_CHARS_MAX, DISTINCT_MAX, Troubles
from whymiss.edge.telemetry.logs import Log
from whymiss.errors import BadInput


class Scene:
    def __init__(self) -> None:
        self.now = 100.0
        self.troubles = Troubles(now=lambda: self.now)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    made.troubles.open()
    yield made
    made.troubles.close()


def test_equal_lines_are_one_with_their_number_and_the_newest_fields(scene: Scene) -> None:
    log = Log("exporter")
    log.warning("it failed", exporter="a")
    scene.now = 110
    log.error("it is lost", exporter="b", seconds=1.23456, hint=None)
    scene.now = 130
    log.warning("it failed", exporter="c")
    scene.now = 131
    first, second = scene.troubles.lines()
    assert (first.level, first.part, first.message, first.details, first.count) == (
        "warning",
        "exporter",
        "it failed",
        "exporter = c",
        2,
    )
    assert (first.first_seconds, first.last_seconds) == (31, 1)
    assert (second.level, second.details, second.last_seconds) == ("error", "exporter = b, seconds = 1.23", 21)


def test_of_an_error_its_type_is_told_and_not_its_text(scene: Scene) -> None:
    Log("intake").warning("a request was refused", error=BadInput("the prompt was: my secret"))
    Log("intake").error("a stage failed", error=KeyError("my secret"))
    told = " ".join(line.details for line in scene.troubles.lines())
    assert "secret" not in told
    assert "error.type = BadInput" in told
    assert "error.type = KeyError" in told


def test_what_is_no_warning_and_what_others_log_is_left_out(scene: Scene) -> None:
    Log("exporter").info("export will be tried again")
    logging.getLogger("aiohttp.server").error("Error handling request %s", b"a prompt")
    assert scene.troubles.lines() == ()


def test_the_line_that_was_not_seen_for_longest_makes_room(scene: Scene) -> None:
    logs = [Log(f"part{number}") for number in range(DISTINCT_MAX + 1)]
    for log in logs[:-1]:
        log.error("it failed")
    logs[0].error("it failed")
    logs[-1].error("it failed")
    parts = {line.part for line in scene.troubles.lines()}
    assert len(parts) == DISTINCT_MAX
    assert "part0" in parts
    assert "part1" not in parts


def test_a_long_field_is_cut(scene: Scene) -> None:
    Log("kv_discovery").error("name not resolved", name="x" * 5000)
    assert len(scene.troubles.lines()[0].details) == DETAIL_CHARS_MAX


def test_after_it_is_closed_nothing_is_noted(scene: Scene) -> None:
    scene.troubles.close()
    Log("exporter").error("it failed")
    assert scene.troubles.lines() == ()
