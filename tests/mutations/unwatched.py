"""Guards that no test watches yet: `run.py` counts them, and fails where one of them is watched by now."""

from __future__ import annotations

_NAMES = """
    read-no-streams direct-size-unknown direct-first-key direct-last-hit direct-chain-known direct-own-rank
    direct-own-store-reported direct-undecided-touched rank-undecided rank-own-store derived-prompt-length
    derived-size-unknown derived-short-rank derived-idle-only derived-full-rank stream-begins stream-expired
    stream-unplaced stream-unplaced-reported stream-decoding reading-latest decoding-tail decoding-age
    size-agrees eliminate-only-taker
"""

UNWATCHED: frozenset[str] = frozenset(_NAMES.split())
"""Names of mutations. Add none: write the test, or take out a guard that can be shown to decide nothing."""
