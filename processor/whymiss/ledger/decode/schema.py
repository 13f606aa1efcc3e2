"""Wire schema: the shapes that KV events have on the wire, and one reader for all of them.

Maps that carry their class name under ``type`` (vLLM since 0.24, SGLang) are what a fleet mostly sends:
msgspec decodes them straight into the structs below, a whole batch in one call. Everything else comes
through ``read_event``: positional arrays (vLLM up to 0.23, older SGLang), maps by ``event_type``
(Mooncake) or ``kind`` (LMCache), msgpack inside a byte string (llm-d), hashes in strings, token pairs.
"""

from __future__ import annotations

from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ...errors import BadInput
from ...model.block_hash import NoKeys, keys_of
from .block_keys import DECODE_ERRORS, chain_of, encode, key_of, read_anything

_WORD: Final = 0xFFFFFFFF

NIL: Final = b"\xc0"
PAIR: Final = b"\x92"
"""Begins an array of two."""
NOTHING: Final = Raw(NIL)
"""Stands for a field that is not there; one that is there and nil has a ``Raw`` of its own."""


class _Stored(msgspec.Struct, kw_only=True, gc=False):
    block_hashes: Raw
    parent_block_hash: int | bytes | None = None
    block_size: int | None = None
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | UnsetType | None = UNSET
    extra_keys: Raw = NOTHING
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: Raw = NOTHING
    cache_salt: Raw = NOTHING
    additional_salt: Raw = NOTHING


class WireStored(_Stored, kw_only=True, gc=False, tag_field="type", tag="BlockStored"):
    """Blocks that became resident."""

    token_ids: list[int] | None = None


class WireStoredUnread(_Stored, kw_only=True, gc=False, tag_field="type", tag="BlockStored"):
    """The same with the token ids left as bytes."""

    token_ids: Raw = NOTHING


class WireRemoved(msgspec.Struct, kw_only=True, gc=False, tag_field="type", tag="BlockRemoved"):
    """Blocks that left."""

    block_hashes: Raw
    medium: str | None = None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


class WireCleared(msgspec.Struct, kw_only=True, gc=False, tag_field="type", tag="AllBlocksCleared"):
    """Everything left."""

    medium: str | None = None


class WireBatch(msgspec.Struct, array_like=True, gc=False):
    """A batch of such events."""

    ts: float
    events: list[WireStored | WireRemoved | WireCleared]
    rank: int | None = None


class WireBatchUnread(msgspec.Struct, array_like=True, gc=False):
    """The same with the token ids left as bytes."""

    ts: float
    events: list[WireStoredUnread | WireRemoved | WireCleared]
    rank: int | None = None


class WireBatchCut(msgspec.Struct, array_like=True, gc=False):
    """The same with every event left as bytes."""

    ts: float
    events: list[Raw]
    rank: int | None = None


class Shape(msgspec.Struct):
    """A stored event and what its wire form says beyond its fields."""

    wire: WireStored | WireStoredUnread
    pairs: bool = False
    """Its token ids are EAGLE's pairs of this token and the next one, each made one number."""
    described: bool = False
    """The form has a place for extra keys, so that their absence means none."""


class Unknown(msgspec.Struct):
    """A well-formed event of an unknown type."""


class Lost(msgspec.Struct):
    """The publisher's own mark that events were lost (LMCache)."""


_Wire = TypeVar("_Wire", bound=msgspec.Struct)
WireEvent: TypeAlias = WireStored | WireStoredUnread | WireRemoved | WireCleared
Found: TypeAlias = Shape | WireRemoved | WireCleared | Unknown | Lost

_STORED, _REMOVED, _CLEARED, _LOST = "stored", "removed", "cleared", "lost"
_TYPES = {
    "BlockStored": _STORED,
    "stored": _STORED,
    "BlockRemoved": _REMOVED,
    "removed": _REMOVED,
    "AllBlocksCleared": _CLEARED,
    "cleared": _CLEARED,
    "lost": _LOST,
}
_STORED_ORDER = (
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
    "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window",
)  # fmt: skip
_REMOVED_ORDER = ("block_hashes", "medium", "group_idx")
# Spellings of Mooncake and LMCache, each used where vLLM's is absent or empty.
_ALIASES = {
    "block_hashes": ("seq_hashes",),
    "parent_block_hash": ("parent_hash", "parent"),
}

_RAW = ("extra_keys", "session_id", "cache_salt", "additional_salt")


