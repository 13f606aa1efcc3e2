"""Made traces: requests whose prompts share prefixes, as chats and agents do."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from whymiss.tools.fleet.setup import ROUTINGS, Setup, Tier
from whymiss.tools.fleet.trace import Ask, Trace

BLOCK_TOKENS = 4
LONGEST = 12
"""Blocks of a drawn prompt at most."""


def made(*prompts: Sequence[int], tail: int = 1) -> Trace:
    """A trace of one request a second, each with a few tokens behind its whole blocks."""
    asks = [Ask(float(at), len(blocks) * BLOCK_TOKENS + tail, tuple(blocks), 0) for at, blocks in enumerate(prompts)]
    return Trace("made", BLOCK_TOKENS, tuple(asks), 0, 0)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Requests that begin as an earlier one did, for some blocks, and go on with new ones."""
    steps = st.tuples(
        st.integers(0, 30),
        st.integers(0, LONGEST),
        st.integers(0, 4),
        st.integers(0, BLOCK_TOKENS - 1),
        st.integers(0, 3),
        st.sampled_from([0.0, 0.5, 1.0, 7.0, 40.0]),
    )
    prompts: list[tuple[int, ...]] = [()]
    asks, fresh, at = [], 0, 0.0
    for earlier, kept, grown, tail, session, pause in draw(st.lists(steps, min_size=1, max_size=40)):
        blocks = prompts[earlier % len(prompts)][:kept]
        added = max(min(grown, LONGEST - len(blocks)), 0 if blocks else 1)
        blocks += tuple(range(fresh, fresh + added))
        fresh, at = fresh + added, at + pause
        prompts.append(blocks)
        asks.append(Ask(at, len(blocks) * BLOCK_TOKENS + tail, blocks, session))
    return Trace("drawn", BLOCK_TOKENS, tuple(asks), 4, 0)


tiers = st.none() | st.builds(Tier, st.none() | st.integers(1, 60), shared=st.booleans())
setups = st.builds(
    Setup,
    workers=st.integers(1, 4),
    capacity=st.none() | st.integers(LONGEST, 40),
    routing=st.sampled_from(sorted(ROUTINGS)),
    tier=tiers,
    keep_seconds=st.none() | st.sampled_from([0.0, 1.0, 10.0]),
    index_lag_seconds=st.sampled_from([0.0, 0.6, 10.0]),
)
"""Fleets that can take every request of a drawn trace."""
