"""JSON log lines that cannot carry a payload, and cannot become a flood.

A line of ours is a constant sentence and named scalars, so a prompt has no way in. Of what other
packages log only the template is written, never its arguments: an HTTP parser quotes the bytes that it
could not read. The text of an exception is written where it is known to hold no payload.

Of the same sentence the first 10 in 10 s are written, then every 100th, as the Collector does.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import PurePath
from traceback import walk_tb
from typing import Final, TextIO, TypeAlias

import msgspec

from ...errors import BadInput, ConfigError, Overloaded

Scalar: TypeAlias = str | int | float | bool | None

OURS: Final = "whymiss"
_CHARS_MAX: Final = 300
_FRAMES_MAX: Final = 8


class Level:
    """Writes lines of one logger at one level. The message is a constant; what varies is a field."""

    def __init__(self, logger: logging.Logger, number: int) -> None:
        self._logger = logger
        self._number = number

    def __call__(self, message: str, /, *, error: BaseException | None = None, **fields: Scalar) -> None:
        """Write a line; of ``error`` its type and place."""
        if self._logger.isEnabledFor(self._number):
            self._logger.log(self._number, message, exc_info=error, extra={"fields": fields})


class Log:
    """Writes lines under ``whymiss.<name>``.

    ``debug`` is for whoever works on the service; ``info`` says that something began, ended or changed as
    it should; ``warning`` that the world failed us and we coped; ``error`` that something was lost, or that
    somebody has to act.
    """

    def __init__(self, name: str) -> None:
        logger = logging.getLogger(f"{OURS}.{name}")
        self.debug = Level(logger, logging.DEBUG)
        self.info = Level(logger, logging.INFO)
        self.warning = Level(logger, logging.WARNING)
        self.error = Level(logger, logging.ERROR)


class Sampled(logging.Filter):
    """Lets the first ``first`` of the same line pass in each ``seconds``, then every ``every``-th.

    The line says how often it was seen in that time. Lines are the same by level, logger and template.
    """

    def __init__(
        self, *, first: int = 10, every: int = 100, seconds: float = 10.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._first, self._every, self._seconds, self._now = first, every, seconds, now
        self._until = now() + seconds
        self._seen: dict[tuple[int, str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Decide on a record, and mark it with its number."""
        now = self._now()
        if now >= self._until:
            self._until = now + self._seconds
            self._seen.clear()
        line = (record.levelno, record.name, _template(record))
        record.seen = seen = self._seen[line] = self._seen.get(line, 0) + 1
        return seen <= self._first or (seen - self._first) % self._every == 0


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, fields, and the error's type and place."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        line: dict[str, Scalar | list[str]] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _template(record),
        }
        fields: dict[str, Scalar] = getattr(record, "fields", {})
        for name, value in fields.items():
            line.setdefault(name, value[:_CHARS_MAX] if isinstance(value, str) else value)
        if getattr(record, "seen", 1) > 1:
            line["seen"] = record.__dict__["seen"]
        if record.exc_info and record.exc_info[1]:
            line |= _told(record.exc_info[1])
        return msgspec.json.encode(line).decode()


def configure(level: str, stream: TextIO | None = None) -> None:
    """Log from now on as JSON lines to a stream (standard error), ours from ``level``, others' from ``warning``."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(Sampled())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(logging.WARNING)
    logging.getLogger(OURS).setLevel(level.upper())


def _template(record: logging.LogRecord) -> str:
    """The sentence without its arguments; asyncio puts an exception's text below the first line."""
    return str(record.msg).split("\n", 1)[0][:_CHARS_MAX]


def _told(error: BaseException) -> dict[str, Scalar | list[str]]:
    frames = [
        f"{PurePath(frame.f_code.co_filename).name}:{number} {frame.f_code.co_name}"
        for frame, number in walk_tb(error.__traceback__)
    ]
    told: dict[str, Scalar | list[str]] = {"error.type": type(error).__qualname__}
    if isinstance(error, BadInput | ConfigError | Overloaded):
        told["error.message"] = str(error)[:_CHARS_MAX]
    elif isinstance(error, OSError) and error.strerror:
        # Files and addresses are opened because the configuration names them, never because a sender does.
        named = f"{error.strerror}: {error.filename}" if isinstance(error.filename, str) else error.strerror
        told["error.message"] = named[:_CHARS_MAX]
    return told | ({"error.at": frames[-_FRAMES_MAX:]} if frames else {})
