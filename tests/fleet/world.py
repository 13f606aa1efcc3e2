"""What is so in the whole fleet, and from it why a block was missed.

This is the simulator's own knowledge. It shares nothing with the service that is being tested but the words of
the table of causes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias

from tests.fleet.caches import Cache, Gone, Sweep
from tests.fleet.pool import Operation, Pool, Removed, is_state
from tests.fleet.prompts import Prompt
from tests.fleet.routers import Decision
from tests.fleet.seeds import Seeds
from tests.fleet.spec import SECOND, FleetSpec, Truth
from tests.fleet.tier import Found, Tier

INDEX_LAG = SECOND
"""An index may be this old without being stale (the service's default)."""


Row: TypeAlias = "tuple[str, str, str, int | None]"
"""Cause, reason, label of the published tables, and what the fix would have saved in blocks."""


class Asked(NamedTuple):
    """One lookup, about to be judged."""

    worker: int
    pool: Pool
    tier: Tier | None
    found: Found
    prompt: Prompt
    route: Decision
    routed: int
    at: int


class World:
    """All caches, and the tree of all blocks that were ever stored."""

    def __init__(self, spec: FleetSpec) -> None:
        self._spec = spec
        self.caches = [Cache() for _ in range(spec.engines)]
        self.children: defaultdict[int | None, list[int]] = defaultdict(list)
        self.own: dict[int, int] = {}
        self.plain: dict[int, int] = {}
        self._seeds = Seeds(spec)
        self._swept_promises: dict[int, tuple[int, int]] = {}
        """By request, when a router promised a block that a sweep had taken by the lookup, and when that was."""
        self._tolerance = round(spec.clock_tolerance_seconds * SECOND)
        self._window = None if spec.window_seconds is None else round(spec.window_seconds * SECOND)
        injection = spec.injection
        self._keyed = bool(injection.salted or injection.adapted)
        self._edited = bool(injection.edited)

    # --- what happens -------------------------------------------------------------------------------

    def publish(self, worker: int, operations: Iterable[Operation], prompts: Mapping[int, Prompt], at: int) -> int:
        """A batch takes effect; returns its number at this worker."""
        cache = self.caches[worker]
        number = len(cache.batches)
        cache.batches.append(at)
        for one in operations:
            if isinstance(one, Removed):
                if not is_state(one.key):
                    self._remove(cache, one.key, at, number)
                continue
            if one.ends:
                continue
            prompt = prompts[one.number]
            for index in range(one.start, one.end):
                self._store(cache, prompt, index, number)
        return number

    def _remove(self, cache: Cache, key: int, at: int, number: int) -> None:
        cache.operations[key].append(2 * number)
        cache.copies[key] -= 1
        if not cache.copies[key]:
            del cache.copies[key]
            cache.gone[key] = Gone(at, "capacity")
            if self._keyed:
                cache.plains[self.plain[key]].discard(key)

    def _store(self, cache: Cache, prompt: Prompt, index: int, number: int) -> None:
        key = prompt.keys[index]
        cache.operations[key].append(2 * number + 1)
        cache.copies[key] = cache.copies.get(key, 0) + 1
        cache.gone.pop(key, None)
        if key not in self.own:
            self.own[key], self.plain[key] = prompt.own[index], prompt.plain[index]
            self.children[prompt.parent(index)].append(key)
            self._seeds.name(prompt, index)
        if self._keyed:
            cache.plains[prompt.plain[index]].add(key)

    def sweep(self, worker: int, at: int, how: str) -> None:
        """A worker lost its whole cache; it will say so with its next batch."""
        cache = self.caches[worker]
        cache.gone.update(dict.fromkeys(cache.copies, Gone(at, how)))
        cache.copies.clear()
        cache.plains.clear()
        cache.sweeps.append(Sweep(at, how, len(cache.batches)))

    # --- why a block was missed -----------------------------------------------------------------------

    def judge(self, truth: Truth, asked: Asked) -> None:
        """Write the cause of one lookup into its truth; the first row of the table that holds is it."""
        prompt = asked.prompt
        first, matchable = truth.block_index, asked.found.matchable
        if prompt.length < self._spec.block_size * self._spec.unit_blocks:
            truth.cause, truth.label, truth.lost_tokens = "below_match_unit", "F", 0
            return
        if first >= matchable:
            truth.cause, truth.label, truth.lost_tokens = "none", "F", 0
            return
        chain = prompt.keys[first:matchable]
        truth.first_key = chain[0]
        truth.recomputed_blocks = len(chain)
        cause, reason, label, lost = self._cause(asked, first, chain)
        truth.cause, truth.reason, truth.label = cause, reason, label
        gone = self.caches[asked.worker].gone.get(chain[0])
        if gone is not None and gone.how != "capacity" and self._promised(asked, first):
            self._swept_promises[truth.number] = asked.routed, gone.at
        if self._window is not None:
            truth.in_window, *_ = self._cause(asked, first, chain, asked.at - self._window)
        truth.lost_tokens = None if lost is None else lost * self._spec.block_size

    def _cause(self, asked: Asked, first: int, chain: Sequence[int], since: int = 0) -> Row:
        return (
            self._by_engine(asked, first, chain)
            or self._spoilt(asked, chain[0])
            or self._by_record(asked, first, chain, since)
            or self._never_stored(asked, first, chain, since)
        )

    def _by_engine(self, asked: Asked, first: int, chain: Sequence[int]) -> Row | None:
        """The request opted out, or the block is here and the engine made nothing of it."""
        if asked.found.opted_out:
            return "cache_disabled", "", "F", asked.found.dense - first
        if chain[0] not in asked.pool:
            return None
        unit, ahead = self._spec.unit_blocks, asked.found.dense - first
        if self._spec.eagle:
            return "speculative_replay", "", "F", 1
        if 0 < ahead < unit:
            return "below_match_unit", "", "F", 0
        if self._spec.sparse:
            return "sparse_retention", "", "F", asked.found.dense // unit * unit - first
        return "lookup_failure", "", "F", ahead

    def _by_record(self, asked: Asked, first: int, chain: Sequence[int], since: int) -> Row | None:
        """Somebody holds the block, held it, or promised it."""
        here, key, route, offer = self.caches[asked.worker], chain[0], asked.route, asked.found.offer
        others = [cache for index, cache in enumerate(self.caches) if index != asked.worker]
        promised = self._promised(asked, first)
        # A key that the record still has was taken by another request of the same step.
        gone = (here.gone.get(key) if here.held(key, since) else None) or (
            Gone(asked.at, "capacity") if key in here.copies else None
        )
        if promised and route.predicted is not None and (gone is None or gone.at + INDEX_LAG < asked.routed):
            return "stale_index", "", "L" if gone else "N", min(route.predicted - first, len(chain))
        if asked.tier is not None and key in asked.tier and offer is not None and offer.status == "none":
            return "tier_unreachable", "", "L", asked.tier.leading(chain)
        held = max((other.leading(chain) for other in others), default=0)
        if held:
            return "routing_miss", self._routing_reason(first, route), "H", held
        if gone is not None:
            reason = "after_route" if promised and gone.at > asked.routed else gone.how
            return "evicted", reason, "L", here.leading(chain, once=True, since=since)
        lost = max((other.leading(chain, once=True, since=since) for other in others), default=0)
        if lost:
            return "evicted_elsewhere", "", "E", lost
        return None

    def _promised(self, asked: Asked, first: int) -> bool:
        """Whether the router said that it expected the first missed block here."""
        predicted = asked.route.predicted
        return predicted is not None and predicted > first and self._spec.router_spans

    def _spoilt(self, asked: Asked, key: int) -> Row | None:
        """A tier promised the block and did not deliver it."""
        offer = asked.found.offer
        if offer is None or asked.tier is None or key not in asked.tier:
            return None
        cause = {"timeout": "transfer_timeout", "failed": "transfer_failed", "stale": "stale_index"}.get(offer.status)
        return None if cause is None else (cause, "", "L", offer.found - offer.loaded)

    def _routing_reason(self, first: int, route: Decision) -> str:
        if not self._spec.router_spans:
            return ""
        if route.pinned:
            return "pinned"
        if route.predicted is None:
            return ""
        return "holder_known" if (route.best or 0) > first else "holder_unknown"

    def _never_stored(self, asked: Asked, first: int, chain: Sequence[int], since: int) -> Row:
        here, prompt = self.caches[asked.worker], asked.prompt
        others = (key for key in self.children[prompt.parent(first)] if key != chain[0] and self._known(key, since))
        # Which they are matters only where tokens were changed.
        siblings = list(others if self._edited else islice(others, 1))
        label = ("B" if siblings else "X") if first else "R"
        equals = self._equal_tokens(here, prompt, first)
        if equals:
            count = 0
            while count < len(chain) and self._equal_tokens(here, prompt, first + count):
                count += 1
            return "extra_key_mismatch", "", label, count
        unlike = self._under_other_seeds(asked, range(first, first + len(chain)))
        if unlike:
            return "identity_mismatch", "", label, unlike
        changed = self._reconverging(prompt, first, len(chain), siblings)
        if changed:
            return "token_divergence", "", label, 1 + changed
        if label == "X":
            return "new_content", "", label, 0
        return "no_recent_match", "branch" if label == "B" else "first_seen", label, 0

    def _known(self, key: int, since: int) -> bool:
        return any(cache.held(key, since) for cache in self.caches)

    def _equal_tokens(self, here: Cache, prompt: Prompt, index: int) -> set[int]:
        """Keys that are resident here for the same tokens under other extra keys."""
        if not self._keyed:
            return set()
        return here.plains.get(prompt.plain[index], set()) - {prompt.keys[index]}

    def _under_other_seeds(self, asked: Asked, blocks: range) -> int:
        """How many of these blocks another worker holds under the keys of its own hash seed; the most of any."""
        others = ((worker, cache) for worker, cache in enumerate(self.caches) if worker != asked.worker)
        return max((self._seeds.leading(worker, cache, asked.prompt, blocks) for worker, cache in others), default=0)

    def _reconverging(self, prompt: Prompt, first: int, count: int, siblings: Sequence[int]) -> int:
        """Later blocks whose own tokens are those of a sibling's chain at the same index; the most of any chain."""
        if not self._edited:
            return 0
        best = 0
        own = prompt.own[first]
        stack = [(key, first + 1, 0) for key in siblings if self.own[key] != own]
        while stack:
            key, index, same = stack.pop()
            best = max(best, same)
            if index < min(len(prompt.own), first + count):
                stack.extend(
                    (child, index + 1, same + (self.own[child] == prompt.own[index])) for child in self.children[key]
                )
        return best

    # --- what the evidence cannot show ------------------------------------------------------------------

    def review(self, truth: Truth, worker: int, end: int, skews: Sequence[int]) -> None:
        """Mark what evidence was lost, or never showed an order, once everything has happened."""
        for index, cache in enumerate(self.caches):
            if index != worker and truth.first_key is None:
                continue
            at = truth.at_unix_nanos
            before = bisect_right(cache.batches, at) - 1
            after = bisect_right(cache.batches, end if index == worker else at + self._tolerance)
            key = None if truth.first_key is None else self._seeds.key_at(index, truth.first_key)
            operations = [] if key is None else cache.operations.get(key, [])
            if index != worker:
                apart = skews[worker] - skews[index]
                near = bisect_right(cache.batches, at - self._tolerance + min(0, apart))
                far = bisect_right(cache.batches, at + self._tolerance + max(0, apart))
                if bisect_left(operations, 2 * near) != bisect_right(operations, 2 * far + 1):
                    truth.undecided = True
            last = before if truth.first_key is None else _basis(operations, before)
            if cache.lost(last, after) or any(
                number // 2 in cache.dropped for number in operations if number // 2 <= after
            ):
                truth.touched.add("drop")
            for sweep in cache.sweeps:
                told = cache.batches[sweep.told] if sweep.told < len(cache.batches) else end
                if sweep.at - self._tolerance <= at <= told + self._tolerance:
                    truth.touched.add(sweep.how)
        self._review_promise(truth, self.caches[worker])

    def _review_promise(self, truth: Truth, here: Cache) -> None:
        """Mark where a sweep leaves open whether a promise was broken when it was made.

        A sweep is published with the next batch: what is seen is only that it came after the batch before that one.
        """
        promised, swept = self._swept_promises.get(truth.number, (0, 0))
        for sweep in here.sweeps:
            if sweep.at == swept:
                earliest = here.batches[sweep.told - 1] if sweep.told else 0
                latest = here.batches[sweep.told] if sweep.told < len(here.batches) else truth.at_unix_nanos
                if earliest - self._tolerance <= promised - INDEX_LAG <= latest + self._tolerance:
                    truth.touched.add(sweep.how)


def _basis(operations: Sequence[int], before: int) -> int:
    """The batch from which on a record must be whole to show a key's state after batch ``before``; -1: the first.

    A store shows that the key is there. A removal shows that it is gone only if no copy can have been missed.
    """
    place = bisect_right(operations, 2 * before + 1)
    return operations[place - 1] // 2 if place and operations[place - 1] % 2 else -1
