"""Change the attributes of an encoded span and leave every other byte as it came.

Most spans hold none of the keys in question. A substring search proves that in a microsecond (a key
that is not among the bytes is not among the attributes), and then adding is appending. Where a
key occurs, be it as a part of some value, the fields are walked and what must go is cut out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from ..model import Attribute, Envelope
from .encode import delimited, encode_attribute, varint
from .scan import Field, fields, read_varint

_DEPTH_MAX = 64  # messages in messages; what is nested deeper and may hold a removed key goes as a whole
_UINT32_MAX = (1 << 32) - 1
_NO_KEYS: frozenset[bytes] = frozenset()
_PROBE_MIN = 4  # a shorter common prefix is found in every span and decides nothing


class _Place(NamedTuple):
    """Where a message keeps its attributes, their dropped count, and messages with more: as tags."""

    children: dict[int, _Place]
    attributes: int = 0
    dropped: int = 0


# A tag is the field number times 8, plus 2 for messages and 0 for integers.
_KEY = 1 * 8 + 2
_VALUE = _Place(children={})
_PAIR = _Place(children={2 * 8 + 2: _VALUE})
_ARRAY = _Place(children={1 * 8 + 2: _VALUE})
_MAP = _Place(attributes=1 * 8 + 2, children={1 * 8 + 2: _PAIR})
_VALUE.children.update({5 * 8 + 2: _ARRAY, 6 * 8 + 2: _MAP})
_EVENT = _Place(attributes=3 * 8 + 2, dropped=4 * 8, children={3 * 8 + 2: _PAIR})
_LINK = _Place(attributes=4 * 8 + 2, dropped=5 * 8, children={4 * 8 + 2: _PAIR})
_RESOURCE = _Place(attributes=1 * 8 + 2, dropped=2 * 8, children={1 * 8 + 2: _PAIR})
_SCOPE = _Place(attributes=3 * 8 + 2, dropped=4 * 8, children={3 * 8 + 2: _PAIR})
_LOG = _Place(attributes=6 * 8 + 2, dropped=7 * 8, children={5 * 8 + 2: _VALUE, 6 * 8 + 2: _PAIR})
_SPAN_ALONE = _Place(attributes=9 * 8 + 2, dropped=10 * 8, children={})
_SPAN = _SPAN_ALONE._replace(children={9 * 8 + 2: _PAIR, 11 * 8 + 2: _EVENT, 13 * 8 + 2: _LINK})


class Closed(NamedTuple):
    """Families of keys of which only the known may stay: whoever defines them cannot say what an unknown one holds."""

    prefixes: tuple[str, ...] = ()
    known: frozenset[str] = frozenset()


OPEN = Closed()
"""No family is closed."""


class _Removal(NamedTuple):
    """The keys that must go, and what to search for to find any of them."""

    keys: frozenset[bytes]
    prefixes: tuple[bytes, ...]
    closed: tuple[bytes, ...]
    known: frozenset[bytes]
    needles: tuple[bytes, ...]

    def names(self, key: bytes) -> bool:
        if key in self.keys or key.startswith(self.prefixes):
            return True
        return key.startswith(self.closed) and key not in self.known


class _Addition(NamedTuple):
    """The keys of the attributes that come, and the longest prefix that all of them share."""

    keys: frozenset[bytes]
    prefix: bytes

    def found_in(self, raw: bytes) -> frozenset[bytes]:
        """All keys where one may occur, else none."""
        if len(self.prefix) >= _PROBE_MIN and self.prefix not in raw:
            return _NO_KEYS
        return self.keys


def splice(
    raw: bytes,
    attributes: Mapping[str, Attribute],
    *,
    remove: Collection[str] = (),
    closed: Closed = OPEN,
    remove_everywhere: bool = True,
) -> bytes:
    """Set attributes of an encoded span and remove others.

    A key that is there already is replaced. ``remove`` names keys, or prefixes where an entry
    ends with ``*``, and of ``closed`` families what is not known goes too; with ``remove_everywhere`` they go from the span's events and links too, and
    from maps inside values. What was removed, and not replaced, is added to the
    ``dropped_attributes_count`` of its span, event or link. Splicing twice changes nothing more.

    The bytes must be those of a span that ``read_span`` has read: where a span ends in half a
    field, appending would complete it.

    Raises:
        BadInput: a field is malformed, where that was noticed; an integer needs over 64 bits.
    """
    place = _SPAN if remove_everywhere else _SPAN_ALONE
    replaced = _addition(tuple(attributes)).found_in(raw)
    if replaced or remove or closed.prefixes:
        raw = _cut(raw, place, _removal(tuple(remove), closed), replaced)
    return raw + _encoded(b"\x4a", attributes)


def splice_resource(
    envelope: Envelope, attributes: Mapping[str, Attribute], remove: Collection[str] = (), closed: Closed = OPEN
) -> Envelope:
    """Set attributes of a resource, and remove others from the resource and from the scope.

    The keys in ``remove`` and ``closed`` are read as in ``splice`` and go from maps inside values too. Returns the
    same envelope where there is nothing to change.

    Raises:
        BadInput: the resource or the scope is malformed, where that was noticed.
    """
    removal = _removal(tuple(remove), closed)
    resource, scope = envelope.resource, envelope.scope
    if attributes or _hits(resource, removal.needles):
        replaced = _addition(tuple(attributes)).keys
        resource = _cut_inner(resource, _RESOURCE, removal, replaced, _encoded(b"\x0a", attributes))
    if _hits(scope, removal.needles):
        scope = _cut_inner(scope, _SCOPE, removal, _NO_KEYS, b"")
    if resource == envelope.resource and scope == envelope.scope:
        return envelope
    return Envelope(resource=resource, scope=scope)


def splice_log(raw: bytes, remove: Collection[str], closed: Closed = OPEN) -> bytes:
    """Remove attributes of an encoded ``LogRecord``, from maps in its body and inside values too, and count them.

    Raises:
        BadInput: a field is malformed, where that was noticed.
    """
    return _cut(raw, _LOG, _removal(tuple(remove), closed))


@lru_cache(maxsize=64)
def _removal(names: tuple[str, ...], closed: Closed) -> _Removal:
    keys = frozenset(name.encode() for name in names if not name.endswith("*"))
    prefixes = tuple(name[:-1].encode() for name in names if name.endswith("*"))
    families = tuple(name.encode() for name in closed.prefixes)
    known = frozenset(name.encode() for name in closed.known)
    return _Removal(keys, prefixes, families, known, (*keys, *prefixes, *families))


@lru_cache(maxsize=512)
def _addition(names: tuple[str, ...]) -> _Addition:
    first, last = min(names, default=""), max(names, default="")
    shared = next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    return _Addition(frozenset(name.encode() for name in names), first[:shared].encode())


def _encoded(tag: bytes, attributes: Mapping[str, Attribute]) -> bytes:
    parts: list[bytes] = []
    for key, value in attributes.items():
        pair = encode_attribute(key, value)
        parts += (tag, varint(len(pair)), pair)
    return b"".join(parts)


def _hits(raw: bytes, needles: Iterable[bytes]) -> list[int]:
    """List the offsets at which any of the needles begins."""
    hits = []
    for needle in needles:
        at = raw.find(needle)
        while at >= 0:
            hits.append(at)
            at = raw.find(needle, at + 1)
    return hits


def _touched(found: list[Field], hits: list[int]) -> Iterator[Field]:
    """Pick the fields of a message whose values hold a hit, and the empty ones."""
    upcoming = iter(sorted(hits))
    hit = next(upcoming)
    for field in found:
        _, _, value, end = field
        while hit < value:
            hit = next(upcoming, end)
        if hit < end or value == end:
            yield field


def _cut(raw: bytes, place: _Place, removal: _Removal, replaced: frozenset[bytes] = _NO_KEYS, depth: int = 0) -> bytes:
    """Take ``replaced`` out of one message, and ``removal`` out of it and of its children."""
    hits = _hits(raw, replaced) + _hits(raw, removal.needles)
    if not hits:
        return raw
    found = fields(raw)
    pieces = []
    copied = removed = 0
    for tag, start, value, end in _touched(found, hits):
        child = place.children.get(tag)
        gone = child is not None and depth == _DEPTH_MAX
        if tag == place.attributes:
            key = _key(raw, value, end)
            if key in replaced:
                gone = True
            elif removal.names(key):
                gone = True
                removed += 1
        if gone or child is not None:
            pieces.append(raw[copied:start])
            copied = end
        if child is not None and not gone:
            pieces.append(delimited(varint(tag), _cut(raw[value:end], child, removal, depth=depth + 1)))
    pieces.append(raw[copied:])
    if removed and place.dropped:
        # Of a scalar that comes twice the last one counts.
        pieces.append(varint(place.dropped) + varint(min(_count(raw, found, place.dropped) + removed, _UINT32_MAX)))
    return b"".join(pieces)


def _count(raw: bytes, found: list[Field], wanted: int) -> int:
    """Read an integer field of a message, 0 where it is absent."""
    counts = [read_varint(raw, value)[0] for tag, _, value, _ in found if tag == wanted]
    return counts[-1] & _UINT32_MAX if counts else 0


def _cut_inner(encoded: bytes, place: _Place, removal: _Removal, replaced: frozenset[bytes], appended: bytes) -> bytes:
    """Do the same to the resource (or scope) in the first field of an envelope's part."""
    messages, others = [], []
    for tag, start, value, end in fields(encoded):
        if tag == _KEY:
            messages.append(encoded[value:end])
        else:
            others.append(encoded[start:end])
    if not messages and not appended:
        return encoded
    # Occurrences of one message, one behind the other, are the encoding of all of them merged.
    message = _cut(b"".join(messages), place, removal, replaced)
    return delimited(b"\x0a", message + appended) + b"".join(others)


def _key(raw: bytes, begin: int, end: int) -> bytes:
    """Read the key of the ``KeyValue`` in ``raw[begin:end]``."""
    # As every encoder writes it: key, then value, both shorter than 128 bytes, and no more.
    if end - begin > 3 and raw[begin] == 0x0A:
        after = begin + 2 + raw[begin + 1]
        if raw[begin + 1] < 128 and after + 1 < end and raw[after] == 0x12 and raw[after + 1] == end - after - 2 < 128:
            return raw[begin + 2 : after]
    key = b""
    for tag, _, value, stop in fields(raw, begin, end):
        if tag == _KEY:
            key = raw[value:stop]
    return key
