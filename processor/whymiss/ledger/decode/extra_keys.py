"""Extra keys of blocks: which kind each one is, and a digest in place of its value.

vLLM publishes them untagged, one entry a block: nil or an array of, in this order, the LoRA adapter's
name (on every block), ``[identifier, offset]`` of multimodal items, the cache salt (only in the block
that starts at token 0), and digests of prompt embeddings. The type on the wire tells the kind; of
strings, only the first can be the adapter's name. SGLang and Mooncake put a salt beside the event.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Raw

from ...errors import BadInput
from ..events import ExtraKey
from ..hashing import Digester
from .block_keys import array_header, encode, read_anything, read_array
from .schema import NIL, NOTHING, WireStored, WireStoredUnread

_NILS_MAX = 1 << 12


def has_none(wire: WireStored | WireStoredUnread, blocks: int) -> bool:
    """Whether an event lists a nil for each block and no salt beside them, as most do: then there is nothing to read."""
    if wire.cache_salt is not NOTHING or wire.additional_salt is not NOTHING:
        return False
    return blocks <= _NILS_MAX and wire.extra_keys == _nils_of(blocks)


class ExtrasReader:
    """Reads the extra keys of the events of one batch.

    The plain values that it remembers, to digest a repeated one once, go with it: use one a batch.
    """

    def __init__(self, digester: Digester) -> None:
        self._digester = digester
        self._seen: dict[tuple[bytes, str | None], tuple[ExtraKey, ...]] = {}

    def read(self, wire: WireStored | WireStoredUnread, blocks: int) -> list[tuple[ExtraKey, ...]] | None:
        """The extra keys of each block; ``None`` where no block has any.

        Raises ``BadInput`` where the event does not say one thing for each block.
        """
        extras: list[tuple[ExtraKey, ...]] | None = None
        beside: tuple[ExtraKey, ...] = ()
        listed = bytes(wire.extra_keys)
        if listed == NIL:
            beside = self._adapter(wire)
        elif blocks > _NILS_MAX or wire.extra_keys != _nils_of(blocks):
            extras = self._listed(listed, wire.lora_name or None, blocks)
        for salt in (wire.cache_salt, wire.additional_salt):
            if salt is not NOTHING and (plain := read_anything(salt)):
                beside += (self._key("cache_salt", plain),)
        if beside:
            extras = [entry + beside for entry in extras or [()] * blocks]
        return extras

    def _adapter(self, wire: WireStored | WireStoredUnread) -> tuple[ExtraKey, ...]:
        # Releases that publish no extra keys still name the adapter.
        if wire.lora_name:
            return (self._key("lora", wire.lora_name),)
        if wire.lora_id is not None and wire.lora_id > 0:
            return (self._key("lora", wire.lora_id),)
        return ()

    def _listed(self, encoded: bytes, adapter: str | None, blocks: int) -> list[tuple[ExtraKey, ...]] | None:
        count, head = array_header(encoded)
        if count != blocks:
            raise BadInput("an event has not as many extra keys as blocks")
        entries = encoded[head:]
        size = len(entries) // max(1, blocks)
        # An adapter's name stands alone on every block but a salted first one: read it once.
        if entries == entries[:size] * blocks:
            extras = [self._entry(entries[:size], adapter)] * blocks
        else:
            extras = [self._entry(bytes(entry), adapter) for entry in read_array(encoded)]
        return extras if any(extras) else None

    def _key(self, kind: str, value: object) -> ExtraKey:
        return kind, self._digester.extra_digest(kind, encode(value))

    def _entry(self, encoded: bytes, adapter: str | None) -> tuple[ExtraKey, ...]:
        keys_of_entry = self._seen.get((encoded, adapter))
        if keys_of_entry is None:
            keys_of_entry = self._seen[encoded, adapter] = self._read_entry(read_anything(encoded), adapter)
        return keys_of_entry

    def _read_entry(self, entry: object, adapter: str | None) -> tuple[ExtraKey, ...]:
        if entry is None:
            return ()
        if not isinstance(entry, list):
            raise BadInput("the extra keys of a block are not an array")
        keys = []
        for position, value in enumerate(entry):
            kind = _kind_of(value, may_be_adapter=adapter is not None and position == 0 and value == adapter)
            keys.append(self._key(kind, value))
        return tuple(keys)


@lru_cache(maxsize=256)
def _nils_of(blocks: int) -> Raw:
    """A nil for each block, as an array in its shortest form: what vLLM lists mostly."""
    return Raw((bytes((0x90 | blocks,)) if blocks < 16 else b"\xdc" + blocks.to_bytes(2, "big")) + NIL * blocks)


def _kind_of(value: object, *, may_be_adapter: bool) -> str:
    if isinstance(value, str):
        return "lora" if may_be_adapter else "cache_salt"
    if isinstance(value, list) and len(value) == 2:
        return "mm"
    if isinstance(value, bytes):
        return "prompt_embeds"
    raise BadInput("an extra key is of no known kind")
