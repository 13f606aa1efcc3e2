"""The fleet in virtual time: discrete events, real bytes, and the truth of every lookup.

A request arrives, is routed, waits for its worker, is looked up when it is admitted, is prefilled in one
step or several, and frees its blocks when it ends. A step publishes one batch: what it removed, then what
it stored. Truths come last, when it is known which evidence was lost.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from tests.fleet.emit import Place, Publisher, Times, engine_span, export, lookup_span, place, router_span
from tests.fleet.pool import Operation, Pool, Stored
from tests.fleet.prompts import Identity, Prompt, prompts
from tests.fleet.routers import Decision, Router
from tests.fleet.spec import EPOCH, MILLI, SECOND, FleetSpec, KvFrames, OtlpRequest, SimEvent, Truth
from tests.fleet.traces import Trace
from tests.fleet.world import World

FRONTEND = 300_000
"""Between a request's arrival and the engine's queue, in nanoseconds."""
STEP, STEP_PER_BLOCK = 4 * MILLI, 20_000
GAP = SECOND // 10
"""A serial fleet rests this long between requests, well beyond the tolerance of clocks."""
HEARTBEAT = 60 * MILLI
FLUSH = 5 * SECOND
LATE = 60 * SECOND


class Waiting(NamedTuple):
    """A routed request before its admission."""

    prompt: Prompt
    route: Decision
    routed: int
    arrival: int


@dataclass
class Running:
    """An admitted request."""

    waiting: Waiting
    lookup: int
    hits: int
    blocks: list[int]
    truth: Truth


@dataclass
class Exporter:
    """A process's batch of ended spans."""

    phase: int
    ready: list[ResourceSpans] = field(default_factory=list)


@dataclass
class Engine:
    """One worker."""

    index: int
    pool: Pool
    publisher: Publisher
    skew: int
    spans: Exporter
    waiting: deque[Waiting] = field(default_factory=deque)
    running: int = 0
    stepping: bool = False
    unsaid: list[bytes] = field(default_factory=list)
    """Events that wait for the next step."""
    last_batch: int = 0


def simulate(trace: Trace, spec: FleetSpec) -> Iterator[SimEvent]:
    """Everything that the service would receive, in the order of arrival; then the truths, in the trace's order."""
    yield from Simulation(trace, spec).run()


