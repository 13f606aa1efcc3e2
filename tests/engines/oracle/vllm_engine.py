"""vLLM's own engine core, scheduler, block pool and output processor, without a model.

Everything that decides is vLLM's: ``EngineCore`` with its step functions, ``Scheduler`` or ``AsyncScheduler``,
``KVCacheManager``, ``OutputProcessor`` with its statistics and spans. What is ours: the executor, which samples random
tokens and takes virtual time for them, and the observer, which writes down what the pool held at each lookup.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import msgspec
import opentelemetry.sdk.trace as sdk_trace
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from vllm.config.kv_events import KVEventsConfig
from vllm.distributed.kv_events import EventBatch, EventPublisher
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine import EngineCoreOutputs, EngineCoreRequest
from vllm.v1.engine.core import EngineCore
from vllm.v1.engine.output_processor import OutputProcessor
from vllm.v1.executor.abstract import Executor
from vllm.v1.metrics.stats import IterationStats
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

from .clock import Clock
from .places import MODELS
from .tracing import Ended, Ids
from .vllm_observer import Observer
from .vllm_shapes import dense
from .workload import VOCABULARY, Draft, Workload

TOPIC = b"kv@w@m"
_EXPORT_SECONDS = 5.0
"""OpenTelemetry's batch processor: what ended goes out once in so many seconds."""


@dataclass(frozen=True)
class Setup:
    """An engine and the world around it. Sizes in tokens or blocks, times in seconds."""

    model: str = "dense"
    blocks: int = 700
    block: int = 16
    budget: int = 2048
    running: int = 16
    asynchronous: bool = False
    longest: int = 2700
    threshold: int = 0
    untraced: float = 0.0
    api_delay: float = 0.0
    """Mean of what the API server takes to hand a request on, and to look at an output."""
    step: float = 0.006
    token: float = 0.00004
    extra: dict[str, Any] = field(default_factory=dict)
    layers: Callable[[int], dict[str, Any]] = dense
    """What the model's layers ask of the cache, with blocks of that size."""
    cache: dict[str, Any] = field(default_factory=dict)
    """Fields of vLLM's cache configuration that its own model classes would set."""


class _Done(Future):  # type: ignore[type-arg]
    """A result that is there at a moment of the virtual clock; who waits for it is there then."""

    def __init__(self, clock: Clock, ready: float, value: Any) -> None:
        super().__init__()
        self._clock, self._ready = clock, ready
        self.set_result(value)

    def result(self, timeout: float | None = None) -> Any:
        self._clock.advance_to(self._ready)
        return super().result(timeout)


class NoModel(Executor):
    """Samples random tokens, and takes virtual time for it: one step after the other, as a device does."""

    setup: Setup
    clock: Clock
    rng: random.Random
    core: EngineCore

    def _init_executor(self) -> None:
        self._free_at = 0.0
        self._step: Any = None
        self._drafts: Any = None

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        return [self.setup.layers(self.setup.block)]

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        return [["LBNHC", "LBHNC", "BLHNC", "BLNHC"]]

    def determine_available_memory(self) -> list[int]:
        return [1 << 34]

    def collective_rpc(self, *_: Any, **__: Any) -> list[Any]:
        return [None]

    def initialize_from_config(self, kv_cache_configs: Any) -> None: ...

    def compile_or_warm_up_model(self) -> None: ...

    def set_kv_cache_layout(self, layout_name: str) -> None: ...

    def check_health(self) -> None: ...

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:  # noqa: FBT002 - as vLLM calls it
        del non_block
        if not scheduler_output.total_num_scheduled_tokens:
            return _Done(self.clock, self.clock.now, ModelRunnerOutput([], {}))
        self._step = scheduler_output
        return _Done(self.clock, 0.0, None)

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:  # noqa: FBT002 - as vLLM calls it
        del grammar_output
        step, requests = self._step, self.core.scheduler.requests
        names = list(step.num_scheduled_tokens)
        sampled = []
        for name in names:
            request = requests[name]
            drafts = len(step.scheduled_spec_decode_tokens.get(name, ()))
            accepted = 0
            while accepted < drafts and self.rng.random() < 0.6:
                accepted += 1
            count = 0 if request.is_prefill_chunk else 1 + accepted
            sampled.append([self.rng.choice(VOCABULARY) for _ in range(count)])
        spec = self.core.scheduler.num_spec_tokens
        if spec:
            made = [[self.rng.choice(VOCABULARY) for _ in range(spec)] if tokens else [] for tokens in sampled]
            self._drafts = DraftTokenIds(names, made)
        tokens = step.total_num_scheduled_tokens
        takes = (self.setup.step + self.setup.token * tokens) * self.rng.lognormvariate(0, 0.25)
        self._free_at = max(self._free_at, self.clock.now) + takes
        output = ModelRunnerOutput(names, {name: i for i, name in enumerate(names)}, sampled)
        done = _Done(self.clock, self._free_at, output)
        return done if non_block else done.result()

    def take_draft_token_ids(self) -> Any:
        drafts, self._drafts = self._drafts, None
        return drafts


