"""Guards that no test watches yet: `run.py` counts them, and fails where one of them is watched by now."""

from __future__ import annotations

_NAMES = """
    eliminate-only-taker
"""

UNWATCHED: frozenset[str] = frozenset(_NAMES.split())
"""Names of mutations. Add none: write the test, or take out a guard that can be shown to decide nothing."""
