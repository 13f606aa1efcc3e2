"""The three errors, by what a caller can do about them.

Everything else that goes wrong in the world is a value (an outcome with a name), and an
``AssertionError`` is a mistake of ours.
"""

from __future__ import annotations


class ConfigError(Exception):
    """The configuration must be mended; the message names the key as the user wrote it."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}" if key else problem)
        self.key = key
        self.problem = problem


class BadInput(Exception):
    """The bytes are wrong and sending them again is pointless.

    ``offset`` is the byte offset in the input at which reading failed, when it is known.
    The message never repeats the bytes themselves: they may hold a prompt.
    """

    def __init__(self, problem: str, *, offset: int | None = None) -> None:
        super().__init__(problem if offset is None else f"{problem} at byte {offset}")
        self.problem = problem
        self.offset = offset


class Overloaded(Exception):
    """Try again later; ``limit_key`` is the configuration key whose limit was reached.

    ``remedy`` says what to do where raising the limit is not it.
    """

    def __init__(
        self, problem: str, *, limit_key: str, retry_after_seconds: float = 1.0, remedy: str | None = None
    ) -> None:
        super().__init__(f"{problem} ({remedy or f'raise {limit_key}'})")
        self.limit_key = limit_key
        self.retry_after_seconds = retry_after_seconds
