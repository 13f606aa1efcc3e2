"""What the layers of a model ask of vLLM's cache: a group of layers with one spec becomes a cache group."""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, SlidingWindowSpec

_HEADS, _SIZE = 2, 32
_STATE_BYTES = 2
"""Of a bfloat16."""


def _full(block: int) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=block, num_kv_heads=_HEADS, head_size=_SIZE, dtype=torch.bfloat16)


def dense(block: int = 16) -> dict[str, Any]:
    """Two layers of full attention."""
    return {f"layers.{i}": _full(block) for i in range(2)}


def drafted(block: int = 16) -> dict[str, Any]:
    """Two layers of full attention, and the draft model's one."""
    return {**dense(block), "draft.layers.2": _full(block)}


def sliding(block: int = 16, window: int = 64) -> dict[str, Any]:
    """Full attention and a sliding window, in turns."""
    spec = SlidingWindowSpec(
        block_size=block, num_kv_heads=_HEADS, head_size=_SIZE, dtype=torch.bfloat16, sliding_window=window
    )
    return {f"layers.{i}": spec if i % 2 else _full(block) for i in range(4)}


def mamba(block: int = 64) -> dict[str, Any]:
    """Full attention and Mamba layers whose states are as large as a block of the others."""
    full = _full(block)
    state = MambaSpec(
        block_size=block,
        shapes=((full.page_size_bytes // _STATE_BYTES,),),
        dtypes=(torch.bfloat16,),
        mamba_cache_mode="align",
    )
    return {f"layers.{i}": state if i % 2 else full for i in range(4)}
