"""Two serialised requests side by side, and the chain of a known-good template: divergence without prompts.

Requests are compared as an engine hashes them: token ids in full blocks, and the extra keys (adapter, salt,
images, embeddings) that make equal tokens another identity. What comes out are indexes, names of kinds and
keyed digests; no token, salt or text does.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from .errors import BadInput

FORMAT = 1
"""Version of the file of a reference."""

Encode: TypeAlias = Callable[[str], Sequence[int]]
"""From a text to its token ids."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """An image or another multimodal input: what identifies it, and the index of its first token."""

    identifier: str
    offset: int


class Serialised(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it reaches the engine: the contents of one input file. Either ``token_ids`` or ``text``."""

    token_ids: tuple[int, ...] = ()
    text: str | None = None
    model: str | None = None
    tokenizer: str | None = None
    template: str | None = None
    adapter: str | None = None
    cache_salt: str | None = None
    mm: tuple[Item, ...] = ()
    prompt_embeds: str | None = None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """An extra key that differs: its kind, the first block that it changes, and the keyed digests of both values."""

    kind: str
    block: int
    one: str | None
    other: str | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. ``block`` is the first block that differs for any reason; ``None`` where none does."""

    block_size: int
    blocks: tuple[int, int]
    """Full blocks of each; for a reference those that it expects."""
    block: int | None
    token_index: int | None
    """Index of the first token that differs; ``None`` where none does, or where only digests are known."""
    same_again: int
    """Later blocks with the same own tokens at the same index: the mark of a volatile value."""
    extra_keys: tuple[Difference, ...] = ()

    @property
    def same(self) -> bool:
        """Whether an engine would find all of one request's blocks for the other."""
        return self.block is None and self.token_index is None


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A known-good template: ``chain`` has a keyed digest of everything up to the end of each block.

    ``own`` has one of each block's own tokens. ``key_id`` names the key, so that another key is
    noticed and not taken for another prompt.
    """

    format: int = FORMAT
    name: str
    version: str
    block_size: int
    key_id: str
    chain: tuple[str, ...]
    own: tuple[str, ...]
    model: str | None = None
    tokenizer: str | None = None
    template: str | None = None


def read_request(content: bytes, encode: Encode | None) -> Serialised:
    """Read a request's JSON; ``encode`` is needed where it holds text.

    Raises ``BadInput`` where it is neither token ids nor text.
    """
    try:
        request = msgspec.json.decode(content, type=Serialised)
    except msgspec.DecodeError:
        raise BadInput("not a serialised request: JSON with token_ids or text is wanted") from None
    if request.text is None and not request.token_ids:
        raise BadInput("has neither token_ids nor text (of messages, what the chat template makes of them)")
    if request.text is not None and request.token_ids:
        raise BadInput("has both token_ids and text, and one of them is the request")
    if request.text is not None:
        if encode is None:
            raise BadInput("a request of text needs a tokenizer")
        request = msgspec.structs.replace(request, token_ids=tuple(encode(request.text)))
    if any(token < 0 or token >> 32 for token in request.token_ids) or any(item.offset < 0 for item in request.mm):
        raise BadInput("a token id or an offset is out of range")
    return request


def read_reference(content: bytes) -> Reference:
    """Read the file of a reference. Raises ``BadInput``, with the offset where the file is not even JSON."""
    try:
        reference = msgspec.json.decode(content, type=Reference)
    except msgspec.ValidationError:
        raise BadInput("not a reference") from None
    except msgspec.DecodeError as error:
        place = re.search(r"\(byte (\d+)\)", str(error))
        raise BadInput("not a reference, nor JSON", offset=len(content) if place is None else int(place[1])) from None
    if reference.format != FORMAT or reference.block_size < 1 or len(reference.chain) != len(reference.own):
        raise BadInput("a reference of another format")
    return reference


def compare(one: Serialised, other: Serialised, block_size: int, key: bytes) -> Comparison:
    """Find the first difference. Raises ``BadInput`` where the two are not comparable at all."""
    _check_scope(one, other)
    tokens, others = one.token_ids, other.token_ids
    shorter = min(len(tokens), len(others))
    index = next((at for at in range(shorter) if tokens[at] != others[at]), None)
    if index is None and len(tokens) != len(others):
        index = shorter
    blocks = (len(tokens) // block_size, len(others) // block_size)
    extras = _differing(one, other, block_size, key)
    first = min([entry.block for entry in extras] + ([] if index is None else [index // block_size]), default=None)
    later = range(0 if index is None else index // block_size + 1, min(blocks))
    own = [_own(tokens, at, block_size) == _own(others, at, block_size) for at in later]
    return Comparison(
        block_size=block_size,
        blocks=blocks,
        block=first,
        token_index=index,
        same_again=0 if index is None else sum(own),
        extra_keys=extras,
    )


def compare_with(reference: Reference, request: Serialised, key: bytes, key_id: str) -> Comparison:
    """Find the first block of a template's expected prefix that a request does not repeat.

    Raises ``BadInput`` for another key, model, tokenizer or template than the reference's.
    """
    if reference.key_id != key_id:
        raise BadInput("the reference was written with another key")
    _check_scope(reference, request)
    chain, own = chains([request], reference.block_size, key)
    pairs = list(zip(reference.chain, chain, strict=False))
    first = next((at for at, (expected, found) in enumerate(pairs) if expected != found), None)
    if first is None and len(chain) < len(reference.chain):
        first = len(chain)
    again = (
        0 if first is None else sum(a == b for a, b in zip(reference.own[first + 1 :], own[first + 1 :], strict=False))
    )
    return Comparison(
        block_size=reference.block_size,
        blocks=(len(reference.chain), len(chain)),
        block=first,
        token_index=None,
        same_again=again,
    )


def chains(requests: Sequence[Serialised], block_size: int, key: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Keyed digests of the leading full blocks that all requests share: of everything so far, and of own tokens.

    Raises ``BadInput`` where the requests are not comparable.
    """
    first, *rest = requests
    count = len(first.token_ids) // block_size
    for other in rest:
        difference = compare(first, other, block_size, key)
        count = min(count, *difference.blocks, count if difference.block is None else difference.block)
    above, chain, own = b"", [], []
    for index in range(count):
        packed = _own(first.token_ids, index, block_size)
        above = _mac(key, b"chain", above + packed + _extras_at(first, index, block_size))
        chain.append(above[:8].hex())
        own.append(own_digest(packed, key))
    return tuple(chain), tuple(own)


