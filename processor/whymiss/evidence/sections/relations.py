"""Blocks that are like the missed one: the same tokens under other keys, the same parent, the same tail.

Equal tokens are looked for where the request was served. Siblings count wherever they are: a block that another worker
saw a sibling of is a branch, wherever it was missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import msgspec

from ...model import (
    Block,
    EqualTokens,
    Identities,
    Peer,
    Reason,
    Repeats,
    Residency,
    Siblings,
    StreamView,
    Tier,
)
from ..missed import Missed
from ..peers import Gap, Peers, first_gap, reason_of

_NO_REPEATS = Repeats(blocks=0)

_LATE_MAX = 16
"""Siblings that are looked at one by one; more of them in one step are not told apart."""


class Relations:
    """Implements ``model.RelationEvidence`` for a block that the serving worker never held."""

    def __init__(self, peers: Peers, *, chain_known: bool, tiered: bool = False) -> None:
        """``tiered`` says that the request had a tier below the device, by its own spans or by those of others."""
        self._peers = peers
        self._tiered = tiered
        self._chain_known = chain_known

    @cached_property
    def equal_tokens(self) -> EqualTokens:
        """The same tokens here under other keys."""
        return equal_tokens(self._peers, tiered=self._tiered)

    @cached_property
    def identities(self) -> Identities:
        """The same tokens and extra keys elsewhere under another key."""
        return found_identities(self._peers, self._peers.all()).evidence()  # guard: facts-identities-unseen

    @cached_property
    def siblings(self) -> Siblings:
        """The same parent, anywhere."""
        return siblings(self._peers, chain_known=self._chain_known)  # guard: facts-siblings-unseen

    @cached_property
    def concurrent(self) -> bool:
        """Whether another request was computing the block at the lookup."""
        missed, others = self._peers.missed, self._peers.that_may_know()
        return is_computed(self._peers, [missed.record, *[peer.record for peer in others]])


class NoRelations(msgspec.Struct, frozen=True):
    """Implements ``model.RelationEvidence`` where nothing is compared."""

    equal_tokens: EqualTokens = EqualTokens()
    identities: Identities = Identities()
    siblings: Siblings = Siblings()
    concurrent: bool = False


# --- the same tokens here -----------------------------------------------------------------------------


def equal_tokens(peers: Peers, *, tiered: bool) -> EqualTokens:
    """What is known of resident blocks with the tokens of the first missed one, and of the block itself."""
    missed = peers.missed
    record, reading, block, key = missed.record, missed.reading, missed.block, missed.chain[0]
    if block is None or block.prefix is None:
        return EqualTokens(equal_gap=_untold(missed, block))  # guard: relatives-tokens
    parent = missed.parent
    if reading.first and (parent is None or record.block(parent) is None):
        # Its parent was hit, so it had been stored; before the record began.
        return EqualTokens(equal_gap=Reason.HISTORY_EXPIRED)  # guard: relatives-parent
    equal = record.same_tokens(key, reading.position)
    if not equal:
        # guard: equal-below
        return below(peers, block) if tiered or record.tiers() else EqualTokens()
    different = [kinds_between(block, other) for other in equal if may_differ(block, other)]
    return EqualTokens(  # guard: relatives-same
        differing_kinds=min(different, key=lambda kinds: (len(kinds), kinds)) if different else None,
        # One process gives one key to one identity: what differs here was not published.
        equal_gap=Reason.NONE if different else Reason.AMBIGUOUS_CHAIN,
        equal_leading=record.same_tokens_leading(missed.chain, reading.position),
    )


def below(peers: Peers, block: Block) -> EqualTokens:
    """What the worker's tiers hold of blocks with the tokens of the missed one that the device had and lost.

    A tier that never named such a block says nothing of it: it may name its blocks in a hash family of its own.
    """
    missed = peers.missed
    gap = Reason.NONE
    for other in peers.stored_like(block):
        if not may_differ(block, other):  # guard: below-differ
            continue
        tiers = missed.record.tiers()
        states = [missed.record.as_of((other.key,), missed.reading.position, tier=tier)[0].state for tier in tiers]
        for tier, state in zip(tiers, states, strict=True):
            # guard: below-resident, below-releases
            if state is Residency.RESIDENT and peers.releases(missed.stream, tier):
                return EqualTokens(differing_kinds=kinds_between(block, other))
        if Residency.EVICTED not in states or len(set(states)) > 1:  # guard: below-left
            gap = Reason.AMBIGUOUS_COPIES
    return EqualTokens(equal_gap=gap)


def _untold(missed: Missed, block: Block | None) -> Reason:
    """Why a block has no tokens to compare.

    What was missed is computed and stored. Where no store of it is known, that is still on its way, or
    the key is of a family that this stream does not speak.
    """
    if block is None and missed.record.confirmed_position(missed.reading.latest) is None:
        return Reason.EVIDENCE_LATE  # guard: strange-late
    return Reason.NO_FIRST_MISS_KEY


def may_differ(block: Block, equal: Block) -> bool:
    """Whether two blocks with the same tokens in one process differ in extra keys.

    They do unless both published the same ones; an adapter's path is hashed but only its name is
    published, so one name can stand for two adapters.
    """
    # guard: differ-extras, differ-lora
    return block.extras is None or block.extras != equal.extras or "lora" in block.kinds


def kinds_between(block: Block, equal: Block) -> tuple[str, ...]:
    """Kinds that differ; where both carry the same kinds, their values do."""
    kinds = set(block.kinds) ^ set(equal.kinds)
    return tuple(sorted(kinds or set(block.kinds)))  # guard: kinds-values


# --- the same tokens and extra keys elsewhere ------------------------------------------------------------


class FoundIdentities(msgspec.Struct, frozen=True, kw_only=True):
    """What some workers held of the same identity; nothing else counts where a gap is."""

    leading: int | None = None
    """Blocks of the chain that the best of them held so."""
    gap: Gap | None = None

    def merged(self, other: FoundIdentities) -> FoundIdentities:
        """What two parts of a fleet held together."""
        gap = first_gap(self.gap, other.gap)
        counts = [count for count in (self.leading, other.leading) if count is not None]
        # guard: identities-gap-first
        return FoundIdentities(leading=None if gap else max(counts, default=None), gap=gap)

    def evidence(self) -> Identities:
        """What is said of the whole view."""
        return Identities(
            same_identity=self.leading is not None, identity_leading=self.leading, identity_gap=reason_of(self.gap)
        )


def found_identities(peers: Peers, some: Sequence[Peer]) -> FoundIdentities:
    """Whether some of the peers held the same tokens and extra keys under another key: unlike hash seeds.

    What was hit before was hit under the worker's own keys, so that says nothing of the other's seed.
    """
    missed = peers.missed
    block, chain = missed.block, missed.chain
    if block is None:
        return FoundIdentities()
    best: int | None = None
    for peer, blocks in peers.like(some, block):
        for equal in blocks:
            if block.extras is not None and equal.extras is not None and equal.extras != block.extras:
                continue  # guard: identity-extras
            # An adapter is hashed by its path, which is not published.
            unclear = block.extras is None or equal.extras is None or "lora" in block.kinds  # guard: identity-lora
            fact = peer.record.as_of((equal.key,), peer.at.before)[0]
            gap = peers.doubt(peer, Tier.DEVICE, equal.key, fact)
            if unclear or gap:  # guard: identity-unclear, identity-doubt
                return FoundIdentities(gap=Gap(peer.stream, gap or Reason.AMBIGUOUS_CHAIN))
            if best != len(chain):  # guard: identity-longest
                content = missed.record.content(chain)
                # guard: identity-best
                best = max(best or 0, 0 if content is None else peer.record.leading_like(content, peer.at.before))
            break
    return FoundIdentities(leading=best)


# --- the same parent ------------------------------------------------------------------------------------


class FoundSiblings(msgspec.Struct, frozen=True, kw_only=True):
    """What some workers knew of blocks under the parent, and of what follows them."""

    known: bool = False
    """Whether there surely was another one."""
    late: Gap | None = None
    """Who may have had one that had not surely come by the lookup, where none is known."""
    repeated: int = 0
    """Blocks of the chain that a sibling's chain surely repeated."""
    unsure: Gap | None = None
    """Whose siblings may have repeated more."""
    complete: bool = True
    """Whether all chains were compared."""

    def merged(self, other: FoundSiblings) -> FoundSiblings:
        """What two parts of a fleet knew together."""
        known = self.known or other.known  # guard: relatives-view
        return FoundSiblings(  # guard: siblings-late-dropped
            known=known,
            late=None if known else first_gap(self.late, other.late),
            repeated=max(self.repeated, other.repeated),
            unsure=first_gap(self.unsure, other.unsure),
            complete=self.complete and other.complete,
        )

    @property
    def gap(self) -> Reason:
        """Why siblings, or chains of them, may not be counted."""
        return reason_of(first_gap(self.late, self.unsure))


