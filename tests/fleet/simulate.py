"""The fleet in virtual time: discrete events, real bytes, and the truth of every lookup.

A request arrives, is routed, waits for its worker, is looked up when it is admitted, is prefilled in one
step or several, and frees its blocks when it ends. A step publishes one batch: what it removed, then what
it stored. Truths come last, when it is known which evidence was lost.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import partial

from tests.fleet.admission import keep_states, look_up
from tests.fleet.agenda import Agenda
from tests.fleet.decoding import DecodeHalf
from tests.fleet.emit import Publisher, place
from tests.fleet.engines import Engine, Running, Waiting
from tests.fleet.pool import Operation, Pool, Removed, Stored
from tests.fleet.prompts import Identity, Prompt, prompts
from tests.fleet.routers import Router
from tests.fleet.spans import FRONTEND, SpanExporters
from tests.fleet.spec import EPOCH, MILLI, SECOND, FleetSpec, KvFrames, SimEvent, Truth
from tests.fleet.tier import Tier
from tests.fleet.traces import Trace
from tests.fleet.world import Asked, World

STEP, STEP_PER_BLOCK = 4 * MILLI, 20_000
TOKEN = 2 * MILLI
"""One token of an answer."""
GAP = SECOND // 10
"""A serial fleet rests this long between requests, well beyond the tolerance of clocks."""
HEARTBEAT = 60 * MILLI


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
        self._agenda = Agenda()
        self._spans = SpanExporters(spec, self._agenda, self._chance)
        self._engines = [self._engine(index) for index in range(spec.engines)]
        self._decoding = DecodeHalf(spec, self._engines[spec.workers :], self._agenda, self._spans)
        self._finished: list[tuple[Truth, int, int]] = []
        self._reannounced: set[int] = set()
        self._reports: list[tuple[int, int]] = []
        """(worker, when) of every re-announcement."""
        self._reporting: set[int] = set()
        """Requests with a session: their real stores carry it too."""

    def _engine(self, index: int) -> Engine:
        spec = self._spec
        skew = 0 if index == 0 else round(self._chance.uniform(-1, 1) * spec.faults.skew_seconds * SECOND)
        tier = None if spec.tier is None else Tier(spec.tier)
        return Engine(index, Pool(spec.capacity), Publisher(spec.name(index), self._identity, spec), skew, tier)

    def run(self) -> Iterator[SimEvent]:
        """Play to the end."""
        for at, worker in self._spec.faults.restarts:
            self._agenda.at(EPOCH + round(at * SECOND), partial(self._restart, self._engines[worker]))
        for at, worker in self._spec.faults.clears:
            self._agenda.at(EPOCH + round(at * SECOND), partial(self._clear, self._engines[worker]))
        self._next_arrival(EPOCH)
        yield from self._agenda.play()
        # What was last is confirmed, however far the service believes clocks to be apart.
        last = self._agenda.now + 2 * SECOND + 4 * round(self._spec.clock_tolerance_seconds * SECOND)
        for engine in self._engines:
            self._batch(engine, [], [], last)
        yield from self._agenda.rest()
        for cache in self._world.caches:
            cache.give_up()
        skews = [engine.skew for engine in self._engines]
        for truth, worker, end in sorted(self._finished, key=lambda one: one[0].number):
            self._world.review(truth, worker, end, skews)
            prompt = self._prompts[truth.number]
            behind = prompt.parent(truth.block_index) if len(prompt.keys) == truth.block_index + 1 else None
            meanwhile = any(who == worker and truth.at_unix_nanos - FRONTEND <= at <= end for who, at in self._reports)
            if meanwhile or {truth.first_key, behind} & self._reannounced:
                truth.touched.add("reannounced")
            if behind in self._spans.unseen:
                truth.touched.add("lost")
            yield truth

    # --- arrival and admission ----------------------------------------------------------------------------

    def _next_arrival(self, now: int) -> None:
        for prompt in self._arriving:
            if self._spec.capacity is not None and self._takes(prompt) > self._spec.capacity:
                continue
            when = max(EPOCH + round(prompt.at * SECOND), now + 1_000)
            self._agenda.at(when, partial(self._arrive, prompt))
            return

    def _needs(self, prompt: Prompt) -> int:
        return -(-prompt.length // self._spec.block_size)

    def _takes(self, prompt: Prompt) -> int:
        """Blocks of all groups at most."""
        needs = self._needs(prompt)
        return 2 * needs if self._spec.window_blocks else needs + 2 * self._spec.sparse

    def _arrive(self, prompt: Prompt, now: int) -> None:
        route = self._router.pick(prompt, now)
        engine = self._engines[route.worker]
        prompt = self._identity.hashed(prompt, self._spec.hash_seed(engine.index))
        self._prompts[prompt.number] = prompt
        engine.waiting.append(Waiting(prompt, route, now, now + FRONTEND // 2))
        self._agenda.at(now + FRONTEND // 2 + FRONTEND, partial(self._step, engine))
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
            if at < waiting.arrival + FRONTEND or (free is not None and self._takes(waiting.prompt) > free):
                break
            engine.waiting.popleft()
            running = self._look_up(engine, waiting, at)
            admitted.append(running)
            announced.extend(self._announce(engine, running))
            chunk = self._spec.chunk_blocks or len(waiting.prompt.keys) + 1
            mine: list[Operation] = []
            running.states = keep_states(engine, waiting.prompt, running.found, self._spec, mine)
            self._prefill(engine, running, chunk, mine)
            # All of a request's blocks are taken before any of them gets its key.
            operations.extend(sorted(mine, key=lambda one: isinstance(one, Stored)))
        if not admitted:
            return
        sizes = Counter(len(one.waiting.prompt.keys) for one in admitted)
        for one in admitted:
            # Two chains of one length in one batch: nothing outside says whose is whose.
            one.truth.undecided |= sizes[len(one.waiting.prompt.keys)] > 1 and not self._spec.lookup_spans
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
        self._agenda.at(end - MILLI - MILLI // 2, partial(self._publish, engine, operations, announced))
        unfinished = [one for one in admitted if len(one.blocks) < self._needs(one.waiting.prompt)]
        if not unfinished:
            self._agenda.at(end, partial(self._first_tokens, engine, admitted))
            return

        def go_on(at: int) -> None:
            further: list[Operation] = []
            for one in unfinished:
                self._prefill(engine, one, self._spec.chunk_blocks or 1, further)
            self._run_step(engine, admitted, further, [], at)

        self._agenda.at(end, go_on)

    def _look_up(self, engine: Engine, waiting: Waiting, now: int) -> Running:
        prompt, size = waiting.prompt, self._spec.block_size
        found = look_up(engine, prompt, self._spec, self._chance)
        truth = Truth(
            number=prompt.number,
            request_id=place(self._spec.name(engine.index), prompt.number, self._spec.seed).request_id,
            worker=self._spec.name(engine.index),
            at_unix_nanos=now,
            prompt_tokens=prompt.length,
            cached_tokens=found.hits * size,
            cause="",
            block_index=found.hits,
        )
        asked = Asked(engine.index, engine.pool, engine.tier, found, prompt, waiting.route, waiting.routed, now)
        self._world.judge(truth, asked)
        held = engine.pool.hold(prompt.keys[: found.held])
        return Running(waiting, now, found, held, truth)

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

    # --- publishing -----------------------------------------------------------------------------------------

    def _announce(self, engine: Engine, running: Running) -> list[bytes]:
        """The reused prefix once more, as ``kv_cache_report_mode=full`` has it."""
        if not running.found.held or not self._chance.random() < self._spec.faults.reannounced:
            return []
        prompt = running.waiting.prompt
        self._reannounced.update(prompt.keys[: running.found.held])
        running.truth.touched.add("reannounced")
        self._reporting.add(prompt.number)
        return [engine.publisher.stored(prompt, Stored(prompt.number, 0, running.found.held), session=True)]

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
        if engine.tier is not None:
            events.extend(self._write_through(engine, engine.tier, operations))
        engine.unsaid = []
        engine.last_batch = now
        self._reports.extend([(engine.index, now)] * bool(announced))
        frames = engine.publisher.batch(now + engine.skew, events)
        faults = self._spec.faults
        received = now + 2 * MILLI
        cache = self._world.caches[engine.index]
        if self._chance.random() < faults.drop_batches:
            if faults.replay:
                self._agenda.send(KvFrames(received, self._spec.name(engine.index), frames, lost=True))
            (cache.owed if faults.replay else cache.dropped).add(number)
            return
        cache.owed.clear()
        self._agenda.send(KvFrames(received, self._spec.name(engine.index), frames))
        if self._chance.random() < faults.duplicate_batches:
            self._agenda.send(KvFrames(received + 5 * MILLI, self._spec.name(engine.index), frames))

    def _write_through(self, engine: Engine, tier: Tier, operations: list[Operation]) -> list[bytes]:
        keys = [
            key
            for one in operations
            if isinstance(one, Stored) and not one.ends
            for key in self._prompts[one.number].keys[one.start : one.end]
        ]
        return engine.publisher.tier_events(*tier.keep(keys))

    def _heartbeat(self, now: int) -> None:
        for engine in self._engines:
            if engine.last_batch < now - HEARTBEAT // 2 and not engine.stepping:
                self._batch(engine, [], [], now)

    def _restart(self, engine: Engine, now: int) -> None:
        if engine.running:
            self._agenda.at(now + GAP // 2, partial(self._restart, engine))
            return
        engine.pool = Pool(self._spec.capacity)
        engine.publisher.next_seq = 0
        engine.unsaid = []
        self._world.caches[engine.index].give_up()
        self._world.sweep(engine.index, now, "restarted")
        self._router.hear_swept(engine.index, now)

    def _clear(self, engine: Engine, now: int) -> None:
        if not engine.pool.clear():
            self._agenda.at(now + GAP // 2, partial(self._clear, engine))
            return
        engine.unsaid.append(engine.publisher.cleared())
        self._world.sweep(engine.index, now, "cleared")

    # --- the end of a request ---------------------------------------------------------------------------------

    def _first_tokens(self, engine: Engine, admitted: list[Running], now: int) -> None:
        engine.stepping = False
        for index, running in enumerate(admitted):
            if self._spec.window_blocks:
                outside = running.states[: -self._spec.window_blocks]
                running.states = running.states[len(outside) :]
                engine.pool.let_go(outside)
            self._decode(engine, running, now)
            took = running.answer * TOKEN + index * 1_000
            self._agenda.at(now + took, partial(self._finish, engine, running, now))
        self._step(engine, now)

    def _decode(self, engine: Engine, running: Running, now: int) -> None:
        """Plan the blocks that the answer fills; the last generated token is never computed."""
        prompt, size = running.waiting.prompt, self._spec.block_size
        running.answer = max(1, min(prompt.output, self._spec.answer_tokens_max))
        filled = (prompt.length + running.answer - 1) // size
        if filled == len(prompt.keys):
            return
        whole = self._identity.continued(prompt, filled - len(prompt.keys))
        name = -1 - prompt.number
        self._prompts[name] = whole
        for index in range(len(prompt.keys), filled):
            when = now + ((index + 1) * size - prompt.length) * TOKEN
            self._agenda.at(when, partial(self._fill, engine, running, Stored(name, index, index + 1)))

    def _fill(self, engine: Engine, running: Running, part: Stored, now: int) -> None:
        removed: list[Removed] = []
        if len(running.blocks) == part.start:
            if engine.pool.free == 0:
                return
            taken, removed = engine.pool.take(1)
            running.blocks.extend(taken)
        if len(running.blocks) > part.start:
            engine.pool.fill(
                running.blocks[part.start : part.end], self._prompts[part.number].keys[part.start : part.end]
            )
            self._publish(engine, [*removed, part], [], now)

    def _finish(self, engine: Engine, running: Running, first_token: int, now: int) -> None:
        engine.pool.let_go([*running.states, *running.blocks])
        engine.running -= 1
        self._spans.ended(engine, running, first_token, now)
        self._finished.append((running.truth, engine.index, now))
        decoding = self._decoding.take(engine, running, now)
        if decoding is not None:
            other, operations, when = decoding
            self._agenda.at(when, partial(self._publish, other, operations, []))
        if self._spec.heartbeats:
            self._agenda.at(now + HEARTBEAT, self._heartbeat)
        if self._spec.lanes == "fleet":
            self._next_arrival(now + GAP)
        self._agenda.at(now, partial(self._step, engine))
