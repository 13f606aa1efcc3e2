"""Virtual time: what happens when, and what is on its way to the service."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from tests.fleet.spec import EPOCH, KvFrames, OtlpRequest


class Agenda:
    """Things to happen, and messages to arrive; of two at one moment the earlier planned comes first."""

    def __init__(self) -> None:
        self._plans: list[tuple[int, int, Callable[[int], None]]] = []
        self._messages: list[tuple[int, int, KvFrames | OtlpRequest]] = []
        self._counter = 0
        self.now = EPOCH

    def at(self, when: int, happen: Callable[[int], None]) -> None:
        """Plan something; it is called with the time."""
        self._counter += 1
        heapq.heappush(self._plans, (when, self._counter, happen))

    def send(self, message: KvFrames | OtlpRequest) -> None:
        """Let a message arrive at its time."""
        self._counter += 1
        heapq.heappush(self._messages, (message.received_unix_nanos, self._counter, message))

    def play(self) -> Iterator[KvFrames | OtlpRequest]:
        """Let everything happen; gives the messages as they arrive."""
        while self._plans:
            self.now, _, happen = heapq.heappop(self._plans)
            while self._messages and self._messages[0][0] <= self.now:
                yield heapq.heappop(self._messages)[2]
            happen(self.now)

    def rest(self) -> Iterator[KvFrames | OtlpRequest]:
        """The messages that were still under way."""
        while self._messages:
            yield heapq.heappop(self._messages)[2]
