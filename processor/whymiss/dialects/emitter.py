"""One project as a source of evidence. Its file exports it as ``EMITTER``, and the registry lists it: that is all."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..model import Span, Spellings
from ..wire.splice import Closed
from .claim import Dialect


class Taken(msgspec.Struct, frozen=True):
    """What a log request held: evidence for the join, what may leave, and why some of it may not.

    ``rest`` is the request itself where nothing had to be taken out.
    """

    evidence: tuple[Span, ...]
    rejected: tuple[str, ...]
    rest: bytes


class Guarded(msgspec.Struct, frozen=True):
    """What nothing that is ours may leave with, whoever emitted it: names of attributes, and closed families of names."""

    names: tuple[str, ...]
    closed: Closed


class Emitter(msgspec.Struct, frozen=True, kw_only=True):
    """Its dialects, in the order in which they are tried; its ids and log records; and its row in the documentation.

    ``request_ids`` says how the ids that its spans tell are spelled elsewhere. ``take_logs`` takes its records out of an
    encoded ``ExportLogsServiceRequest`` (raises ``BadInput`` where the bytes are none), where it emits such; what of them
    may go on goes without what is guarded.
    """

    name: str
    gives: str
    lacks: str
    switch_on: str
    dialects: tuple[Dialect, ...] = ()
    request_ids: Spellings = Spellings()
    take_logs: Callable[[bytes, Guarded], Taken] | None = None
