"""Durations and sizes as people write them."""

from __future__ import annotations

import math
import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
}
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
"""More digits than these fit no counter of ours, and Python refuses to read some thousands of them."""
_PART = re.compile(r"([0-9]{1,18}(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]+)?) ?([kKMGT]i?B|B)")


def number(text: str) -> float | None:
    """Read a finite decimal number; ``None`` when it is none."""
    if _NUMBER.fullmatch(text) is None or not math.isfinite(value := float(text)):
        return None
    return value


def whole(text: str) -> int | None:
    """Read a decimal integer; ``None`` when it is none."""
    return int(text) if _WHOLE.fullmatch(text) else None


def seconds(text: str) -> float | None:
    """Read a duration: ``1.5`` (seconds), ``200ms``, ``5s``, ``1m30s``; ``None`` when it is none."""
    plain = number(text)
    if plain is not None:
        return plain
    parts = _PART.findall(text)
    if not parts or "".join(amount + unit for amount, unit in parts) != text:
        return None
    return math.fsum(float(amount) * _SECONDS[unit] for amount, unit in parts)


def size(text: str) -> int | None:
    """Read a size: ``4096`` (bytes), ``64MiB`` (binary), ``64MB`` (decimal); ``None`` when it is none."""
    plain = whole(text)
    if plain is not None:
        return plain
    found = _SIZE.fullmatch(text)
    if found is None or found[2] not in _BYTES:
        return None
    return int(float(found[1]) * _BYTES[found[2]])
