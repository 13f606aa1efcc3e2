"""Looks over the shoulder of vLLM's cache manager: what the pool held at a lookup, and what was ever in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id, make_block_hash_with_group_id

from .truth import History, Judged, Lookup, judge


class _Resident:
    """Keys that the pool holds now, in one cache group."""

    def __init__(self, pool: Any, group: int) -> None:
        self._pool, self._group = pool, group

    def __contains__(self, key: object) -> bool:
        name = make_block_hash_with_group_id(key, self._group)
        return self._pool.cached_block_hash_to_block.get_one_block(name) is not None


class Observer:
    """Keeps, for each request, the lookup that was admitted first; and a line for each admission."""

    def __init__(self, scheduler: Any, published: Callable[[], int]) -> None:
        self._scheduler, self._published = scheduler, published
        manager = scheduler.kv_cache_manager
        self._manager, self._pool = manager, manager.block_pool
        self._coordinator = manager.coordinator
        groups = self._coordinator.single_type_managers
        dense = [i for i, group in enumerate(groups) if type(group).__name__ == "FullAttentionManager"]
        self._group = dense[0]
        self._dense = groups[self._group]
        self._scale = self._dense.block_size // scheduler.hash_block_size
        self._unit = getattr(self._coordinator, "_cache_hit_alignment_tokens", scheduler.block_size)
        self.history = History(self._dense.block_size)
        self._where: dict[Any, tuple[Any, int]] = {}
        self._seen: dict[str, int] = {}
        self._last: dict[str, dict[str, Any]] = {}
        self.first: dict[str, dict[str, Any]] = {}
        self.admissions: list[dict[str, Any]] = []
        self._wrap()

    def _wrap(self) -> None:
        lookup, admitted = self._manager.get_computed_blocks, self._manager.record_prefix_cache_stats
        insert = self._pool._insert_block_hash

        def get_computed_blocks(request: Any) -> Any:
            found = lookup(request)
            self._last[request.request_id] = self._look(request, found[1], found[2])
            return found

        def record_prefix_cache_stats(request: Any, num_hits: int) -> None:
            self._admitted(request, num_hits)
            admitted(request, num_hits)

        def insert_block_hash(name: Any, block: Any, num_tokens: Any = None) -> Any:
            if get_group_id(name) == self._group:
                self._stored(get_block_hash(name))
            return insert(name, block, num_tokens)

        self._manager.get_computed_blocks = get_computed_blocks
        self._manager.record_prefix_cache_stats = record_prefix_cache_stats
        self._pool._insert_block_hash = insert_block_hash

    def _keys(self, request: Any) -> list[Any]:
        return list(request.block_hashes)[self._scale - 1 :: self._scale]

    def _learn(self) -> None:
        """Where each key stands in whose chain: a request's chain grows with its answer."""
        for name, request in self._scheduler.requests.items():
            keys = self._keys(request)
            for index in range(self._seen.get(name, 0), len(keys)):
                self._where.setdefault(keys[index], (request, index))
            self._seen[name] = len(keys)

    def _stored(self, key: Any) -> None:
        if key in self.history:
            return
        if key not in self._where:
            self._learn()
        if key in self._where:  # else: a part of a block, by fine-grained matching
            request, index = self._where[key]
            self.history.store(self._keys(request), request.all_token_ids, index)

    def _look(self, request: Any, hit: int, boundary: int) -> dict[str, Any]:
        resident = _Resident(self._pool, self._group)
        prompt = request.num_prompt_tokens
        tokens = request.all_token_ids[:prompt]
        keys = self._keys(request)
        block = self._dense.block_size
        dense = 0
        while dense < len(keys) and (dense + 1) * block <= request.num_tokens - 1 and keys[dense] in resident:
            dense += 1
        judged: Judged | None = None
        if not request.num_preemptions:
            judged = judge(
                self.history,
                resident,
                Lookup(
                    keys=keys,
                    tokens=tokens,
                    hit_tokens=hit,
                    unit=self._unit,
                    dense_tokens=dense * block,
                    boundary_tokens=boundary,
                    skipped=not self._manager.prefix_cache_lookup_enabled(request),
                    speculative=self._scheduler.use_eagle_block_drop,
                ),
            )
        return {
            "request_id": request.request_id,
            "prompt_tokens": prompt,
            "hit": hit,
            "dense": dense * block,
            "preempted_before": request.num_preemptions,
            "batch": self._published(),
            "events_before": len(self._pool.kv_event_queue),
            "judged": judged,
            "key": self._public(keys, judged.first_missed if judged else hit // block),
        }

    @staticmethod
    def _public(keys: list[Any], index: int | None) -> int | None:
        if index is None or index >= len(keys):
            return None
        return int.from_bytes(keys[index][-8:], "big")

    def _admitted(self, request: Any, hits: int) -> None:
        seen = self._last[request.request_id]
        if seen["hit"] != hits:
            raise AssertionError("the lookup that was admitted is not the one that was seen")
        self.admissions.append(seen)
        if not request.num_preemptions:
            self.first[request.request_id] = seen
