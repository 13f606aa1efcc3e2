"""The last warnings and errors, kept for the page: a few distinct lines, each with its number.

A line of ours is a constant sentence and named scalars (see `edge.logs`), so a prompt has no way in; what other
packages log is left out.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from ..telemetry.logs import OURS
from .snapshot import Trouble

DISTINCT_MAX: Final = 20
DETAIL_CHARS_MAX: Final = 200


class _Seen(msgspec.Struct):
    first: float
    last: float
    details: str
    count: int = 1

    def again(self, now: float, details: str) -> None:
        """Take note of the same line once more."""
        self.count, self.last, self.details = self.count + 1, now, details


class Troubles(logging.Handler):
    """Listens to our loggers from `open` to `close`; ``now`` is in seconds and never goes back."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._now = now
        self._seen: OrderedDict[tuple[str, str, str], _Seen] = OrderedDict()

    def open(self) -> None:
        """Begin to listen."""
        logging.getLogger(OURS).addHandler(self)

    def close(self) -> None:
        """Stop listening; may be called again."""
        logging.getLogger(OURS).removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Note a line, in place of the one that was not seen for longest where there is no room."""
        key = (record.levelname.lower(), record.name.removeprefix(f"{OURS}."), str(record.msg))
        now, seen = self._now(), self._seen.get(key)
        if seen is None:
            self._seen[key] = _Seen(now, now, _details(record))
            if len(self._seen) > DISTINCT_MAX:
                self._seen.popitem(last=False)
            return
        seen.again(now, _details(record))
        self._seen.move_to_end(key)

    def lines(self) -> tuple[Trouble, ...]:
        """All that is kept, newest first."""
        self.acquire()  # other threads log too
        try:
            return self._lines(self._now())
        finally:
            self.release()

    def _lines(self, now: float) -> tuple[Trouble, ...]:
        return tuple(
            Trouble(
                level=level,
                part=part,
                message=message,
                details=seen.details,
                count=seen.count,
                first_seconds=now - seen.first,
                last_seconds=now - seen.last,
            )
            for (level, part, message), seen in reversed(self._seen.items())
        )


def _details(record: logging.LogRecord) -> str:
    """Name the fields, and of an error its type only: its text is for the log, where the rules for it are."""
    fields: dict[str, object] = {
        name: value for name, value in getattr(record, "fields", {}).items() if value is not None
    }
    if record.exc_info and record.exc_info[1] is not None:
        fields["error.type"] = type(record.exc_info[1]).__qualname__
    return ", ".join(f"{name} = {_short(value)}" for name, value in fields.items())[:DETAIL_CHARS_MAX]


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
