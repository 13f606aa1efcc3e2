"""Requests seen lately on each worker: who else could have stored a chain.

KV events carry no request id. If two requests with prompts of the same length were prefilling when a chain
was published, the chain may be either's. What is remembered of a request is its times and lengths only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container

import msgspec

from ...model import EngineRequest, Span
from .report import CLOCK_GRAIN_NANOS, lookup_bounds, request_end

LIVES_MAX = 1 << 17
"""Lives remembered of all workers together. Beyond it the older halves of the longest rows go, until an eighth is
free: who asks for one of those is told of no end, and so believes less."""

LIFE_BYTES = 256
"""What one is counted as (measured below it: tests/evidence/test_request_log.py)."""


class Life(msgspec.Struct, frozen=True, order=True):
    """One engine request in time."""

    latest: int
    first_token: int
    start: int
    end: int
    prompt_tokens: int
    total_tokens: int
    span_id: bytes


class RequestLog:
    """The lives of requests by worker name, forgotten once their end is older than ``keep_nanos``.

    A request is noted when it arrives, before anything of its group is judged, so the order of
    arrival inside a hold does not matter.
    """

    def __init__(self, keep_nanos: int, lives_max: int = LIVES_MAX) -> None:
        self._keep = keep_nanos
        self._lives_max = lives_max
        self._lives: defaultdict[str, list[Life]] = defaultdict(list)
        self._latest: defaultdict[str, list[int]] = defaultdict(list)
        """The latest moments of their lookups, in the same order."""
        self._longest: defaultdict[str, int] = defaultdict(int)
        self._waits: defaultdict[str, int] = defaultdict(int)
        self._count = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all lives."""
        return self._count * LIFE_BYTES

    def note(self, worker: str, span: Span, said: EngineRequest) -> None:
        """Remember a request of a worker."""
        if said.prompt_tokens is None:
            return
        _, latest, first_token = lookup_bounds(span, said)
        life = Life(
            latest=latest,
            first_token=first_token,
            start=span.start_unix_nanos,
            end=request_end(span, said),
            prompt_tokens=said.prompt_tokens,
            total_tokens=said.prompt_tokens + (said.completion_tokens or 0),
            span_id=span.span_id,
        )
        lives = self._lives[worker]
        at = bisect_left(lives, life)
        if at < len(lives) and lives[at] == life:  # guard: recent-repeated
            return
        lives.insert(at, life)  # guard: recent-order
        self._latest[worker].insert(at, life.latest)
        self._count += 1
        self._longest[worker] = max(self._longest[worker], life.end - life.latest)
        self._waits[worker] = max(self._waits[worker], life.latest - life.start)
        self._forget(worker, lives)

    def _forget(self, worker: str, lives: list[Life]) -> None:
        # Lives are in the order of their lookups; ends follow within the longest life. Cut in lots, so
        # that a note stays cheap.
        keep_from = lives[-1].latest - self._keep - self._longest[worker]
        if lives[len(lives) // 2].latest < keep_from:
            self._cut(worker, bisect_left(self._latest[worker], keep_from))
        if self._count > self._lives_max:
            self._make_room()

    def _make_room(self) -> None:
        """Cut the longest rows in half until an eighth is free: whoever sends chooses how many workers there are."""
        for worker in sorted(self._lives, key=lambda name: len(self._lives[name]), reverse=True):
            self._cut(worker, len(self._lives[worker]) // 2 + 1)
            if not self._lives[worker]:
                for row in (self._lives, self._latest, self._longest, self._waits):
                    del row[worker]
            if self._count <= self._lives_max * 7 // 8:
                return

    def _cut(self, worker: str, count: int) -> None:
        del self._lives[worker][:count]
        del self._latest[worker][:count]
        self._count -= count

    def may_have_stored(self, worker: str, unix_nanos: int) -> list[Life]:
        """Requests of a worker that had come and had no token yet at a moment."""
        return [  # guard: stored-arrived, stored-first-token, stored-waiting, stored-longest
            life
            for life in self._between(worker, unix_nanos - self._longest[worker], unix_nanos + self._waits[worker] + 1)
            if life.start <= unix_nanos <= life.first_token + CLOCK_GRAIN_NANOS
        ]

    def prefilling(self, worker: str, unix_nanos: int, without: Container[bytes] = ()) -> list[int]:
        """First-token times of the requests of a worker, but for some, that were in their prefill at a moment."""
        lives = self._between(worker, unix_nanos - self._longest[worker], unix_nanos)
        # guard: prefilling-still, prefilling-own
        return [life.first_token for life in lives if life.first_token > unix_nanos and life.span_id not in without]

    def prefills_began(self, worker: str, unix_nanos: int) -> int | None:
        """When the first of the requests arrived that were in their prefill at a moment; ``None`` for none."""
        lives = self._between(worker, unix_nanos - self._longest[worker] - CLOCK_GRAIN_NANOS, unix_nanos)
        # guard: began-still
        return min((life.start for life in lives if life.first_token + CLOCK_GRAIN_NANOS >= unix_nanos), default=None)

    def _between(self, worker: str, after: int, before: int) -> list[Life]:
        """Lives whose lookup was at the latest in ``[after, before)``."""
        latest = self._latest.get(worker)
        if latest is None:
            return []
        return self._lives[worker][bisect_left(latest, after) : bisect_left(latest, before)]
