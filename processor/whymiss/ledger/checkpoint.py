"""Checkpoint: the segments of all streams as checksummed chunks, and back.

A checkpoint is a sequence of chunks: a length, a checksum of the chunk and its number, and the chunk itself. The first
says which version wrote it and under which key, the last how many streams there were and what stands for the
blocks of references; between them each stream has one chunk about itself and one for each of its segments.
Whatever does not fit is ``BadInput`` with the offset of the chunk, and leaves the ledger as it was.

Digests compare under one key only. A checkpoint names the key by a digest of its own and never holds it: who
keeps the key keeps it elsewhere. Under another key nothing is read, for a block without its digests would
look like one that was never stored.

Batches that wait behind a gap are not written: the gap is still there when the publisher is followed again.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import BadInput
from ..model import GroupSpec, Hole, StreamId, Tier
from .columnar.kernels import Integers
from .compaction.merge import level_of
from .events import Keys
from .hashing import Digester
from .ledger import Ledger
from .residency.resets import Reset
from .segment.chain_table import PIECE, ChainTable
from .segment.operations import Run
from .segment.segment import Segment
from .sequencer import Sequencer
from .stream import StreamRecord

VERSION = 3
"""Of the chunks; a checkpoint of another version is not read."""

BYTE_ORDER = "little" if np.uint16(1).tobytes() == b"\x01\x00" else "big"
"""Columns are written as they are in memory."""

_MAGIC = b"whymiss ledger\n"
_HEAD = 4 + 16


class _Opening(msgspec.Struct, array_like=True):
    version: int
    byte_order: str
    key: int
    unix_nanos: int


class _Closing(msgspec.Struct, array_like=True):
    streams: int
    translated: dict[str, int]


class _Stream(msgspec.Struct):
    """One stream without its segments."""

    worker: str
    rank: int
    model: str | None
    from_birth: bool
    begins_unix_nanos: int
    end: int
    last: int
    incarnation: int | None
    silent_seconds: float
    holes: list[Hole]
    resets: list[Reset] = msgspec.field(name="barriers")
    specs: list[GroupSpec]
    known: list[int]
    tiers: list[Tier]
    releasing: list[Tier]
    block_size: int | None
    kinds: list[tuple[str, ...]]
    nanos: bytes
    ends: bytes
    lives: list[tuple[int, int]]
    life: int
    edge_unix_nanos: int | None
    segments: int
    rooted: list[int] = []
    other_sizes: bool = False
    pairs: bool = False


class _Run(msgspec.Struct, array_like=True):
    tier: Tier
    group: int
    chained: bool
    keys: bytes
    codes: bytes
    wide: bool


class _Segment(msgspec.Struct):
    begin: int
    end: int
    ages: tuple[float, float]
    """Seconds since its first and its last batch were taken."""
    runs: list[_Run]
    keys: bytes
    digests: tuple[bytes, bytes] | None
    first: bytes
    ordinals: bytes
    pieces: bytes
    stamps: tuple[bytes, bytes] | None


_Kind = TypeVar("_Kind", bound=msgspec.Struct)

_encode = msgspec.msgpack.Encoder().encode


def dump(ledger: Ledger, *, now: float, unix_nanos: int) -> Iterator[bytes]:
    """The state of the ledger at the first step, in pieces; what happens between the steps is not in it.

    ``now`` is on the clock of ``Ledger.accept``, ``unix_nanos`` the same moment on the wall clock.
    """
    streams = [_noted(stream, known, now) for stream, known in ledger.numbered()]
    translated = dict(ledger.digester.translated)
    number = 0
    yield _MAGIC
    yield _chunk(_encode(_Opening(VERSION, BYTE_ORDER, _key_of(ledger.digester), unix_nanos)), number)
    for about, segments in streams:
        number += 1
        yield _chunk(_encode(about), number)
        for segment in segments:
            number += 1
            yield _chunk(_encode(_packed(segment, now)), number)
    yield _chunk(_encode(_Closing(len(streams), translated)), number + 1)


def load(content: bytes | memoryview, ledger: Ledger, *, now: float, unix_nanos: int) -> int:
    """Put a checkpoint's streams into a ledger that has none; returns how many.

    Raises:
        BadInput: it is not a whole checkpoint of this version and key.
    """
    assert not ledger.streams(), "a ledger resumes before it follows anybody"
    reader = _Reader(memoryview(content))
    opening = reader.next(_Opening)
    if opening.version != VERSION or opening.byte_order != BYTE_ORDER:  # guard: checkpoint-version, checkpoint-order
        raise BadInput(f"a checkpoint of version {opening.version} ({opening.byte_order}-endian)", offset=len(_MAGIC))
    if opening.key != _key_of(ledger.digester):  # guard: checkpoint-key
        raise BadInput("a checkpoint whose digests were made under another key", offset=len(_MAGIC))
    down = max(0.0, (unix_nanos - opening.unix_nanos) / 1e9)  # guard: checkpoint-away, checkpoint-clock
    restored: list[tuple[StreamId, Sequencer]] = []
    while not reader.at_closing():
        about = reader.next(_Stream)
        segments = [_unpacked(reader.next(_Segment), now - down, reader.offset) for _ in range(about.segments)]
        restored.append((StreamId(about.worker, about.rank), _restored(ledger, about, segments, now - down)))
    closing = reader.next(_Closing)
    if closing.streams != len(restored):  # guard: checkpoint-streams
        raise BadInput("a checkpoint with another number of streams than it says", offset=reader.offset)
    for stream, known in restored:
        ledger.resume(stream, known)
    ledger.digester.translated.update(closing.translated)
    return len(restored)


class LedgerSnapshots:
    """The snapshots of one ledger; implements ``ports.HistorySnapshots``."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def dump(self, *, now: float, unix_nanos: int) -> Iterator[bytes]:
        """The state at the first step, in pieces."""
        return dump(self._ledger, now=now, unix_nanos=unix_nanos)

    def load(self, content: bytes | memoryview, *, now: float, unix_nanos: int) -> int:
        """Take up what ``dump`` gave; returns how many streams. Raises ``BadInput``."""
        return load(content, self._ledger, now=now, unix_nanos=unix_nanos)


