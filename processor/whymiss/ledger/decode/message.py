"""Message framing: the frames of a KV-event message, and what its topic says about the worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ...errors import BadInput
from ...model import Tier
from ...model.worker_name import split_rank
from .medium import medium_of

_END_SEQ = b"\xff" * 8


class Frame(msgspec.Struct, frozen=True):
    """One live or replayed message. ``seq`` counts a publisher's messages in its present life."""

    topic: bytes
    seq: int
    payload: bytes


class EndOfReplay(msgspec.Struct, frozen=True):
    """The publisher has sent all it had to replay."""


END: Final = EndOfReplay()


def parse_frames(frames: Sequence[bytes]) -> Frame | EndOfReplay:
    """Read ``[topic, seq, payload]``, or a reply to a replay request with its leading delimiter.

    Replies of releases before vllm#45177 have no topic frame and look like live messages with an
    empty topic, so the frames count from the right. Raises ``BadInput``.
    """
    if not 2 <= len(frames) <= 4:
        raise BadInput(f"a KV-event message has 2 to 4 frames, not {len(frames)}")
    if len(frames) == 4 and frames[0]:
        raise BadInput("the first of four frames is not the empty delimiter")
    seq = frames[-2]
    if len(seq) != 8:
        raise BadInput(f"the sequence number of a KV-event message has 8 bytes, not {len(seq)}")
    if seq == _END_SEQ:
        return END
    return Frame(frames[-3] if len(frames) > 2 else b"", int.from_bytes(seq, "big"), frames[-1])


class TopicName(msgspec.Struct, frozen=True):
    """Who a topic says is publishing. ``worker`` is empty where the topic is."""

    worker: str
    model: str | None = None
    rank: int | None = None
    tier: Tier | None = None
    """Set where a storage medium stands in the worker's place: the owner of a tier, not a worker."""


def owns_tier(worker: str) -> bool:
    """Whether what stands in a worker's place is a storage medium, as llm-d's file-system backend has it."""
    return bool(worker) and medium_of(worker).tier in {Tier.DISK, Tier.REMOTE}


def worker_of_topic(topic: bytes) -> TopicName:
    """Read llm-d's ``kv@<pod>@<model>``; any other topic is the worker's name as a whole.

    A ``-rank-N`` suffix of the worker's name is its data-parallel rank.
    """
    text = topic.decode("utf-8", "backslashreplace")
    parts = text.split("@")
    worker, model = (parts[1], parts[2] or None) if len(parts) == 3 else (text, None)
    if owns_tier(worker):
        return TopicName(worker, model, None, medium_of(worker).tier)
    name, rank = split_rank(worker)
    return TopicName(name, model, rank)
