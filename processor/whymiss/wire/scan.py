"""Walk the fields of an encoded message without knowing its schema.

upb can write a parsed message only in its own order. A walked message can be cut in place.
Accepts what upb accepts: padded varints, any order, unknown fields, groups, even field number 0.
"""

from __future__ import annotations

from typing import TypeAlias

from ..errors import BadInput

Field: TypeAlias = tuple[int, int, int, int]
"""Tag (field number times 8 plus wire type), and the offsets of field, value and end."""

_GROUP_DEPTH_MAX = 100  # as in upb
_UINT64 = (1 << 64) - 1


def fields(raw: bytes, begin: int = 0, end: int | None = None) -> list[Field]:
    """List the fields of the message that ``raw[begin:end]`` encodes.

    The value of a field of wire type 2 excludes its length; that of a group includes its end tag.

    Raises:
        BadInput: the bytes are no message; with the offset in ``raw``.
    """
    stop = len(raw) if end is None else end
    found: list[Field] = []
    start = begin
    try:
        while start < stop:
            tag = raw[start]
            at = start + 1
            if tag > 127:
                tag, at = _tag(raw, start)
            kind = tag & 7
            value = at
            if kind == 2:
                length = raw[at]
                value = at + 1
                if length > 127:
                    length, value = read_varint(raw, at)
                at = value + length
            else:
                at = _skip(raw, tag, at)
            if at > stop:
                raise BadInput("malformed protobuf", offset=start)
            found.append((tag, start, value, at))
            start = at
    except IndexError:
        raise BadInput("truncated protobuf", offset=start) from None
    return found


def field_at(raw: bytes, start: int) -> Field:
    """Read the one field that begins at an offset; its end may be behind that of ``raw``.

    Raises:
        BadInput: the bytes are no field.
        IndexError: they are cut off.
    """
    tag, value = _tag(raw, start)
    if tag & 7 != 2:
        return tag, start, value, _skip(raw, tag, value)
    length, value = read_varint(raw, value)
    return tag, start, value, value + length


def read_varint(raw: bytes, at: int) -> tuple[int, int]:
    """Decode the varint at an offset into its low 64 bits and the offset after it.

    Raises:
        BadInput: it is longer than ten bytes.
        IndexError: it is cut off.
    """
    number = shift = 0
    start = at
    while True:
        byte = raw[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number & _UINT64, at
        shift += 7
        if shift == 70:
            raise BadInput("malformed protobuf", offset=start)


def _tag(raw: bytes, at: int) -> tuple[int, int]:
    tag, after = read_varint(raw, at)
    if after - at > 5 or tag >> 32:
        raise BadInput("malformed protobuf", offset=at)
    return tag, after


def _skip(raw: bytes, tag: int, at: int) -> int:
    kind = tag & 7
    if kind == 0:
        return read_varint(raw, at)[1]
    if kind == 1:
        return at + 8
    if kind == 5:
        return at + 4
    if kind == 3:
        return _skip_group(raw, tag, at)
    raise BadInput("malformed protobuf", offset=at)


def _skip_group(raw: bytes, tag: int, at: int) -> int:
    open_groups = [tag]
    while open_groups:
        start = at
        tag, at = _tag(raw, at)
        kind = tag & 7
        if kind == 4:
            if open_groups.pop() != tag - 1:
                raise BadInput("malformed protobuf", offset=start)
        elif kind == 3:
            open_groups.append(tag)
            if len(open_groups) > _GROUP_DEPTH_MAX:
                raise BadInput("protobuf groups nested too deeply", offset=start)
        elif kind == 2:
            length, at = read_varint(raw, at)
            at += length
        else:
            at = _skip(raw, tag, at)
    return at
