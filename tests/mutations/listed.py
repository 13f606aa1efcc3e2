"""All mutations."""

from __future__ import annotations

from .mutation import Mutation
from .of_counts import BARRIERS, FOLDING, HISTORY, OUTLIVING, SEGMENTS, SINGLE, TALLY
from .of_edges import JOIN_GROUPS, JOIN_JOINER, JOIN_PAST
from .of_facts import FACTS, PROMISES, RECORD, WORKERS
from .of_fleet_view import ELSEWHERE, VIEW
from .of_grouping import BELONGING, COMPANIONS, GROUPING, JOIN_HALVES, SIDES
from .of_intake import ADMISSIONS, COLUMNS, GROUPS, INTAKE, KEYS, REPORTS, STORES, TOKENS
from .of_judge import JUDGE
from .of_ledger import BROODS, CHECKPOINT, KINSHIP, LINKS, MERGING, TWINS, WINDOW
from .of_numbering import FLEET, NUMBERING, STREAM_RECORD, TIMELINE
from .of_reading import READING
from .of_redaction import REDACTION
from .of_relatives import LIKENESS, RECENT, RELATIVES
from .of_rows import ENGINE_ROWS, FARTHER_ROWS, TIER_ROWS
from .of_strangers import LAZINESS, STRANGERS
from .of_verdict import VERDICT

MUTATIONS: tuple[Mutation, ...] = (
    *(*ENGINE_ROWS, *TIER_ROWS, *FARTHER_ROWS, *VERDICT, *JUDGE),
    *(*READING, *GROUPING, *SIDES, *BELONGING, *COMPANIONS),
    *(*PROMISES, *FACTS, *RECORD, *WORKERS),
    *(*VIEW, *ELSEWHERE, *RECENT, *RELATIVES, *LIKENESS),
    *(*NUMBERING, *TIMELINE, *STREAM_RECORD, *FLEET, *STRANGERS, *LAZINESS),
    *(*BARRIERS, *TALLY, *SINGLE, *SEGMENTS, *HISTORY, *OUTLIVING, *FOLDING),
    *(*INTAKE, *ADMISSIONS, *REPORTS, *STORES, *GROUPS, *KEYS, *COLUMNS, *TOKENS),
    *(*KINSHIP, *TWINS, *BROODS, *LINKS, *CHECKPOINT, *WINDOW, *MERGING),
    *(*JOIN_GROUPS, *JOIN_JOINER, *JOIN_PAST, *JOIN_HALVES, *REDACTION),
)
