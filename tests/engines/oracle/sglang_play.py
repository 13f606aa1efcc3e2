"""Play seeds of modes: ``sglang-python -m tests.engines.oracle.sglang_play REQUESTS FOLDER MODE:SEED...``."""

from __future__ import annotations

import argparse
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from .recording import write
from .sglang_engine import Run, Setup
from .workload import Mix, Workload

_SHORT = Mix(prompt=(10, 120), turn=(4, 40), beginning=(8, 80), longest=400)
"""With a hash for each token a recording grows fast."""
_FLOW = Mix(rate=14.0)
MODES: dict[str, tuple[Setup, Mix]] = {
    "sglang-page-1": (Setup(page=1, tokens=2600), replace(_SHORT, salt=0.0)),
    "sglang-page-16": (Setup(tokens=12_000), _FLOW),
    "sglang-extra-key": (Setup(tokens=12_000, hidden=True), replace(_FLOW, salt=0.3)),
    "sglang-hicache": (Setup(tokens=9000, host_tokens=12_000), replace(_FLOW, rate=8.0, salt=0.0)),
    "sglang-eagle": (Setup(tokens=12_000, pairs=True), replace(_FLOW, salt=0.0)),
}


def play(mode: str, seed: int, requests: int, folder: Path) -> Counter[str]:
    """Write the recording; says how many lookups have which true cause."""
    setup, mix = MODES[mode]
    # An API server beside the engine, one that is busy, one that is slow.
    setup = replace(setup, api_delay=(0.0, 0.003, 0.01)[seed % 3])
    run = Run(setup, Workload(replace(mix, requests=requests), random.Random(f"work {seed}")), seed)
    run.play()
    admissions = run.observer.admissions
    expected = [_expected(run, one) for one in admissions]
    write(
        folder,
        frames=run.frames,
        requests=run.requests(),
        expected=expected,
        admissions=admissions,
        about=_about(mode, seed, requests),
    )
    return Counter("|".join(row["accept"]) for row in expected)


def _expected(run: Run, one: dict[str, Any]) -> dict[str, Any]:
    label, trace_id = run.traced[one["request_id"]]
    row: dict[str, Any] = {
        "label": label,
        "trace_id": trace_id,
        "request_id": one["request_id"],
        "accept": one["judged"] + ([] if one["decidable"] else ["unknown"]),
        "engine": {
            "hit": one["hit"],
            "prompt": one["prompt_tokens"],
            "first_missed_block": one["first_missed"],
            "state": one["state"],
            "batch": one["batch"],
        },
    }
    if one["judged"] != ["none"]:
        row["cached"] = one["hit"]
    return row


def _about(mode: str, seed: int, requests: int) -> str:
    return f"""# SGLang 0.5.23's own tree cache without a model: {mode}, seed {seed}

`UnifiedRadixCache` with its default core, `KVCacheEventRecorder`, the events' encoding and the request tracing are
SGLang's, driven in virtual time by a scheduler of ours; tokens are random. Made with
`PYTHONHASHSEED=0 sglang-python -m tests.engines.oracle.sglang_play {requests} FOLDER {mode}:{seed}`.

- `expected.jsonl`: a request each. `accept`: the cause that follows from the tree's state at the lookup; `unknown` too
  where published hashes leave out the `extra_key` that decides. `cached`: the tree's own hit (with what HiCache loads
  back), where something was missed. `engine`: hit and prompt in tokens (a hit of EAGLE counts pairs), first missed
  page, its `state` (never stored, evicted), and how many batches had been published before.
- `admissions.jsonl.gz`: the same lookups in order, with their `extra_key` and `cache_salt`.
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
