"""The text of a configuration file as a tree of nodes that know their line.

YAML's shape is kept and its guesses are not: a scalar stays the text that the user wrote until the
field that it fills says what it must be, so that ``no`` is a name where a name is wanted. Tags, anchors
and aliases are refused: a file is read the way it looks.

``${env:NAME}`` and ``${env:NAME:-default}`` are replaced inside values, after the shape is known, so that
no variable can add a key; ``$$`` is a dollar sign. The default holds where the variable is unset or empty.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

import msgspec
import yaml

from ..errors import ConfigError

_DOLLAR = re.compile(r"\$\$|\$\{([^}]*)(\}?)")
_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_UNTAGGED = {"tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"}
_KEY_LIKE = re.compile(r"[a-z0-9_.\-]{1,15}")
"""Shorter than any key or token that is taken as a secret, which have 16 characters at least."""
_QUOTING = re.compile(r"found (?:undefined alias|duplicate anchor|undefined tag handle).*", re.DOTALL)
_NULLS = {"", "~", "null", "Null", "NULL"}


class Scalar(msgspec.Struct, frozen=True):
    """One value as text; ``None`` where it is null, which ``quoted`` text never is."""

    text: str | None
    line: int
    quoted: bool


class Listing(msgspec.Struct, frozen=True):
    """A sequence of values."""

    items: tuple[Node, ...]
    line: int


class Mapped(msgspec.Struct, frozen=True):
    """Values by key."""

    items: Mapping[str, Node]
    line: int


Node: TypeAlias = Scalar | Listing | Mapped


def at_line(key: str, problem: str, line: int) -> ConfigError:
    """Make the error for a place in the file."""
    return ConfigError(key, f"{problem} (line {line})")


def below(key: str, name: str | int) -> str:
    """Make the key of an item as a message shows it: ``kv_events.sources[0].endpoint``."""
    if isinstance(name, int):
        return f"{key}[{name}]"
    return f"{key}.{name}" if key else name


HIDDEN = "[...]"
"""Stands in an error for a name that may be a secret in a wrong place."""


def shown(name: str) -> str:
    """A name as an error may repeat it: one that looks like no key may be a secret that slipped into a key's place."""
    return name if _KEY_LIKE.fullmatch(name) else HIDDEN


def substitute(text: str, environ: Mapping[str, str]) -> str:
    """Replace the variables in a text; raises `ConfigError` without a key."""

    def replacement(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        variable = _VARIABLE.fullmatch(found[1])
        if variable is None or not found[2]:
            raise ConfigError("", "${...} must be ${env:NAME} or ${env:NAME:-default}; write $$ for a dollar sign")
        name, default = variable[1], variable[2]
        value = environ.get(name)
        if value is None and default is None:
            raise ConfigError("", f"the environment has no {name}; set it, or write ${{env:{name}:-default}}")
        return value or default or ""

    return _DOLLAR.sub(replacement, text)


def read(text: str, environ: Mapping[str, str]) -> Mapped:
    """Read a file's text that must be a mapping; an empty one is an empty mapping."""
    node = read_node(text, environ)
    if isinstance(node, Scalar) and node.text is None:
        return Mapped({}, node.line)
    if not isinstance(node, Mapped):
        raise at_line("", "the file must be a mapping of sections", node.line)
    return node


def read_node(text: str, environ: Mapping[str, str]) -> Node:
    """Read a file's text, whatever it is; an empty one is a null."""
    try:
        # The base loader knows no types and makes no objects: every scalar is text.
        root = yaml.compose(text, Loader=yaml.BaseLoader)
        return Scalar(None, 1, quoted=False) if root is None else _Reader(environ).read(root, "")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # Where the library repeats a name of the file, only what kind of name it is may be said.
        said = _QUOTING.sub(lambda found: found[0].partition("'")[0].rstrip(), str(error.problem or error.context))
        problem = f"not YAML: {said}"
        raise at_line("", problem, mark.line + 1) if mark else ConfigError("", problem) from None
    except yaml.YAMLError:
        raise ConfigError("", "not YAML: it holds a character that YAML forbids") from None
    except RecursionError:
        raise ConfigError("", "not a configuration: it is nested too deeply") from None


def is_printable(text: str) -> bool:
    """Whether a text can go on any wire: no control characters, line ends or halves of characters."""
    return text.isprintable()


def without_line_end(text: str) -> str:
    """A text without the one line end that a file, or a block of YAML, ends in."""
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


class _Reader:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._read: set[int] = set()

    def read(self, node: yaml.Node, key: str) -> Node:
        line = node.start_mark.line + 1
        if node.tag not in _UNTAGGED:
            raise at_line(key, "tags are not read", line)
        if id(node) in self._read:
            raise at_line(key, "aliases are not read: write the value out", line)
        self._read.add(id(node))
        match node:
            case yaml.MappingNode():
                return Mapped(self._items(node, key), line)
            case yaml.SequenceNode():
                return Listing(tuple(self.read(item, below(key, at)) for at, item in enumerate(node.value)), line)
            case yaml.ScalarNode():
                return self._scalar(node, key, line)
            case _:
                raise AssertionError(type(node))

    def _items(self, node: yaml.MappingNode, key: str) -> Mapping[str, Node]:
        items: dict[str, Node] = {}
        for name_node, item in node.value:
            line = name_node.start_mark.line + 1
            if not isinstance(name_node, yaml.ScalarNode):
                raise at_line(key, "a key must be text", line)
            name = below(key, shown(name_node.value))
            if not is_printable(name_node.value):
                raise at_line(key, "a key must be printable characters", line)
            if name_node.value in items:
                raise at_line(name, f"given twice, first on line {items[name_node.value].line}", line)
            items[name_node.value] = self.read(item, name)
        return items

    def _scalar(self, node: yaml.ScalarNode, key: str, line: int) -> Scalar:
        quoted = bool(node.style)
        if not quoted and node.value in _NULLS:
            return Scalar(None, line, quoted)
        try:
            text = substitute(node.value, self._environ)
        except ConfigError as error:
            raise at_line(key, error.problem, line) from None
        # A variable may say null in words; an empty one is a mistake that must not switch something off.
        return Scalar(None if not quoted and text and text in _NULLS else text, line, quoted)
