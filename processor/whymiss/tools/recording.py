"""A recording on disk: OTLP requests and KV-event frames with the times at which they were received.

Layout: ``otlp/index.jsonl`` names the ``.pb`` files with ``recv_unix_ns``; ``kv_events_raw.jsonl`` has one
ZMQ message a line (``frames_b64``, ``recv_unix_ns``); ``replay_raw.jsonl`` the same for what the
publisher's replay socket answered. Any of the files may be gzipped (``.gz`` appended).
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from ..errors import BadInput

_Line = TypeVar("_Line")


class OtlpRequest(msgspec.Struct, frozen=True):
    """One ``ExportTraceServiceRequest`` as it was received."""

    received_unix_nanos: int
    body: bytes


class KvMessage(msgspec.Struct, frozen=True):
    """One ZMQ message as it was received."""

    received_unix_nanos: int
    frames: tuple[bytes, ...]


class _IndexLine(msgspec.Struct):
    file: str
    recv_unix_ns: int


class _FramesLine(msgspec.Struct):
    frames_b64: list[str] = []
    recv_unix_ns: int = 0


def read_bytes(path: Path) -> bytes | None:
    """The content of a file, or of the same name with ``.gz``; ``None`` when there is neither."""
    if path.is_file():
        return path.read_bytes()
    zipped = path.with_name(path.name + ".gz")
    if not zipped.is_file():
        return None
    try:
        return gzip.decompress(zipped.read_bytes())
    except (OSError, EOFError) as problem:
        raise BadInput(f"{zipped}: not a gzip file ({problem})") from problem


class Recording:
    """Everything in one recording, each part in the order of its receive times.

    Raises ``BadInput`` naming the file and line that cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise BadInput(f"{directory}: no such directory")
        self.directory = directory
        self.otlp = sorted(self._read_otlp(), key=lambda request: request.received_unix_nanos)
        self.kv_events = sorted(
            self._read_frames("kv_events_raw.jsonl"), key=lambda message: message.received_unix_nanos
        )
        self.replay = list(self._read_frames("replay_raw.jsonl"))
        if not self.otlp and not self.kv_events:
            raise BadInput(f"{directory}: neither otlp/index.jsonl nor kv_events_raw.jsonl is there")

    def _read_otlp(self) -> Iterator[OtlpRequest]:
        index = read_bytes(self.directory / "otlp" / "index.jsonl")
        for number, line in enumerate((index or b"").splitlines(), 1):
            where = f"{self.directory / 'otlp' / 'index.jsonl'}:{number}"
            entry = _decode(line, _IndexLine, where)
            body = read_bytes(self.directory / "otlp" / entry.file)
            if body is None:
                raise BadInput(f"{where}: the file {entry.file} is not there")
            yield OtlpRequest(entry.recv_unix_ns, body)

    def _read_frames(self, name: str) -> Iterator[KvMessage]:
        content = read_bytes(self.directory / name)
        for number, line in enumerate((content or b"").splitlines(), 1):
            where = f"{self.directory / name}:{number}"
            entry = _decode(line, _FramesLine, where)
            if not entry.frames_b64:
                # The recorder notes its own requests to the replay socket between the answers.
                continue
            try:
                frames = tuple(base64.b64decode(frame, validate=True) for frame in entry.frames_b64)
            except ValueError as problem:
                raise BadInput(f"{where}: frames_b64 is not base64") from problem
            yield KvMessage(entry.recv_unix_ns, frames)


def _decode(line: bytes, kind: type[_Line], where: str) -> _Line:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.MsgspecError as problem:
        raise BadInput(f"{where}: {problem}") from problem
