"""A small engine that knows the truth: several requests admitted a step, chunked prefill, preemption, a pipeline of two.

Written after vLLM's scheduler (v1): running requests first, the last of them preempted where blocks run out, then waiting
ones unless a request was preempted in this step; blocks can be hit from the moment they are scheduled, are freed tail first
and evicted in the order in which they were freed. It shares no code with accounting.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random

import msgspec

from tests.accounting.residence import Book
from whymiss.accounting import Batch, Habits, Request, RequestId, Store, Stream
from whymiss.model import StreamId

SIZE = 4
"""Tokens a block."""
NAME = StreamId("engine", 0)


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine runs, and what it is asked."""

    blocks: int = 60
    budget: int = 48
    """Tokens a step."""
    requests: int = 12
    lengths: tuple[int, int] = (1, 12)
    """Blocks of a prompt, both inclusive."""
    answers: int = 10
    """Tokens at most."""
    gap_millis: float = 8
    """Mean time between arrivals."""
    delay_millis: float = 1
    """Mean delay of the API server."""
    pipelined: bool = False
    equal: bool = False
    """Prompts have few lengths."""


class Job(msgspec.Struct, kw_only=True):
    """A request inside the engine."""

    number: int
    content: list[int]
    """One number a block of prompt and answer; equal numbers are equal tokens."""
    prompt: int
    answer: int
    arrival: float
    computed: int = 0
    generated: int = 0
    blocks: list[int] = []
    hit: int | None = None
    """Blocks that the admitted lookup found: the truth."""
    scheduled: float = 0.0
    first_token: float = 0.0
    end: float = 0.0
    preempted: int = 0
    ordinals: list[int] = []
    """Its stores."""

    coming: int = 0
    """Tokens of the answer that are being computed."""

    @property
    def known(self) -> int:
        """Tokens that are there to be computed, or will be once the round before is done; the last one of an answer never is."""
        return self.prompt + min(self.generated + self.coming, self.answer - 1)


Planned = tuple[Job, bool, int]
"""A job in a round, whether the round completes what is known of it, and how often it had been preempted."""


