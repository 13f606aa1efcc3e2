"""HTML that cannot be broken out of: what is not `Html` is text, and text is escaped where it enters.

Names come from outside (a worker's topic, a resource attribute), so beside the five characters of HTML everything
invisible is replaced too: an override of the writing direction or a control character would make a name look like
another one.
"""

from __future__ import annotations

from html import escape
from typing import Final, TypeAlias

NAME_CHARS_MAX: Final = 160
"""A longer name is cut."""

UNSEEN: Final = "\N{REPLACEMENT CHARACTER}"

_VOID: Final = frozenset({"meta", "rect"})
"""Elements that hold nothing. Inside a drawing they are closed by their slash alone, and elsewhere it is harmless."""


class Html(str):
    """Markup that was made here."""

    __slots__ = ()


Child: TypeAlias = "Html | str | int"


def clean(text: str) -> str:
    """Make a name fit to be shown anywhere: cut where it is too long, without what cannot be seen, encodable."""
    return visible(text if len(text) <= NAME_CHARS_MAX else text[: NAME_CHARS_MAX - 1] + "…")


def visible(text: str) -> str:
    """Replace what cannot be seen."""
    return text if text.isprintable() else "".join(one if one.isprintable() else UNSEEN for one in text)


def escaped(text: str) -> Html:
    """Turn text into markup that shows it, in an element as in an attribute."""
    return Html(escape(visible(text), quote=True))


def tag(element: str, /, *children: Child, **attributes: str | None) -> Html:
    """Make an element. ``class_`` loses its underscore, others become dashes; ``None`` is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if element in _VOID:
        return Html(f"<{element}{written}/>")
    return Html(f"<{element}{written}>{join(*children)}</{element}>")


def join(*children: Child) -> Html:
    """Put pieces side by side."""
    return Html("".join(one if isinstance(one, Html) else escaped(str(one)) for one in children))
