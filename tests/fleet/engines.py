"""What a simulated engine is in the middle of."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.fleet.emit import Publisher
from tests.fleet.pool import Pool
from tests.fleet.prompts import Prompt
from tests.fleet.routers import Decision
from tests.fleet.spec import Truth
from tests.fleet.tier import Found, Tier


class Waiting(NamedTuple):
    """A routed request before its admission."""

    prompt: Prompt
    route: Decision
    routed: int
    arrival: int


@dataclass
class Running:
    """An admitted request."""

    waiting: Waiting
    lookup: int
    found: Found
    blocks: list[int]
    truth: Truth
    answer: int = 1
    states: list[int] = field(default_factory=list)
    """Blocks of the sparse group."""


@dataclass
class Engine:
    """One worker."""

    index: int
    pool: Pool
    publisher: Publisher
    skew: int
    tier: Tier | None = None
    waiting: deque[Waiting] = field(default_factory=deque)
    running: int = 0
    stepping: bool = False
    unsaid: list[bytes] = field(default_factory=list)
    """Events that wait for the next step."""
    last_batch: int = 0