def _key_of(digester: Digester) -> int:
    return digester.extra_digest("checkpoint", b"")


def _chunk(content: bytes, number: int) -> bytes:
    return len(content).to_bytes(4, "big") + _checksum(content, number) + content


def _checksum(content: bytes | memoryview, number: int) -> bytes:
    return hashlib.blake2b(content, digest_size=16, salt=number.to_bytes(8, "big")).digest()  # guard: checkpoint-places


class _Reader:
    """Chunks one after the other."""

    def __init__(self, content: memoryview) -> None:
        if bytes(content[: len(_MAGIC)]) != _MAGIC:
            raise BadInput("not a checkpoint of a ledger", offset=0)
        self._content = content
        self._number = 0
        self.offset = len(_MAGIC)

    def at_closing(self) -> bool:
        """Whether the next chunk is the last one."""
        chunk, size = self._peek()
        return self.offset + size == len(self._content) and bytes(chunk[:1]) == b"\x92"

    def next(self, kind: type[_Kind]) -> _Kind:
        """The next chunk, which is of a kind."""
        chunk, size = self._peek()
        if _checksum(chunk, self._number) != bytes(self._content[self.offset + 4 : self.offset + _HEAD]):
            raise BadInput("a chunk of the checkpoint is damaged", offset=self.offset)  # guard: checkpoint-damage
        try:
            content = msgspec.msgpack.decode(chunk, type=kind)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            raise BadInput("a chunk of the checkpoint is of another kind", offset=self.offset) from None
        self._number += 1
        self.offset += size
        return content

    def _peek(self) -> tuple[memoryview, int]:
        head = self._content[self.offset : self.offset + _HEAD]
        size = int.from_bytes(head[:4], "big")
        chunk = self._content[self.offset + _HEAD : self.offset + _HEAD + size]
        if len(head) < _HEAD or len(chunk) < size:  # guard: checkpoint-short
            raise BadInput("the checkpoint ends early", offset=self.offset)
        return chunk, _HEAD + size


def _noted(stream: StreamId, sequencer: Sequencer, now: float) -> tuple[_Stream, list[Segment]]:
    record = sequencer.record
    record.settle()
    history, groups = record.history, record.cache_groups
    segments = list(history.parts())
    about = _Stream(
        worker=stream.worker,
        rank=stream.rank,
        model=record.model,
        from_birth=record.from_birth,
        begins_unix_nanos=record.begins_unix_nanos,
        end=record.end,
        last=sequencer.last,
        incarnation=sequencer.incarnation,
        silent_seconds=now - sequencer.heard,
        holes=list(record.holes),
        resets=list(history.resets.all),
        specs=list(groups.specs.values()),
        known=sorted(groups.known),
        tiers=sorted(groups.tiers),
        releasing=sorted(groups.releasing),
        rooted=sorted(groups.rooted),
        other_sizes=groups.other_sizes,
        pairs=groups.pairs,
        block_size=groups.block_size,
        kinds=list(record.memtable.chain_tails.kinds),
        nanos=history.time_index.nanos.tobytes(),
        ends=history.time_index.ends.tobytes(),
        lives=list(history.time_index.lives),
        life=history.time_index.life,
        edge_unix_nanos=history.edge_unix_nanos,
        segments=len(segments),
    )
    return about, segments


