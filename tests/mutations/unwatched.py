"""Guards that no test watches yet: `run.py` counts them, and fails where one of them is watched by now."""

from __future__ import annotations

UNWATCHED: frozenset[str] = frozenset()
"""Ids of mutations. Add none: write the test, or take out a guard that can be shown to decide nothing."""