class _Publisher(EventPublisher):
    """vLLM's batches in vLLM's encoding, kept instead of sent; received a little later."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        super().__init__(0)
        self._clock, self._rng, self._encoder, self._last = clock, rng, msgspec.msgpack.Encoder(), 0
        self.frames: list[tuple[int, tuple[bytes, bytes, bytes]]] = []

    def publish(self, events: EventBatch) -> None:
        events.data_parallel_rank = self._data_parallel_rank
        self._last = max(self._last + 1, int((self._clock.now + self._rng.uniform(0.0004, 0.0025)) * 1e9))
        number = len(self.frames).to_bytes(8, "big")
        self.frames.append((self._last, (TOPIC, number, self._encoder.encode(events))))

    def shutdown(self) -> None: ...


class _Tracing:
    """One provider a process, as OpenTelemetry has it; each run takes its own ids and its own spans."""

    def __init__(self) -> None:
        self.spans = Ended()
        resource = Resource.create(
            {
                "service.name": "vllm",
                "service.instance.id": "00000000-0000-4000-8000-000000000000",
                "k8s.pod.name": "w",
                "vllm.instrumenting_module_name": "vllm.llm_engine",
                "vllm.process_id": "1",
            }
        )
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(self.spans)
        trace.set_tracer_provider(self._provider)

    def begin(self, rng: random.Random) -> None:
        self.spans.spans.clear()
        ids = Ids(rng)
        self._provider.id_generator = ids
        import vllm.tracing.otel as vllm_tracing  # noqa: PLC0415

        trace.get_tracer(vllm_tracing.__name__).id_generator = ids  # type: ignore[attr-defined]


_TRACING: list[_Tracing] = []


class Run:
    """One seeded run of one engine."""

    def __init__(self, setup: Setup, workload: Workload, seed: int) -> None:
        self._setup, self._workload = setup, workload
        self.clock, self._rng = Clock(), random.Random(f"world {seed}")
        core = _engine(setup, self.clock, random.Random(f"model {seed}"))
        self._core = core
        self.publisher = _Publisher(self.clock, random.Random(f"wire {seed}"))
        core.scheduler.kv_event_publisher = self.publisher
        self.observer = Observer(core.scheduler, lambda: len(self.publisher.frames))
        self._processor = OutputProcessor(None, log_stats=True, tracing_enabled=True)
        self._arriving: list[tuple[float, int, Draft]] = []
        self._coming: list[tuple[float, int, Any]] = []
        self._drafts: dict[str, Draft] = {}
        self.traced: dict[str, str] = {}
        self._count = 0
        if not _TRACING:
            _TRACING.append(_Tracing())
        self.spans = _TRACING[0]
        self.spans.begin(random.Random(f"ids {seed}"))
        self._trace_rng = random.Random(f"traces {seed}")

    def play(self) -> None:
        """Until nothing is left to do."""
        import time  # noqa: PLC0415

        real = {name: getattr(time, name) for name in ("time", "monotonic", "time_ns")}
        self.clock.install((sdk_trace, "time_ns"))
        try:
            self._play()
        finally:
            for name, function in real.items():
                setattr(time, name, function)

    def _play(self) -> None:
        begin = self.clock.now
        for draft in self._workload.opening():
            self._push(begin + draft.at, draft)
        core = self._core
        while True:
            self._receive()
            if core.scheduler.has_requests() or core.batch_queue:
                outputs, executed = core.step_fn()
                core.post_step(executed)
                for one in (outputs or {}).values():
                    self._answer(one)
                # What a loop of the engine costs beside the model.
                self.clock.now += self._rng.uniform(0.0001, 0.0006)
            elif self._coming or self._arriving:
                self.clock.advance_to(min(heap[0][0] for heap in (self._coming, self._arriving) if heap))
            else:
                return

    def _push(self, at: float, draft: Draft) -> None:
        self._count += 1
        heapq.heappush(self._arriving, (at, self._count, draft))

    def _delay(self) -> float:
        return self._rng.uniform(0.0002, 0.0008) + (
            self._rng.expovariate(1 / self._setup.api_delay) if self._setup.api_delay else 0.0
        )

    def _receive(self) -> None:
        """Requests that reached the API server by now, and those of them that reached the engine."""
        while self._arriving and self._arriving[0][0] <= self.clock.now:
            at, number, draft = heapq.heappop(self._arriving)
            request = self._request(at, number, draft)
            with self.clock.at(at):
                self._processor.add_request(request, None)
            heapq.heappush(self._coming, (at + self._delay(), number, request))
        while self._coming and self._coming[0][0] <= self.clock.now:
            _, _, request = heapq.heappop(self._coming)
            self._core.add_request(*self._core.preprocess_add_request(request))
            self.clock.now += self._rng.uniform(0.00001, 0.00006)

    def _request(self, at: float, number: int, draft: Draft) -> EngineCoreRequest:
        label = f"r{number}"
        rng, setup = self._trace_rng, self._setup
        name = f"cmpl-{label}-0"
        internal = f"{name}-{rng.getrandbits(32):08x}"
        trace_id, parent = f"{rng.getrandbits(128):032x}", f"{rng.getrandbits(64):016x}"
        sampled = rng.random() >= setup.untraced
        self._drafts[internal] = draft
        if sampled:
            self.traced[internal] = trace_id
        return EngineCoreRequest(
            request_id=internal,
            prompt_token_ids=draft.tokens,
            mm_features=None,
            sampling_params=SamplingParams(
                max_tokens=draft.answer,
                ignore_eos=True,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
                skip_reading_prefix_cache=False,
            ),
            pooling_params=None,
            arrival_time=at,
            lora_request=None,
            cache_salt=draft.salt,
            data_parallel_rank=None,
            trace_headers={"traceparent": f"00-{trace_id}-{parent}-{'01' if sampled else '00'}"},
            external_req_id=name,
        )

    def _answer(self, outputs: EngineCoreOutputs) -> None:
        at = self.clock.now + self._delay()
        with self.clock.at(at):
            stats = IterationStats()
            done = self._processor.process_outputs(outputs.outputs, outputs.timestamp, stats)
        for output in done.request_outputs:
            if output.finished:
                names = [one for one in self._drafts if one.startswith(f"{output.request_id}-")]
                draft = self._drafts[names[0]] if len(names) == 1 else self._drafts[output.request_id]
                tokens = list(output.outputs[0].token_ids)
                for after in self._workload.following(at, draft, tokens):
                    self._push(after.at, after)

    def requests(self) -> list[tuple[int, bytes]]:
        """The spans as the batch exporter sends them: when received in Unix nanoseconds, and the body."""
        return self.spans.spans.requests(_EXPORT_SECONDS)


def _engine(setup: Setup, clock: Clock, rng: random.Random) -> EngineCore:
    arguments = EngineArgs(
        model=str(MODELS / setup.model),
        skip_tokenizer_init=True,
        load_format="dummy",
        block_size=setup.block,
        num_gpu_blocks_override=setup.blocks,
        max_num_seqs=setup.running,
        max_num_batched_tokens=setup.budget,
        long_prefill_token_threshold=setup.threshold,
        enforce_eager=True,
        max_model_len=setup.longest,
        disable_log_stats=False,
        kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="null"),
        **setup.extra,
    )
    executor: Any = type("Executor", (NoModel,), {"setup": setup, "clock": clock, "rng": rng})
    config = arguments.create_engine_config()
    # vLLM's CPU platform switches it off; the scheduler is the one that a GPU gets.
    config.scheduler_config.async_scheduling = setup.asynchronous
    for name, value in setup.cache.items():
        setattr(config.cache_config, name, value)
    core = EngineCore(config, executor, log_stats=True)
    executor.core = core
    return core
