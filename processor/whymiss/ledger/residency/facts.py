"""Late materialisation: answers about many blocks as columns, made into facts when a fact is looked at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import TypeAlias, overload

import msgspec
import numpy as np

from ...model import ChainFacts, Fact, Residency
from ..columnar.kernels import Flags, Integers
from .copies import REMOVALS, STATES, Codes

_Slice: TypeAlias = "slice[int | None, int | None, int | None]"


def states_of(state: Residency, count: int) -> Codes:
    """Index in ``STATES`` of one state, ``count`` times: int8."""
    states = np.empty(count, np.int8)
    states.fill(STATES.index(state))
    return states


@cache
def _others(states: frozenset[Residency]) -> Flags:
    """Which codes mean none of some states: bool, one entry a state."""
    return np.array([state not in states for state in STATES])


class Details(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Columns beside the state, one entry a block; -1 is nothing: int8 removals, int64 ordinals and nanoseconds."""

    removals: Codes
    ordinals: Integers
    nanos: Integers

    @classmethod
    def none_of(cls, count: int) -> Details:
        """Nothing of so many blocks."""
        return cls(np.full(count, -1, np.int8), np.full(count, -1), np.full(count, -1))

    def fill(self, owners: Integers, of_some: Details) -> None:
        """Say those of some blocks."""
        self.removals[owners] = of_some.removals
        self.ordinals[owners] = of_some.ordinals
        self.nanos[owners] = of_some.nanos


class ColumnFacts(ChainFacts):
    """What a record says of many blocks: a sequence of facts that are made when they are looked at.

    Often only the states are: what else there is to say is found with the first fact, so look before the record grows.
    """

    __slots__ = ("_details", "_find", "_states")

    def __init__(self, states: Codes, details: Callable[[], Details]) -> None:
        self._states = states
        self._find = details
        self._details: Details | None = None

    @classmethod
    def all_of(cls, state: Residency, count: int) -> ColumnFacts:
        """The same of all, without a time."""
        return cls(states_of(state, count), lambda: Details.none_of(count))

    @classmethod
    def of_one(cls, fact: Fact) -> ColumnFacts:
        """What is said of one block."""
        removal = -1 if fact.removal is None else REMOVALS.index(fact.removal)
        ordinal, nanos = (-1 if one is None else one for one in (fact.ordinal, fact.at_unix_nanos))
        return cls(
            states_of(fact.state, 1),
            lambda: Details(np.array([removal], np.int8), np.array([ordinal]), np.array([nanos])),
        )

    def _known(self) -> Details:
        if self._details is None:
            self._details = self._find()
        return self._details

    def __len__(self) -> int:
        return self._states.size

    @overload
    def __getitem__(self, index: int) -> Fact: ...
    @overload
    def __getitem__(self, index: _Slice) -> ColumnFacts: ...
    def __getitem__(self, index: int | _Slice) -> Fact | ColumnFacts:
        if isinstance(index, slice):
            return ColumnFacts(self._states[index], lambda: self._some(index))
        details = self._known()
        ordinal, removal = int(details.ordinals[index]), int(details.removals[index])
        return Fact(
            state=STATES[self._states[index]],
            at_unix_nanos=None if ordinal < 0 else int(details.nanos[index]),
            removal=None if removal < 0 else REMOVALS[removal],
            ordinal=None if ordinal < 0 else ordinal,
        )

    def __iter__(self) -> Iterator[Fact]:
        details = self._known()
        columns = (column.tolist() for column in (self._states, details.removals, details.ordinals, details.nanos))
        for state, removal, ordinal, nanos in zip(*columns, strict=True):
            if ordinal < 0:
                yield Fact(state=STATES[state])
            else:
                how = None if removal < 0 else REMOVALS[removal]
                yield Fact(state=STATES[state], at_unix_nanos=nanos, removal=how, ordinal=ordinal)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def _some(self, index: _Slice) -> Details:
        details = self._known()
        return Details(details.removals[index], details.ordinals[index], details.nanos[index])

    def leading(self, states: Collection[Residency]) -> int:
        """How many of the first blocks are in one of these states."""
        wrong = _others(frozenset(states)).take(self._states)
        first = int(wrong.argmax()) if wrong.size else 0
        return first if wrong.size and wrong[first] else len(self)

    def are(self, state: Residency) -> Flags:
        """Which of the blocks are in a state: bool, one entry a block."""
        found: Flags = self._states == STATES.index(state)
        return found


class LazyChainFacts(ChainFacts):
    """The findings on a chain, of which most often only the first is looked at.

    They are of the moment of the first look: do not keep them while the record grows.
    """

    __slots__ = ("_all", "_count", "_find", "_first", "_head")

    def __init__(self, first: Callable[[], Fact], whole: Callable[[], ColumnFacts], count: int) -> None:
        self._first = first
        self._find = whole
        self._count = count
        self._head: Fact | None = None
        self._all: ColumnFacts | None = None

    def _whole(self) -> ColumnFacts:
        if self._all is None:
            self._all = self._find()
        return self._all

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Fact: ...
    @overload
    def __getitem__(self, index: _Slice) -> ColumnFacts: ...
    def __getitem__(self, index: int | _Slice) -> Fact | ColumnFacts:
        if index == 0 and self._count:
            if self._head is None:
                self._head = self._first()
            return self._head
        return self._whole()[index]

    def __iter__(self) -> Iterator[Fact]:
        if self._count:
            yield self[0]
        if self._count > 1:
            yield from islice(self._whole(), 1, None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def leading(self, states: Collection[Residency]) -> int:
        """How many of the first blocks are in one of these states."""
        if not self._count or (self._all is None and self[0].state not in states):
            return 0
        return self._whole().leading(states)
