"""Which of two requests was looked up first: by the bounds of their scheduled times, and by what their paths say.

Never by arrival: real engines admit out of the order of arrival. Compared are scheduled times with scheduled times (one
clock: rounding only), batch times with batch times (the engine's clock), and across both with the tolerance.
"""

from __future__ import annotations

from .path import Path
from .values import Limits, Request


def earlier(first: Request, second: Request, limits: Limits) -> int:
    """-1: the first was scheduled before the second; 1: after it; 0: not known."""
    if first.high + limits.rounding_nanos < second.low:
        return -1
    if second.high + limits.rounding_nanos < first.low:
        return 1
    return 0


def compatible(first: Request, its: Path, second: Request, other: Path, limits: Limits) -> bool:
    """Whether two requests can have taken these paths: who was scheduled first was looked up first."""
    if its.stream != other.stream or its.hit is None or other.hit is None:
        return True
    order = earlier(first, second, limits) or _by_paths(first, its, second, other, limits)
    if not order:
        return True
    if order > 0:
        its, other = other, its
    assert its.hit is not None, "checked above"
    assert other.hit is not None, "checked above"
    if its.hit.early < other.hit.late:
        return True
    same = its.stores[:1] == other.stores[:1] and bool(its.stores)
    return its.hit.early == other.hit.late and not same


def _by_paths(first: Request, its: Path, second: Request, other: Path, limits: Limits) -> int:
    if min(first.high, its.high) + limits.tolerance_nanos < max(second.low, other.low):
        return -1
    if min(second.high, other.high) + limits.tolerance_nanos < max(first.low, its.low):
        return 1
    if its.high + limits.rounding_nanos < other.low:
        return -1
    if other.high + limits.rounding_nanos < its.low:
        return 1
    return 0
