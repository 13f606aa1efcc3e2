"""Pushed KV-cache events (``proto/whymiss/wire/kv_push.proto``) as the frames that an engine would publish.

Structured events are written as vLLM's msgpack, so that one decoder reads all there is. A snapshot is one
batch: it says that events before it were lost, clears its media and stores what is resident.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
from google.protobuf.message import DecodeError

from ..errors import BadInput
from . import kv_push_pb2 as schema

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME_CHARS_MAX: Final = 256
SEQ_MAX: Final = (1 << 63) - 1
"""The largest sequence number; the one above it marks the end of a replay."""

_Field: TypeAlias = int | str | list[int] | None
_Event: TypeAlias = dict[str, _Field]

_OUTCOMES: Final = {
    "applied": schema.OUTCOME_APPLIED,
    "duplicate": schema.OUTCOME_DUPLICATE,
    "gap": schema.OUTCOME_GAP,
    "restarted": schema.OUTCOME_RESTARTED,
    "late_join": schema.OUTCOME_LATE_JOIN,
    "bad": schema.OUTCOME_BAD,
}


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """One batch and who pushed it. ``frames`` are topic, sequence number and payload, as a publisher sends them."""

    source: str
    worker: str | None
    """``None`` where the topic says it."""
    rank: int | None
    model: str | None
    kv_connector: bool
    seq: int
    frames: tuple[bytes, bytes, bytes]


def read_push(body: bytes) -> Pushed:
    """Read a ``PushRequest``; whether a payload of an engine is a batch is not looked at.

    Raises:
        BadInput: the bytes are no such request, or a field that must be there is not.
    """
    request = schema.PushRequest()
    _parse(request, body)
    match request.WhichOneof("batch"):
        case "payload":
            payload = request.payload
        case "events":
            unix_nanos = request.events.time_unix_nano
            payload = _payload("events.", unix_nanos, [_event(one) for one in request.events.events], lost=False)
        case _:
            raise BadInput("payload: must be given, or else events")
    return _pushed(request.origin, request.seq, payload)


def read_snapshot(body: bytes) -> Pushed:
    """Read a ``SnapshotRequest`` as a batch.

    Raises:
        BadInput: the bytes are no such request, a field that must be there is not, or a block is in a medium
            that the snapshot does not name.
    """
    request = schema.SnapshotRequest()
    _parse(request, body)
    if not request.media:
        raise BadInput("media: must name at least one")
    media = {_medium(name) for name in request.media}
    if any(_medium(one.medium) not in media for one in request.resident):
        raise BadInput("resident: holds a medium that is not among media")
    events = [*map(_cleared, sorted(media)), *map(_stored, request.resident)]
    return _pushed(request.origin, request.seq, _payload("", request.time_unix_nano, events, lost=True))


def push_response(
    seq: int, outcome: str, *, missing_first: int | None = None, missing_last: int | None = None
) -> bytes:
    """Encode a ``PushResponse`` from the outcome that the pipeline gave."""
    return schema.PushResponse(
        seq=seq, outcome=_OUTCOMES[outcome], missing_first=missing_first, missing_last=missing_last
    ).SerializeToString()


def _parse(request: schema.PushRequest | schema.SnapshotRequest, body: bytes) -> None:
    try:
        request.ParseFromString(body)
    except DecodeError:
        raise BadInput("not a request of whymiss.kv.v1") from None


def _pushed(origin: schema.Origin, seq: int, payload: bytes) -> Pushed:
    if seq > SEQ_MAX:
        raise BadInput("seq: must be below 2^63")
    return Pushed(
        source=_name("origin.source", origin.source),
        worker=_name("origin.worker", origin.worker),
        rank=origin.rank if origin.HasField("rank") else None,
        model=_name("origin.model", origin.model) if origin.model else None,
        kv_connector=origin.kv_connector,
        seq=seq,
        frames=(b"", seq.to_bytes(8, "big"), payload),
    )


def _name(key: str, name: str) -> str:
    # It becomes a label and a field of log lines.
    if not name.strip() or not name.isprintable() or len(name) > NAME_CHARS_MAX:
        raise BadInput(f"{key}: must be 1 to {NAME_CHARS_MAX} printable characters")
    return name


def _payload(key: str, unix_nanos: int, events: Iterable[_Event], *, lost: bool) -> bytes:
    if not unix_nanos:
        raise BadInput(f"{key}time_unix_nano: must be given")
    if lost:
        return msgspec.msgpack.encode({"ts": unix_nanos / 1e9, "events": list(events), "lost": True})
    return msgspec.msgpack.encode([unix_nanos / 1e9, list(events), None])


def _event(event: schema.Event) -> _Event:
    match event.WhichOneof("event"):
        case "stored":
            return _stored(event.stored)
        case "removed":
            return {
                "type": "BlockRemoved",
                "block_hashes": list(event.removed.keys),
                "medium": _medium(event.removed.medium),
                "group_idx": event.removed.group,
            }
        case "cleared":
            return _cleared(_medium(event.cleared.medium))
        case _:
            raise BadInput("events.events: holds one that says nothing")


def _stored(stored: schema.Stored) -> _Event:
    # Without a `lora_name`, which would say that the publisher reports all extra keys.
    return {
        "type": "BlockStored",
        "block_hashes": list(stored.keys),
        "parent_block_hash": stored.parent if stored.HasField("parent") else None,
        "token_ids": list(stored.token_ids),
        "block_size": stored.block_size,
        "lora_id": None,
        "medium": _medium(stored.medium),
        "group_idx": stored.group,
    }


def _cleared(medium: str) -> _Event:
    return {"type": "AllBlocksCleared", "medium": medium}


def _medium(name: str) -> str:
    return name.upper() or "GPU"