_NO_SIBLINGS = FoundSiblings()


def siblings(peers: Peers, *, chain_known: bool) -> Siblings:
    """What the whole view shows of blocks under the same parent, and of what follows them."""
    missed = peers.missed
    own = own_siblings(peers)
    found = own.merged(siblings_among(peers, peers.all(), known=own.known))
    tail_gap = Reason.NONE if found.complete else Reason.AMBIGUOUS_CHAIN
    if not tail_gap and found.known:  # guard: relatives-tail
        tail_gap = _tail_gap(missed, chain_known=chain_known)
    return Siblings(  # guard: relatives-extends, relatives-block-0
        has_siblings=found.known,
        extends=bool(missed.reading.first) and not found.known,
        reconverging=found.repeated,
        tail_gap=tail_gap,
        siblings_gap=found.gap,
    )


def own_siblings(peers: Peers) -> FoundSiblings:
    """What the serving worker knew."""
    missed = peers.missed
    record, position = missed.record, missed.reading.position
    if not _has_siblings(missed, record, position):
        return _NO_SIBLINGS
    tail = peers.tail
    repeats = _NO_REPEATS if tail is None else record.repeats(tail, position)
    # guard: relatives-own-complete
    return FoundSiblings(known=True, repeated=repeats.blocks, complete=repeats.complete)


