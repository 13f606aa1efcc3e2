"""Strict reading of attribute values: a number in any of the shapes that emitters use, else absent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ..model import Attribute
from ..model.block_hash import KEY_MAX, NoKeys, keys_of

_INTEGER = re.compile(r"[+-]?\d{1,20}")


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
    if number is None or not -(1 << 63) <= number <= KEY_MAX:
        return None
    return str(number & KEY_MAX)


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
        strings = tuple([item for item in value if isinstance(item, str)])
        return strings if len(strings) == len(value) else None
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return None


class ToldKeys(NamedTuple):
    """The block keys that a lookup tells; what cannot be read for certain is absent."""

    first_miss: int | None
    expected: tuple[int, ...]
    """The keys of the prompt's full blocks, from block 0."""


def told_keys(first_miss: Attribute, expected: Attribute) -> ToldKeys:
    """The first missed key and the expected chain of one lookup.

    One emitter writes both, so either may show in which notation the other is. A chain of which one element
    cannot be read is absent as a whole: its other keys would be at the wrong depths.
    """
    chain = expected if isinstance(expected, list) else []
    together = keys_of((first_miss, *chain)) if first_miss is not None else NoKeys.MALFORMED
    if not isinstance(together, NoKeys):
        return ToldKeys(together[0], together[1:])
    alone, keys = keys_of((first_miss,)), keys_of(chain)
    return ToldKeys(None if isinstance(alone, NoKeys) else alone[0], () if isinstance(keys, NoKeys) else keys)


def first(attributes: Mapping[str, Attribute], *keys: str) -> Attribute:
    """The value of the first key that is present."""
    for key in keys:
        if key in attributes:
            return attributes[key]
    return None
