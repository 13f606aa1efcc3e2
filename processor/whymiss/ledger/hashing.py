"""Keyed hashing: digests in place of token ids and extra keys.

A block's own digest is a multilinear hash of its token ids modulo 2^64 (Carter and Wegman, *Universal
classes of hash functions*, 1979; Lemire and Kaser, *Strongly universal string hashing is fast*, 2014):

    own = c + n * d + sum(k[i] * token[i])

with c, d and the multipliers k drawn from the process's key, and n the number of tokens. The
multipliers are odd, so two blocks that differ in one token never collide. Two that differ in more do so
with probability at most 2^-(63 - z), where 2^z is the largest power of two that divides all the
differences: 2^-46 or less for token ids below 2^17 apart, 2^-63 for nearly all pairs.

A prefix digest is the same construction over the own digests of a chain, with one multiplier a depth.
It is a sum, so a chain that arrives in several events has the same digests as one that arrives whole,
and it needs no loop. No digest is of use after the process: its key is gone.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..errors import BadInput
from .events import ExtraKey, Keys

BLOCK_TOKENS_MAX = 1 << 17
"""Token ids a block that are digested; larger blocks get no digest. Far above every engine's."""

_DEPTH_MAX = 1 << 20
_DEPTH_INITIAL = 1 << 12
_MASK = (1 << 64) - 1


class Digester:
    """Digests under one key. ``key`` is at least 16 random bytes and lives only in the process."""

    def __init__(self, key: bytes) -> None:
        assert len(key) >= 16, "a digest key of less than 16 bytes can be guessed"
        self._key = hashlib.blake2b(key, person=b"whymiss digests").digest()
        self._constant, self._per_token = self._draw(b"constants", 2).tolist()
        self._of_token = self._draw(b"tokens", 1 << 10)
        self._of_depth = self._draw(b"depths", _DEPTH_INITIAL)
        self._constants: dict[int, np.uint64] = {}
        self.translated: dict[str, int] = {}
        """Blocks' own digests by those of the same tokens in references, as far as that is known."""

    def block_digests(self, tokens: Sequence[int] | Keys, block_size: int, count: int) -> Keys:
        """Digest of each of ``count`` blocks of ``block_size`` consecutive token ids: uint64, in their order.

        ``tokens`` holds at least ``count * block_size`` ids, taken modulo 2^64.
        """
        assert 0 < block_size <= BLOCK_TOKENS_MAX, "no digest of blocks of this size"
        if not isinstance(tokens, np.ndarray):
            tokens = np.frombuffer(token_column(tokens), np.uint64)
        if block_size > self._of_token.size:
            self._of_token = self._draw(b"tokens", 1 << (block_size - 1).bit_length())
        multipliers = self._of_token[:block_size]
        if count == 1:
            # What a request adds while it decodes: one product is found without the calls for many.
            total = int(tokens[:block_size].dot(multipliers)) + self._constant + self._per_token * block_size
            return np.frombuffer(array("Q", (total & _MASK,)), np.uint64)
        blocks = tokens[: count * block_size].reshape(count, block_size)
        # Of whole numbers a product of matrices takes twice the time.
        own: Keys = np.vecdot(blocks, multipliers)
        own += self._constant_of(block_size)
        return own

    def _constant_of(self, block_size: int) -> np.uint64:
        constant = self._constants.get(block_size)
        if constant is None:
            constant = self._constants[block_size] = np.uint64((self._constant + self._per_token * block_size) & _MASK)
        return constant

    def prefix_digests(self, own: Keys, parent: int, depth: int) -> Keys:
        """Digest of everything from block 0 to the end of each of the blocks: uint64, aligned with ``own``.

        ``own`` are the blocks' own digests (or those of their extra keys, see ``extras_digest``),
        ``depth`` the depth of the first one and ``parent`` the prefix digest of the block before it:
        0 for a chain that starts at depth 0.
        """
        prefixes: Keys = own * self.depth_multipliers(depth, own.size)
        # Most events are short: a sum that begins with the parent is one call less than adding it to each.
        if own.size:
            prefixes[0] = (prefixes.item(0) + parent) & _MASK
        if own.size > 1:
            np.add.accumulate(prefixes, out=prefixes)
        return prefixes

    def depth_multipliers(self, depth: int, count: int) -> Keys:
        """What the own digests of ``count`` consecutive blocks are multiplied with, the first of them at a depth: uint64."""
        begin = depth % _DEPTH_MAX
        end = begin + count
        if end > self._of_depth.size:
            self._of_depth = self._draw(b"depths", 1 << (end - 1).bit_length())
        return self._of_depth[begin:end]

    def depth_multipliers_at(self, depths: npt.NDArray[np.int64]) -> Keys:
        """The same of blocks that do not follow each other."""
        at = depths % _DEPTH_MAX
        self.depth_multipliers(int(at.max()), 1)
        found: Keys = self._of_depth.take(at)
        return found

    def extra_digest(self, kind: str, value: bytes) -> int:
        """Digest of one extra key's value."""
        return self._short(b"extra", kind.encode() + b"\0" + value)

    def extras_digest(self, extras: tuple[ExtraKey, ...]) -> int:
        """Digest of all extra keys of one block; 0 for none, so that it leaves a chain's sum alone."""
        if not extras:
            return 0
        return self._short(b"extras", b"".join(kind.encode() + digest.to_bytes(8, "big") for kind, digest in extras))

    def _short(self, purpose: bytes, value: bytes) -> int:
        digest = hashlib.blake2b(value, digest_size=8, key=self._key, person=purpose).digest()
        return int.from_bytes(digest, "big")

    def _draw(self, purpose: bytes, count: int) -> Keys:
        # A longer draw begins with the shorter one, so that tables can grow under digests already given.
        stream = hashlib.shake_256(self._key + purpose).digest(8 * count)
        return np.frombuffer(stream, np.uint64) | np.uint64(1)


def token_column(tokens: Sequence[int]) -> array[int]:
    """Token ids as a column of unsigned 64-bit integers, negative ones modulo 2^64."""
    column = array("Q")
    append_tokens(list(tokens), column)
    return column


def append_tokens(tokens: list[int], column: array[int]) -> None:
    """Append token ids to such a column; raises ``BadInput`` (and appends nothing) if one is no integer."""
    try:
        try:
            column.fromlist(tokens)
        except OverflowError:
            column.fromlist([token & _MASK for token in tokens])
    except TypeError:
        raise BadInput("a token id is not a whole number") from None
