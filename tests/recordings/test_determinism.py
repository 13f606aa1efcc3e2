"""The same recording gives the same verdicts and the same bytes: in any process, on any day, in any order inside the hold."""

from __future__ import annotations

import copy
import os
import random
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec
import pytest

from tests.recordings.plays import Row, folder
from whymiss.config import Config, parse
from whymiss.model import SECOND
from whymiss.tools.recording import OtlpRequest, Recording
from whymiss.tools.replay import SOLE_SOURCE, Replay
from whymiss.wire.split import assemble, split

NUMBERS = ("02", "03", "04", "05", "08", "09")
"""One engine each; with all ways in which an engine says what it looked up, and with hybrid groups."""
DISORDER_SECONDS = 2.0
"""How far apart the spans of a request come, in less than a hold."""

KEYED = "{redaction: {digest_key: 'a key of these tests'}, " + SOLE_SOURCE[1:]


def keyed() -> Config:
    return parse(KEYED, {})


def said(recording: Recording) -> tuple[list[Row], list[bytes]]:
    replay = Replay(recording, keyed())
    return list(replay.play()), [item.body for item in replay.outgoing]


@cache
def whole(number: str) -> tuple[list[Row], list[bytes]]:
    """What is said of a recording as it is."""
    return said(Recording(folder(number)))


def by_span(found: list[Row]) -> dict[object, Row]:
    return {(row["trace_id"], row["span_id"]): row for row in found}


def changed(recording: Recording, received: Callable[[int], int]) -> Recording:
    """A recording whose messages were received at other times."""
    other = copy.copy(recording)
    other.otlp = [
        msgspec.structs.replace(one, received_unix_nanos=received(one.received_unix_nanos)) for one in other.otlp
    ]
    other.kv_events = [
        msgspec.structs.replace(one, received_unix_nanos=received(one.received_unix_nanos)) for one in other.kv_events
    ]
    other.otlp.sort(key=lambda one: one.received_unix_nanos)
    other.kv_events.sort(key=lambda one: one.received_unix_nanos)
    return other


@pytest.mark.parametrize("number", NUMBERS)
def test_played_twice_a_recording_leaves_the_same_bytes(number: str) -> None:
    assert said(Recording(folder(number))) == whole(number)


@pytest.mark.parametrize("days", [1, 400])
@pytest.mark.parametrize("number", NUMBERS)
def test_on_another_day_a_recording_leaves_the_same_bytes(number: str, days: int) -> None:
    recording = Recording(folder(number))
    shift = days * 86_400 * SECOND
    assert said(changed(recording, lambda at: at + shift)) == whole(number)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("number", NUMBERS)
def test_spans_that_arrive_one_by_one_in_another_order_are_judged_the_same(number: str, seed: int) -> None:
    recording = Recording(folder(number))
    chance = random.Random(seed)
    disorder = copy.copy(recording)
    disorder.otlp = sorted(
        (_later(span, chance) for request in recording.otlp for span in _one_by_one(request)),
        key=lambda one: one.received_unix_nanos,
    )
    assert by_span(said(disorder)[0]) == by_span(whole(number)[0])


@pytest.mark.parametrize("number", NUMBERS)
def test_events_that_arrive_later_among_the_spans_are_judged_the_same(number: str) -> None:
    recording = Recording(folder(number))
    chance = random.Random(number)
    later = copy.copy(recording)
    latest, later.kv_events = 0, []
    for message in recording.kv_events:
        # A publisher's messages keep their order.
        latest = max(latest, message.received_unix_nanos + round(chance.uniform(0, DISORDER_SECONDS) * SECOND))
        later.kv_events.append(msgspec.structs.replace(message, received_unix_nanos=latest))
    assert by_span(said(later)[0]) == by_span(whole(number)[0])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("number", NUMBERS)
def test_events_in_disorder_make_a_verdict_unknown_and_never_another(number: str, seed: int) -> None:
    recording = Recording(folder(number))
    chance = random.Random(f"{number} {seed}")
    disorder = copy.copy(recording)
    disorder.kv_events = sorted(
        (
            msgspec.structs.replace(one, received_unix_nanos=one.received_unix_nanos + chance.randrange(SECOND))
            for one in recording.kv_events
        ),
        key=lambda one: one.received_unix_nanos,
    )
    undisturbed = by_span(whole(number)[0])
    for span, row in by_span(said(disorder)[0]).items():
        assert row["cause"] in {undisturbed[span]["cause"], "unknown"}, row["request_id"]
        if row["cause"] != "unknown":
            assert row["reason"] in {undisturbed[span]["reason"], ""}, row["request_id"]


def _one_by_one(request: OtlpRequest) -> list[OtlpRequest]:
    """A request of one span each."""
    return [
        msgspec.structs.replace(request, body=assemble([(group.envelope, [span])]))
        for group in split(request.body)
        for span in group.spans
    ]


def _later(request: OtlpRequest, chance: random.Random) -> OtlpRequest:
    delay = round(chance.uniform(0, DISORDER_SECONDS) * SECOND)
    return msgspec.structs.replace(request, received_unix_nanos=request.received_unix_nanos + delay)


@pytest.mark.parametrize("number", ["03", "05"])
def test_the_command_writes_the_same_bytes_whatever_the_seed_of_hashes(number: str, tmp_path: Path) -> None:
    config = tmp_path / "whymiss.yaml"
    config.write_text(KEYED)
    printed = {_printed(folder(number), config, seed) for seed in ("0", "1", "4711")}
    assert len(printed) == 1
    assert len(printed.pop().splitlines()) > 5


def _printed(directory: Path, config: Path, hash_seed: str) -> bytes:
    command = [sys.executable, "-m", "whymiss", "replay", str(directory), "--json", "--config", str(config)]
    return subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, check=True
    ).stdout