class Simulation:
    """One run."""

    def __init__(self, trace: Trace, spec: FleetSpec) -> None:
        self._spec = spec
        self._identity = Identity(spec.block_size)
        self._arriving = prompts(trace, self._identity, spec.injection, spec.seed)
        self._chance = random.Random(spec.seed)
        self._prompts: dict[int, Prompt] = {}
        self._world = World(spec)
        self._router = Router(spec)
        self._router_spans = self._exporter()
        self._engines = [self._engine(index) for index in range(spec.workers)]
        self._agenda: list[tuple[int, int, Callable[[int], None]]] = []
        self._leaving: list[tuple[int, int, KvFrames | OtlpRequest]] = []
        self._counter = 0
        self._finished: list[tuple[Truth, int, int]] = []
        self._now = EPOCH
        self._reannounced: set[int] = set()
        self._unseen: set[int] = set()
        """Last keys of requests whose end nobody will know of: one block behind one may be of a decode."""
        self._reporting: set[int] = set()
        """Requests with a session: it stands on their real stores too."""

    def _engine(self, index: int) -> Engine:
        spec = self._spec
        skew = 0 if index == 0 else round(self._chance.uniform(-1, 1) * spec.faults.skew_seconds * SECOND)
        return Engine(index, Pool(spec.capacity), Publisher(spec.name(index), self._identity), skew, self._exporter())

    def _exporter(self) -> Exporter:
        return Exporter(self._chance.randrange(FLUSH))

    def run(self) -> Iterator[SimEvent]:
        """Play to the end."""
        for at, worker in self._spec.faults.restarts:
            self._at(EPOCH + round(at * SECOND), partial(self._restart, self._engines[worker]))
        for at, worker in self._spec.faults.clears:
            self._at(EPOCH + round(at * SECOND), partial(self._clear, self._engines[worker]))
        self._next_arrival(EPOCH)
        while self._agenda:
            self._now, _, happen = heapq.heappop(self._agenda)
            while self._leaving and self._leaving[0][0] <= self._now:
                yield heapq.heappop(self._leaving)[2]
            happen(self._now)
        for engine in self._engines:
            self._batch(engine, [], [], self._now + 2 * SECOND)
        while self._leaving:
            yield heapq.heappop(self._leaving)[2]
        skews = [engine.skew for engine in self._engines]
        for truth, worker, end in sorted(self._finished, key=lambda one: one[0].number):
            self._world.review(truth, worker, end, skews)
            prompt = self._prompts[truth.number]
            behind = prompt.parent(truth.block_index) if len(prompt.keys) == truth.block_index + 1 else None
            if {truth.first_key, behind} & self._reannounced:
                truth.touched.add("reannounced")
            if behind in self._unseen:
                truth.touched.add("lost")
            yield truth

    def _at(self, when: int, happen: Callable[[int], None]) -> None:
        self._counter += 1
        heapq.heappush(self._agenda, (when, self._counter, happen))

    def _send(self, event: KvFrames | OtlpRequest) -> None:
        self._counter += 1
        heapq.heappush(self._leaving, (event.received_unix_nanos, self._counter, event))

    # --- arrival and admission ----------------------------------------------------------------------------

    def _next_arrival(self, now: int) -> None:
        for prompt in self._arriving:
            if self._spec.capacity is not None and self._needs(prompt) > self._spec.capacity:
                continue
            when = max(EPOCH + round(prompt.at * SECOND), now + 1_000)
            self._at(when, partial(self._arrive, prompt))
            return

    def _needs(self, prompt: Prompt) -> int:
        return -(-prompt.length // self._spec.block_size)

    def _arrive(self, prompt: Prompt, now: int) -> None:
        route = self._router.pick(prompt, now)
        engine = self._engines[route.worker]
        self._prompts[prompt.number] = prompt
        engine.waiting.append(Waiting(prompt, route, now, now + FRONTEND // 2))
        self._at(now + FRONTEND // 2 + FRONTEND, partial(self._step, engine))
        if self._spec.lanes == "worker":
            self._next_arrival(now)

    def _step(self, engine: Engine, now: int) -> None:
        if engine.stepping or not engine.waiting:
            return
        admitted: list[Running] = []
        operations: list[Operation] = []
        announced: list[bytes] = []
        while engine.waiting and engine.running + len(admitted) < self._spec.running_max:
            waiting = engine.waiting[0]
            at = now + 1_000 * len(admitted)
            free = engine.pool.free
            if at < waiting.arrival + FRONTEND or (free is not None and self._needs(waiting.prompt) > free):
                break
            engine.waiting.popleft()
            running = self._look_up(engine, waiting, at)
            admitted.append(running)
            announced.extend(self._announce(engine, running))
            chunk = self._spec.chunk_blocks or len(waiting.prompt.keys) + 1
            self._prefill(engine, running, chunk, operations)
        if not admitted:
            return
        engine.stepping = True
        engine.running += len(admitted)
        self._run_step(engine, admitted, operations, announced, now)

    def _run_step(
        self, engine: Engine, admitted: list[Running], operations: list[Operation], announced: list[bytes], now: int
    ) -> None:
        """A step takes its time, publishes shortly before it ends, and either goes on or is done."""
        took = (
            STEP
            + STEP_PER_BLOCK * len(operations)
            + STEP_PER_BLOCK * sum(one.end - one.start for one in operations if isinstance(one, Stored))
        )
        end = now + took
        self._at(end - MILLI - MILLI // 2, partial(self._publish, engine, operations, announced))
        unfinished = [one for one in admitted if len(one.blocks) < self._needs(one.waiting.prompt)]
        if not unfinished:
            self._at(end, partial(self._first_tokens, engine, admitted))
            return

        def go_on(at: int) -> None:
            further: list[Operation] = []
            for one in unfinished:
                self._prefill(engine, one, self._spec.chunk_blocks or 1, further)
            self._run_step(engine, admitted, further, [], at)

        self._at(end, go_on)

    def _look_up(self, engine: Engine, waiting: Waiting, now: int) -> Running:
        prompt, size = waiting.prompt, self._spec.block_size
        matchable = (prompt.length - 1) // size
        hits = engine.pool.leading(prompt.keys[:matchable])
        if self._spec.eagle and hits:
            hits -= 1
        truth = Truth(
            number=prompt.number,
            request_id=self._place(engine, prompt).request_id,
            worker=self._spec.name(engine.index),
            at_unix_nanos=now,
            prompt_tokens=prompt.length,
            cached_tokens=hits * size,
            cause="",
            block_index=hits,
        )
        self._world.judge(truth, engine.index, prompt, matchable, waiting.route, waiting.routed)
        return Running(waiting, now, hits, engine.pool.hold(prompt.keys[:hits]), truth)

    def _prefill(self, engine: Engine, running: Running, blocks: int, operations: list[Operation]) -> None:
        """Take the blocks of the next chunk and give the full ones their keys."""
        prompt, start = running.waiting.prompt, len(running.blocks)
        count = min(blocks, self._needs(prompt) - start)
        taken, removed = engine.pool.take(count)
        running.blocks.extend(taken)
        operations.extend(removed)
        end = min(start + count, len(prompt.keys))
        if end > start:
            engine.pool.fill(taken[: end - start], prompt.keys[start:end])
            operations.append(Stored(prompt.number, start, end))

    def _place(self, engine: Engine, prompt: Prompt) -> Place:
        return place(self._spec.name(engine.index), prompt.number, self._spec.seed)

    # --- publishing -----------------------------------------------------------------------------------------

    def _announce(self, engine: Engine, running: Running) -> list[bytes]:
        """The reused prefix once more, as ``kv_cache_report_mode=full`` has it."""
        if not running.hits or not self._chance.random() < self._spec.faults.reannounced:
            return []
        prompt = running.waiting.prompt
        self._reannounced.update(prompt.keys[: running.hits])
        running.truth.touched.add("reannounced")
        self._reporting.add(prompt.number)
        return [engine.publisher.stored(prompt, Stored(prompt.number, 0, running.hits), session=True)]

    def _publish(self, engine: Engine, operations: list[Operation], announced: list[bytes], now: int) -> None:
        """Publish what a step did; one that did nothing publishes nothing."""
        if operations or announced or engine.unsaid:
            self._batch(engine, operations, announced, now)

    def _batch(self, engine: Engine, operations: list[Operation], announced: list[bytes], now: int) -> None:
        number = self._world.publish(engine.index, operations, self._prompts, now)
        if engine.unsaid:
            self._router.hear_swept(engine.index, now)
        self._router.hear(engine.index, operations, self._prompts, now)
        events = [*engine.unsaid, *announced, *engine.publisher.events(operations, self._prompts, self._reporting)]
        engine.unsaid = []
        engine.last_batch = now
        frames = engine.publisher.batch(now + engine.skew, events)
        faults = self._spec.faults
        if self._chance.random() < faults.drop_batches:
            self._world.caches[engine.index].dropped.add(number)
            return
        received = now + 2 * MILLI
        self._send(KvFrames(received, self._spec.name(engine.index), frames))
        if self._chance.random() < faults.duplicate_batches:
            self._send(KvFrames(received + 5 * MILLI, self._spec.name(engine.index), frames))

    def _heartbeat(self, now: int) -> None:
        for engine in self._engines:
            if engine.last_batch < now - HEARTBEAT // 2 and not engine.stepping:
                self._batch(engine, [], [], now)

    def _restart(self, engine: Engine, now: int) -> None:
        if engine.running:
            self._at(now + GAP // 2, partial(self._restart, engine))
            return
        engine.pool = Pool(self._spec.capacity)
        engine.publisher.next_seq = 0
        engine.unsaid = []
        self._world.sweep(engine.index, now, "restarted")
        self._router.hear_swept(engine.index, now)

    def _clear(self, engine: Engine, now: int) -> None:
        if not engine.pool.clear():
            self._at(now + GAP // 2, partial(self._clear, engine))
            return
        engine.unsaid.append(engine.publisher.cleared())
        self._world.sweep(engine.index, now, "cleared")

    # --- the end of a request ---------------------------------------------------------------------------------

    def _first_tokens(self, engine: Engine, admitted: list[Running], now: int) -> None:
        engine.stepping = False
        for index, running in enumerate(admitted):
            decode = 2 * MILLI + index * 1_000 if self._spec.running_max == 1 else self._chance.randrange(200 * MILLI)
            self._at(now + decode, partial(self._finish, engine, running, now))
        self._step(engine, now)

    def _finish(self, engine: Engine, running: Running, first_token: int, now: int) -> None:
        engine.pool.let_go(running.blocks)
        engine.running -= 1
        self._emit(engine, running, first_token, now)
        self._finished.append((running.truth, engine.index, now))
        if self._spec.heartbeats:
            self._at(now + HEARTBEAT, self._heartbeat)
        if self._spec.lanes == "fleet":
            self._next_arrival(now + GAP)
        self._at(now, partial(self._step, engine))

    def _emit(self, engine: Engine, running: Running, first_token: int, now: int) -> None:
        waiting, truth, faults, skew = running.waiting, running.truth, self._spec.faults, engine.skew
        prompt = waiting.prompt
        where = self._place(engine, prompt)
        queued = max(0, running.lookup - waiting.arrival - FRONTEND)
        times = Times(waiting.arrival + skew, queued, running.lookup + skew, first_token + skew, now + skew)
        late = LATE if self._chance.random() < faults.late_spans else 0
        lost = self._chance.random() < faults.lost_spans
        if lost and prompt.keys and not self._spec.lookup_spans:
            self._unseen.add(prompt.keys[-1])
        truth.touched |= {name for name, hit in (("late", late), ("lost", lost)) if hit}
        if self._spec.lookup_spans and not lost:
            probe = lookup_span(where, times.lookup, prompt, truth.cached_tokens, self._spec)
            self._spans_of(engine.spans, probe, now, late)
        if self._spec.lookup_spans or not lost:
            self._spans_of(engine.spans, engine_span(where, times, prompt), now, late)
        if not self._spec.router_spans:
            return
        if self._chance.random() < faults.lost_routes:
            truth.touched.add("unrouted")
            return
        route = router_span(where, waiting.routed, waiting.route.said(self._spec))
        self._spans_of(self._router_spans, route, now, 0)

    def _spans_of(self, exporter: Exporter, span: ResourceSpans, now: int, late: int) -> None:
        """Batch exporters send every five seconds, in the order in which spans ended."""
        if late:
            self._send_spans(OtlpRequest(now + late, export([span])))
            return
        if not exporter.ready:
            due = now + FLUSH - (now - exporter.phase) % FLUSH
            self._at(due, partial(self._flush, exporter))
        exporter.ready.append(span)

    def _flush(self, exporter: Exporter, now: int) -> None:
        self._send_spans(OtlpRequest(now + 2 * MILLI, export(exporter.ready)))
        exporter.ready.clear()

    def _send_spans(self, request: OtlpRequest) -> None:
        self._send(request)
        if self._chance.random() < self._spec.faults.duplicate_spans:
            self._send(request._replace(received_unix_nanos=request.received_unix_nanos + SECOND))
