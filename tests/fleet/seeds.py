"""Which key the processes of each hash seed gave to the same tokens under the same extra keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tests.fleet.caches import Cache
from tests.fleet.prompts import Extras, Prompt
from tests.fleet.spec import FleetSpec

Identity: TypeAlias = tuple[int, Extras]
"""All tokens from block 0 on, and what is hashed beside them: what a key means under any seed."""


class Seeds:
    """What a fleet of unlike hash seeds cannot find, because every worker looks for its own keys."""

    def __init__(self, spec: FleetSpec) -> None:
        self._spec = spec
        self._identities: dict[int, Identity] = {}
        self._keys: list[dict[Identity, int]] = [{} for _ in range(spec.hash_seeds)]

    def name(self, prompt: Prompt, index: int) -> None:
        """A block of a prompt is stored for the first time under its key."""
        if self._spec.hash_seeds > 1:
            identity = prompt.plain[index], prompt.extras
            self._identities[prompt.keys[index]] = identity
            self._keys[prompt.hash_seed][identity] = prompt.keys[index]

    def key_at(self, worker: int, key: int) -> int:
        """What a worker calls a block that has a key at any worker; the key itself where nobody calls it otherwise."""
        identity = self._identities.get(key)
        return key if identity is None else self._keys[self._spec.hash_seed(worker)].get(identity, key)

    def leading(self, worker: int, cache: Cache, prompt: Prompt, blocks: range) -> int:
        """How many leading blocks of these another worker holds under other keys than the prompt's."""
        seed = self._spec.hash_seed(worker)
        if seed == prompt.hash_seed:
            return 0
        known = self._keys[seed]
        keys: Sequence[int | None] = [known.get((prompt.plain[index], prompt.extras)) for index in blocks]
        return next((count for count, key in enumerate(keys) if key is None or key not in cache.copies), len(keys))
