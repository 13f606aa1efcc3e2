"""JSON shapes and encoders, made from opentelemetry-proto's own descriptors.

A shape is a ``msgspec.Struct`` with one field a protobuf field: msgspec checks the types while it
decodes, skips unknown keys without building them, and names the place of an error. An encoder
turns a value of its shape into protobuf bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from types import GenericAlias, UnionType
from typing import Never, TypeAlias, TypeVar

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from .encode import INT64, UINT64, delimited, utf8, varint
from .json_values import (
    DOUBLE,
    AnyValue,
    KeyValue,
    Mismatch,
    base64,
    encode_any,
    encode_pairs,
    hexadecimal,
    in_range,
    index_before,
)

_T = TypeVar("_T")
Shape: TypeAlias = type | GenericAlias | UnionType
Encoder: TypeAlias = Callable[[Never], bytes]
"""Each takes the one type that its field's shape has let through."""

_COMMON = "opentelemetry.proto.common.v1."
_ID_SIZES = {"trace_id": 16, "span_id": 8, "parent_span_id": 8}
_INT32, _UINT32 = (-(1 << 31), (1 << 31) - 1), (0, (1 << 32) - 1)

_F = FieldDescriptor
_BOUNDS = {
    _F.TYPE_INT32: _INT32,
    _F.TYPE_SINT32: _INT32,
    _F.TYPE_SFIXED32: _INT32,
    _F.TYPE_ENUM: _INT32,
    _F.TYPE_UINT32: _UINT32,
    _F.TYPE_FIXED32: _UINT32,
    _F.TYPE_INT64: INT64,
    _F.TYPE_SINT64: INT64,
    _F.TYPE_SFIXED64: INT64,
    _F.TYPE_UINT64: UINT64,
    _F.TYPE_FIXED64: UINT64,
}
_FIXED = {
    _F.TYPE_FIXED32: Struct("<I").pack,
    _F.TYPE_SFIXED32: Struct("<i").pack,
    _F.TYPE_FIXED64: Struct("<Q").pack,
    _F.TYPE_SFIXED64: Struct("<q").pack,
}
_ZEROS = {0: b"\x00", 1: bytes(8), 5: bytes(4)}
_WIRE_TYPES = {
    _F.TYPE_FIXED64: 1,
    _F.TYPE_SFIXED64: 1,
    _F.TYPE_DOUBLE: 1,
    _F.TYPE_STRING: 2,
    _F.TYPE_BYTES: 2,
    _F.TYPE_MESSAGE: 2,
    _F.TYPE_FIXED32: 5,
    _F.TYPE_SFIXED32: 5,
}


def shape(message: Descriptor, known: dict[str, Shape] | None = None) -> Shape:
    """Make the JSON shape of a message; absent and null fields are ``None``."""
    known = {_COMMON + "KeyValue": KeyValue, _COMMON + "AnyValue": AnyValue} if known is None else known
    if message.full_name not in known:
        known[message.full_name] = msgspec.defstruct(
            message.name,
            [(field.name, _field_shape(field, known) | None, None) for field in message.fields],
            rename={field.name: field.json_name for field in message.fields},
            gc=False,
        )
    return known[message.full_name]


def encoder(message: Descriptor, known: dict[str, Encoder] | None = None) -> Encoder:
    """Make the encoder of a message in its shape.

    The encoder raises ``Mismatch`` where a value does not fit.
    """
    known = {_COMMON + "AnyValue": encode_any} if known is None else known
    if message.full_name not in known:
        known[message.full_name] = _message(message, known)
    return known[message.full_name]


def _field_shape(field: FieldDescriptor, known: dict[str, Shape]) -> Shape:
    one: Shape = int
    if field.message_type is not None:
        one = shape(field.message_type, known)
    elif field.type in {_F.TYPE_STRING, _F.TYPE_BYTES}:
        one = str
    elif field.type == _F.TYPE_BOOL:
        one = bool
    elif field.type == _F.TYPE_DOUBLE:
        one = float
    return GenericAlias(list, (one,)) if field.is_repeated else one


def _message(message: Descriptor, known: dict[str, Encoder]) -> Encoder:
    names = [field.json_name for field in message.fields]
    encoders = [_field(field, known) for field in message.fields]

    def encode(shaped: msgspec.Struct) -> bytes:
        rest = iter(encoders)
        values = msgspec.structs.astuple(shaped)
        try:
            return b"".join([one(value) for one, value in zip(rest, values, strict=True) if value is not None])
        except Mismatch as mismatch:
            mismatch.path.append(names[index_before(encoders, rest)])
            raise

    return encode


def _field(field: FieldDescriptor, known: dict[str, Encoder]) -> Encoder:
    wire_type = _WIRE_TYPES.get(field.type, 0)
    tag = varint(field.number << 3 | (2 if field.is_repeated else wire_type))
    message = field.message_type
    if message is None:
        one = _scalar(field)
    elif message.full_name == _COMMON + "KeyValue" and field.is_repeated:
        return lambda pairs: encode_pairs(tag, pairs)
    else:
        one = encoder(message, known)
    if field.is_repeated:
        return _repeated(tag, one, packed=wire_type != 2)
    if wire_type == 2:
        return _delimited(tag, one, optional=field.has_presence)
    return _plain(tag, one, None if field.has_presence else _ZEROS[wire_type])


def _repeated(tag: bytes, one: Callable[[_T], bytes], *, packed: bool) -> Callable[[list[_T]], bytes]:
    def encode(values: list[_T]) -> bytes:
        rest = iter(values)
        try:
            parts = [one(value) for value in rest]
        except Mismatch as mismatch:
            mismatch.path.append(f"[{index_before(values, rest)}]")
            raise
        if packed:
            return delimited(tag, b"".join(parts)) if parts else b""
        return b"".join([delimited(tag, part) for part in parts])

    return encode


def _delimited(tag: bytes, one: Callable[[_T], bytes], *, optional: bool) -> Callable[[_T], bytes]:
    def encode(value: _T) -> bytes:
        content = one(value)
        return delimited(tag, content) if content or optional else b""

    return encode


def _plain(tag: bytes, one: Callable[[_T], bytes], zero: bytes | None) -> Callable[[_T], bytes]:
    def encode(value: _T) -> bytes:
        content = one(value)
        return b"" if content == zero else tag + content

    return encode


def _scalar(field: FieldDescriptor) -> Encoder:
    kind: int = field.type
    if kind in _BOUNDS:
        return _integer(kind, *_BOUNDS[kind])
    if kind == _F.TYPE_DOUBLE:
        return DOUBLE
    if kind == _F.TYPE_BOOL:
        return varint
    if kind == _F.TYPE_BYTES:
        if (size := _ID_SIZES.get(field.name)) is not None:
            return partial(hexadecimal, size)
        return base64
    return utf8


def _integer(kind: int, lowest: int, highest: int) -> Encoder:
    def zigzag(number: int) -> bytes:
        number = in_range(number, lowest, highest)
        return varint(number << 1 if number >= 0 else (-number << 1) - 1)

    if kind in _FIXED:
        pack = _FIXED[kind]
        return lambda number: pack(in_range(number, lowest, highest))
    if kind in {_F.TYPE_SINT32, _F.TYPE_SINT64}:
        return zigzag
    return lambda number: varint(in_range(number, lowest, highest))
