from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whymiss.errors import BadInput
from whymiss.ledger.decode.message import END, Frame, TopicName, parse_frames, worker_of_topic
from whymiss.model import Tier

SEQ = (258).to_bytes(8, "big")
ALL_ONES = b"\xff" * 8


@pytest.mark.parametrize(
    ("frames", "topic"),
    [
        ([b"kv@a@m", SEQ, b"p"], b"kv@a@m"),
        ([b"", b"kv@a@m", SEQ, b"p"], b"kv@a@m"),
        ([b"", SEQ, b"p"], b""),
        ([SEQ, b"p"], b""),
    ],
    ids=["live", "replayed", "replayed before there was a topic frame", "without its delimiter"],
)
def test_frames_count_from_the_right(frames: list[bytes], topic: bytes) -> None:
    assert parse_frames(frames) == Frame(topic, 258, b"p")


@pytest.mark.parametrize("before", [[b"", b""], [b"", b"kv@a@m"], [b""], []])
def test_a_sequence_number_of_all_ones_ends_a_replay(before: list[bytes]) -> None:
    assert parse_frames([*before, ALL_ONES, b""]) is END


@pytest.mark.parametrize(
    "frames",
    [[], [SEQ], [b"x", b"", SEQ, b"p"], [b"", b"", b"", SEQ, b"p"], [b"", b"", b"p"], [b"", SEQ + b"\0", b"p"]],
)
def test_other_frames_are_bad_input(frames: list[bytes]) -> None:
    with pytest.raises(BadInput):
        parse_frames(frames)


@given(st.lists(st.binary(max_size=10) | st.just(SEQ), max_size=6))
def test_frames_are_a_message_or_an_end_or_bad_input(frames: list[bytes]) -> None:
    try:
        read = parse_frames(frames)
    except BadInput:
        return
    assert read is END or (isinstance(read, Frame) and read.payload == frames[-1])


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        (b"kv@pod-1@meta/llama", TopicName("pod-1", "meta/llama")),
        (b"kv@ns/pod-1-rank-3@m", TopicName("ns/pod-1", "m", 3)),
        (b"kv@10.0.0.1:8000@m", TopicName("10.0.0.1:8000", "m")),
        (b"kv@pod-1@", TopicName("pod-1")),
        (b"kv@@m", TopicName("", "m")),
        (b"kv@pod-1", TopicName("kv@pod-1")),
        (b"kv@a@b@c", TopicName("kv@a@b@c")),
        (b"", TopicName("")),
        (b"kv-events", TopicName("kv-events")),
        (b"pod-rank-12", TopicName("pod", None, 12)),
        (b"kv@[fd00::1]:8000@m", TopicName("[fd00::1]:8000", "m")),
        (b"kv@fd00::1-rank-2@m", TopicName("fd00::1", "m", 2)),
        (b"pod-rank-", TopicName("pod-rank-")),
        (b"-rank-1", TopicName("-rank-1")),
        (b"pod-rank-1234567", TopicName("pod-rank-1234567")),
        (b"kv@SHARED_STORAGE@m", TopicName("SHARED_STORAGE", "m", None, Tier.REMOTE)),
        (b"OBJECT_STORE", TopicName("OBJECT_STORE", None, None, Tier.REMOTE)),
    ],
)
def test_a_topic_names_its_worker(topic: bytes, name: TopicName) -> None:
    assert worker_of_topic(topic) == name


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_topics_that_differ_never_name_the_same_worker_by_accident_of_encoding(one: bytes, other: bytes) -> None:
    one_name, other_name = worker_of_topic(b"\xff" + one), worker_of_topic(b"\xff" + other)
    if b"@" not in one + other and b"-rank-" not in one + other and b"\\" not in one + other:
        assert (one == other) == (one_name == other_name)
