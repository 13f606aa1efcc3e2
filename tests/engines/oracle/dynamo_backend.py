"""A worker of Dynamo's own backend framework that hands every request to a mock engine of its own.

The framework makes the worker's spans; a stock mocker has none. The mocker's scheduler decides what is cached, and its
KV events are the worker's. Started by ``dynamo_fleet`` with ``--mocker NAMESPACE --events ENDPOINT --model FOLDER``.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Sequence
from typing import Any

from dynamo.common.backend import EngineConfig, LLMEngine, LlmRegistration, WorkerConfig
from dynamo.common.backend.publisher import ZmqSource
from dynamo.common.backend.run import run
from dynamo.common.utils.runtime import create_runtime

MODEL = "tiny"
_INTERNAL = frozenset({"router", "routing", "tracker"})
"""Parts of a request that are for this worker and not for the next."""


class Handing(LLMEngine):
    """Nothing of an engine but its endpoint."""

    def __init__(self, told: argparse.Namespace) -> None:
        self._told = told
        self._client: Any = None

    @classmethod
    async def from_args(cls, argv: Sequence[str] | None = None) -> tuple[Handing, WorkerConfig]:
        parser = argparse.ArgumentParser()
        parser.add_argument("--mocker", required=True)
        parser.add_argument("--events", required=True)
        parser.add_argument("--model", required=True)
        parser.add_argument("--block", type=int, required=True)
        parser.add_argument("--blocks", type=int, required=True)
        told = parser.parse_args(argv)
        return cls(told), WorkerConfig(
            namespace="dynamo",
            component="backend",
            endpoint="generate",
            model_name=told.model,
            served_model_name=MODEL,
            endpoint_types="chat,completions",
            discovery_backend="file",
            request_plane="tcp",
            event_plane="zmq",
        )

    async def start(self, worker_id: int) -> EngineConfig:
        runtime, _ = create_runtime("file", "tcp", "zmq")
        self._client = await runtime.endpoint(f"{self._told.mocker}.backend.generate").client()
        await self._client.wait_for_instances()
        print(f"WORKER {worker_id}", flush=True)
        return EngineConfig(
            model=self._told.model,
            served_model_name=MODEL,
            llm=LlmRegistration(
                context_length=4096,
                kv_cache_block_size=self._told.block,
                total_kv_blocks=self._told.blocks,
                max_num_seqs=64,
                max_num_batched_tokens=8192,
            ),
        )

    async def kv_event_sources(self) -> list[Any]:
        return [ZmqSource(endpoint=self._told.events, dp_rank=0)]

    async def generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        del context
        handed = {name: value for name, value in dict(request).items() if name not in _INTERNAL}
        async for chunk in await self._client.generate(handed, annotated=False):
            whole = isinstance(chunk, dict) and "data" in chunk and "token_ids" not in chunk
            said = chunk["data"] if whole else chunk
            if said:
                yield said

    async def abort(self, context: Any) -> None: ...

    async def cleanup(self) -> None: ...


if __name__ == "__main__":
    run(Handing)
