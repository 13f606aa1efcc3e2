"""A log line has no room for a payload, and a flood none for itself."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from whymiss.edge.telemetry.logs import OURS, JsonLines, Log, Sampled, configure
from whymiss.errors import BadInput

SECRET = "the prompt of a customer"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """The stream of a configured log; the root is as it was afterwards."""
    root, ours = logging.root, logging.getLogger(OURS)
    handlers, levels = root.handlers[:], (root.level, ours.level)
    stream = io.StringIO()
    configure("info", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def raised(error: Exception) -> Exception:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_line_is_json_with_a_constant_message_and_fields(written: io.StringIO) -> None:
    Log("exporter").warning("spans refused", exporter="tempo", spans=12, permanent=True)
    (line,) = lines(written)
    assert str(line.pop("time")).endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "whymiss.exporter",
        "message": "spans refused",
        "exporter": "tempo",
        "spans": 12,
        "permanent": True,
    }


def test_field_never_replaces_what_the_line_is_about(written: io.StringIO) -> None:
    Log("x").info("begun", level="none", message="another")
    (line,) = lines(written)
    assert (line["level"], line["message"]) == ("info", "begun")


def test_level_is_that_of_ours_and_warning_for_others(written: io.StringIO) -> None:
    Log("x").debug("ours below")
    Log("x").info("ours")
    logging.getLogger("aiohttp.server").info("theirs below")
    logging.getLogger("aiohttp.server").warning("theirs")
    assert [line["message"] for line in lines(written)] == ["ours", "theirs"]


@pytest.mark.parametrize(
    "error", [ValueError(SECRET), KeyError(SECRET), UnicodeDecodeError("utf-8", b"x", 0, 1, SECRET)]
)
def test_text_of_an_exception_is_not_written_but_its_type_and_place_are(written: io.StringIO, error: Exception) -> None:
    Log("x").error("trace left unjudged", error=raised(error))
    (line,) = lines(written)
    assert SECRET not in written.getvalue()
    assert line["error.type"] == type(error).__name__
    assert str(line["error.at"]).startswith("['test_logs.py:")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (BadInput("not a span", offset=7), "not a span at byte 7"),
        (OSError(98, "in use"), "in use"),
        (OSError(2, "no such file", "/var/spool"), "no such file: /var/spool"),
        (OSError(2, "no such file", b"/var/spool"), "no such file"),
    ],
)
def test_text_that_is_known_to_be_harmless_is_written(written: io.StringIO, error: Exception, text: str) -> None:
    Log("x").error("refused", error=error)
    (line,) = lines(written)
    assert line["error.message"] == text


def test_what_others_log_loses_its_arguments_and_further_lines(written: io.StringIO) -> None:
    theirs = logging.getLogger("asyncio")
    theirs.error("Error handling request: %r", SECRET)
    theirs.error("Task exception was never retrieved\nfuture: %s", SECRET)
    theirs.error("Task exception was never retrieved\n" + SECRET)
    theirs.warning("%s", SECRET, exc_info=raised(ValueError(SECRET)))
    assert SECRET not in written.getvalue()
    assert len(lines(written)) == 4


def test_long_field_is_cut(written: io.StringIO) -> None:
    Log("x").info("told", endpoint="e" * 10_000)
    assert len(written.getvalue()) < 500


def test_first_ten_and_every_hundredth_of_a_line_pass_until_the_time_is_over() -> None:
    now = 0.0
    sampled = Sampled(now=lambda: now)

    def passed(message: str, times: int) -> list[int]:
        record = logging.LogRecord(OURS, logging.WARNING, "", 0, message, None, None)
        return [number for number in range(1, times + 1) if sampled.filter(record)]

    assert passed("refused", 300) == [*range(1, 11), 110, 210]
    assert passed("another", 1) == [1]
    now = 10.0
    assert passed("refused", 11) == [*range(1, 11)]


def test_line_says_how_often_it_was_seen() -> None:
    sampled, form = Sampled(first=1, every=2, now=lambda: 0.0), JsonLines()
    told = []
    for _ in range(5):
        record = logging.LogRecord(OURS, logging.WARNING, "", 0, "refused", None, None)
        if sampled.filter(record):
            told.append(json.loads(form.format(record)).get("seen"))
    assert told == [None, 3, 5]
