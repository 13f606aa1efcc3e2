"""SGLang's request tracing, with its two processes in one: the tokenizer's and the scheduler's, in virtual time."""

from __future__ import annotations

import pickle
import random
import threading
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import opentelemetry.sdk.trace as sdk_trace
import sglang.srt.observability.req_time_stats as stats
import sglang.srt.observability.trace as tracing
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from sglang.srt.observability.req_time_stats import APIServerReqTimeStats, SchedulerReqTimeStats

from .clock import Clock
from .tracing import Ended, Ids

EXPORT_SECONDS = 0.5
"""SGLang's own delay of its batch exporter."""
_LEVEL = 2
"""Of ``SGLANG_TRACE_LEVEL``: without a span for each decoded token."""
_TOKENIZER, _SCHEDULER = 1, 2
_HOST = "0" * 32


@dataclass
class Traced:
    """A request's statistics in both processes."""

    api: Any
    scheduler: Any = None


class Tracing:
    """SGLang's tracer for a run: its own contexts and spans, our ids and clock."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock, self.ended = clock, Ended()
        self._process = _TOKENIZER
        instance = "00000000-0000-4000-8000-000000000000"
        resource = Resource.create({"service.name": "sglang", "k8s.pod.name": "w", "service.instance.id": instance})
        provider = TracerProvider(resource=resource, id_generator=Ids(rng))
        provider.add_span_processor(self.ended)
        tracing.tracer = provider.get_tracer("sglang server")
        tracing.opentelemetry_initialized = True
        tracing.set_global_trace_level(_LEVEL)
        # Contexts are told apart by thread; here two of them take turns.
        tracing.threading = SimpleNamespace(get_native_id=lambda: self._process, local=threading.local)
        tracing.threads_info.clear()
        for process, label in ((_TOKENIZER, "Tokenizer"), (_SCHEDULER, "Scheduler")):
            tracing.threads_info[process] = tracing.TraceThreadInfo(_HOST, process, label, None, None, None)

    def install(self) -> dict[str, Any]:
        """Run on the virtual clock; gives the real functions, for ``restore``."""
        real = {name: getattr(time, name) for name in ("time", "monotonic", "time_ns", "perf_counter")}
        self._clock.install((sdk_trace, "time_ns"), (time, "perf_counter"))
        tracing.get_cur_time_ns = self._clock.time_ns
        stats.calibrate_time_diff()
        return real

    @staticmethod
    def restore(real: dict[str, Any]) -> None:
        for name, function in real.items():
            setattr(time, name, function)

    def arrived(self, rid: str, headers: dict[str, str], dispatched_at: float) -> Traced:
        """What the tokenizer's process does with a request that comes now, until it is handed on."""
        self._process = _TOKENIZER
        api = APIServerReqTimeStats()
        api.init_trace_ctx(rid, None, headers)
        api.set_created_time()
        span = dispatched_at - self._clock.now
        with self._clock.at(self._clock.now + span * 0.6):
            api.set_tokenize_finish_time()
            api.set_api_server_dispatch_time()
        # The copy is made while the dispatch is still open, as it is when it is sent.
        copy = pickle.dumps(api)
        with self._clock.at(dispatched_at):
            api.set_api_server_dispatch_finish_time()
        return Traced(api, copy)

    def received(self, traced: Traced) -> None:
        """The scheduler's process takes the request over and queues it."""
        self._process = _SCHEDULER
        traced.scheduler = SchedulerReqTimeStats.new_from_obj(pickle.loads(traced.scheduler))
        traced.scheduler.set_scheduler_recv_time()
        traced.scheduler.set_wait_queue_entry_time()

    def scheduled(self, traced: Traced) -> None:
        self._process = _SCHEDULER
        traced.scheduler.set_forward_entry_time()

    def prefilled(self, traced: Traced, seen_at: float) -> None:
        """The prefill is done; the tokenizer's process sees the first token a little later."""
        self._process = _SCHEDULER
        traced.scheduler.set_prefill_finished_time()
        with self._clock.at(seen_at):
            traced.api.set_first_token_time()

    def completed(self, traced: Traced) -> None:
        self._process = _SCHEDULER
        traced.scheduler.set_completion_time()

    def answered(self, traced: Traced, attributes: dict[str, Any], seen_at: float) -> None:
        self._process = _TOKENIZER
        with self._clock.at(seen_at):
            traced.api.set_finished_time(span_attrs=attributes)
