"""Whose a store can be: the paths of every request, and from each store back to the requests that have it on a path.

Requests may be noted in any order and long after their events. Paths are found once the record goes on behind a request's
end, and before that again whenever the record has grown. From stores and owners follow the components: requests that share
a store on any path, and whoever shares one with these.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence

from ..model import StreamId
from .cover import StoreId, stores_of
from .gaps import gap_of
from .outcome import Why
from .path import Hit, Path
from .stream import UNKNOWN, Stream
from .values import NEVER, Limits, Request, RequestId
from .walk import Walk
from .window import last_of


class Ownership:
    """The requests of some streams and their paths."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.streams: list[Stream] = []
        self.requests: dict[RequestId, Request] = {}
        self.paths: dict[RequestId, tuple[Path, ...]] = {}
        self.bounded: set[RequestId] = set()
        self.unsure: dict[RequestId, Why] = {}
        """Requests whose own stores may be missing in one of their streams, and why."""
        self.owners: dict[StoreId, set[RequestId]] = {}
        self._indexes: dict[StreamId, int] = {}
        self._by_low: list[tuple[int, RequestId]] = []
        self._new: set[RequestId] = set()
        self._unsettled: defaultdict[int, set[RequestId]] = defaultdict(set)
        """By stream: requests that may still have stored what has not come."""
        self._states: dict[int, tuple[int, int]] = {}

    def add(self, stream: Stream) -> None:
        """Take a stream."""
        index = self._indexes[stream.name] = len(self.streams)
        self.streams.append(stream)
        self._unsettled[index] = {name for name, request in self.requests.items() if stream.name in request.streams}

    def note(self, request: Request) -> None:
        """Take a request, or what more is known of it."""
        self.drop(request.id)
        self.requests[request.id] = request
        insort(self._by_low, (request.low, request.id))
        self._new.add(request.id)
        for index in self.streams_of(request):
            self._unsettled[index].add(request.id)

    def drop(self, request: RequestId) -> None:
        """Forget a request."""
        known = self.requests.pop(request, None)
        if known is None:
            return
        del self._by_low[bisect_left(self._by_low, (known.low, request))]
        self._disown(request)
        self._new.discard(request)
        for waiting in self._unsettled.values():
            waiting.discard(request)

    def forget(self, before_unix_nanos: int) -> None:
        """Let go of stores published before a time, and of requests that may have stored before it.

        What those store later is without an explanation from then on.
        """
        until = bisect_left(self._by_low, (before_unix_nanos + self._limits.tolerance_nanos, b""))
        for _, request in list(self._by_low[:until]):
            self.drop(request)
        for stream in self.streams:
            stream.forget(before_unix_nanos)

    def streams_of(self, request: Request) -> list[int]:
        """The indexes of the streams in which a request may have been served."""
        return [self._indexes[name] for name in request.streams if name in self._indexes]

    # --- paths --------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Find the paths of requests whose stores may have come since they were last looked for."""
        changed = set(self._new)
        for index, stream in enumerate(self.streams):
            state = (stream.version, stream.confirmed_unix_nanos)
            if self._states.get(index) != state:
                self._states[index] = state
                changed |= self._unsettled.get(index, set())
        self._new.clear()
        for name in changed:
            request = self.requests[name]
            indexes = self.streams_of(request)
            self._own(request, indexes)
            ended = request.end + self._limits.tolerance_nanos
            for index in indexes:
                if self.streams[index].confirmed_unix_nanos > ended:
                    self._unsettled[index].discard(name)

    def _own(self, request: Request, indexes: Sequence[int]) -> None:
        self._disown(request.id)
        found: list[Path] = []
        for index in indexes:
            stream = self.streams[index]
            walk = Walk(request, index, stream, self._limits)
            found += [path for path in walk.paths if _admitted(request, path, stream)]
            if walk.bounded:
                self.bounded.add(request.id)
            gap = gap_of(request, stream, self._limits.tolerance_nanos)
            if gap:
                self.unsure[request.id] = gap
                found.append(Path(index, (), Hit(UNKNOWN, None, 0, NEVER, 0)))
        if request.told_tokens is not None and any(_counts(path) for path in found):
            # Whoever else may have stored the same prompt meanwhile stored it under the same keys.
            found = [path for path in found if _counts(path)]
        if request.elsewhere:
            found.append(Path(-1, (), None))
        self.paths[request.id] = tuple(found)
        for store in {store for path in found for store in stores_of(path)}:
            self.owners.setdefault(store, set()).add(request.id)

    def _disown(self, request: RequestId) -> None:
        self.bounded.discard(request)
        self.unsure.pop(request, None)
        for store in {store for path in self.paths.pop(request, ()) for store in stores_of(path)}:
            owners = self.owners[store]
            owners.discard(request)
            if not owners:
                del self.owners[store]

    # --- components ---------------------------------------------------------------------------------

    def component(self, request: RequestId) -> list[RequestId] | None:
        """Requests that share stores with one, itself first; ``None`` where they are more than are looked at."""
        found, pending, stores = {request: None}, [request], set[StoreId]()
        while pending:
            for path in self.paths.get(pending.pop(), ()):
                for store in stores_of(path):
                    if store in stores:
                        continue
                    stores.add(store)
                    for owner in self.owners[store]:
                        if owner not in found:
                            found[owner] = None
                            pending.append(owner)
                            if len(found) > self._limits.requests_max:
                                return None
        return list(found)

    def possible(self, members: Iterable[RequestId]) -> dict[RequestId, tuple[Path, ...]]:
        """The paths of some requests, but for those that the other requests rule out."""
        return {
            name: tuple(path for path in self.paths[name] if path.idle < 0 or self._two_rounds(name, path))
            for name in members
        }

    def _two_rounds(self, name: RequestId, path: Path) -> bool:
        """Whether a batch can hold two rounds of a request, as where a pipeline starts that was idle or had run dry.

        A prompt is cut into chunks where a round has no tokens left; a round with fewer than any engine computes is not full.
        """
        stream = self.streams[path.stream]
        first = stream.store(path.stores[0])
        if first.end >= last_of(self.requests[name], stream):
            return True
        ahead = stream.batch_until(first)
        tokens = stream.block_size * sum(len(placed.keys) + 1 for placed in ahead)
        return tokens > self._limits.round_tokens_min


def _counts(path: Path) -> bool:
    """Whether a path says what the lookup found."""
    return path.hit is not None and path.hit.blocks >= 0


def _admitted(request: Request, path: Path, stream: Stream) -> bool:
    """Whether a path agrees with what is told of the request."""
    if path.hit is None or path.hit.blocks < 0:
        return True
    if (request.skipped and path.hit.blocks) or (request.preempted is False and path.preempted):
        return False
    if request.told_tokens is None:
        return True
    blocks = range(path.hit.blocks, path.hit.blocks + 1)
    if stream.habits.connector and path.stores:  # what is told holds what was loaded, which is stored
        blocks = range(path.hit.blocks, path.hit.blocks + 1 + len(stream.store(path.stores[0]).keys))
    return request.told_tokens // stream.block_size in blocks
