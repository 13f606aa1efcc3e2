"""Where the record of the workers' caches is kept."""

from __future__ import annotations

from typing import NamedTuple

from ..config import Config
from ..ledger.checkpoint import LedgerSnapshots
from ..ledger.hashing import Digester
from ..ledger.ledger import Ledger
from ..ledger.ports import History, HistorySnapshots


class Backend(NamedTuple):
    """One history by its ports."""

    history: History
    snapshots: HistorySnapshots


def in_memory(config: Config, digester: Digester) -> Backend:
    """A history in the memory of this process."""
    ledger = Ledger(
        window_seconds=config.ledger.window_seconds,
        bytes_max=config.ledger.bytes_max,
        silence_seconds=config.kv_events.silence_seconds,
        digester=digester,
    )
    return Backend(ledger, LedgerSnapshots(ledger))
