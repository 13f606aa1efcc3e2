"""The decode half of a disaggregated pair: blocks come from the prefill half, and nothing is looked up for them.

The decode engine takes blocks for the whole prompt, stores what it does not hold yet as if it had computed it, and
exports the span of an ordinary request. A sidecar's spans say which half is whose, as llm-d's does.
"""

from __future__ import annotations

from functools import partial

from tests.fleet.agenda import Agenda
from tests.fleet.emit import Place, Times, engine_span, half_span, place
from tests.fleet.engines import Engine, Running
from tests.fleet.pool import Operation, Stored
from tests.fleet.spans import FRONTEND, SpanExporters
from tests.fleet.spec import MILLI, FleetSpec

TRANSFER = 3 * MILLI
ANSWER, ANSWER_NANOS = 4, 12 * MILLI


class DecodeHalf:
    """Engines that only decode, taken in turn."""

    def __init__(self, spec: FleetSpec, engines: list[Engine], agenda: Agenda, spans: SpanExporters) -> None:
        self._spec = spec
        self._engines = engines
        self._agenda = agenda
        self._spans = spans
        self._turn = 0

    def take(self, prefill: Engine, running: Running, now: int) -> tuple[Engine, list[Operation], int] | None:
        """A prefilled request arrives: what its engine does, and when that is published; None where nobody decodes."""
        prompt = running.waiting.prompt
        if not self._engines:
            return None
        engine = self._engines[self._turn % len(self._engines)]
        self._turn += 1
        operations: list[Operation] = []
        blocks = engine.pool.hold(prompt.keys[: engine.pool.leading(prompt.keys)])
        held = len(blocks)
        taken, removed = engine.pool.take(-(-prompt.length // self._spec.block_size) - held)
        operations.extend(removed)
        if held < len(prompt.keys):
            engine.pool.fill(taken[: len(prompt.keys) - held], prompt.keys[held:])
            operations.append(Stored(prompt.number, held, len(prompt.keys)))
        begin = now + TRANSFER
        published = begin + 2 * MILLI
        self._agenda.at(
            published + ANSWER_NANOS, partial(self._finish, prefill, engine, running, [*blocks, *taken], begin)
        )
        return engine, operations, published

    def _finish(
        self, prefill: Engine, engine: Engine, running: Running, blocks: list[int], begin: int, now: int
    ) -> None:
        prompt, waiting = running.waiting.prompt, running.waiting
        engine.pool.let_go(blocks)
        where = place(self._spec.name(engine.index), prompt.number, self._spec.seed)
        first = now - ANSWER_NANOS + MILLI + engine.skew
        times = Times(begin + engine.skew, 0, begin + FRONTEND + engine.skew, first, now + engine.skew, ANSWER)
        self._spans.send(engine.index, engine_span(where, times, prompt), now)
        self._halves(where, self._spec.name(prefill.index), waiting.arrival, begin, now)

    def _halves(self, where: Place, prefill: str, arrival: int, begin: int, end: int) -> None:
        self._spans.send(None, half_span(where, "prefill", prefill, arrival - MILLI, begin - MILLI), end)
        self._spans.send(None, half_span(where, "decode", where.worker, begin - MILLI // 2, end + MILLI), end)
