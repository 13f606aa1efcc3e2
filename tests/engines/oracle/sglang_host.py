"""A host tier for SGLang's HiCache: it hands out slots and takes virtual time, and copies nothing.

What is written, loaded back, evicted and published is decided by SGLang's own cache; this stands where its controller
has CUDA streams.
"""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import torch

from .clock import Clock

_COPY_SECONDS = 0.0008


class HostPool:
    """Slots of the host tier, in tokens."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self.anchor_entry = SimpleNamespace(
            host_pool=SimpleNamespace(shared_allocation_domain=None), host_evict_fn=None
        )
        self.clear()

    def clear(self) -> None:
        self._free = deque(range(self._tokens))

    def available_size(self) -> int:
        return len(self._free)

    def alloc(self, count: int) -> torch.Tensor | None:
        if count > len(self._free):
            return None
        return torch.tensor([self._free.popleft() for _ in range(count)], dtype=torch.int64)

    def free(self, indices: torch.Tensor, pool: Any = None) -> int:
        del pool
        self._free.extend(indices.tolist())
        return len(indices)


class _Copied:
    """An event of a device stream: it has happened at a moment of the virtual clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._ready = clock, clock.now + _COPY_SECONDS

    def query(self) -> bool:
        return self._clock.now >= self._ready

    def synchronize(self) -> None:
        self._clock.advance_to(self._ready)


class Controller:
    """SGLang's cache controller as its cache calls it."""

    write_policy = "write_through"
    enable_storage = False
    pp_prefetch_command_group = None

    def __init__(self, clock: Clock, allocator: Any, pool: HostPool) -> None:
        self._clock, self._allocator, self.mem_pool_host = clock, allocator, pool
        self.reset()

    def reset(self) -> None:
        self.ack_write_queue: list[Any] = []
        self.ack_load_queue: list[Any] = []
        self._writing: list[int] = []
        self._loading: list[int] = []

    def write(self, device_indices: Any, *, node_id: int, **_: Any) -> torch.Tensor | None:
        indices = self.mem_pool_host.alloc(len(device_indices))
        if indices is not None:
            self._writing.append(node_id)
        return indices

    def load(self, *, host_indices: Any, node_id: int, **_: Any) -> Any:
        indices = self._allocator.alloc(len(host_indices))
        if indices is not None:
            self._loading.append(node_id)
        return indices

    def start_writing(self) -> None:
        self.ack_write_queue += self._acknowledged(self._writing)
        self._writing = []

    def start_loading(self) -> int:
        self.ack_load_queue += self._acknowledged(self._loading)
        self._loading = []
        return -1

    def _acknowledged(self, nodes: list[int]) -> list[Any]:
        return [SimpleNamespace(node_ids=nodes, finish_event=_Copied(self._clock))] if nodes else []
