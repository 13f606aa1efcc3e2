"""Extra keys: which kind each one is, and a digest in place of its value.

vLLM publishes them untagged, one entry a block: nil or an array of, in this order, the LoRA adapter's
name (on every block), ``[identifier, offset]`` of multimodal items, the cache salt (only in the block
that starts at token 0), and digests of prompt embeddings. The type on the wire tells the kind; of
strings, only the first can be the adapter's name. SGLang and Mooncake put a salt beside the event.
"""

from __future__ import annotations

from msgspec import Raw

from ..errors import BadInput
from .digests import Digester
from .events import ExtraKey
from .keys import array_header, encode, read_anything, read_array
from .shapes import NOTHING


class ExtrasReader:
    """Reads the extra keys of the events of one batch.

    The plain values that it remembers, to digest a repeated one once, go with it: use one a batch.
    """

    def __init__(self, digester: Digester) -> None:
        self._digester = digester
        self._seen: dict[tuple[bytes, str | None], tuple[ExtraKey, ...]] = {}

    def listed(self, encoded: bytes, adapter: str | None, blocks: int) -> list[tuple[ExtraKey, ...]] | None:
        """The extra keys of each block from vLLM's list; ``None`` where no block has any.

        Raises ``BadInput`` where the list does not say one thing for each block.
        """
        count, head = array_header(encoded)
        if count != blocks:
            raise BadInput("an event has not as many extra keys as blocks")
        entries = encoded[head:]
        if entries.count(b"\xc0") == len(entries):
            return None
        size = len(entries) // blocks
        # An adapter's name stands alone on every block but a salted first one: read it once.
        if entries == entries[:size] * blocks:
            return [self._entry(entries[:size], adapter)] * blocks
        return [self._entry(bytes(entry), adapter) for entry in read_array(encoded)]

    def beside(self, adapter: str | None, adapter_id: int | None, *salts: Raw) -> tuple[ExtraKey, ...]:
        """Extra keys that stand beside the event and hold for all of its blocks; raises ``BadInput``."""
        keys: tuple[ExtraKey, ...] = ()
        if adapter:
            keys = (self._key("lora", adapter),)
        elif adapter_id is not None and adapter_id > 0:
            keys = (self._key("lora", adapter_id),)
        for encoded in salts:
            if encoded is not NOTHING and (salt := read_anything(encoded)):
                keys += (self._key("cache_salt", salt),)
        return keys

    def _key(self, kind: str, value: object) -> ExtraKey:
        return kind, self._digester.extra_digest(kind, encode(value))

    def _entry(self, encoded: bytes, adapter: str | None) -> tuple[ExtraKey, ...]:
        known = self._seen.get((encoded, adapter))
        if known is None:
            known = self._seen[encoded, adapter] = self._read_entry(read_anything(encoded), adapter)
        return known

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


def _kind_of(value: object, *, may_be_adapter: bool) -> str:
    if isinstance(value, str):
        return "lora" if may_be_adapter else "cache_salt"
    if isinstance(value, list) and len(value) == 2:
        return "mm"
    if isinstance(value, bytes):
        return "prompt_embeds"
    raise BadInput("an extra key is of no known kind")