def _restored(ledger: Ledger, about: _Stream, segments: list[Segment], then: float) -> Sequencer:
    record = StreamRecord(
        StreamId(about.worker, about.rank),
        ledger.digester,
        from_birth=True,
        begins_unix_nanos=about.begins_unix_nanos,
    )
    record.from_birth = about.from_birth  # guard: checkpoint-birth
    record.model = about.model  # guard: checkpoint-model
    record.holes = about.holes  # guard: checkpoint-holes
    groups, history = record.cache_groups, record.history
    groups.specs = {spec.group: spec for spec in about.specs}
    groups.known = set(about.known)  # guard: checkpoint-known
    groups.tiers = set(about.tiers)  # guard: checkpoint-tiers
    groups.releasing = set(about.releasing)  # guard: checkpoint-releasing
    groups.block_size = about.block_size
    groups.rooted = set(about.rooted)  # guard: checkpoint-rooted
    groups.pairs = about.pairs  # guard: checkpoint-pairs
    groups.other_sizes = about.other_sizes  # guard: checkpoint-other-sizes
    record.memtable.chain_tails.kinds[:] = about.kinds
    for reset in about.resets:  # guard: checkpoint-barriers
        history.resets.add(reset)
    time_index = history.time_index
    time_index.nanos, time_index.ends = array("q", about.nanos), array("q", about.ends)
    time_index.lives, time_index.life = about.lives, about.life  # guard: checkpoint-life
    history.edge_unix_nanos = about.edge_unix_nanos  # guard: checkpoint-edge
    history.base = segments[0]
    for segment in segments[1:]:
        history.append(segment)
    record.begin_at(about.end)
    sequencer = Sequencer(record, about.last + 1)
    sequencer.incarnation = about.incarnation  # guard: checkpoint-incarnation
    sequencer.heard = then - about.silent_seconds  # guard: checkpoint-silence
    return sequencer


def _packed(segment: Segment, now: float) -> _Segment:
    chains = segment.chains
    digests = None if chains.own is None or chains.prefix is None else (chains.own.tobytes(), chains.prefix.tobytes())
    stamps = None if segment.stamps is None else (segment.stamps[0].tobytes(), segment.stamps[1].tobytes())
    return _Segment(
        begin=segment.begin,
        end=segment.end,
        ages=(now - segment.oldest, now - segment.newest),
        runs=[
            _Run(tier, group, run.chained, run.keys.tobytes(), run.codes.tobytes(), run.codes.dtype == np.int64)
            for (tier, group), run in segment.runs.items()
        ],
        keys=chains.keys.tobytes(),
        digests=digests,
        first=chains.first.tobytes(),
        ordinals=chains.ordinals.tobytes(),
        pieces=chains.pieces.tobytes(),
        stamps=stamps,
    )


def _unpacked(packed: _Segment, then: float, offset: int) -> Segment:
    try:
        own, prefix = (None, None) if packed.digests is None else map(_keys, packed.digests)
        chains = ChainTable(
            _keys(packed.keys),
            None if own is None or prefix is None else (own, prefix, None),
            np.frombuffer(packed.first, np.uint32),
            _integers(packed.ordinals),
            np.frombuffer(packed.pieces, PIECE),
        )
        runs = {(run.tier, run.group): Run(_keys(run.keys), _codes(run), chained=run.chained) for run in packed.runs}
        stamps = None if packed.stamps is None else (_integers(packed.stamps[0]), _integers(packed.stamps[1]))
    except ValueError:
        raise BadInput("a column of the checkpoint has a broken length", offset=offset) from None
    times = (then - packed.ages[0], then - packed.ages[1])
    segment = Segment((packed.begin, packed.end), runs, chains, times=times, stamps=stamps)
    segment.level = level_of(segment)  # guard: checkpoint-level
    return segment


def _codes(run: _Run) -> npt.NDArray[np.uint32] | Integers:
    return _integers(run.codes) if run.wide else np.frombuffer(run.codes, np.uint32)


def _keys(column: bytes) -> Keys:
    return np.frombuffer(column, np.uint64)


def _integers(column: bytes) -> Integers:
    return np.frombuffer(column, np.int64)
