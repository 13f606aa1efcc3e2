"""The options of the configuration as a table: keys, defaults, and the sentence under each field."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from typing import get_args, get_origin

import msgspec

from ..config import Config
from ..config.kinds import Section


class Option(msgspec.Struct, frozen=True):
    """One key of the file."""

    key: str
    default: str
    meaning: str


def options(section: type[Section] = Config, prefix: str = "") -> Iterator[Option]:
    """All keys below a section, in the order of the code."""
    meanings = _meanings(section)
    for field in msgspec.structs.fields(section):
        key = f"{prefix}{field.encode_name}"
        inner, suffix = _section_of(field.type)
        if inner is not None:
            yield from options(inner, f"{key}{suffix}.")
        else:
            yield Option(key, _default(field), meanings.get(field.name, ""))


def _section_of(kind: object) -> tuple[type[Section] | None, str]:
    """The section that a field holds, and how its keys go on: ``[]`` in a list, ``.NAME`` in a mapping."""
    if inspect.isclass(kind) and issubclass(kind, Section):
        return kind, ""
    origin = get_origin(kind)
    for inner in get_args(kind):
        found, suffix = _section_of(inner)
        if found is not None:
            return found, ("[]" if origin is tuple else ".NAME" if origin is Mapping else "") + suffix
    return None, ""


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.NODEFAULT:
        return "none" if field.default_factory is not msgspec.NODEFAULT else "must be given"
    value = field.default
    if value is None:
        return "`null`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value == "":
        return "empty"
    if isinstance(value, tuple | dict):
        return f"{len(value)} entries" if value else "none"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _meanings(section: type[Section]) -> dict[str, str]:
    """The text under each field, which Python does not keep: it is read from the source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(section)))
    body = tree.body[0]
    assert isinstance(body, ast.ClassDef), "the source of a class is a class"
    found: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            value = text.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[field.target.id] = " ".join(value.value.split()).replace("``", "`")
    return found