def siblings_among(peers: Peers, some: Iterable[Peer], *, known: bool = False) -> FoundSiblings:
    """What some of the peers knew; ``known`` says that there is a sibling elsewhere: who may have one does not matter then."""
    found = FoundSiblings()
    for peer in some:
        one = _siblings_on(peers, peer, known=known or found.known)
        found = found if one is _NO_SIBLINGS else found.merged(one)
    return found


def _siblings_on(peers: Peers, peer: Peer, *, known: bool) -> FoundSiblings:
    """What one peer knew. What it may have known matters only where no sibling is ``known``, at a later block."""
    missed, record, at = peers.missed, peer.record, peer.at
    asked = bool(missed.reading.first) and not known  # guard: siblings-block-0
    # A record that grows has no fewer siblings, and repeats no less: one without any at its end had none before.
    end = at.after if at.confirmed is None else at.confirmed  # guard: siblings-unconfirmed, siblings-next-batch
    # At block 0 nearly everybody has siblings, later nearly nobody: the question that settles both comes first.
    surely = not missed.reading.first and _has_siblings(missed, record, at.before)
    if not surely and not _has_siblings(missed, record, end):
        # guard: relatives-late
        late = Gap(peer.stream, Reason.EVIDENCE_LATE) if asked and at.confirmed is None else None
        return _NO_SIBLINGS if late is None else FoundSiblings(late=late)
    surely = surely or _has_siblings(missed, record, at.before)  # guard: siblings-by-then
    late_gap = _late_gap(peers, peer) if asked and not surely else Reason.NONE
    tail = peers.tail
    repeated, possible = 0, _NO_REPEATS if tail is None else record.repeats(tail, end)
    if tail is not None and possible.blocks:
        repeated = record.repeats(tail, at.before).blocks  # guard: siblings-surely
    return FoundSiblings(  # guard: relatives-sibling-gap, relatives-maybe, relatives-complete
        known=surely,
        late=Gap(peer.stream, late_gap) if late_gap else None,
        repeated=repeated,
        unsure=Gap(peer.stream, Reason.CLOCK_SKEW) if repeated != possible.blocks else None,
        complete=possible.complete,
    )


def _has_siblings(missed: Missed, record: StreamView, position: int) -> bool:
    """Whether there was another block under the parent before a position."""
    # Two are enough to tell whether there is another than the block itself.
    children = record.children(missed.parent if missed.reading.first else None, position, limit=2)
    return len(children) > 1 or (len(children) == 1 and children[0] != missed.chain[0])  # guard: relatives-self


def _late_gap(peers: Peers, peer: Peer) -> Reason:
    """Why another worker may have had a sibling that had not surely come by the lookup.

    Holes in its record are the view's.
    """
    if peer.at.confirmed is None:
        return Reason.EVIDENCE_LATE  # guard: siblings-late-known
    missed = peers.missed
    parent = missed.parent if missed.reading.first else None
    late = peer.record.children(parent, peer.at.confirmed, limit=_LATE_MAX)
    others = [key for key in late if key != missed.chain[0]]  # guard: siblings-itself
    # guard: siblings-many, siblings-later-work
    later = len(late) < _LATE_MAX and all(peers.of_later_work(peer, Tier.DEVICE, key) for key in others)
    return Reason.NONE if later else Reason.CLOCK_SKEW  # guard: relatives-later


def _tail_gap(missed: Missed, *, chain_known: bool) -> Reason:
    """Why blocks behind the first may repeat a sibling's although none is known to."""
    if not chain_known:  # guard: tail-chain
        return Reason.NO_FIRST_MISS_KEY
    tail = missed.reading.chain[1:]
    known = missed.record.tokens_known(tail)
    return Reason.NONE if known == len(tail) else _untold(missed, missed.record.block(tail[known]))


# --- the same block, in another request's prefill -----------------------------------------------------------


def is_computed(peers: Peers, records: Iterable[StreamView]) -> bool:
    """Whether a request that was in its prefill on some workers at the lookup stored the block after it."""
    missed, reading = peers.missed, peers.missed.reading
    for record in records:
        own = reading.position if record.stream == missed.stream else None  # guard: computing-own-stream
        # guard: computing-decodes
        for until in peers.log.prefilling(record.stream.worker, reading.latest, reading.decodes):
            stores = record.stores_between(reading.latest, until)
            if record.stream == missed.stream and reading.stored_unix_nanos is not None:
                stores = [store for store in stores if store.unix_nanos != reading.stored_unix_nanos]
            # guard: computing-own, computing-key
            if any(missed.chain[0] in store.keys and store.position != own for store in stores):
                return True
    return False
