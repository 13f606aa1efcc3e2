"""SGLang's own tree cache, event recorder and request tracing, without a model.

What is SGLang's: ``UnifiedRadixCache`` with its default core, its allocators and HiCache's decisions, the events and
their encoding, the spans. What is ours: the scheduler around it. As SGLang's does, it matches a prompt without its last
token, locks what was found, evicts for what it allocates, gives the tree the prompt after the prefill and the answer at
the end, and publishes after a prefill, every forty decode steps and when idle.
"""

from __future__ import annotations

import heapq
import json
import random
from array import array
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch
from sglang.srt.disaggregation.kv_events import KVEventBatch
from sglang.srt.managers.schedule_batch import ReqKvInfo
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InitLoadBackParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.observability.trace import SpanAttributes

from .clock import Clock
from .sglang_host import Controller, HostPool
from .sglang_observer import Namespace, Observer
from .sglang_spans import EXPORT_SECONDS, Traced, Tracing
from .workload import VOCABULARY, Draft, Workload

TOPIC = b"kv@w@m"
_PUBLISH_STEPS = 40
"""SGLang's ``--decode-log-interval``, at which it publishes too."""


@dataclass(frozen=True)
class Setup:
    """A worker and the world around it. Sizes in tokens, times in seconds."""

    page: int = 16
    tokens: int = 9000
    host_tokens: int = 0
    pairs: bool = False
    """EAGLE: keys of two tokens, and steps that decode several."""
    hidden: bool = False
    """Whether a workload's salts are sent as ``extra_key``, which is not published, or as ``cache_salt``."""
    running: int = 16
    budget: int = 8192
    longest: int = 2700
    api_delay: float = 0.0
    step: float = 0.006
    token: float = 0.00004


@dataclass(eq=False)
class Request:
    """As much of SGLang's ``Req`` as its cache asks of one."""

    rid: str
    draft: Draft
    namespace: Namespace
    full_untruncated_fill_ids: array[int]
    traced: Traced
    kv: ReqKvInfo = field(default_factory=ReqKvInfo)
    output: list[int] = field(default_factory=list)
    lock: Any = None
    last_node: Any = None
    prefix_len: int = 0
    swa_host_hit_length: int = 0
    mamba_host_hit_length: int = 0
    priority: int = 0
    session: None = None
    session_id: None = None
    kv_rotation_base: None = None
    skip_radix_cache_insert: bool = False
    done: bool = False
    cached: int = 0

    @property
    def extra_key(self) -> str | None:
        return self.namespace.extra_key

    @property
    def cache_salt(self) -> str | None:
        return self.namespace.salt

    @property
    def origin_input_ids(self) -> array[int]:
        return self.full_untruncated_fill_ids[: len(self.draft.tokens)]

    @property
    def needs(self) -> int:
        """Tokens that it will have at most."""
        return len(self.draft.tokens) + self.draft.answer + 4

    def finished(self) -> bool:
        return self.done