def read_event(encoded: bytes | Raw) -> Found:
    """Read one event of any known shape; raises ``BadInput``."""
    event = read_anything(encoded)
    if type(event) is bytes:
        event = read_anything(event)
    if isinstance(event, list):
        return _read_positions(event)
    if isinstance(event, dict):
        return _read_map(event)
    raise BadInput("an event is neither a map nor an array")


def _read_positions(event: list[object]) -> Found:
    if not event:
        raise BadInput("an event is an empty array")
    kind = _kind_of(event[0])
    order = _STORED_ORDER if kind == _STORED else _REMOVED_ORDER
    fields: dict[object, object] = dict(zip(order, event[1:], strict=False))
    return _build(kind, fields, described="extra_keys" in fields)


def _read_map(event: dict[object, object]) -> Found:
    for name in ("type", "event_type", "kind"):
        if name in event:
            kind = _kind_of(event[name])
            break
    else:
        raise BadInput("an event does not name its type")
    fields = dict(event)
    for name, aliases in _ALIASES.items():
        for alias in aliases:
            if fields.get(name) in (None, []):
                fields[name] = fields.get(alias)
    if fields.get("block_hashes") in (None, []) and "object_key" in fields:
        fields["block_hashes"] = _object_keys(fields["object_key"])
    if "block_size" not in fields:
        fields["block_size"] = _derived_block_size(fields)
    return _build(kind, fields, described="extra_keys" in fields or "lora_name" in fields)


def _kind_of(name: object) -> str | None:
    if not isinstance(name, str):
        raise BadInput("an event's type is not a string")
    return _TYPES.get(name)


def _object_keys(key: object) -> list[object]:
    # Mooncake stores objects under any name. Those that are no block hash name no block; one that may be two names
    # a block that is not known.
    keys = keys_of((key,))
    if keys is NoKeys.UNDECIDABLE:
        raise BadInput(keys.value)
    return [] if isinstance(keys, NoKeys) else list(keys)


def _derived_block_size(fields: dict[object, object]) -> int | None:
    # LMCache's records name no size: one chunk, its hash and all of its tokens.
    hashes, tokens = fields.get("block_hashes"), fields.get("token_ids")
    if isinstance(hashes, list) and isinstance(tokens, list) and hashes and not len(tokens) % len(hashes):
        return len(tokens) // len(hashes)
    return None


def _build(kind: str | None, fields: dict[object, object], *, described: bool) -> Found:
    if kind == _STORED:
        return _build_stored(fields, described=described)
    if kind == _REMOVED:
        return _convert({**fields, "type": "BlockRemoved", "block_hashes": _hashes(fields)}, WireRemoved)
    if kind == _CLEARED:
        return _convert({**fields, "type": "AllBlocksCleared"}, WireCleared)
    return Lost() if kind == _LOST else Unknown()


def _build_stored(fields: dict[object, object], *, described: bool) -> Shape:
    parent, hashes = _chain(fields)
    converted: dict[object, object] = {
        **fields,
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": None,
        **{name: Raw(encode(fields.get(name))) for name in _RAW},
    }
    wire = _convert(converted, WireStored)
    # Checked where they are packed, and not one by one here.
    tokens, pairs = _flat(fields.get("token_ids"))
    wire.token_ids = tokens
    return Shape(wire, pairs, described)


def _chain(fields: dict[object, object]) -> tuple[int | None, Raw]:
    """The parent's key and the encoded hashes; in strings they are one chain in one notation."""
    parent, hashes = fields.get("parent_block_hash"), fields.get("block_hashes")
    if type(parent) is not str or not isinstance(hashes, list):
        return None if parent is None else key_of(parent), _hashes(fields)
    first, *keys = chain_of([parent, *hashes])
    return first, Raw(encode(keys))


def _hashes(fields: dict[object, object]) -> Raw:
    return Raw(encode(fields.get("block_hashes")))


def _flat(tokens: object) -> tuple[list[int] | None, bool]:
    """The token ids, and whether they were pairs: then each is one number of 64 bits, the first of a pair above."""
    if tokens is None:
        return None, False
    if not isinstance(tokens, list):
        raise BadInput("token ids are not an array")
    if not tokens or not isinstance(tokens[0], list):
        return tokens, False
    try:
        return [(first & _WORD) << 32 | (second & _WORD) for first, second in tokens], True
    except (TypeError, ValueError):
        pass
    raise BadInput("token ids are neither numbers nor pairs of numbers")


def _convert(fields: dict[object, object], shape: type[_Wire]) -> _Wire:
    known = {name: fields[name] for name in ("type", *shape.__struct_fields__) if name in fields}
    try:
        return msgspec.convert(known, shape)
    except DECODE_ERRORS:
        raise BadInput("a field of an event has the wrong type") from None