class Engine:
    """Runs jobs to their end; ``batches`` and ``book`` are what it published."""

    def __init__(self, mode: Mode, chance: Random) -> None:
        self.mode, self.chance = mode, chance
        self.book, self.batches = Book(), list[Batch]()
        self._free: dict[int, None] = dict.fromkeys(range(mode.blocks))
        self._uses: Counter[int] = Counter()
        self._key_of: dict[int, int] = {}
        self._copies: dict[int, dict[int, None]] = {}
        self._running: list[Job] = []
        self._waiting: deque[Job] = deque()
        self._stores: list[Store] = []
        self._began, self._run = 0, -1
        self.depths: dict[int, int] = {}

    # --- blocks -------------------------------------------------------------------------------------

    def _key(self, job: Job, block: int) -> int:
        return hash((7, *job.content[: block + 1])) & (1 << 63) - 1

    def _lookup(self, job: Job) -> list[int]:
        found: list[int] = []
        for block in range((job.known - 1) // SIZE):
            copies = self._copies.get(self._key(job, block))
            if not copies:
                break
            found.append(next(iter(copies)))
        return found

    def _allocate(self, job: Job, tokens: int, hit: list[int]) -> bool:
        held = len(job.blocks) or len(hit)
        wanted = -(-(job.computed + tokens) // SIZE) - held
        idle = sum(block in self._free for block in hit)
        if wanted > len(self._free) - idle:
            return False
        for block in hit:
            self._free.pop(block, None)
            self._uses[block] += 1
        job.blocks = job.blocks or list(hit)
        for _ in range(wanted):
            block = next(iter(self._free))
            del self._free[block]
            self._evict(block)
            self._uses[block] = 1
            job.blocks.append(block)
        self._cache(job, (job.computed + tokens) // SIZE)
        return True

    def _evict(self, block: int) -> None:
        key = self._key_of.pop(block, None)
        if key is not None:
            del self._copies[key][block]
            self._run = self.book.events if self._run < 0 else self._run
            self.book.removed([key])

    def _cache(self, job: Job, until: int) -> None:
        begin = min((depth for depth in range(until) if job.blocks[depth] not in self._key_of), default=until)
        if begin >= until:
            return
        keys = tuple(self._key(job, depth) for depth in range(begin, until))
        for key, block in zip(keys, job.blocks[begin:until], strict=True):
            self._key_of[block] = key
            self._copies.setdefault(key, {})[block] = None
        ordinal = self.book.events
        self.book.stored(keys, begin)
        self._stores.append(
            Store(
                keys=keys,
                parent=self._key(job, begin - 1) if begin else None,
                start=begin,
                block_size=SIZE,
                ordinal=ordinal,
                position=ordinal if self._run < 0 else self._run,
            )
        )
        job.ordinals.append(ordinal)
        self._run = -1

    def _release(self, job: Job) -> None:
        for block in reversed(job.blocks):
            self._uses[block] -= 1
            if not self._uses[block]:
                self._free[block] = None
        job.blocks = []

    # --- rounds -------------------------------------------------------------------------------------

    def _schedule(self, now: float) -> list[Planned]:
        budget, preempted, planned = self.mode.budget, False, list[Planned]()
        index = 0
        while index < len(self._running) and budget:
            job = self._running[index]
            tokens = min(job.known - job.computed, budget)
            while tokens and not self._allocate(job, tokens, []):
                victim = self._running.pop()
                self._release(victim)
                victim.computed, victim.coming, preempted = 0, 0, True
                victim.preempted += 1
                self._waiting.appendleft(victim)
                if victim is job:
                    break
            else:
                if tokens:
                    planned.append(_plan(job, tokens))
                    budget -= tokens
                index += 1
        while self._waiting and budget and not preempted:
            job = self._waiting[0]
            hit = self._lookup(job)
            job.computed = len(hit) * SIZE
            tokens = min(job.known - job.computed, budget)
            if not self._allocate(job, tokens, hit):
                job.computed = 0
                break
            self._waiting.popleft()
            if job.hit is None:
                job.hit, job.scheduled = len(hit), now
            self._running.append(job)
            planned.append(_plan(job, tokens))
            budget -= tokens
        return planned

    def _finish(self, planned: list[Planned], now: float) -> None:
        for job, completes, epoch in planned:
            if not completes or epoch != job.preempted:
                continue
            job.first_token = job.first_token or now
            job.coming -= 1
            job.generated += 1
            if job.generated >= job.answer:
                job.end = now
                self._running.remove(job)
                self._release(job)

    def _publish(self, now: float) -> None:
        if self.book.events > self._began:
            batch = Batch(unix_nanos=nanos(now), first=self._began, after=self.book.events, stores=tuple(self._stores))
            self.batches.append(batch)
        self._began, self._stores, self._run = self.book.events, [], -1

    def run(self, jobs: list[Job]) -> None:
        """Serve all of them."""
        arriving, now = deque(sorted(jobs, key=lambda job: job.arrival)), 0.0
        ahead = list[Planned]()
        while arriving or self._waiting or self._running:
            if not self._waiting and not self._running:
                now = max(now, arriving[0].arrival)
            self._arrive(arriving, now)
            planned = ahead or self._schedule(now)
            ahead = []
            if self.mode.pipelined:
                # The next round is scheduled while this one runs, and published with it.
                self._arrive(arriving, now + 0.001)
                ahead = self._schedule(now + 0.001)
            now += self.chance.uniform(0.004, 0.03)
            self._publish(now)
            self._finish(planned, now - 0.0005)

    def _arrive(self, arriving: deque[Job], now: float) -> None:
        while arriving and arriving[0].arrival <= now:
            self._waiting.append(arriving.popleft())


def _plan(job: Job, tokens: int) -> Planned:
    job.computed += tokens
    completes = job.computed == job.known
    job.coming += completes
    return job, completes, job.preempted


def nanos(seconds: float) -> int:
    return 1_700_000_000_000_000_000 + round(seconds * 1e9)


def jobs_of(mode: Mode, chance: Random) -> list[Job]:
    """Prompts that share beginnings, as conversations do."""
    found: list[Job] = []
    now, fresh = 0.0, iter(range(1, 1 << 30))
    for number in range(mode.requests):
        low, high = mode.lengths
        blocks = chance.choice((high // 2, high)) if mode.equal else chance.randint(low, high)
        base = chance.choice(found).content if found and chance.random() < 0.7 else []
        kept = chance.randint(0, min(len(base), blocks))
        answer = chance.randint(1, mode.answers)
        prompt = blocks * SIZE + chance.choice((0, 1, SIZE - 1))
        length = -(-(prompt + answer) // SIZE) + 1
        content = [*base[:kept], *(next(fresh) for _ in range(length - kept))]
        now += chance.expovariate(1000 / mode.gap_millis) if chance.random() < 0.7 else 0.0
        found.append(Job(number=number, content=content, prompt=prompt, answer=answer, arrival=now))
    return found


def request_of(job: Job, mode: Mode, chance: Random) -> Request:
    """What the API server's span says: its own clock, and durations by the engine's."""
    before, behind = (chance.expovariate(1000 / mode.delay_millis) for _ in range(2))
    return Request(
        id=RequestId(b"%04d" % job.number),
        streams=(NAME,),
        prompt_tokens=job.prompt,
        completion_tokens=job.answer,
        low=nanos(job.scheduled - before),
        high=nanos(job.scheduled + behind),
        first=nanos(job.first_token + behind),
        end=nanos(job.end + behind),
        prefill_nanos=round((job.first_token - job.scheduled) * 1e9),
    )


class Played(msgspec.Struct, frozen=True):
    """One run: its batches and residency, its requests with what each found."""

    batches: tuple[Batch, ...]
    book: Book
    requests: tuple[Request, ...]
    hits: dict[RequestId, int]
    stores: dict[RequestId, tuple[int, ...]]
    """Whose each store is: ordinals."""
    mode: Mode

    def stream(self) -> Stream:
        """The stream of it, whole."""
        stream = Stream(NAME, self.book, SIZE, Habits(), from_birth=True)
        for batch in self.batches:
            stream.append(batch)
        stream.confirm(1 << 62)
        return stream

    def without(self, lost: int) -> Stream:
        """The stream without one of its batches, which was noticed."""
        return _replayed(self.batches, self.book, lost)


def _replayed(batches: tuple[Batch, ...], book: Book, lost: int) -> Stream:
    """The stream as one sees it who missed a batch, and noticed."""
    seen = Book()
    stream = Stream(NAME, seen, SIZE, from_birth=lost > 0)
    for number, batch in enumerate(batches):
        if number == lost:
            stream.lost()
            seen.lost()
            continue
        ordinals = {store.ordinal: store for store in batch.stores}
        first, stores = seen.events, list[Store]()
        for ordinal in range(batch.first, batch.after):
            shift = seen.events - ordinal
            if ordinal in ordinals:
                store = ordinals[ordinal]
                known = store.parent is None or store.parent in seen.depths
                start = store.start if known else None
                seen.stored(store.keys, start)
                position, ordinal_seen = store.position + shift, ordinal + shift
                stores.append(msgspec.structs.replace(store, start=start, ordinal=ordinal_seen, position=position))
            else:
                seen.removed(book.removals[ordinal])
        stream.append(Batch(unix_nanos=batch.unix_nanos, first=first, after=seen.events, stores=tuple(stores)))
    stream.confirm(1 << 62)
    return stream


def played(mode: Mode, seed: int) -> Played:
    """A run of a seed."""
    chance = Random(seed)
    jobs = jobs_of(mode, chance)
    engine = Engine(mode, chance)
    engine.run(jobs)
    requests = tuple(request_of(job, mode, chance) for job in jobs)
    hits = {request.id: job.hit or 0 for request, job in zip(requests, jobs, strict=True)}
    stores = {request.id: tuple(job.ordinals) for request, job in zip(requests, jobs, strict=True)}
    return Played(tuple(engine.batches), engine.book, requests, hits, stores, mode)
