"""Play seeds of modes: ``vllm-python -m tests.engines.oracle.vllm_play REQUESTS FOLDER MODE:SEED...``."""

from __future__ import annotations

import argparse
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from .modes import MODES
from .recording import write
from .vllm_engine import Run
from .workload import Workload


def play(mode: str, seed: int, requests: int, folder: Path) -> Counter[str]:
    """Write the recording; says how many lookups have which true cause."""
    setup, mix = MODES[mode]
    # An API server beside the engine, one that is busy, one that is slow.
    setup = replace(setup, api_delay=(0.0, 0.003, 0.01)[seed % 3])
    run = Run(setup, Workload(replace(mix, requests=requests), random.Random(f"work {seed}")), seed)
    run.play()
    expected = [_expected(run, name, trace_id) for name, trace_id in run.traced.items()]
    preempted = Counter(one["request_id"] for one in run.observer.admissions if one["preempted_before"])
    for row in expected:
        row["engine"]["preempted"] = preempted[row.pop("internal")]
    write(
        folder,
        frames=run.publisher.frames,
        requests=run.requests(),
        expected=expected,
        admissions=[_line(one, run) for one in run.observer.admissions],
        about=_about(mode, seed, requests),
    )
    return Counter(row["accept"][0] for row in expected)


def _expected(run: Run, name: str, trace_id: str) -> dict[str, Any]:
    seen = run.observer.first[name]
    judged = seen["judged"]
    row: dict[str, Any] = {
        "label": name.split("-")[1],
        "trace_id": trace_id,
        "request_id": name.rpartition("-")[0],
        "accept": list(judged.causes),
        "internal": name,
        "engine": {
            "hit": seen["hit"],
            "prompt": seen["prompt_tokens"],
            "first_missed_block": judged.first_missed,
            "key": seen["key"],
            "state": judged.state,
            "batch": seen["batch"],
            "events_before": seen["events_before"],
        },
    }
    if judged.causes != ("none",):
        row["cached"] = seen["hit"]
    return row


def _line(one: dict[str, Any], run: Run) -> dict[str, Any]:
    judged = one["judged"]
    return {**one, "judged": judged.causes[0] if judged else None, "traced": one["request_id"] in run.traced}


def _about(mode: str, seed: int, requests: int) -> str:
    return f"""# vLLM 0.32's own engine core without a model: {mode}, seed {seed}

`EngineCore`, `Scheduler`, `KVCacheManager` and `OutputProcessor` are vLLM's, in virtual time; tokens are random. Made with
`PYTHONHASHSEED=0 vllm-python -m tests.engines.oracle.vllm_play {requests} FOLDER {mode}:{seed}`.
KV events are the engine's own batches in its own encoding, spans its own `llm_request`, exported every 5 s.

- `expected.jsonl`: a traced request each. `accept`: the one cause that follows from the pool's state at the admitted lookup.
  `cached`: the engine's own hit, where something was missed. `engine`: hit and prompt in tokens, first missed block and its
  key (as published), `state` of it (never stored, evicted, resident), how often it was preempted; `batch` and
  `events_before`: the lookup came after so many events of the batch with that number.
- `admissions.jsonl.gz`: every admission in order, untraced requests and those after a preemption too.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("requests", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("seeds", nargs="+", metavar="MODE:SEED")
    chosen = parser.parse_args()
    for wanted in chosen.seeds:
        mode, _, seed = wanted.partition(":")
        causes = play(mode, int(seed), chosen.requests, chosen.folder / f"{mode}-{seed}")
        print(mode, seed, dict(causes.most_common()), flush=True)


if __name__ == "__main__":
    main()
