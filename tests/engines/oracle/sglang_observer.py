"""What SGLang's tree held at a lookup, and what was ever in it; asked of the tree itself, which does not change by it."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from sglang.srt.mem_cache.radix_cache import RadixKey

from .truth import History, Judged, Key, Lookup, judge


@dataclass(frozen=True)
class Namespace:
    """What separates equal tokens in the tree."""

    extra_key: str | None = None
    salt: str | None = None

    @property
    def published(self) -> Namespace:
        """As far as a published hash tells: it leaves the extra key out, and has the salt in."""
        return Namespace(None, self.salt)


class _Device:
    """Keys whose whole chain is on the device now: in the namespace that a key names, or in any."""

    def __init__(self, tree: Any, observer: Observer, anywhere: bool) -> None:
        self._tree, self._observer, self._anywhere = tree, observer, anywhere

    def __contains__(self, key: object) -> bool:
        namespace, number = cast("tuple[Namespace, int]", key)
        if number not in self._observer.chains:
            return False
        tokens, units = self._observer.chains[number]
        spaces = {namespace}
        if self._anywhere:
            spaces = {one for one in self._observer.namespaces if one.published == namespace}
        return any(self._holds(space, tokens, units) for space in spaces)

    def _holds(self, space: Namespace, tokens: Sequence[int], units: int) -> bool:
        count = units + self._observer.pair
        key = RadixKey(array("q", tokens[:count]), space.extra_key, cache_salt=space.salt)
        return bool(self._tree.match_full_device_prefix(key)[0] >= units)


class Observer:
    """Keeps each request's admitted lookup with what follows from the tree's state then."""

    def __init__(self, tree: Any, page: int, *, pairs: bool, published: Callable[[], int]) -> None:
        self._tree, self._page, self._published = tree, page, published
        self.pair = int(pairs)
        self.history, self._merged = History(page), History(page)
        self.namespaces: set[Namespace] = set()
        self.chains: dict[int, tuple[Sequence[int], int]] = {}
        """What a chain's number stands for: tokens, and how many of their units (tokens, or pairs) it spans."""
        self._spaces: dict[int, set[Namespace]] = {}
        self.admissions: list[dict[str, Any]] = []

    def _units(self, tokens: Sequence[int]) -> list[Any]:
        return list(itertools.pairwise(tokens)) if self.pair else list(tokens)

    def _numbers(self, tokens: Sequence[int], count: int) -> list[int]:
        numbers = []
        number = 0
        for index in range(count):
            units = (index + 1) * self._page
            number = hash((number, *tokens[index * self._page : units + self.pair]))
            self.chains.setdefault(number, (tokens, units))
            numbers.append(number)
        return numbers

    def stored(self, namespace: Namespace, tokens: Sequence[int]) -> None:
        """The tree took all whole pages of these tokens."""
        units = self._units(tokens)
        numbers = self._numbers(tokens, len(units) // self._page)
        self.namespaces.add(namespace)
        own = [(namespace, one) for one in numbers]
        merged = [(namespace.published, one) for one in numbers]
        for index, number in enumerate(numbers):
            self._spaces.setdefault(number, set()).add(namespace)
            self.history.store(own, units, index)
            self._merged.store(merged, units, index)

    def admitted(self, name: str, namespace: Namespace, tokens: Sequence[int], hit: int) -> Judged:
        """``hit`` counts units from the device and those that are loaded back."""
        units = self._units(tokens)
        numbers = self._numbers(tokens, len(units) // self._page)
        own: list[Key] = [(namespace, one) for one in numbers]
        lookup = Lookup(keys=own, tokens=units, hit_tokens=hit, unit=self._page, dense_tokens=hit)
        judged = judge(self.history, _Device(self._tree, self, anywhere=False), lookup)
        decidable = judged.first_missed is None or self._decidable(judged, numbers, namespace, lookup)
        self.admissions.append(
            {
                "request_id": name,
                "prompt_tokens": len(tokens),
                "hit": hit,
                "extra_key": namespace.extra_key,
                "cache_salt": namespace.salt,
                "batch": self._published(),
                "first_missed": judged.first_missed,
                "state": judged.state,
                "judged": list(judged.causes),
                "decidable": decidable,
            }
        )
        return judged

    def _decidable(self, judged: Judged, numbers: list[int], namespace: Namespace, lookup: Lookup) -> bool:
        """Whether published hashes can tell: no other extra key had the missed page, and none changes the answer."""
        first = judged.first_missed or 0
        public = namespace.published
        if any(one.published == public and one != namespace for one in self._spaces.get(numbers[first], ())):
            return False
        merged = replace(lookup, keys=[(public, one) for one in numbers])
        return judge(self._merged, _Device(self._tree, self, anywhere=True), merged).causes == judged.causes
