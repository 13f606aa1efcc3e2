"""OTLP/JSON in the spellings that the specification's own JSON does not have, as the OpenTelemetry Collector reads them.

Some writers keep the original field names of the proto files (``resource_spans``; protobuf's MessageToJson with
``preserving_proto_field_name``) or write enums by name (``SPAN_KIND_SERVER``; protobuf's default). Both are brought
into the one spelling that `json_schema` reads. It costs ten times the plain way, so it is done only for a body
that needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TypeAlias

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_NAME = re.compile(r"[A-Za-z_]{1,40}")


def is_unusual(body: bytes, message: Descriptor) -> bool:
    """Whether a body may have original field names or enums by name. Text inside of strings may look like them."""
    return _unusual(message).search(body) is not None


def usual(body: bytes, message: Descriptor) -> bytes:
    """The same request with ``lowerCamelCase`` names and enums as integers.

    Where a field is there in both spellings, the one of the specification counts.

    Raises:
        msgspec.DecodeError: no JSON.
        RecursionError: nested too deeply.
    """
    return msgspec.json.encode(_renamed(msgspec.json.decode(body), message))


def not_understood(body: bytes, message: Descriptor) -> str | None:
    """The place of the first thing in a body that is not empty and that no field of the message reads.

    Raises:
        msgspec.DecodeError: no JSON.
        RecursionError: nested too deeply.
    """
    return next(_unread(msgspec.json.decode(body), message, "$"), None)


def _renamed(value: Json, message: Descriptor) -> Json:
    if isinstance(value, list):
        return [_renamed(item, message) for item in value]
    if not isinstance(value, dict):
        return value
    fields = _fields(message)
    named: dict[str, Json] = {}
    for key, held in value.items():
        field = fields.get(key)
        if field is None:
            named[key] = held
        elif key == field.json_name or field.json_name not in value:
            named[field.json_name] = _of_field(held, field)
    return named


def _of_field(value: Json, field: FieldDescriptor) -> Json:
    if field.message_type is not None:
        return _renamed(value, field.message_type)
    if field.enum_type is not None and isinstance(value, str):
        known = field.enum_type.values_by_name.get(value)
        return value if known is None else known.number
    return value


def _unread(value: Json, message: Descriptor, place: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unread(item, message, f"{place}[{index}]")
    elif isinstance(value, dict):
        fields = _fields(message)
        for key, held in value.items():
            field = fields.get(key)
            if field is None and held not in ({}, [], "", None):
                # A key may be anything: only what looks like a field's name is repeated.
                yield f"{place}.{key if _NAME.fullmatch(key) else '(no name of a field)'}"
            elif field is not None and field.message_type is not None:
                yield from _unread(held, field.message_type, f"{place}.{key}")


@cache
def _fields(message: Descriptor) -> Mapping[str, FieldDescriptor]:
    """Fields by both of their names."""
    return {name: field for field in message.fields for name in (field.name, field.json_name)}


@cache
def _unusual(message: Descriptor) -> re.Pattern[bytes]:
    names: set[str] = set()
    seen: set[str] = set()
    waiting = [message]
    while waiting:
        one = waiting.pop()
        if one.full_name in seen:
            continue
        seen.add(one.full_name)
        for field in one.fields:
            if field.name != field.json_name:
                names.add(field.name)
            if field.enum_type is not None:
                names.update(field.enum_type.values_by_name)
            if field.message_type is not None:
                waiting.append(field.message_type)
    return re.compile(b'"(?:' + "|".join(sorted(names, key=len, reverse=True)).encode() + b')"')
