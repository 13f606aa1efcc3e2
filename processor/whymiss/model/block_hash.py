"""Block hashes of every family and notation as unsigned 64-bit keys: the one parser, for spans and KV events alike.

A key is the low 64 bits of a block hash, as vLLM's ``maybe_convert_block_hash`` takes them. An emitter writes

- an integer, signed or not, which counts modulo 2**64;
- 8, 16 or 32 bytes, of which the last eight count, big-endian;
- text: a decimal integer of 64 bits without leading zeros; ``0x`` and up to 64 hexadecimal digits; or bare
  hexadecimal digits in the full width of a hash, which is 16, 32 or 64.

Sixteen decimal digits are one number in decimal and another in hexadecimal, so alone they are no key: a wrong key looks
like a block that was never stored. One emitter writes one notation, so the texts of a chain are read in the notation
that fits all of them; where several fit, none of them is read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from enum import StrEnum

KEY_MAX = (1 << 64) - 1
"""The largest key, and the mask of its bits."""

_SIGNED_MIN = -(1 << 63)
_BIN_BYTES = frozenset({8, 16, 32})
_DECIMAL, _FULL_WIDTH, _PREFIXED = 1, 2, 4
_BASES = {_DECIMAL: 10, _FULL_WIDTH: 16, _PREFIXED: 16}
# No more digits than the largest number has: int() is quadratic in the length of a decimal.
_decimal = re.compile(r"-?[1-9][0-9]{0,19}|0").fullmatch
_full_width = re.compile(r"[0-9a-fA-F]{16}|[0-9a-fA-F]{32}|[0-9a-fA-F]{64}").fullmatch
_hexadecimal = re.compile(r"[0-9a-fA-F]+").fullmatch
_prefixed = re.compile(r"0[xX][0-9a-fA-F]{1,64}").fullmatch


class NoKeys(StrEnum):
    """Why block hashes give no keys."""

    MALFORMED = "a block hash is neither a 64-bit integer, nor 8, 16 or 32 bytes, nor such a number in a string"
    UNDECIDABLE = "block hashes in strings are decimal and hexadecimal numbers at once"
    MIXED = "block hashes of one chain are in strings of several notations"


def keys_of(hashes: Iterable[object]) -> tuple[int, ...] | NoKeys:
    """The keys of the block hashes of one chain, in their order; or why the chain cannot be read as a whole."""
    chain = tuple(hashes)
    if (at_once := _of_sixteen(chain)) is not None:
        return at_once
    fitting = _DECIMAL | _FULL_WIDTH | _PREFIXED
    texts = False
    for one in chain:
        if type(one) is str:
            texts = True
            notations = _notations(one)
            if not notations:  # guard: keys-malformed
                return NoKeys.MALFORMED
            fitting &= notations  # guard: keys-one-notation
    if texts and fitting not in _BASES:  # guard: keys-undecidable
        return NoKeys.UNDECIDABLE if fitting else NoKeys.MIXED
    base = _BASES.get(fitting, 10)
    keys = []
    for one in chain:
        key = int(one, base) & KEY_MAX if type(one) is str else _typed(one)
        if key is None:
            return NoKeys.MALFORMED
        keys.append(key)
    return tuple(keys)


def _of_sixteen(chain: tuple[object, ...]) -> tuple[int, ...] | None:
    """The keys of texts of 16 hexadecimal digits each, not all of them decimal: what emitters write most, ten times as fast."""
    texts = [one for one in chain if type(one) is str and len(one) == 16]
    if len(texts) < max(len(chain), 1):
        return None
    digits = "".join(texts)
    if digits.isdecimal() or not _hexadecimal(digits):  # guard: keys-all-decimal, keys-hexadecimal
        return None
    return struct.unpack(f">{len(texts)}Q", bytes.fromhex(digits))


def _typed(value: object) -> int | None:
    if type(value) is int and _SIGNED_MIN <= value <= KEY_MAX:  # guard: keys-range
        return value & KEY_MAX
    if type(value) is bytes and len(value) in _BIN_BYTES:  # guard: keys-sizes
        return int.from_bytes(value[-8:], "big")  # guard: keys-last-eight
    return None


def _notations(text: str) -> int:
    """The notations in which a text is a block hash, as the sum of their bits."""
    if _prefixed(text):
        return _PREFIXED
    fitting = _FULL_WIDTH if _full_width(text) else 0
    if _decimal(text) and _SIGNED_MIN <= int(text) <= KEY_MAX:  # guard: keys-decimal-range
        fitting += _DECIMAL
    return fitting
