from __future__ import annotations

import gzip
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from whymiss.edge.receivers.inflate import inflate
from whymiss.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

PACK: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
}


def unpacked(body: bytes, coding: str) -> bytes:
    return b"".join(inflate(body, coding))


@pytest.mark.parametrize("coding", PACK)
@given(plain=st.binary(max_size=3000), repeat=st.integers(1, 400))
def test_a_body_comes_back_as_it_was(coding: str, plain: bytes, repeat: int) -> None:
    assert unpacked(PACK[coding](plain * repeat), coding) == plain * repeat


def test_deflate_without_its_zlib_header_is_understood() -> None:
    bare = zlib.compress(b"plain" * 99, wbits=-zlib.MAX_WBITS)
    assert unpacked(bare, "deflate") == b"plain" * 99


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_second_member_is_read_too(coding: str) -> None:
    assert unpacked(PACK[coding](b"one") + PACK[coding](b"two"), coding) == b"onetwo"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
@given(plain=st.binary(max_size=500), cut=st.integers(1, 500))
def test_a_truncated_body_is_never_taken_for_a_whole_one(coding: str, plain: bytes, cut: int) -> None:
    packed = PACK[coding](plain)
    with pytest.raises(BadInput):
        unpacked(packed[: max(0, len(packed) - cut)], coding)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
@given(body=st.binary(min_size=1, max_size=300))
def test_garbage_is_bad_input_and_its_message_repeats_none_of_it(coding: str, body: bytes) -> None:
    try:
        unpacked(body, coding)
    except BadInput as error:
        said = str(error)
    else:
        return
    assert said in {"the body is not validly compressed", "the compressed body ends early"}


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
def test_a_bomb_yields_pieces_that_a_caller_can_count(coding: str) -> None:
    bomb = PACK[coding](bytes(1 << 27))
    tracemalloc.start()
    try:
        size = 0
        for piece in inflate(bomb, coding):
            size += len(piece)
            if size > 1 << 25:
                break
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 << 20


def test_a_zstd_window_beyond_what_http_allows_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True, write_content_size=False)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    with pytest.raises(BadInput):
        unpacked(writer.compress(bytes(1 << 20)) + writer.flush(), "zstd")
