"""Covers of a component: one path a request, and each store on exactly one of them.

A search for one cover: forced moves first, then a store with one possible owner, then the request with the fewest paths;
states without a cover are remembered. Stores of one batch belong to different requests, so there must be a matching of
stores to requests: without that test pigeonholes cost n!. A search that exceeds its steps raises `Bounded`; the first
cover found is never an answer to what all covers agree on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from .order import compatible
from .path import Path
from .values import Limits, Request, RequestId

StoreId = tuple[int, int]
"""Index of a stream, and number of a store in it."""

Cover = dict[RequestId, Path]
Options = dict[RequestId, Sequence[Path]]


PATHS_A_STEP = 32
"""A step looks at every path that is still possible: with many of them it counts as several."""


class Bounded(Exception):
    """The search was given up."""


class Budget:
    """The steps that are left for one question."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self, options: Options) -> None:
        """Take one step over some paths. Raises `Bounded` when none is left."""
        self._left -= 1 + sum(map(len, options.values())) // PATHS_A_STEP
        if self._left < 0:
            raise Bounded


def stores_of(path: Path) -> list[StoreId]:
    """The stores of a path, named among all streams."""
    return [(path.stream, number) for number in path.stores]


class Covers:
    """The covers of one component.

    ``mandatory`` are stores that must lie on a path: all of the component where every request of it is seen, and none where
    requests may be unseen.
    """

    def __init__(
        self,
        requests: Mapping[RequestId, Request],
        paths: Mapping[RequestId, Sequence[Path]],
        mandatory: Mapping[StoreId, int],
        limits: Limits,
        budget: Budget,
    ) -> None:
        """``mandatory`` tells the batch of each store."""
        self._requests, self._paths, self._mandatory, self._limits = requests, paths, mandatory, limits
        self._budget = budget
        self._dead: set[tuple[frozenset[StoreId], frozenset[tuple[RequestId, tuple[int, ...]]]]] = set()

    def find(self, fixed: Mapping[RequestId, Sequence[Path]] | None = None) -> Cover | None:
        """One cover in which some requests have only certain paths; ``None`` if there is none. Raises `Bounded`."""
        self._dead = set()
        options: Options = {request: (fixed or {}).get(request, paths) for request, paths in self._paths.items()}
        return self._search(options, frozenset(self._mandatory))

    def _search(self, options: Options, pending: frozenset[StoreId]) -> Cover | None:
        options, chosen = dict(options), Cover()
        while (forced := next((request for request, paths in options.items() if len(paths) <= 1), None)) is not None:
            if not options[forced]:
                return None
            self._budget.spend(options)
            path = options.pop(forced)[0]
            chosen[forced] = path
            pending -= set(stores_of(path))
            for other, paths in options.items():
                options[other] = [one for one in paths if self._together(forced, path, other, one)]
        if not options:
            return None if pending else chosen
        found = self._branch(options, pending)
        return None if found is None else {**chosen, **found}

    def _branch(self, options: Options, pending: frozenset[StoreId]) -> Cover | None:
        self._budget.spend(options)
        owners = _owners(options)
        if any(store not in owners for store in pending):
            return None
        for store in pending:
            if len(owners[store]) == 1:
                request = next(iter(owners[store]))
                kept = [path for path in options[request] if store in stores_of(path)]
                if len(kept) < len(options[request]):
                    return self._search({**options, request: kept}, pending)
        if not self._enough(options, pending):
            return None
        state = (pending, frozenset((request, tuple(map(id, paths))) for request, paths in options.items()))
        if state in self._dead:
            return None
        request = min(options, key=lambda one: len(options[one]))
        for path in options[request]:
            found = self._search({**options, request: [path]}, pending)
            if found is not None:
                return found
        self._dead.add(state)
        return None

    def _together(self, first: RequestId, its: Path, second: RequestId, other: Path) -> bool:
        if its.stream == other.stream and its.stores and not set(its.stores).isdisjoint(other.stores):
            return False
        return compatible(self._requests[first], its, self._requests[second], other, self._limits)

    def _enough(self, options: Options, pending: frozenset[StoreId]) -> bool:
        """Whether each batch's stores can be given to different requests."""
        batches: defaultdict[tuple[int, int], set[StoreId]] = defaultdict(set)
        for store in pending:
            batches[store[0], self._mandatory[store]].add(store)
        return all(len(stores) < 2 or _matches(stores, options) for stores in batches.values())


def _owners(options: Options) -> dict[StoreId, set[RequestId]]:
    owners: defaultdict[StoreId, set[RequestId]] = defaultdict(set)
    for request, paths in options.items():
        for path in paths:
            for store in stores_of(path):
                owners[store].add(request)
    return dict(owners)


def _matches(stores: set[StoreId], options: Options) -> bool:
    able: defaultdict[StoreId, set[RequestId]] = defaultdict(set)
    for request, paths in options.items():
        for path in paths:
            here = [store for store in stores_of(path) if store in stores]
            if len(here) > 1:  # two rounds, or a loaded part and a computed one, in one batch
                return True
            for store in here:
                able[store].add(request)
    taken: dict[RequestId, StoreId] = {}

    def give(store: StoreId, tried: set[RequestId]) -> bool:
        for request in able[store]:
            if request not in tried:
                tried.add(request)
                if request not in taken or give(taken[request], tried):
                    taken[request] = store
                    return True
        return False

    return all(give(store, set()) for store in stores)
