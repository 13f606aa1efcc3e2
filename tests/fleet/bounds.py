"""Hit ratios of one cache, by policies of the published tables: without end, plain LRU, the model's, clairvoyant."""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict

from tests.fleet.traces import Trace
from whymiss.tools.fleet.cache import Cache, leading


def ideal_hits(trace: Trace) -> dict[str, float]:
    """Hit ratios of one unbounded cache, by each unit that is in use."""
    seen: set[int] = set()
    hits = []
    for ask in trace.asks:
        run = next((index for index, block in enumerate(ask.blocks) if block not in seen), len(ask.blocks))
        seen.update(ask.blocks)
        hits.append(run)
    sizes = [len(ask.blocks) for ask in trace.asks]
    pairs = list(zip(hits, sizes, strict=True))
    tokens = sum(min(hit * trace.block_tokens, ask.input_length) for hit, ask in zip(hits, trace.asks, strict=True))
    return {
        "block": sum(hits) / sum(sizes),
        "token": tokens / sum(ask.input_length for ask in trace.asks),
        "per_request_mean": sum(hit / size for hit, size in pairs) / len(pairs),
        "request_full": sum(hit == size for hit, size in pairs) / len(pairs),
        "request_any": sum(hit > 0 for hit in hits) / len(pairs),
    }


def plain_lru(trace: Trace, capacity: int) -> float:
    """Hit ratio where every block reference is one access."""
    resident: OrderedDict[int, None] = OrderedDict()
    hits = references = 0
    touch, forget = resident.move_to_end, resident.popitem
    for ask in trace.asks:
        references += len(ask.blocks)
        for block in ask.blocks:
            if block in resident:
                hits += 1
                touch(block)
            else:
                resident[block] = None
                if len(resident) > capacity:
                    forget(last=False)
    return hits / references


def prefix_lru(trace: Trace, capacity: int) -> tuple[float, int]:
    """Hit ratio of one worker of the model, and how many requests were longer than its cache."""
    cache = Cache(capacity)
    hits = skipped = references = 0
    for ask in trace.asks:
        references += len(ask.blocks)
        if len(ask.blocks) > capacity:
            skipped += 1
            continue
        hits += leading(cache.resident, ask.blocks)
        cache.touch(ask.blocks, ask.at)
    return hits / references, skipped


def belady(trace: Trace, capacity: int) -> float:
    """Hit ratio of the clairvoyant policy, every block reference being one access."""
    references = [block for ask in trace.asks for block in ask.blocks]
    never = len(references)
    following = [never] * never
    last: dict[int, int] = {}
    for index in range(never - 1, -1, -1):
        following[index] = last.get(references[index], never)
        last[references[index]] = index
    resident: dict[int, int] = {}
    farthest: list[tuple[int, int]] = []
    hits = 0
    for block, then in zip(references, following, strict=True):
        hits += block in resident
        if block not in resident:
            while len(resident) >= capacity:
                when, victim = heapq.heappop(farthest)
                if resident.get(victim) == -when:
                    del resident[victim]
        resident[block] = then
        heapq.heappush(farthest, (-then, block))
    return hits / never


def consecutive_hits(trace: Trace) -> list[float]:
    """Per session the share of blocks that its previous request had, the first request counting as a miss."""
    before: dict[int, tuple[int, ...]] = {}
    shared: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for ask in trace.asks:
        previous = before.get(ask.session, ())
        pairs = zip(previous, ask.blocks, strict=False)
        run = next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(previous), len(ask.blocks)))
        shared[ask.session] += run
        total[ask.session] += len(ask.blocks)
        before[ask.session] = ask.blocks
    return sorted(shared[session] / total[session] for session in total)
