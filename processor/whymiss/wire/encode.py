"""Protobuf encoding of the little that whymiss writes itself.

Concatenating encoded fields adds them to a message, so a writer needs no message object: building
one costs upb more time than all of this.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from ..errors import BadInput
from ..model import Attribute

INT64: Final = (-(1 << 63), (1 << 63) - 1)
UINT64: Final = (0, (1 << 64) - 1)
"""Smallest and largest integers of 64 bits."""
_DOUBLE = Struct("<d").pack
_REMEMBERED_MAX = 64  # characters of a key or value; with 2048 entries each about a megabyte


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


# All of one or two bytes: nearly every length and count in a span. 0.7 MB that save a loop.
SHORT = 1 << 14
VARINTS = tuple(_varint(number) for number in range(SHORT))


def varint(number: int) -> bytes:
    """Encode an integer of up to 64 bits; a negative one as its two's complement."""
    if 0 <= number < SHORT:
        return VARINTS[number]
    return _varint(number & UINT64[1])


def delimited(tag: bytes, content: bytes) -> bytes:
    """Encode a field of wire type 2 (string, bytes, message) under an encoded tag."""
    size = len(content)
    return tag + (VARINTS[size] if size < SHORT else _varint(size)) + content


def encode_attribute(key: str, value: Attribute) -> bytes:
    """Encode a ``KeyValue`` message, without the tag and length that put it into another message.

    ``None`` becomes an empty value, which OTLP allows.

    Raises:
        BadInput: an integer does not fit into 64 bits.
    """
    if isinstance(value, str) and len(value) <= _REMEMBERED_MAX:
        return _remembered(key, value)
    return encode_key(key) + delimited(b"\x12", encode_value(value))


def encode_key(key: str) -> bytes:
    """Encode the first field of a ``KeyValue`` message."""
    return _remembered_key(key) if len(key) <= _REMEMBERED_MAX else delimited(b"\x0a", utf8(key))


def encode_value(value: Attribute) -> bytes:
    """Encode an ``AnyValue`` message.

    Raises:
        BadInput: an integer does not fit into 64 bits.
    """
    if isinstance(value, str):
        return delimited(b"\x0a", utf8(value))
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        if not INT64[0] <= value <= INT64[1]:
            raise BadInput("attribute value does not fit into 64 bits")
        return b"\x18" + varint(value)
    if isinstance(value, float):
        return b"\x21" + _DOUBLE(value)
    if isinstance(value, bytes):
        return delimited(b"\x3a", value)
    if value is None:
        return b""
    return delimited(b"\x2a", b"".join([delimited(b"\x0a", encode_value(item)) for item in value]))


def utf8(text: str) -> bytes:
    """Encode text; a lone surrogate, which has no UTF-8, becomes a question mark."""
    return text.encode("utf-8", "replace")


@lru_cache(maxsize=2048)
def _remembered_key(key: str) -> bytes:
    return delimited(b"\x0a", utf8(key))


# Causes, owners, models, workers: the same few texts go on span after span.
@lru_cache(maxsize=2048)
def _remembered(key: str, value: str) -> bytes:
    return encode_key(key) + delimited(b"\x12", encode_value(value))
