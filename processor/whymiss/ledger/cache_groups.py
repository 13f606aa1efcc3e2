"""Column families: the KV-cache groups of one stream (dense, sliding window, Mamba) and the tiers, as its stores describe them."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import GroupSpec, Tier
from .events import Stored


class CacheGroups:
    """What is known of a stream's groups, and the tiers that it names."""

    def __init__(self) -> None:
        self.specs: dict[int, GroupSpec] = {}
        self.tiers: set[Tier] = set()
        self.releasing: set[Tier] = set()
        """Tiers below the device of which removals were published: what was stored in another one may long have left it."""
        self.block_size: int | None = None
        """Tokens a block of the dense group."""
        self.pairs = False
        """Whether a dense group's token ids are pairs of a token and the next one, in the present life (EAGLE)."""
        self.known: set[int] = set()
        """Groups described since the publisher began its present life."""
        self._listed: list[GroupSpec] | None = None
        self._last: tuple[int, int, bool] | None = None
        self.rooted: set[int] = set()
        """Groups of which a store began at a root in the present life: its size is the group's."""
        self.other_sizes = False
        """Whether a dense group stored blocks of another size than its own: ends of prompts, which are no chains."""

    def learn(self, event: Stored) -> bool:
        """Take in what a store says of its group; returns whether the group is dense."""
        last = self._last
        if (
            last is not None
            and last[0] == event.group
            and last[1] == event.block_size
            and event.tier is Tier.DEVICE
            and self.pairs >= event.pairs
        ):
            return last[2]
        if event.tier is not Tier.DEVICE:
            self.tiers.add(event.tier)
        spec = self.specs.get(event.group)
        if event.placeholder or event.tier is not Tier.DEVICE:  # guard: groups-placeholder, groups-tier
            return (spec or GroupSpec(group=event.group, kind=event.kind)).dense
        if spec is not None and self._is_of_another_size(event, spec):
            self.other_sizes = True
            return False
        if event.parent is None:
            self.rooted.add(event.group)
        if spec is None or event.group not in self.known or spec.block_size != event.block_size:
            # A group keeps its kind for a life: only a restart can bring another model.
            kind = spec.kind if spec is not None and event.group in self.known else event.kind  # guard: groups-kind
            spec = GroupSpec(group=event.group, kind=kind, block_size=event.block_size, window=event.sliding_window)
            self.specs[event.group] = spec
            self.known.add(event.group)
            self._listed = None
        dense = spec.dense
        if dense:  # guard: groups-dense-size
            self.block_size = event.block_size
            self.pairs |= event.pairs  # guard: groups-pairs
        self._last = (event.group, event.block_size, dense)
        return dense

    def _is_of_another_size(self, event: Stored, spec: GroupSpec) -> bool:
        """Whether a store is no chain of its dense group: the group's size is that of its first store from a root."""
        if event.group not in self.known or not spec.dense or spec.block_size == event.block_size:
            return False
        return event.group in self.rooted or event.parent is not None  # guard: groups-other-size

    def is_news(self, event: Stored) -> bool:
        """Whether a store says something of a group or a tier that is not known, or is not so at present."""
        last = self._last
        if (
            last is not None
            and last[0] == event.group
            and last[1] == event.block_size
            and event.tier is Tier.DEVICE
            and self.pairs >= event.pairs
        ):
            return False
        if event.tier is not Tier.DEVICE:
            return event.tier not in self.tiers  # guard: news-tier
        if event.placeholder:  # guard: news-placeholder
            return False
        spec = self.specs.get(event.group)
        if spec is not None and self._is_of_another_size(event, spec):
            return not self.other_sizes
        # guard: news-life, news-size
        if spec is None or event.group not in self.known or spec.block_size != event.block_size:
            return True
        if spec.dense and event.pairs and not self.pairs:  # guard: news-pairs
            return True
        return spec.dense and self.block_size != event.block_size  # guard: news-dense

    def listed(self) -> Sequence[GroupSpec]:
        """The groups, dense ones first."""
        if self._listed is None:
            # guard: groups-dense-first
            self._listed = sorted(self.specs.values(), key=lambda spec: (not spec.dense, spec.group))
        return self._listed

    @property
    def dense(self) -> int:
        """Number of the dense group; 0 before it is known."""
        listed = self.listed()
        return listed[0].group if listed else 0

    def forget_life(self) -> None:
        """The publisher began anew: its next stores describe the groups again."""
        self.known.clear()  # guard: groups-life
        self.rooted.clear()
        self.pairs = False  # guard: groups-life-pairs
        self._last = None
