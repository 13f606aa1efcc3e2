"""Traces of requests, read line by line: blocks with identity, or token ids.

A block becomes an integer that represents the whole prefix up to and including it, whatever its identity in the file
was: equal integers mean equal tokens from token 0 on. Only whole blocks are kept, as an engine does.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...errors import BadInput

BLOCK_TOKENS = {"blocks": 512, "tokens": 16}
"""Tokens in one block where nothing else is said: the Mooncake and WEKA traces' size, and an engine's."""
FORMATS = tuple(BLOCK_TOKENS)
ROOT = -1
"""The parent of a first block."""
MAGIC = b"\x1f\x8b"
REPORT_EVERY = 500
"""Lines between two reports of progress."""


class Ask(NamedTuple):
    """One request."""

    at: float
    """Seconds on the trace's own clock."""
    prompt_tokens: int
    blocks: tuple[int, ...]
    session: int
    """Rank of its session by first appearance; 0 where the trace has no sessions."""


class Trace(NamedTuple):
    """A trace as it is replayed."""

    name: str
    block_tokens: int
    asks: tuple[Ask, ...]
    sessions: int
    """Sessions that the rows name; 0: none does, so no routing can be sticky."""
    short: int
    """Requests of less than one block, which no prefix cache can serve: they are left out."""


class BlockRow(msgspec.Struct):
    """A line of a Mooncake or WEKA trace; ``hash_ids`` may end in the id of a partial block."""

    timestamp: float
    input_length: int
    hash_ids: tuple[int | str, ...]
    session: int | str | None = None


class TokenRow(msgspec.Struct):
    """A line with token ids; with ``base`` the prompt is the first ``share`` tokens of that row's and these."""

    timestamp: float
    tokens: tuple[int, ...]
    session: int | str | None = None
    base: int | None = None
    share: int = 0


class Peek(msgspec.Struct):
    """What tells the formats apart."""

    hash_ids: msgspec.Raw = msgspec.Raw()
    tokens: msgspec.Raw = msgspec.Raw()


class Chains:
    """Gives each prefix of blocks its number."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int | str | tuple[int, ...]], int] = {}

    def numbered(self, blocks: Iterable[int | str | tuple[int, ...]]) -> tuple[int, ...]:
        """The numbers of a prompt's prefixes, block by block."""
        known, parent, numbers = self._known, ROOT, []
        for block in blocks:
            parent = known.setdefault((parent, block), len(known))
            numbers.append(parent)
        return tuple(numbers)


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """How a trace is written."""

    name: str | None = None
    """One of ``FORMATS``; None: the first line says it."""
    block_tokens: int | None = None
    """Tokens in one block; None: as ``BLOCK_TOKENS``."""
    time_unit: float = 0.001
    """Seconds in one unit of the timestamps."""


class Reader:
    """Turns lines into requests; ``name`` is the trace's, for errors."""

    def __init__(self, name: str, form: Form) -> None:
        self._name = name
        self._form = form.name
        self._block_tokens = form.block_tokens
        self._time_unit = form.time_unit
        self._chains = Chains()
        self._sessions: dict[int | str | None, int] = {}
        """Ranks; a row without a session is of the session None, as the WEKA files leave the first number out."""
        self._prompts: list[tuple[int, ...]] = []
        self._decode: Callable[[bytes], Ask] | None = None
        self._blocks = msgspec.json.Decoder(BlockRow)
        self._tokens = msgspec.json.Decoder(TokenRow)

    def read(self, lines: Iterable[bytes]) -> Trace:
        """Read all lines. Raises ``BadInput``, naming the line."""
        asks, short = [], 0
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                ask = (self._decode or self._begin(line))(line)
            except msgspec.MsgspecError as error:
                raise BadInput(f"{self._name}: line {number}: {error}") from None
            except BadInput as error:
                raise BadInput(f"{self._name}: line {number}: {error.problem}") from None
            if ask.blocks:
                asks.append(ask)
            else:
                short += 1
        if not asks:
            raise BadInput(f"{self._name}: no request of at least one block ({short} shorter)")
        assert self._block_tokens is not None, "the first line says it"
        sessions = 0 if self._sessions.keys() == {None} else len(self._sessions)
        return Trace(self._name, self._block_tokens, tuple(asks), sessions, short)

    def _begin(self, line: bytes) -> Callable[[bytes], Ask]:
        if self._form is None:
            found = msgspec.json.decode(line, type=Peek)
            if not found.hash_ids and not found.tokens:
                raise BadInput("has neither hash_ids nor tokens")
            self._form = "blocks" if found.hash_ids else "tokens"
        self._block_tokens = self._block_tokens or BLOCK_TOKENS[self._form]
        self._decode = self._of_blocks if self._form == "blocks" else self._of_tokens
        return self._decode

    def _of_blocks(self, line: bytes) -> Ask:
        row = self._blocks.decode(line)
        assert self._block_tokens is not None, "set by the first line"
        whole, listed = row.input_length // self._block_tokens, len(row.hash_ids)
        if not whole <= listed <= -(-row.input_length // self._block_tokens):
            raise BadInput(
                f"{row.input_length} tokens are not {listed} blocks of {self._block_tokens}: give --block-size"
            )
        blocks = self._chains.numbered(row.hash_ids[:whole])
        return Ask(row.timestamp * self._time_unit, row.input_length, blocks, self._session(row.session))

    def _of_tokens(self, line: bytes) -> Ask:
        row, size = self._tokens.decode(line), self._block_tokens
        assert size is not None, "set by the first line"
        prompt = row.tokens
        if row.base is not None:
            if not 0 <= row.base < len(self._prompts) or not 0 <= row.share <= len(self._prompts[row.base]):
                raise BadInput("base and share must name an earlier row and a length within its prompt")
            prompt = (*self._prompts[row.base][: row.share], *prompt)
        self._prompts.append(prompt)
        blocks = (prompt[begin : begin + size] for begin in range(0, len(prompt) - size + 1, size))
        numbers = self._chains.numbered(blocks)
        return Ask(row.timestamp * self._time_unit, len(prompt), numbers, self._session(row.session))

    def _session(self, name: int | str | None) -> int:
        return self._sessions.setdefault(name, len(self._sessions))


def read(path: Path, form: Form, progress: Callable[[int], None] = lambda _: None) -> Trace:
    """Read a trace of JSON lines, gzip or not; ``-`` is standard input. ``progress`` is told the bytes read so far.

    Raises ``BadInput`` with the file and the line.
    """
    name = "standard input" if str(path) == "-" else str(path)
    try:
        with ExitStack() as stack:
            source = Path("/dev/stdin") if str(path) == "-" else path
            file = stack.enter_context(source.open("rb"))
            packed = file.peek(len(MAGIC)).startswith(MAGIC)
            lines: Iterable[bytes] = stack.enter_context(gzip.open(file)) if packed else file
            return Reader(name, form).read(_told(lines, file, progress))
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{name}: {getattr(error, 'strerror', None) or 'not a whole gzip file'}") from None


def _told(lines: Iterable[bytes], file: BufferedReader, progress: Callable[[int], None]) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        if number % REPORT_EVERY == 0 and file.seekable():
            progress(file.tell())
        yield line
