"""The section about memory: what is held by all parts together."""

from __future__ import annotations

from ..errors import ConfigError
from .kinds import Bytes, Section


class MemoryConfig(Section, frozen=True, kw_only=True):
    """Limits over all parts together: the record of the caches, the hold, the queues and the requests being taken.

    What each part may hold by itself is said in its own section.
    """

    soft_limit_bytes: Bytes | None = None
    """Bytes held beyond which the oldest held requests are released early. Default null: four fifths of the way from
    the fullest record to the hard limit. Above ``ledger.bytes_max``."""
    hard_limit_bytes: Bytes | None = None
    """Bytes held beyond which senders are asked to retry. Default null: what ``ledger.bytes_max``,
    ``join.remembered_max`` (2 KiB each), ``join.open_bytes_max`` and every ``queue_bytes_max`` come to, and in a
    container no more than two thirds of the resident limit. It leaves room for the largest request beside the record."""
    resident_limit_bytes: Bytes | None = None
    """Resident memory beyond which both happen too, as long as there is something to let go of. Default null: nine
    tenths of the container's limit; without a container none. The record is kept below a third of it."""

    def __post_init__(self) -> None:
        soft, hard = self.soft_limit_bytes, self.hard_limit_bytes
        if soft is not None and hard is not None and soft > hard:
            raise ConfigError("soft_limit_bytes", "must not exceed hard_limit_bytes")

    def check(self, ledger_bytes: int, request_bytes: int) -> None:
        """Check against the largest record and the largest request. Raises `ConfigError`."""
        soft, hard = self.soft_limit_bytes, self.hard_limit_bytes
        # Otherwise a full record alone would end every hold, or have every request refused, for ever.
        if soft is not None and soft <= ledger_bytes:
            raise ConfigError("memory.soft_limit_bytes", "must exceed ledger.bytes_max")
        if hard is not None and hard < ledger_bytes + request_bytes:
            raise ConfigError("memory.hard_limit_bytes", "must not be below ledger.bytes_max and the largest request")
