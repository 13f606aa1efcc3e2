"""All mutations."""

from __future__ import annotations

from .mutation import Mutation
from .of_facts import FACTS, PROMISES, RECORD, WORKERS
from .of_grouping import BELONGING, COMPANIONS, GROUPING, SIDES
from .of_reading import READING
from .of_rows import ENGINE_ROWS, FARTHER_ROWS, TIER_ROWS
from .of_verdict import TABLE, VERDICT

MUTATIONS: tuple[Mutation, ...] = (
    *(*ENGINE_ROWS, *TIER_ROWS, *FARTHER_ROWS, *TABLE, *VERDICT),
    *(*READING, *GROUPING, *SIDES, *BELONGING, *COMPANIONS),
    *(*PROMISES, *FACTS, *RECORD, *WORKERS),
)
