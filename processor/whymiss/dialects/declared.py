"""What it takes to declare a contract as data: kinds of values, attributes, and the parts that attributes make up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from ..model import OFFLOAD_STATUSES, Attribute
from .values import count, names, text, truth

EXTRA_KEY_KINDS = frozenset({"cache_salt", "lora", "mm", "prompt_embeds"})
Example: TypeAlias = str | bool | int | list[str]


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A type of value: ``type`` is OTLP's, ``encoding`` what is accepted, and ``read`` gives the value or what absence is."""

    type: str
    encoding: str
    read: Callable[[Attribute], object]


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """One attribute of the contract. ``missing`` says what follows where it is absent or cannot be read."""

    name: str
    kind: Kind
    unit: str
    meaning: str
    missing: str
    example: Example


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The attributes of one kind of span, under one prefix.

    ``needs`` names attributes of which a span must have at least one that can be read, else it is not this kind of span.
    """

    prefix: str
    span: str
    """What such a span is, for readers."""
    attributes: tuple[Declared, ...]
    needs: tuple[str, ...]

    def values(self, attributes: Mapping[str, Attribute]) -> dict[str, object]:
        """What a span's attributes say, by the declared names; all of them, absent or not."""
        return {one.name: one.kind.read(attributes.get(self.prefix + one.name)) for one in self.attributes}

    def is_told(self, attributes: Mapping[str, Attribute]) -> bool:
        """Whether a span has one of the attributes that it needs."""
        return any(self.prefix + name in attributes for name in self.needs)


def _kinds(value: Attribute) -> tuple[str, ...] | None:
    """Extra-key kinds by name; anything that is not a known kind might be a value, and is only counted."""
    found = names(value)
    return None if found is None else tuple(sorted({kind if kind in EXTRA_KEY_KINDS else "other" for kind in found}))


def _status(value: Attribute) -> str | None:
    status = text(value)
    return status.lower() if status is not None and status.lower() in OFFLOAD_STATUSES else None


COUNT = Kind(type="int", encoding="from 0; also a decimal string or a whole double", read=count)
SIZE = Kind(
    type="int", encoding="from 1; also a decimal string or a whole double", read=lambda value: count(value) or None
)
FLAG = Kind(type="bool", encoding="also the string `true` or `false`", read=lambda value: truth(value) or False)
TEXT = Kind(type="string", encoding="not empty", read=text)
STATUS = Kind(
    type="string",
    encoding=", ".join(f"`{one}`" for one in sorted(OFFLOAD_STATUSES)) + "; in any case",
    read=_status,
)
KIND_NAMES = Kind(
    type="string[]",
    encoding=", ".join(f"`{one}`" for one in sorted(EXTRA_KEY_KINDS))
    + "; any other word counts as `other`. Also one string with commas",
    read=_kinds,
)
# Of hashes the texts of one span decide together in which notation they are.
HASH = Kind(type="string, int or bytes", encoding="a block hash, as above", read=lambda value: value)
CHAIN = Kind(
    type="string[], int[] or bytes[]", encoding="block hashes, as above, from block 0 on", read=lambda value: value
)
