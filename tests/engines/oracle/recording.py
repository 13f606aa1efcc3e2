"""Writes a run as a folder that ``whymiss replay`` reads: KV frames, OTLP requests, and the engine's own word."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_gzip(path: Path, text: str) -> None:
    """The same bytes for the same text: no time, no name in the header."""
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(text.encode())


def lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write(
    folder: Path,
    *,
    frames: Iterable[tuple[int, tuple[bytes, bytes, bytes]]],
    requests: Iterable[tuple[int, bytes]],
    expected: Iterable[Mapping[str, Any]],
    about: str,
    admissions: Iterable[Mapping[str, Any]] | None = None,
) -> None:
    """``frames`` and ``requests`` carry when they were received, in Unix nanoseconds."""
    (folder / "otlp").mkdir(parents=True)
    rows = [
        {"recv_unix_ns": received, "frames_b64": [base64.b64encode(part).decode() for part in parts]}
        for received, parts in frames
    ]
    write_gzip(folder / "kv_events_raw.jsonl.gz", lines(rows))
    index = []
    for number, (received, body) in enumerate(requests):
        name = f"{number:05}.pb"
        (folder / "otlp" / name).write_bytes(body)
        index.append({"file": name, "recv_unix_ns": received})
    (folder / "otlp" / "index.jsonl").write_text(lines(index))
    (folder / "expected.jsonl").write_text(lines(expected))
    if admissions is not None:
        write_gzip(folder / "admissions.jsonl.gz", lines(admissions))
    (folder / "README.md").write_text(about)
