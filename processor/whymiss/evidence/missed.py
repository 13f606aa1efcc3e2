"""The missed blocks of one reading, as its sections ask about them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..model import Block, ChainFacts, Fact, Reason, Residency, StreamId, StreamView
from .hypotheses import Reading

HELD = frozenset({Residency.RESIDENT})
HELD_OR_LOST = frozenset({Residency.RESIDENT, Residency.EVICTED})
PERHAPS_UNSEEN = frozenset(Residency) - HELD_OR_LOST


class Missed(msgspec.Struct, frozen=True, kw_only=True):
    """What a reading missed on the worker that served it."""

    reading: Reading
    stream: StreamId
    """Whose lookup it was."""
    record: StreamView
    chain: tuple[int, ...]
    """Expected keys from the first missed block on, up to the last block that can match; one at least."""
    complete: bool
    """Whether none of them is missing."""
    block: Block | None
    """The identity of the first, where the record has seen it stored."""
    parent: int | None
    """The block in front of it, where that is known."""
    since: int
    """Where the window before the lookup begins, in Unix nanoseconds."""

    @classmethod
    def of(cls, reading: Reading, record: StreamView, prompt_tokens: int | None, window: int) -> Missed:
        """What a reading with a chain missed; ``window`` is in nanoseconds."""
        chain, complete = matchable(reading, prompt_tokens)  # guard: likeness-matchable
        block, parent = record.block(chain[0]), reading.last_hit_key
        if parent is None and block is not None:
            parent = block.parent
        return cls(
            reading=reading,
            stream=record.stream,
            record=record,
            chain=chain,
            complete=complete,
            block=block,
            parent=parent,
            since=reading.latest - window,
        )

    def history_gap(self, record: StreamView) -> Reason:
        """Why nothing negative can be said from a record about the window before the lookup."""
        return record.coverage(self.since, self.reading.latest).gap_since(self.since)

    def in_window(self, fact: Fact) -> bool:
        """Whether what a fact tells of happened within the window before the lookup.

        Records keep somewhat more, each its own amount: compared beyond the window, one would tell of a time
        that another has forgotten.
        """
        return fact.at_unix_nanos is None or fact.at_unix_nanos >= self.since  # guard: window-known, window-begin


def matchable(reading: Reading, prompt_tokens: int | None) -> tuple[tuple[int, ...], bool]:
    """The expected keys up to the last block that can match, and whether none of them is missing."""
    if prompt_tokens is None:
        return reading.chain, reading.chain_known
    wanted = max(1, (prompt_tokens - 1) // reading.block_size - reading.first)  # guard: chain-matchable
    return reading.chain[:wanted], len(reading.chain) >= wanted  # guard: chain-complete


def leading(states: Sequence[Fact], wanted: frozenset[Residency]) -> int:
    """How many facts from the first on are of the wanted states."""
    if isinstance(states, ChainFacts):
        return states.leading(wanted)
    count = 0
    for fact in states:
        if fact.state not in wanted:
            break
        count += 1
    return count


def gap_after(states: Sequence[Fact], count: int, history_gap: Reason) -> Reason:
    """Why the fact behind the leading ones may be like them all the same."""
    if count >= len(states):
        return Reason.NONE
    match states[count].state:
        case Residency.AMBIGUOUS:
            return Reason.AMBIGUOUS_COPIES  # guard: gap-ambiguous
        case Residency.UNKNOWN:
            return history_gap or Reason.EVENTS_DROPPED  # guard: gap-unknown
        case Residency.NEVER_SEEN:
            return history_gap  # guard: gap-unseen
        case Residency.RESIDENT | Residency.EVICTED:
            return Reason.NONE


def skipped(states: Sequence[Fact], count: int) -> Reason:
    """Why a block that was never seen does not end a dense chain on the device: a later block of it was seen.

    A block is stored after its parent, so its key is not what was published, or the later ones are not of this chain.
    ``count`` is the index of the block behind the leading ones.
    """
    if count >= len(states) or states[count].state is not Residency.NEVER_SEEN:
        return Reason.NONE
    later = states[count + 1 :]
    # guard: skipped-later
    return Reason.NONE if leading(later, PERHAPS_UNSEEN) == len(later) else Reason.AMBIGUOUS_CHAIN


def is_dense(record: StreamView) -> bool:
    """Whether what a record is asked for first is a dense group, in which no block is without its parent."""
    groups = record.groups()
    return not groups or groups[0].dense  # guard: skipped-dense


def certain(
    states: Sequence[Fact], wanted: frozenset[Residency], history_gap: Reason, *, dense: bool = False
) -> int | None:
    """How many leading facts are of the wanted states; ``None`` where one behind them may be too."""
    count = leading(states, wanted)
    # guard: certain-gap, skipped-elsewhere
    return None if gap_after(states, count, history_gap) or (dense and skipped(states, count)) else count
