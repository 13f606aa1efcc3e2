"""How a dialect says that a span is ours, without parsing it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..model import Evidenced, Role
from ..wire.fields import SpanFields


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One emitter's kind of span.

    A span may be ours when its scope starts with one of ``scopes`` (any scope where there are none)
    and one of ``needles`` occurs in its bytes; ``read`` then says what it means, or ``None`` when it
    is not ours after all. ``sensitive`` names attributes that must not leave, ``digested`` such whose
    value may leave as a keyed digest only: a span that has one of them is claimed for that alone.
    """

    name: str
    role: Role
    read: Callable[[SpanFields], Evidenced | None]
    scopes: tuple[str, ...] = ()
    needles: tuple[bytes, ...] = ()
    sensitive: tuple[str, ...] = ()
    digested: tuple[str, ...] = ()

    def may_claim(self, scope: str, raw: bytes) -> bool:
        """Whether the span is worth parsing for this dialect."""
        if self.scopes and not scope.startswith(self.scopes):
            return False
        return any(needle in raw for needle in self.needles)

    def guards(self, span: SpanFields) -> bool:
        """Whether the span, or one of its events or links, has an attribute that must not leave as it is."""
        if not self.sensitive and not self.digested:
            return False
        places = (
            span.attributes,
            *[event.attributes for event in span.events],
            *[link.attributes for link in span.links],
        )
        return any(name in attributes for attributes in places for name in (*self.sensitive, *self.digested))
