"""Play seeds of modes: ``dynamo-python -m tests.engines.oracle.dynamo_play REQUESTS FOLDER MODE:SEED...``.

A real frontend before mock engines, in real time: a seed gives the same requests, not the same bytes.
"""

from __future__ import annotations

import argparse
import heapq
import random
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .dynamo_fleet import BLOCK, Fleet
from .dynamo_truth import Held, causes
from .recording import write
from .workload import Draft, Mix, Workload

_MIX = Mix(prompt=(20, 260), turn=(10, 90), beginning=(30, 200), longest=900, salt=0.0, again=0.2, together=0.0)
MODES = {"dynamo-kv": "kv", "dynamo-round-robin": "round-robin"}
_BLOCKS = 160
_AT_ONCE = (1, 1, 1, 1, 1, 2, 3)
"""How many requests are sent at once: most alone, so that what an engine held at the lookup is known exactly."""
_SPANS = (b"http-request", b"engine.generate")
"""Of each request, the last that its frontend ends and the one that its worker does."""
_SPANS_SECONDS = 15.0


@dataclass
class Sent:
    """A request and what came back."""

    draft: Draft
    label: str
    trace_id: str
    parent: str
    answer: dict[str, Any] | None = None


class Run:
    """One seeded run against one fleet."""

    def __init__(self, fleet: Fleet, workload: Workload, seed: int) -> None:
        self._fleet, self._workload = fleet, workload
        self._rng = random.Random(f"traces {seed}")
        self._arriving: list[tuple[float, int, Draft]] = []
        self._count = 0
        self.held = Held(len(fleet.publishers), BLOCK)
        self.expected: list[dict[str, Any]] = []

    def play(self) -> None:
        self._follow()
        for draft in self._workload.opening():
            self._push(draft)
        with ThreadPoolExecutor(max(_AT_ONCE)) as pool:
            while self._arriving:
                count = min(self._rng.choice(_AT_ONCE), len(self._arriving))
                self._group(pool, [self._next() for _ in range(count)])

    def _push(self, draft: Draft) -> None:
        self._count += 1
        heapq.heappush(self._arriving, (draft.at, self._count, draft))

    def _next(self) -> Sent:
        _, number, draft = heapq.heappop(self._arriving)
        return Sent(draft, f"r{number}", f"{self._rng.getrandbits(128):032x}", f"{self._rng.getrandbits(64):016x}")

    def _follow(self) -> None:
        for number, publisher in enumerate(self._fleet.publishers):
            for payload in publisher.drain():
                self.held.take(number, payload)

    def _group(self, pool: ThreadPoolExecutor, group: list[Sent]) -> None:
        moments = [self.held.copy()]
        self.held.forget_lost()

        def send(one: Sent) -> dict[str, Any]:
            trace = f"00-{one.trace_id}-{one.parent}-01"
            return self._fleet.complete(one.draft.tokens, trace, one.draft.answer)

        for one, answer in zip(group, pool.map(send, group), strict=True):
            one.answer = answer
        self._follow()
        if len(group) > 1:
            moments.append(self.held)
        for one in group:
            self._judge(one, moments)
            for after in self._workload.following(one.draft.at, one.draft, []):
                self._push(after)

    def _judge(self, one: Sent, moments: list[Held]) -> None:
        assert one.answer is not None
        worker = self._fleet.workers.index(str(one.answer["nvext"]["worker_id"]["decode_worker_id"]))
        hit = one.answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        rate = one.answer["nvext"]["timing"].get("kv_hit_rate")
        promised = round(rate * -(-len(one.draft.tokens) // BLOCK)) if rate is not None else None
        found = [causes(moment, worker, one.draft.tokens, hit, promised) for moment in moments]
        accept = list(dict.fromkeys(cause for some in found for cause in some))
        if not accept and not self.held.lost_lately(worker, one.draft.tokens, hit):
            raise AssertionError(f"{one.label}: the engine missed what its own stream says it held")
        # It went while the group was on its way, and this request stored it again.
        accept = accept or ["evicted"]
        row: dict[str, Any] = {
            "label": one.label,
            "trace_id": one.trace_id,
            "accept": accept,
            "engine": {
                "hit": hit,
                "prompt": len(one.draft.tokens),
                "worker": f"w{worker}",
                "promised_blocks": promised,
                "at_once": len(moments) > 1,
            },
        }
        if accept != ["none"]:
            row["cached"] = hit
        self.expected.append(row)


def play(mode: str, seed: int, requests: int, folder: Path) -> Counter[str]:
    """Write the recording; says how many lookups have which true cause."""
    workload = Workload(replace(_MIX, requests=requests), random.Random(f"work {seed}"))
    with tempfile.TemporaryDirectory() as place, Fleet(Path(place), MODES[mode], _BLOCKS) as fleet:
        started = len(fleet.sink.bodies)
        run = Run(fleet, workload, seed)
        run.play()
        traces = [bytes.fromhex(row["trace_id"]) for row in run.expected]
        if not fleet.sink.wait_for(((one, span) for one in traces for span in _SPANS), _SPANS_SECONDS):
            raise TimeoutError("spans of some requests never came")
        workers = fleet.workers
    frames = sorted(
        (received, (f"kv@w{number}@tiny".encode(), sequence, payload))
        for number, publisher in enumerate(fleet.publishers)
        for received, (_, sequence, payload) in publisher.frames
    )
    write(
        folder,
        frames=frames,
        requests=fleet.sink.bodies[started:],
        expected=run.expected,
        about=_about(mode, seed, requests),
    )
    (folder / "whymiss.yaml").write_text(_config(workers))
    return Counter("|".join(row["accept"]) for row in run.expected)


def _config(workers: list[str]) -> str:
    sources = [f'    - {{endpoint: "tcp://127.0.0.1:{5557 + i}", worker: w{i}}}' for i in range(len(workers))]
    aliases = [f'    w{i}: ["{name}"]' for i, name in enumerate(workers)]
    parts = ["exporters:", '  next: {protocol: grpc, endpoint: "127.0.0.1:24317", insecure: true}']
    parts += ["kv_events:", "  sources:", *sources, "workers:", "  aliases:", *aliases, ""]
    return "\n".join(parts)


def _about(mode: str, seed: int, requests: int) -> str:
    return f"""# A real Dynamo 1.6.1 before mock engines: {mode}, seed {seed}

`python -m dynamo.frontend` before two workers of Dynamo's backend framework, each of which hands its requests to a
`dynamo.mocker` of its own. In real time, on loopback; random tokens. Made with
`dynamo-python -m tests.engines.oracle.dynamo_play {requests} FOLDER {mode}:{seed}`.

- `kv_events_raw.jsonl.gz`: the mockers' own frames. Their topic is empty; here it names the worker, so that one file can
  hold both. `otlp/`: trace requests as received over HTTP.
- `expected.jsonl`: `cached` is what the engine admitted (as the API says, not the router's record), where something was
  missed. A mocker answers no question about its blocks: what was resident is what its own stream, read to the end that
  its replay socket confirms, had said when the request was sent. Most requests are sent alone; of those sent at once
  (`at_once`), what held before or after the group is accepted.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("requests", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("seeds", nargs="+", metavar="MODE:SEED")
    chosen = parser.parse_args()
    for wanted in chosen.seeds:
        mode, _, seed = wanted.partition(":")
        found = play(mode, int(seed), chosen.requests, chosen.folder / f"{mode}-{seed}")
        print(mode, seed, dict(found.most_common()), flush=True)


if __name__ == "__main__":
    main()
