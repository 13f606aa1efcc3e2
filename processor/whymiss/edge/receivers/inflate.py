"""Content codings of HTTP bodies, undone in small steps so that a bomb is noticed after one step.

zlib and zstd both turn a few bytes into megabytes: the size is therefore bounded on what has come
out so far, never on a header's promise, and never after the fact.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import zstandard

from ...errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator

CODINGS = frozenset({"identity", "gzip", "x-gzip", "deflate", "zstd"})

STEP_BYTES = 1 << 18
"""Most that one step of zlib yields."""

ZSTD_SLICE_BYTES = 256
"""What one step of zstd reads: a block is 4 bytes at least and 128 KiB of output at most, so a step yields 8 MiB at worst."""

ZSTD_WINDOW_BYTES_MAX = 1 << 23
"""The window that RFC 9659 tells every HTTP receiver of zstd to support, and no more."""


def inflate(body: bytes, coding: str) -> Iterator[bytes]:
    """Yield the plain bytes of a body in pieces whose size is bounded.

    ``coding`` is one of ``CODINGS``. The caller counts and stops. Raises ``BadInput`` where the
    body is not what its coding says, or ends early.
    """
    match coding:
        case "gzip" | "x-gzip":
            yield from _zlib_pieces(body, zlib.MAX_WBITS | 16)
        case "deflate":
            # RFC 9110 means the zlib format; some clients send the bare stream instead.
            bare = len(body) >= 2 and (body[0] & 0x0F != 8 or int.from_bytes(body[:2], "big") % 31 != 0)
            yield from _zlib_pieces(body, -zlib.MAX_WBITS if bare else zlib.MAX_WBITS)
        case "zstd":
            yield from _zstd_pieces(body)
        case _:
            yield body


def _zlib_pieces(body: bytes, window_bits: int) -> Iterator[bytes]:
    rest = body
    while True:
        member = zlib.decompressobj(window_bits)
        while not member.eof:
            try:
                piece = member.decompress(rest, STEP_BYTES)
            except zlib.error:
                raise BadInput("the body is not validly compressed") from None
            rest = member.unconsumed_tail
            if piece:
                yield piece
            elif not member.eof:
                raise BadInput("the compressed body ends early")
        rest = member.unused_data
        if not rest:
            return


def _zstd_pieces(body: bytes) -> Iterator[bytes]:
    window = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
    frame = window.decompressobj()
    at = 0
    while not frame.eof or at < len(body):
        if frame.eof:
            frame = window.decompressobj()
        try:
            piece = frame.decompress(body[at : at + ZSTD_SLICE_BYTES])
        except zstandard.ZstdError:
            raise BadInput("the body is not validly compressed") from None
        at += ZSTD_SLICE_BYTES
        if frame.eof:
            at = min(at, len(body)) - len(frame.unused_data)
        elif at >= len(body):
            raise BadInput("the compressed body ends early")
        if piece:
            yield piece
