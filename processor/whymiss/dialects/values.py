"""Strict reading of attribute values: a number in any of the shapes that emitters use, else absent."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..model import Attribute

_INTEGER = re.compile(r"[+-]?\d{1,20}")
_RANK = re.compile(r"(.+)-rank-(\d{1,4})", re.DOTALL)
_HEX_LENGTHS = frozenset({16, 32, 64})
_U64 = (1 << 64) - 1


def integer(value: Attribute) -> int | None:
    """A whole number given as int, whole double or decimal string; anything else is absent."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return int(value)
    return None


def count(value: Attribute) -> int | None:
    """A whole number that is not negative."""
    number = integer(value)
    return number if number is not None and number >= 0 else None


def real(value: Attribute) -> float | None:
    """A finite number given as double, int or decimal string."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        number = float(value)
    elif isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return None
    else:
        return None
    return number if abs(number) < float("inf") else None


def seconds(value: Attribute) -> float | None:
    """A duration in seconds that is not negative."""
    number = real(value)
    return number if number is not None and number >= 0 else None


def milliseconds(value: Attribute) -> float | None:
    """A duration in milliseconds that is not negative, in seconds."""
    number = seconds(value)
    return None if number is None else number / 1000


def u64_name(value: Attribute) -> str | None:
    """The decimal name of an unsigned 64-bit id; OTLP's integers are signed, so a large one comes negative."""
    number = integer(value)
    if number is None or not -(1 << 63) <= number <= _U64:
        return None
    return str(number & _U64)


def ranked(name: str) -> tuple[str, int | None]:
    """A worker's name without ``-rank-N``, and that data-parallel rank."""
    found = _RANK.fullmatch(name)
    return (found[1], int(found[2])) if found is not None else (name, None)


def text(value: Attribute) -> str | None:
    """A string that is not empty."""
    return value if isinstance(value, str) and value else None


def truth(value: Attribute) -> bool | None:
    """A boolean, or its name as a string."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    return None


def names(value: Attribute) -> tuple[str, ...] | None:
    """A list of strings, or one string with commas."""
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return None


def block_key(value: Attribute) -> int | None:
    """The low 64 bits of a block hash, as vLLM's ``maybe_convert_block_hash`` takes them.

    Accepts integers (signed ones modulo 2**64), bytes (the last eight), and strings: ``0x…``,
    16, 32 or 64 hex digits, else decimal.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value & _U64 if -(1 << 63) <= value <= _U64 else None
    if isinstance(value, bytes):
        return int.from_bytes(value[-8:], "big") if len(value) >= 8 else None
    if isinstance(value, str):
        return _key_of_text(value.strip())
    return None


def _key_of_text(value: str) -> int | None:
    digits = value[2:] if value[:2].lower() == "0x" else value
    try:
        if digits is not value or len(value) in _HEX_LENGTHS:
            return int(digits, 16) & _U64 if digits else None
        number = int(value)
    except ValueError:
        return None
    return number & _U64 if -(1 << 63) <= number <= _U64 else None


def block_keys(value: Attribute) -> tuple[int, ...]:
    """A chain of block keys; one that cannot be read makes the whole chain absent."""
    if not isinstance(value, list):
        return ()
    keys = [block_key(item) for item in value]
    return () if None in keys else tuple(key for key in keys if key is not None)


def first(attributes: Mapping[str, Attribute], *keys: str) -> Attribute:
    """The value of the first key that is present."""
    for key in keys:
        if key in attributes:
            return attributes[key]
    return None
