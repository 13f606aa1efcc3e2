"""The modes of vLLM that are played: what each engine is like, and what it is asked."""

from __future__ import annotations

from .places import MODELS
from .vllm_engine import Setup
from .vllm_shapes import drafted, mamba, sliding
from .workload import Mix

MODES: dict[str, tuple[Setup, Mix]] = {
    "busy": (Setup(blocks=900), Mix()),
    "small-pool": (Setup(blocks=260), Mix(rate=14.0)),
    "async": (Setup(blocks=900, asynchronous=True), Mix()),
    "equal-lengths": (Setup(blocks=900), Mix(lengths=(100, 196, 325, 500, 777, 1100, 1600, 2400))),
    "chunked": (Setup(blocks=900, budget=256, threshold=96), Mix(rate=12.0)),
    "preemption": (Setup(blocks=200, running=12), Mix(rate=10.0, answer=(20, 120), prompt=(60, 600), longest=1800)),
    "sliding-window": (Setup(blocks=1800, layers=sliding), Mix()),
    "mamba": (
        Setup(
            blocks=700,
            block=64,
            layers=mamba,
            cache={"mamba_cache_mode": "align", "mamba_block_size": 64, "prefix_match_unit": 16},
        ),
        Mix(),
    ),
    "eagle": (
        Setup(
            blocks=900,
            layers=drafted,
            extra={
                "speculative_config": {"method": "eagle", "model": str(MODELS / "draft"), "num_speculative_tokens": 3}
            },
        ),
        Mix(),
    ),
    "half-traced": (Setup(blocks=900, untraced=0.5), Mix()),
}
