"""Key decoding: block hashes of every emitter family as unsigned 64-bit keys, cut from msgpack in columns."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from ...errors import BadInput
from ...model.block_hash import NoKeys, keys_of

DECODE_ERRORS = (msgspec.MsgspecError, OverflowError, RecursionError, TypeError, ValueError)
"""All that msgspec raises on bytes that cannot be trusted: nesting, time stamps and map keys have their own."""

GROUPS = range(1 << 16)
"""Numbers of KV-cache groups."""

_KEY = np.dtype("V8")
_INTEGER_MARKERS = b"\xcf\xd3"
_ONE_INTEGER = (b"\x91\xcf", b"\x91\xd3")
_ONE_DIGEST = b"\x91\xc4\x20"

_anything = msgspec.msgpack.Decoder()
_encoder = msgspec.msgpack.Encoder()
_array = msgspec.msgpack.Decoder(list[msgspec.Raw])


def read_anything(encoded: bytes | msgspec.Raw) -> object:
    """Decode one msgpack value of whatever shape; raises ``BadInput``."""
    try:
        return _anything.decode(encoded)
    except DECODE_ERRORS:
        # Not the decoder's own words: they can quote the value.
        raise BadInput("not msgpack") from None


def encode(value: object) -> bytes:
    """Encode what ``read_anything`` read, in its one shortest form; raises ``BadInput``."""
    try:
        return _encoder.encode(value)
    except DECODE_ERRORS:
        raise BadInput("nested too deeply") from None


def read_array(encoded: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    """Cut a msgpack array into its encoded elements; raises ``BadInput``."""
    try:
        return _array.decode(encoded)
    except DECODE_ERRORS:
        raise BadInput("not a msgpack array") from None


def key_of(value: object) -> int:
    """The key of one block hash that is told alone; raises ``BadInput`` where it is none, or may be two."""
    return chain_of((value,))[0]


def chain_of(hashes: Sequence[object]) -> tuple[int, ...]:
    """The keys of the block hashes of one event, in order; raises ``BadInput`` where one of them is no key for certain."""
    keys = keys_of(hashes)
    if isinstance(keys, NoKeys):
        raise BadInput(keys.value)
    return keys


def array_header(encoded: bytes) -> tuple[int, int]:
    """Number of elements and length of the header of an encoded msgpack array.

    Raises ``BadInput`` where the value is no array.
    """
    marker = encoded[0] if encoded else 0
    if 0x90 <= marker <= 0x9F:
        return marker & 0x0F, 1
    if marker == 0xDC and len(encoded) > 2:
        return encoded[1] << 8 | encoded[2], 3
    if marker == 0xDD:
        return int.from_bytes(encoded[1:5], "big"), 5
    raise BadInput("an array was expected")


def append_keys(encoded: bytes, column: bytearray) -> int:
    """Append the keys of an encoded array of block hashes, eight big-endian bytes each; how many.

    Raises ``BadInput`` (and appends nothing) if one of them is not a block hash.
    """
    # One hash an event is what engines send most.
    if len(encoded) == 10 and encoded.startswith(_ONE_INTEGER):
        column += encoded[2:]
        return 1
    if len(encoded) == 35 and encoded.startswith(_ONE_DIGEST):
        column += encoded[27:]
        return 1
    count, head = array_header(encoded)
    if not count:
        return 0
    size = len(encoded) - head
    # Integers of 64 bits and strings of 32 bytes take the same room wherever they stand: an array of
    # them is a table whose column of keys can be cut out without a Python object a block.
    if size == 9 * count and _all_integers(encoded[head::9], count):
        column += np.ndarray(count, _KEY, encoded, head + 1, 9).tobytes()
    elif size == 34 * count and _all_digests(encoded, head, count):
        column += np.ndarray(count, _KEY, encoded, head + 26, 34).tobytes()
    else:
        column += _keys_one_by_one(encoded)
    return count


def keys_alike(encoded: bytes, count: int) -> bytes | None:
    """The eight big-endian bytes of each of some arrays of one hash, encoded one after the other and alike.

    ``None`` where they are not all integers of 64 bits, or all strings of 32 bytes.
    """
    if len(encoded) == 10 * count and encoded[::10].count(b"\x91") == count and _all_integers(encoded[1::10], count):
        return np.ndarray(count, _KEY, encoded, 2, 10).tobytes()
    if len(encoded) == 35 * count and encoded[::35].count(b"\x91") == count == encoded[1::35].count(b"\xc4"):
        return np.ndarray(count, _KEY, encoded, 27, 35).tobytes() if encoded[2::35].count(b"\x20") == count else None
    return None


def _all_integers(markers: bytes, count: int) -> bool:
    return markers.count(b"\xcf") == count or not markers.translate(None, _INTEGER_MARKERS)


def _all_digests(encoded: bytes, head: int, count: int) -> bool:
    return encoded[head::34].count(b"\xc4") == count == encoded[head + 1 :: 34].count(b"\x20")


def _keys_one_by_one(encoded: bytes) -> bytes:
    chain = chain_of([read_anything(value) for value in read_array(encoded)])
    return b"".join([key.to_bytes(8, "big") for key in chain])