class Run:
    """One seeded run of one worker."""

    def __init__(self, setup: Setup, workload: Workload, seed: int) -> None:
        self._setup, self._workload = setup, workload
        self.clock = Clock()
        self._rng, self._model = random.Random(f"world {seed}"), random.Random(f"model {seed}")
        self._wire, self._names = random.Random(f"wire {seed}"), random.Random(f"traces {seed}")
        self._tracing = Tracing(self.clock, random.Random(f"ids {seed}"))
        self._build()
        self.frames: list[tuple[int, tuple[bytes, bytes, bytes]]] = []
        self._encoder, self._last = msgspec.msgpack.Encoder(), 0
        self.observer = Observer(
            self._cache.tree_core, setup.page, pairs=setup.pairs, published=lambda: len(self.frames)
        )
        self._arriving: list[tuple[float, int, Draft]] = []
        self._coming: list[tuple[float, int, Request]] = []
        self._waiting: list[Request] = []
        self._running: list[Request] = []
        self.traced: dict[str, tuple[str, str]] = {}
        """Label and trace id of each request."""
        self._count = self._steps = 0

    def _build(self) -> None:
        setup = self._setup
        self._rows = ReqToTokenPool(setup.running + 2, setup.longest + 64, "cpu", enable_memory_saver=False)
        self._pool: Any
        if setup.page == 1:
            self._pool = TokenToKVPoolAllocator(setup.tokens, torch.float16, "cpu", None, need_sort=False)
        else:
            self._pool = PagedTokenToKVPoolAllocator(
                setup.tokens, setup.page, torch.float16, "cpu", None, need_sort=False
            )
        self._cache = UnifiedRadixCache(
            CacheInitParams(
                disable=False,
                req_to_token_pool=self._rows,
                token_to_kv_pool_allocator=self._pool,
                page_size=setup.page,
                is_eagle=setup.pairs,
                enable_kv_cache_events=True,
                tree_components=(ComponentType.FULL,),
            )
        )
        self._host: Controller | None = None
        if setup.host_tokens:
            pool = HostPool(setup.host_tokens)
            self._host = Controller(self.clock, self._pool, pool)
            self._cache.cache_controller = self._host
            self._cache.host_pool_group = pool
            self._cache.components[ComponentType.FULL]._full_kv_pool_host = pool
            self._cache.tree_core.set_hicache_enabled()
            self._cache.write_through_threshold = 1
            self._cache.load_back_threshold = 10

    def play(self) -> None:
        """Until nothing is left to do."""
        real = self._tracing.install()
        try:
            begin = self.clock.now
            for draft in self._workload.opening():
                self._push(begin + draft.at, draft)
            while self._round():
                pass
        finally:
            self._tracing.restore(real)

    def _round(self) -> bool:
        self._receive()
        if self._host:
            self._cache.check_hicache_events()
        batch = self._admit()
        if batch:
            self._prefill(batch)
        elif self._running:
            self._decode()
        elif self._waiting:
            raise AssertionError("a request that never fits")
        else:
            return self._idle()
        self.clock.now += self._rng.uniform(0.0001, 0.0006)
        return True

    def _idle(self) -> bool:
        self._publish()
        coming = [heap[0][0] for heap in (self._coming, self._arriving) if heap]
        if self._cache.ongoing_write_through or self._cache.ongoing_load_back:
            self.clock.advance_to(min([self.clock.now + 0.001, *coming]))
            return True
        if coming:
            self.clock.advance_to(min(coming))
        return bool(coming)

    def _push(self, at: float, draft: Draft) -> None:
        self._count += 1
        heapq.heappush(self._arriving, (at, self._count, draft))

    def _delay(self) -> float:
        slow = self._setup.api_delay
        return self._rng.uniform(0.0002, 0.0008) + (self._rng.expovariate(1 / slow) if slow else 0.0)

    def _receive(self) -> None:
        while self._arriving and self._arriving[0][0] <= self.clock.now:
            at, number, draft = heapq.heappop(self._arriving)
            reached = at + self._delay()
            trace_id, parent = f"{self._names.getrandbits(128):032x}", f"{self._names.getrandbits(64):016x}"
            rid = f"{self._names.getrandbits(128):032x}"
            with self.clock.at(at):
                traced = self._tracing.arrived(rid, {"traceparent": f"00-{trace_id}-{parent}-01"}, reached)
            space = Namespace(draft.salt) if self._setup.hidden else Namespace(None, draft.salt)
            self.traced[rid] = (f"r{number}", trace_id)
            request = Request(rid, draft, space, array("q", draft.tokens), traced)
            heapq.heappush(self._coming, (reached, number, request))
        while self._coming and self._coming[0][0] <= self.clock.now:
            request = heapq.heappop(self._coming)[2]
            self._tracing.received(request.traced)
            self._waiting.append(request)

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self._setup.page) * self._setup.page

    def _admit(self) -> list[Request]:
        batch: list[Request] = []
        reserved = sum(self._pages(one.needs) - one.kv.kv_allocated_len for one in self._running)
        extended = 0
        while self._waiting and len(self._running) + len(batch) < self._setup.running:
            request = self._waiting[0]
            tokens = request.full_untruncated_fill_ids
            key = RadixKey(tokens, request.extra_key, limit=len(tokens) - 1, cache_salt=request.cache_salt)
            found = self._cache.match_prefix(MatchPrefixParams(key=key, req=request))
            request.last_node = found.last_device_node
            lock = self._cache.lock(request.last_node)
            extend = len(tokens) - found.device_prefix_len - found.host_hit_length
            wanted = self._pages(request.needs) - found.device_prefix_len
            if batch and extended + extend > self._setup.budget:
                self._cache.unlock(lock)
                break
            if reserved + wanted > self._pool.available_size() + self._cache.evictable_size():
                self._cache.unlock(lock)
                break
            del self._waiting[0]
            hit = found.device_prefix_len + found.host_hit_length
            self.observer.admitted(request.rid, request.namespace, request.draft.tokens, hit)
            if found.host_hit_length:
                lock = self._load_back(request, found, lock)
            request.lock, request.prefix_len, request.cached = lock, hit, hit
            request.kv.cache_protected_len = hit
            reserved, extended = reserved + wanted - found.host_hit_length, extended + extend
            self._tracing.scheduled(request.traced)
            batch.append(request)
        return batch

    def _load_back(self, request: Request, found: Any, lock: Any) -> Any:
        loaded, request.last_node = self._cache.init_load_back(
            InitLoadBackParams(
                best_match_node=found.best_match_node, host_hit_length=found.host_hit_length, req=request
            )
        )
        if loaded != found.host_hit_length:
            raise AssertionError("the host tier did not give what it had promised")
        self._cache.unlock(lock)
        return self._cache.lock(request.last_node)

    def _allocate(self, request: Request, length: int) -> None:
        """Slots up to that length, evicting for them as SGLang does."""
        have, want = request.kv.kv_allocated_len, self._pages(length)
        if want <= have:
            return
        short = want - have - self._pool.available_size()
        if short > 0:
            self._cache.evict_for_alloc(EvictParams(num_tokens=short))
        slots = self._pool.alloc(want - have)
        if slots is None:
            raise AssertionError("admitted without the room for it")
        self._rows.write((request.kv.req_pool_idx, slice(have, want)), slots)
        request.kv.kv_allocated_len = want

    def _prefill(self, batch: list[Request]) -> None:
        self._rows.alloc(batch)
        for request in batch:
            row = (request.kv.req_pool_idx, slice(0, request.prefix_len))
            if request.prefix_len:
                self._rows.write(row, self._cache.prefix_device_indices(request))
            request.kv.kv_allocated_len = request.prefix_len
        for request in batch:
            self._allocate(request, len(request.draft.tokens))
        if self._host:
            self._cache.ready_to_load_host_cache()
        self._forward(sum(len(one.draft.tokens) - one.prefix_len for one in batch))
        for request in batch:
            self._tracing.prefilled(request.traced, self.clock.now + self._delay())
            request.kv.kv_committed_len = len(request.draft.tokens)
            self._sample(request, 1)
            if request.done:
                self._release(request)
            else:
                self._checkpoint(request)
                self._running.append(request)
        self._publish()

    def _decode(self) -> None:
        for request in self._running:
            self._allocate(request, len(request.full_untruncated_fill_ids) + (3 if self._setup.pairs else 0))
        self._forward(len(self._running))
        for request in list(self._running):
            count = 1
            while self._setup.pairs and count < 4 and self._model.random() < 0.6:
                count += 1
            request.kv.kv_committed_len = len(request.full_untruncated_fill_ids)
            self._sample(request, count)
            if request.done:
                self._running.remove(request)
                request.kv.kv_committed_len = len(request.full_untruncated_fill_ids) - 1
                self._release(request)
        self._steps += 1
        if self._steps % _PUBLISH_STEPS == 0:
            self._publish()

    def _forward(self, tokens: int) -> None:
        takes = (self._setup.step + self._setup.token * tokens) * self._rng.lognormvariate(0, 0.25)
        self.clock.advance_to(self.clock.now + takes)

    def _sample(self, request: Request, count: int) -> None:
        count = min(count, request.draft.answer - len(request.output))
        made = [self._model.choice(VOCABULARY) for _ in range(count)]
        request.output += made
        request.full_untruncated_fill_ids.extend(made)
        request.done = len(request.output) >= request.draft.answer

    def _checkpoint(self, request: Request) -> None:
        upto = request.kv.kv_committed_len
        self._cache.checkpoint(request, up_to=upto)
        self.observer.stored(request.namespace, request.full_untruncated_fill_ids[:upto])

    def _release(self, request: Request) -> None:
        self._checkpoint(request)
        kv = request.kv
        self._cache.free_kv_row(kv, [(kv.cache_protected_len, kv.kv_allocated_len)])
        self._cache.unlock(request.lock)
        request.lock = None
        self._cache.on_release(request, checkpointed=True)
        self._rows.free(request)
        self._tracing.completed(request.traced)
        at = self.clock.now + self._delay()
        self._tracing.answered(request.traced, _attributes(request), at)
        for after in self._workload.following(at, request.draft, request.output):
            self._push(after.at, after)

    def _publish(self) -> None:
        events = self._cache.take_events()
        if not events:
            return
        batch = KVEventBatch(ts=self.clock.time(), events=events)
        batch.attn_dp_rank = 0
        self._last = max(self._last + 1, int((self.clock.now + self._wire.uniform(0.0004, 0.0025)) * 1e9))
        number = len(self.frames).to_bytes(8, "big")
        self.frames.append((self._last, (TOPIC, number, self._encoder.encode(batch))))

    def requests(self) -> list[tuple[int, bytes]]:
        """The spans as SGLang's exporter sends them: when received in Unix nanoseconds, and the body."""
        return self._tracing.ended.requests(EXPORT_SECONDS)


def _attributes(request: Request) -> dict[str, Any]:
    """What SGLang's tokenizer process says on a request's span, in its order."""
    return {
        SpanAttributes.GEN_AI_USAGE_COMPLETION_TOKENS: len(request.output),
        SpanAttributes.GEN_AI_USAGE_PROMPT_TOKENS: len(request.draft.tokens),
        SpanAttributes.GEN_AI_USAGE_CACHED_TOKENS: request.cached,
        SpanAttributes.GEN_AI_REQUEST_ID: request.rid,
        SpanAttributes.GEN_AI_REQUEST_MAX_TOKENS: request.draft.answer,
        SpanAttributes.GEN_AI_RESPONSE_MODEL: "m",
        SpanAttributes.GEN_AI_RESPONSE_FINISH_REASONS: json.dumps(["length"]),
    }
