"""The values of OTLP/JSON: attributes by hand, for they are most of a request, and the scalars.

What OTLP changes of protobuf's JSON: ids are hexadecimal, enums are integers only.
"""

from __future__ import annotations

from binascii import a2b_base64, unhexlify
from collections.abc import Iterator, Sized
from operator import length_hint
from struct import Struct

import msgspec

from .encode import INT64, delimited, encode_key, utf8, varint

DEPTH_MAX = 24  # lists in lists: three messages each, and upb, C++ and Java read no more than 100
DOUBLE = Struct("<d").pack


class Mismatch(Exception):
    """A JSON value that its field cannot hold; ``path`` grows from the inside out while it rises."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str] = []

    @property
    def place(self) -> str:
        """The JSON path, as msgspec writes it."""
        return "$" + "".join(part if part.startswith("[") else f".{part}" for part in reversed(self.path))


class AnyValue(msgspec.Struct, gc=False, rename="camel"):
    """``opentelemetry.proto.common.v1.AnyValue`` in JSON."""

    string_value: str | None = None
    bool_value: bool | None = None
    int_value: int | None = None
    double_value: float | None = None
    array_value: ArrayValue | None = None
    kvlist_value: KeyValueList | None = None
    bytes_value: str | None = None


class KeyValue(msgspec.Struct, gc=False, rename="camel"):
    """``opentelemetry.proto.common.v1.KeyValue`` in JSON."""

    key: str | None = None
    value: AnyValue | None = None


class ArrayValue(msgspec.Struct, gc=False, rename="camel"):
    """``opentelemetry.proto.common.v1.ArrayValue`` in JSON."""

    values: list[AnyValue] | None = None


class KeyValueList(msgspec.Struct, gc=False, rename="camel"):
    """``opentelemetry.proto.common.v1.KeyValueList`` in JSON."""

    values: list[KeyValue] | None = None


def encode_pairs(tag: bytes, pairs: list[KeyValue], depth: int = 0) -> bytes:
    """Encode a repeated ``KeyValue`` field under an encoded tag.

    Raises:
        Mismatch: a value does not fit, or is nested too deeply.
    """
    parts: list[bytes] = []
    rest = iter(pairs)
    try:
        for pair in rest:
            key = encode_key(pair.key or "")
            if pair.value is None:
                parts += (tag, varint(len(key)), key)
            elif pair.value.string_value is not None:
                # Most values are text: written here, they spare a call and two copies each.
                text = utf8(pair.value.string_value)
                size = varint(len(text))
                length = 1 + len(size) + len(text)
                prefix = varint(length)
                parts += (tag, varint(len(key) + 1 + len(prefix) + length), key, b"\x12", prefix, b"\x0a", size, text)
            else:
                value = encode_any(pair.value, depth)
                prefix = varint(len(value))
                parts += (tag, varint(len(key) + 1 + len(prefix) + len(value)), key, b"\x12", prefix, value)
    except Mismatch as mismatch:
        mismatch.path += ("value", f"[{index_before(pairs, rest)}]")
        raise
    return b"".join(parts)


def encode_any(value: AnyValue, depth: int = 0) -> bytes:
    """Encode an ``AnyValue`` message. Of several members the first in this order counts.

    Raises:
        Mismatch: the value does not fit, or is nested too deeply.
    """
    if value.string_value is not None:
        text = utf8(value.string_value)
        return b"\x0a" + varint(len(text)) + text
    try:
        if value.int_value is not None:
            return b"\x18" + varint(in_range(value.int_value, *INT64))
        if value.double_value is not None:
            return b"\x21" + DOUBLE(value.double_value)
        if value.bool_value is not None:
            return b"\x10\x01" if value.bool_value else b"\x10\x00"
        if value.bytes_value is not None:
            return delimited(b"\x3a", base64(value.bytes_value))
        return _encode_container(value, depth + 1)
    except Mismatch as mismatch:
        mismatch.path.append(_member(value))
        raise


def _encode_container(value: AnyValue, depth: int) -> bytes:
    if depth > DEPTH_MAX:
        raise Mismatch("Nested too deeply")
    if value.array_value is not None:
        return delimited(b"\x2a", _encode_items(value.array_value.values or [], depth))
    if value.kvlist_value is not None:
        try:
            return delimited(b"\x32", encode_pairs(b"\x0a", value.kvlist_value.values or [], depth))
        except Mismatch as mismatch:
            mismatch.path.append("values")
            raise
    return b""


def _encode_items(items: list[AnyValue], depth: int) -> bytes:
    rest = iter(items)
    try:
        return b"".join([delimited(b"\x0a", encode_any(item, depth)) for item in rest])
    except Mismatch as mismatch:
        mismatch.path += (f"[{index_before(items, rest)}]", "values")
        raise


def index_before(values: Sized, rest: Iterator[object]) -> int:
    """Tell which item of a list an iterator over it has yielded last."""
    return len(values) - length_hint(rest) - 1


def _member(value: AnyValue) -> str:
    members = ("int_value", "double_value", "bytes_value", "array_value")
    present = next((name for name in members if getattr(value, name) is not None), "kvlist_value")
    word, _ = present.split("_")
    return f"{word}Value"


def in_range(number: int, lowest: int, highest: int) -> int:
    """Return an integer that is within its bounds.

    Raises:
        Mismatch: it is not.
    """
    if not lowest <= number <= highest:
        raise Mismatch("Integer out of range")
    return number


def base64(text: str) -> bytes:
    """Read base64 in either alphabet, padded or not, as protobuf's JSON allows.

    Raises:
        Mismatch: it is not base64.
    """
    bare = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return a2b_base64(bare + "=" * (-len(bare) % 4), strict_mode=True)
    except ValueError:
        raise Mismatch("Expected base64") from None


def hexadecimal(size: int, text: str) -> bytes:
    """Read an id of a number of bytes, or an absent one.

    Raises:
        Mismatch: it is not hexadecimal, or of another size. Ids in base64 end here.
    """
    if not text:
        return b""
    try:
        number = unhexlify(text)
    except ValueError:
        number = b""
    if len(number) != size:
        raise Mismatch(f"Expected {2 * size} hexadecimal digits")
    return number
