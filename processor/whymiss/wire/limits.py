"""Whether an encoded message is made of more parts than anyone means to read.

A megabyte holds half a million empty attributes, and to read one costs a hundred times what it costs to carry it. So they
are counted first, and counting stops at the limit. What is small cannot hold many and is not looked at.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from ..errors import BadInput
from .scan import field_at

PART_BYTES_MIN: Final = 2
"""The shortest field: a tag and a length of nothing."""

Parts: TypeAlias = "dict[int, Parts]"
"""The inner messages of one by the tag of their field; what is not named here is a part without parts."""

_VALUE: Parts = {}
_PAIR: Parts = {2 * 8 + 2: _VALUE}
_VALUE |= {5 * 8 + 2: {1 * 8 + 2: _VALUE}, 6 * 8 + 2: {1 * 8 + 2: _PAIR}}

SPAN: Final[Parts] = {9 * 8 + 2: _PAIR, 11 * 8 + 2: {3 * 8 + 2: _PAIR}, 13 * 8 + 2: {4 * 8 + 2: _PAIR}}
RESOURCE: Final[Parts] = {1 * 8 + 2: {1 * 8 + 2: _PAIR}}
"""An envelope's resource: a ``ResourceSpans`` without its spans."""
SCOPE: Final[Parts] = {1 * 8 + 2: {3 * 8 + 2: _PAIR}}
"""An envelope's scope: a ``ScopeSpans`` without its spans."""


def has_more_parts(raw: bytes, schema: Parts, parts_max: int) -> bool:
    """Whether a message has more fields than ``parts_max``, those of the messages in it included.

    Looks at ``parts_max`` fields at the most. Of broken bytes what is before the break is counted.
    """
    if len(raw) <= parts_max * PART_BYTES_MIN:
        return False
    left = parts_max
    waiting = [(0, len(raw), schema)]
    while waiting:
        at, end, inner = waiting.pop()
        while at < end:
            left -= 1
            if left < 0:
                return True
            try:
                tag, _, value, at = field_at(raw, at)
            except (BadInput, IndexError):
                break
            if (parts := inner.get(tag)) is not None:
                waiting.append((value, min(at, end), parts))
    return False
