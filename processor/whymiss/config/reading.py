"""From the text of a configuration file to the frozen tree, with errors that name the user's key.

The classes of the sections are the schema: the type of a field says how its text is read.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import inspect

from ..errors import ConfigError
from . import units
from .environment import exporter_of
from .kinds import Secret
from .kv_events import KvSourceConfig, check_distinct
from .text import Listing, Mapped, Node, Scalar, at_line, below, is_printable, read, read_node, shown, without_line_end
from .tree import Config

_GROUPS = (inspect.StructType, inspect.DictType, inspect.VarTupleType)
"""What a key without a value leaves at its default, as in ``join:`` with nothing below it."""
_SCHEMA = inspect.type_info(Config)
_SOURCE = inspect.type_info(KvSourceConfig)
_NO_NAME = (inspect.NoneType, inspect.BoolType)


def parse(text: str, environ: Mapping[str, str]) -> Config:
    """Read a configuration file's text; raises `ConfigError`, which names the key and, where one is to blame, the line.

    Where the text names no exporter, OpenTelemetry's standard variables may: see `environment`.
    """
    root = read(text, environ)
    config = msgspec.convert(_value(_SCHEMA, root, ""), Config)
    if isinstance(root.items.get("exporters"), Mapped):
        return config
    exporter = exporter_of(environ)
    return config if exporter is None else msgspec.structs.replace(config, exporters={"default": exporter})


def parse_sources(text: str, environ: Mapping[str, str]) -> tuple[KvSourceConfig, ...]:
    """Read the text of a ``kv_events.discovery`` file, a list of publishers.

    An empty text is no list: a file is empty for a moment while it is being written. Raises `ConfigError`, with
    keys such as ``[0].endpoint``.
    """
    node = read_node(text, environ)
    if not isinstance(node, Listing):
        raise at_line("", "the file must be a list of publishers; [] is none", node.line)
    entries = [_value(_SOURCE, item, below("", at)) for at, item in enumerate(node.items)]
    sources = msgspec.convert(entries, tuple[KvSourceConfig, ...])
    check_distinct("", sources)
    return sources


def _section(schema: inspect.StructType, node: Node, key: str) -> object:
    if isinstance(node, Scalar) and node.text is None:
        node = Mapped({}, node.line)
    if not isinstance(node, Mapped):
        raise at_line(key, "must hold keys of its own", node.line)
    fields = {field.encode_name: field for field in schema.fields}
    values: dict[str, object] = {}
    for name, item in node.items.items():
        if name not in fields:
            raise at_line(below(key, _shown(name, fields)), f"unknown key; {_nearest(name, fields, key)}", item.line)
        kind = fields[name].type
        if not (isinstance(kind, _GROUPS) and isinstance(item, Scalar) and item.text is None):
            values[name] = _value(kind, item, below(key, name))
    for name, field in fields.items():
        if field.required and name not in values:
            raise at_line(below(key, name), "must be given", node.line)
    try:
        return msgspec.convert(values, schema.cls)
    except ConfigError as error:
        raise ConfigError(below(key, error.key), error.problem) from None


def _shown(name: str, fields: Iterable[str]) -> str:
    # A slip of the pen is letters; `token=secret` is near a key, too.
    near = name.isascii() and name.replace("_", "").isalpha() and difflib.get_close_matches(name, list(fields), n=1)
    return name if near else shown(name)


def _nearest(name: str, fields: Iterable[str], key: str) -> str:
    known = sorted(fields)
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {below(key, near[0])}?" if near else f"known here: {', '.join(known)}"


def _value(kind: inspect.Type, node: Node, key: str) -> object:
    match kind:
        case inspect.StructType():
            return _section(kind, node, key)
        case inspect.DictType():
            if not isinstance(node, Mapped):
                raise at_line(key, "must be a mapping", node.line)
            return {name: _value(kind.value_type, item, below(key, name)) for name, item in node.items.items()}
        case inspect.VarTupleType():
            if not isinstance(node, Listing):
                raise at_line(key, "must be a list", node.line)
            return tuple(_value(kind.item_type, item, below(key, at)) for at, item in enumerate(node.items))
        case inspect.UnionType(types=(inspect.StructType() as section, inspect.NoneType())):
            absent = isinstance(node, Scalar) and node.text is None
            return None if absent else _section(section, node, key)
        case _:
            if not isinstance(node, Scalar):
                raise at_line(key, "must be a single value", node.line)
            return _single(kind, node, key)


def _single(kind: inspect.Type, node: Scalar, key: str) -> object:
    if isinstance(kind, inspect.UnionType):
        if node.text is None:
            return None
        # Where a name and a boolean are both allowed, only an unquoted true or false is a boolean.
        if inspect.BoolType() in kind.types and not node.quoted and _truth(node.text) is not None:
            return _truth(node.text)
        return _single(next(member for member in kind.types if not isinstance(member, _NO_NAME)), node, key)
    if node.text is None:
        raise at_line(key, "must not be null", node.line)
    value, wanted = _read_text(kind, node.text)
    if value is None:
        raise at_line(key, f"must be {wanted}", node.line)
    return value


def _read_text(kind: inspect.Type, text: str) -> tuple[object, str]:
    """Return the value, or ``None``, and what the text should have been."""
    match kind:
        case inspect.StrType():
            line = without_line_end(text)
            return line if is_printable(line) else None, "one line of printable characters"
        case inspect.CustomType(cls=cls) if cls is Secret:
            # A mounted secret ends like a file does.
            return Secret(without_line_end(text)), "text"
        case inspect.LiteralType(values=choices):
            return text if text in choices else None, f"one of {', '.join(str(choice) for choice in choices)}"
        case inspect.BoolType():
            return _truth(text), "true or false"
        case inspect.Metadata(type=inspect.FloatType() as bounds):
            return _bounded(units.seconds(text), bounds, "a duration such as 5s, 200ms or 1.5 (seconds)")
        case inspect.Metadata(type=inspect.IntType() as bounds):
            return _bounded(units.size(text), bounds, "a size such as 64MiB or 4096 (bytes)")
        case inspect.IntType():
            return _bounded(units.whole(text), kind, "a whole number")
        case inspect.FloatType():
            return _bounded(units.number(text), kind, "a number")
        case _:
            raise AssertionError(kind)


def _truth(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _bounded(value: float | None, bounds: inspect.FloatType | inspect.IntType, wanted: str) -> tuple[float | None, str]:
    if bounds.gt is not None:
        return value if value is not None and value > bounds.gt else None, f"{wanted}, above {bounds.gt}"
    assert bounds.ge is not None
    if value is None or value < bounds.ge or (bounds.le is not None and value > bounds.le):
        value = None
    return value, f"{wanted}, at least {bounds.ge}" + ("" if bounds.le is None else f" and at most {bounds.le}")