def own_digest(packed: bytes, key: bytes) -> str:
    """The digest of one block's own tokens, of which each takes four bytes, the lowest first."""
    return _mac(key, b"own", packed)[:8].hex()


def _check_scope(one: Serialised | Reference, other: Serialised) -> None:
    for name in ("model", "tokenizer", "template"):
        if getattr(one, name) != getattr(other, name):
            raise BadInput(f"not comparable: the two have another {name}")


def _own(tokens: Sequence[int], index: int, block_size: int) -> bytes:
    return b"".join(token.to_bytes(4, "little") for token in tokens[index * block_size : (index + 1) * block_size])


def _kinds(request: Serialised, block_size: int) -> dict[tuple[str, int], str]:
    """The values of a request's extra keys by their kind and the first block that they change."""
    found = {
        ("lora", 0): request.adapter,
        ("cache_salt", 0): request.cache_salt,
        ("prompt_embeds", 0): request.prompt_embeds,
    }
    present = {place: value for place, value in found.items() if value is not None}
    for number, item in enumerate(sorted(request.mm, key=lambda item: item.offset)):
        place = ("mm", item.offset // block_size)
        present[place] = f"{present.get(place, '')}{number}:{item.offset}:{item.identifier};"
    return present


def _extras_at(request: Serialised, index: int, block_size: int) -> bytes:
    kinds = _kinds(request, block_size)
    return b"".join(f"{kind}={value};".encode() for (kind, block), value in sorted(kinds.items()) if block == index)


def _differing(one: Serialised, other: Serialised, block_size: int, key: bytes) -> tuple[Difference, ...]:
    mine, theirs = _kinds(one, block_size), _kinds(other, block_size)
    return tuple(
        Difference(
            kind=place[0],
            block=place[1],
            one=_digest(key, place[0], mine.get(place)),
            other=_digest(key, place[0], theirs.get(place)),
        )
        for place in sorted(mine.keys() | theirs.keys(), key=lambda place: (place[1], place[0]))
        if mine.get(place) != theirs.get(place)
    )


def _digest(key: bytes, kind: str, value: str | None) -> str | None:
    return None if value is None else _mac(key, kind.encode(), value.encode())[:8].hex()


def _mac(key: bytes, purpose: bytes, content: bytes) -> bytes:
    return hmac.digest(key, purpose + b"\0" + content, "sha256")
