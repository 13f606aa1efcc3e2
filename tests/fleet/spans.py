"""The spans of a simulated fleet: who exports them when, and which get lost on the way."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from tests.fleet.agenda import Agenda
from tests.fleet.emit import Times, engine_span, export, lookup_span, offload_span, place, router_span
from tests.fleet.engines import Engine, Running
from tests.fleet.spec import MILLI, SECOND, FleetSpec, OtlpRequest

FRONTEND = 300_000
"""Between a request's arrival and the engine's queue, in nanoseconds."""
FLUSH = 5 * SECOND
LATE = 60 * SECOND


@dataclass
class Exporter:
    """A process's batch of ended spans."""

    phase: int
    ready: list[ResourceSpans] = field(default_factory=list)


class SpanExporters:
    """One batch exporter an engine, and one for the router."""

    def __init__(self, spec: FleetSpec, agenda: Agenda, chance: random.Random) -> None:
        self._spec = spec
        self._agenda = agenda
        self._chance = chance
        self._engines = [Exporter(chance.randrange(FLUSH)) for _ in range(spec.engines)]
        self._router = Exporter(chance.randrange(FLUSH))
        self.unseen: set[int] = set()
        """Last keys of requests whose end nobody knows of in time: one block behind one may be of a decode."""

    def ended(self, engine: Engine, running: Running, first_token: int, now: int) -> None:
        """A request ended: its spans are made, back-dated to its arrival."""
        waiting, truth, faults, skew = running.waiting, running.truth, self._spec.faults, engine.skew
        prompt = waiting.prompt
        where = place(self._spec.name(engine.index), prompt.number, self._spec.seed)
        queued = max(0, running.lookup - waiting.arrival - FRONTEND)
        times = Times(
            waiting.arrival + skew, queued, running.lookup + skew, first_token + skew, now + skew, running.answer
        )
        late = LATE if self._chance.random() < faults.late_spans else 0
        lost = self._chance.random() < faults.lost_spans
        if (lost or late) and prompt.keys and not self._spec.lookup_spans:
            self.unseen.add(prompt.keys[-1])
        truth.touched |= {name for name, hit in (("late", late), ("lost", lost)) if hit}
        if self._spec.lookup_spans and not lost:
            probe = lookup_span(where, times.lookup, prompt, running.found, self._spec)
            self._spans_of(self._engines[engine.index], probe, now, late)
        if self._spec.lookup_spans or not lost:
            self._spans_of(self._engines[engine.index], engine_span(where, times, prompt), now, late)
        offer = running.found.offer
        if offer is not None:
            self._spans_of(self._engines[engine.index], offload_span(where, times.lookup, offer), now, 0)
        if not self._spec.router_spans:
            return
        if self._chance.random() < faults.lost_routes:
            truth.touched.add("unrouted")
            return
        route = router_span(where, waiting.routed, waiting.route.said(self._spec))
        self._spans_of(self._router, route, now, 0)

    def send(self, engine: int | None, span: ResourceSpans, now: int) -> None:
        """A span of an engine, or of a router or sidecar, ended."""
        self._spans_of(self._router if engine is None else self._engines[engine], span, now, 0)

    def _spans_of(self, exporter: Exporter, span: ResourceSpans, now: int, late: int) -> None:
        """Batch exporters send every five seconds, in the order in which spans ended."""
        if late:
            self._send_spans(OtlpRequest(now + late, export([span])))
            return
        if not exporter.ready:
            due = now + FLUSH - (now - exporter.phase) % FLUSH
            self._agenda.at(due, partial(self._flush, exporter))
        exporter.ready.append(span)

    def _flush(self, exporter: Exporter, now: int) -> None:
        self._send_spans(OtlpRequest(now + 2 * MILLI, export(exporter.ready)))
        exporter.ready.clear()

    def _send_spans(self, request: OtlpRequest) -> None:
        self._agenda.send(request)
        if self._chance.random() < self._spec.faults.duplicate_spans:
            self._agenda.send(request._replace(received_unix_nanos=request.received_unix_nanos + SECOND))
