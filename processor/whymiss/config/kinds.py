"""What the fields of the configuration are made of.

Durations are floats in seconds and sizes are integers in bytes; the file may write ``200ms`` or
``64MiB`` (see `units`).
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

MIB = 1024 * 1024
GIB = 1024 * MIB

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, extra={"unit": "seconds"})]
SecondsAboveZero: TypeAlias = Annotated[float, msgspec.Meta(gt=0, extra={"unit": "seconds"})]
Bytes: TypeAlias = Annotated[int, msgspec.Meta(ge=1, extra={"unit": "bytes"})]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
CountOrZero: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Ratio: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Secret:
    """A text that prints as ``[REDACTED]``; only `reveal` gives it away."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself, for the one place that must use it."""
        return self._text

    def __repr__(self) -> str:
        return "[REDACTED]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the file with fixed keys."""
