"""The axes of ``whymiss whatif``: what the command line says of them, and the fleets that this makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from ..errors import ConfigError
from .fleet.setup import ROUTINGS, Setup, Tier

FLEETS_MAX = 1_000
WORKERS_MAX = 4_096
BLOCKS_MAX = 10**12
SECONDS_MAX = 10**9
ENDLESS = "inf"
SHARED = "shared:"

Value: TypeAlias = int | float | str | Tier | None


class Axis(msgspec.Struct, frozen=True):
    """One thing that can be varied: its option, its field of ``Setup``, and how a value is read and written."""

    name: str
    field: str
    read: Callable[[str, int], Value]
    """From the option's text and the tokens of a block; raises ``ValueError`` with what is wanted."""
    write: Callable[[Setup], str]

    @property
    def title(self) -> str:
        """Its name for people."""
        return self.name.replace("_", " ")


def _number(text: str, most: int) -> int:
    number = int(text.replace("_", "")) if text.replace("_", "").isdecimal() else 0
    if not 0 < number <= most:
        raise ValueError(f"a whole number from 1 to {most:,}")
    return number


def _workers(text: str, block_tokens: int) -> int:
    del block_tokens
    return _number(text, WORKERS_MAX)


def _blocks(text: str, block_tokens: int) -> int | None:
    if text == ENDLESS:
        return None
    try:
        blocks = _number(text[:-1], BLOCKS_MAX) // block_tokens if text.endswith("t") else _number(text, BLOCKS_MAX)
    except ValueError:
        blocks = 0
    if not blocks:
        raise ValueError(f"a number of blocks, of tokens (3000000t, at least {block_tokens}), or inf")
    return blocks


def _routing(text: str, block_tokens: int) -> str:
    del block_tokens
    if text not in ROUTINGS:
        raise ValueError("one of " + ", ".join(ROUTINGS))
    return text


def _tier(text: str, block_tokens: int) -> Tier | None:
    if text == "0":
        return None
    return Tier(_blocks(text.removeprefix(SHARED), block_tokens), shared=text.startswith(SHARED))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= SECONDS_MAX:
        raise ValueError(f"seconds, from 0 to {SECONDS_MAX:,}")
    return seconds


def _keep(text: str, block_tokens: int) -> float | None:
    del block_tokens
    return None if text == ENDLESS else _seconds(text)


def _lag(text: str, block_tokens: int) -> float:
    del block_tokens
    return _seconds(text)


def blocks_text(blocks: int | None) -> str:
    """A number of blocks for people."""
    return "endless" if blocks is None else f"{blocks:,}"


def _tier_text(setup: Setup) -> str:
    if setup.tier is None:
        return "none"
    return blocks_text(setup.tier.blocks) + (" shared" if setup.tier.shared else "")


def _keep_text(setup: Setup) -> str:
    return "until pushed out" if setup.keep_seconds is None else f"{setup.keep_seconds:g} s"


AXES = (
    Axis("workers", "workers", _workers, lambda setup: str(setup.workers)),
    Axis("capacity", "capacity", _blocks, lambda setup: blocks_text(setup.capacity)),
    Axis("tier", "tier", _tier, _tier_text),
    Axis("keep", "keep_seconds", _keep, _keep_text),
    Axis("routing", "routing", _routing, lambda setup: setup.routing),
    Axis("index_lag", "index_lag_seconds", _lag, lambda setup: f"{setup.index_lag_seconds:g} s"),
)
"""In the order in which they are varied, the last one fastest."""


def fleets(given: Mapping[str, Sequence[str]], block_tokens: int) -> list[Setup]:
    """Every combination of the values that were given, the first ones first. Raises ``ConfigError``."""
    setups = [Setup()]
    for axis in AXES:
        values = [
            _read(axis, text.strip(), block_tokens) for one in given.get(axis.name, ()) for text in one.split(",")
        ]
        values = list(dict.fromkeys(values))
        if len(setups) * len(values) > FLEETS_MAX:
            raise ConfigError("", f"these are more than {FLEETS_MAX:,} combinations: give fewer values")
        if values:
            setups = [msgspec.structs.replace(one, **{axis.field: value}) for one in setups for value in values]
    return setups


def _read(axis: Axis, text: str, block_tokens: int) -> Value:
    try:
        return axis.read(text, block_tokens)
    except ValueError as wanted:
        raise ConfigError(f"--{axis.name.replace('_', '-')}", f"{text!r} is not {wanted}") from None


def varied(setups: Sequence[Setup]) -> list[Axis]:
    """The axes that have more than one value."""
    return [axis for axis in AXES if len({axis.write(one) for one in setups}) > 1]
