from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from tests.wire.messages import any_value, encoded, messages, span, unknown
from whymiss.errors import BadInput
from whymiss.model import Attribute, Envelope
from whymiss.wire.encode import delimited, encode_attribute
from whymiss.wire.fields import read_span, resource_attributes
from whymiss.wire.splice import splice, splice_resource

SECRET = "cache_salt"

Holder: TypeAlias = Span | Span.Event | Span.Link

# Few keys, so that they meet; one is a prefix of another, one is empty.
KEYS = st.sampled_from(["", "a", "ab", "prefix_cache.miss", "prefix_cache.miss.cause", SECRET, "salt", "ü"])
ADDED: st.SearchStrategy[Mapping[str, Attribute]] = st.dictionaries(
    KEYS, st.sampled_from(["", "evicted", 0, 7, 1 << 40, -1, 0.5, True, b"\xff", ["x", "y"], None]), max_size=4
)
VALUES: st.SearchStrategy[str | int] = st.sampled_from(["a", SECRET, 1])
REMOVED = st.lists(st.sampled_from(["a", "ab", "a*", SECRET, "prefix_cache.*", "salt", "ü*", "nothing"]), max_size=4)


@st.composite
def keyed_spans(draw: st.DrawFn) -> Span:
    """Spans whose attributes, events and links draw their keys, unique in each, from the few above."""
    made = draw(messages(Span, depth=1))
    holders: list[Holder] = [made, *made.events, *made.links]
    for holder in holders:
        keys = draw(st.lists(KEYS, unique=True, max_size=4))
        del holder.attributes[len(keys) :]
        while len(holder.attributes) < len(keys):
            holder.attributes.add(value=any_value(draw(VALUES)))
        for pair, key in zip(holder.attributes, keys, strict=True):
            pair.key = key
    return made


def named(key: str, names: list[str]) -> bool:
    return any(key.startswith(name[:-1]) if name.endswith("*") else key == name for name in names)


def without(holder: Holder, names: list[str], replaced: Mapping[str, Attribute]) -> None:
    """Remove attributes as protobuf would, and count them."""
    kept = [pair for pair in holder.attributes if pair.key not in replaced and not named(pair.key, names)]
    gone = sum(pair.key not in replaced for pair in holder.attributes) - len(kept)
    del holder.attributes[:]
    holder.attributes.extend(kept)
    holder.dropped_attributes_count = min(holder.dropped_attributes_count + gone, (1 << 32) - 1)


@given(keyed_spans(), ADDED, REMOVED, st.booleans())
def test_splice_does_what_protobuf_would(
    made: Span, added: Mapping[str, Attribute], removed: list[str], everywhere: bool
) -> None:
    spliced = Span.FromString(splice(encoded(made), added, remove=removed, remove_everywhere=everywhere))
    without(made, removed, added)
    inner: list[Holder] = [*made.events, *made.links] if everywhere else []
    for holder in inner:
        without(holder, removed, {})
    made.attributes.extend([KeyValue.FromString(encode_attribute(key, value)) for key, value in added.items()])
    assert encoded(spliced) == encoded(made)


@given(keyed_spans(), ADDED, REMOVED)
def test_keys_stay_unique(made: Span, added: Mapping[str, Attribute], removed: list[str]) -> None:
    keys = [pair.key for pair in Span.FromString(splice(encoded(made), added, remove=removed)).attributes]
    assert len(keys) == len(set(keys))


@given(keyed_spans(), ADDED, REMOVED)
def test_splicing_twice_changes_nothing_more(made: Span, added: Mapping[str, Attribute], removed: list[str]) -> None:
    once = splice(encoded(made), added, remove=removed)
    assert splice(once, added, remove=removed) == once


@given(messages(Span))
def test_without_a_common_key_splicing_is_appending(made: Span) -> None:
    raw = encoded(made)
    assert splice(raw, {"prefix_cache.miss.cause": "evicted"}, remove=["not there"]).startswith(raw)


def test_the_key_as_part_of_another_key_or_value_is_no_match() -> None:
    attributes: dict[str, str | bool | int] = {"the cause": "x", "text": "cause", "cause": 1, "causes": True}
    made = span(**attributes)
    read = read_span(splice(encoded(made), {"cause": 2}, remove=["x", "text of"]))
    assert read.attributes == {"the cause": "x", "text": "cause", "causes": True, "cause": 2}


def test_flags_trace_state_and_unknown_fields_survive() -> None:
    made = span(a=1)
    made.trace_state = "ot=th:8"
    made.flags = 0xFFFF_FFFF
    raw = unknown(2000, b"first") + encoded(made) + unknown(3000, b"last")
    spliced = splice(raw, {"a": 2})
    assert spliced == raw.replace(delimited(b"\x4a", encode_attribute("a", 1)), b"") + delimited(
        b"\x4a", encode_attribute("a", 2)
    )


def test_a_key_that_is_there_twice_goes_twice() -> None:
    raw = encoded(span(a=1)) + encoded(Span(attributes=[KeyValue(key="a", value=any_value(2))]))
    assert [pair.key for pair in Span.FromString(splice(raw, {"a": 3})).attributes] == ["a"]


@pytest.mark.parametrize(
    "pair",
    [
        delimited(b"\x12", b"\x18\x01") + delimited(b"\x0a", b"cache_salt"),
        delimited(b"\x0a", b"harmless") + delimited(b"\x12", b"\x18\x01") + delimited(b"\x0a", b"cache_salt"),
        unknown(1000, b"x") + delimited(b"\x0a", b"cache_salt") + delimited(b"\x12", b"\x18\x01"),
        delimited(b"\x0a", b"cache_salt"),
        b"\x0a\x8a\x00cache_salt",
        delimited(b"\x0a", b"cache_salt") + delimited(b"\x12", delimited(b"\x0a", b"v" * 500)),
    ],
    ids=["value first", "key twice", "unknown field", "no value", "padded length", "long value"],
)
def test_odd_encodings_of_an_attribute_do_not_hide_its_key(pair: bytes) -> None:
    raw = encoded(span(n=1)) + delimited(b"\x4a", pair)
    assert Span.FromString(raw).attributes[1].key == SECRET
    (kept,) = Span.FromString(splice(raw, {}, remove=[SECRET])).attributes
    assert kept.key == "n"


def test_a_key_of_any_length_is_found() -> None:
    for size in (1, 127, 128, 300):
        made = span(**{"k" * size: "v" * 300})
        assert read_span(splice(encoded(made), {}, remove=["k" * size])).attributes == {}


def test_a_star_removes_all() -> None:
    made = span(a=1, b="x")
    made.events.add().attributes.add(key="c", value=any_value(1))
    spliced = Span.FromString(splice(encoded(made), {"d": 4}, remove=["*"]))
    assert [pair.key for pair in spliced.attributes] == ["d"]
    assert not spliced.events[0].attributes
    assert (spliced.dropped_attributes_count, spliced.events[0].dropped_attributes_count) == (2, 1)


def test_what_is_replaced_is_not_counted_as_dropped() -> None:
    spliced = Span.FromString(splice(encoded(span(cache_salt="s")), {SECRET: "digest"}, remove=[SECRET]))
    assert spliced.dropped_attributes_count == 0
    assert spliced.attributes[0].value.string_value == "digest"


def test_the_dropped_count_stops_at_its_limit() -> None:
    made = span(a=1)
    made.dropped_attributes_count = (1 << 32) - 1
    assert Span.FromString(splice(encoded(made), {}, remove=["a"])).dropped_attributes_count == (1 << 32) - 1


def nested(depth: int) -> AnyValue:
    """A map with a secret, in maps and lists."""
    inner = AnyValue(
        kvlist_value=KeyValueList(values=[KeyValue(key=SECRET, value=any_value("hush")), KeyValue(key="k")])
    )
    for level in range(depth):
        if level % 2:
            inner = AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="m", value=inner)]))
        else:
            inner = AnyValue(array_value=ArrayValue(values=[any_value(1), inner]))
    return inner


@pytest.mark.parametrize("depth", [0, 1, 2, 5, 30])
def test_no_secret_survives_inside_of_values(depth: int) -> None:
    made = span(kept=1)
    made.attributes.add(key="outer", value=nested(depth))
    made.events.add(name="e").attributes.add(key="outer", value=nested(depth))
    made.links.add().attributes.add(key="outer", value=nested(depth))
    spliced = splice(encoded(made), {}, remove=[SECRET])
    assert b"hush" not in spliced
    read = Span.FromString(spliced)
    assert [pair.key for pair in read.attributes] == ["kept", "outer"]
    assert read.dropped_attributes_count == 0


def test_a_value_too_deep_to_search_goes_as_a_whole() -> None:
    pair = encode_attribute(SECRET, "hush")
    for _ in range(200):
        pair = delimited(b"\x0a", b"m") + delimited(b"\x12", delimited(b"\x32", delimited(b"\x0a", pair)))
    spliced = splice(delimited(b"\x4a", pair), {}, remove=[SECRET])
    assert b"hush" not in spliced
    assert b"m" in spliced


def test_only_the_span_itself_where_that_is_asked() -> None:
    made = span(cache_salt="s")
    made.events.add().attributes.add(key=SECRET, value=any_value("s"))
    spliced = Span.FromString(splice(encoded(made), {}, remove=[SECRET], remove_everywhere=False))
    assert not spliced.attributes
    assert spliced.events == made.events


@given(st.binary(max_size=60), ADDED, REMOVED)
def test_garbage_is_bad_input_or_bytes(raw: bytes, added: Mapping[str, Attribute], removed: list[str]) -> None:
    with suppress(BadInput):
        splice(raw, added, remove=removed)


@given(messages(Span).map(encoded), ADDED)
def test_what_is_readable_can_be_spliced(raw: bytes, added: Mapping[str, Attribute]) -> None:
    read_span(splice(raw, added, remove=["*"]))


def envelope(resource: Resource, scope: InstrumentationScope) -> Envelope:
    return Envelope(
        resource=encoded(ResourceSpans(resource=resource, schema_url="r")),
        scope=encoded(ScopeSpans(scope=scope, schema_url="s")),
    )


@given(messages(Resource, 1), messages(InstrumentationScope, 1), ADDED)
def test_resource_is_spliced_and_the_rest_of_the_envelope_kept(
    resource: Resource, scope: InstrumentationScope, added: Mapping[str, Attribute]
) -> None:
    resource.attributes.add(key=SECRET, value=any_value("hush"))
    scope.attributes.add(key=SECRET, value=any_value("hush"))
    spliced = splice_resource(envelope(resource, scope), added, [SECRET])
    outer, inner = ResourceSpans.FromString(spliced.resource), ScopeSpans.FromString(spliced.scope)
    assert (outer.schema_url, inner.schema_url) == ("r", "s")
    assert (inner.scope.name, inner.scope.version) == (scope.name, scope.version)
    assert b"hush" not in spliced.resource + spliced.scope
    assert {pair.key for pair in outer.resource.attributes} == {pair.key for pair in resource.attributes} - {
        SECRET
    } | set(added)
    assert inner.scope.dropped_attributes_count == min(scope.dropped_attributes_count + 1, (1 << 32) - 1)


def test_an_envelope_without_the_keys_is_the_same_one() -> None:
    given_one = envelope(Resource(attributes=[KeyValue(key="k", value=any_value(1))]), InstrumentationScope(name="n"))
    assert splice_resource(given_one, {}, [SECRET, "x*"]) is given_one


def test_a_resource_is_made_where_there_is_none() -> None:
    spliced = splice_resource(Envelope(resource=b"", scope=b""), {"service.name": "vllm"})
    assert resource_attributes(spliced) == {"service.name": "vllm"}
    assert spliced.scope == b""


def test_a_resource_in_two_parts_is_searched_in_both() -> None:
    halves = [Resource(attributes=[KeyValue(key=key, value=any_value("hush"))]) for key in (SECRET, "k", SECRET)]
    raw = b"".join([delimited(b"\x0a", encoded(half)) for half in halves])
    spliced = splice_resource(Envelope(resource=raw, scope=b""), {}, [SECRET])
    assert ResourceSpans.FromString(spliced.resource).resource == Resource(
        attributes=[KeyValue(key="k", value=any_value("hush"))], dropped_attributes_count=2
    )


def test_a_url_that_mentions_the_key_is_not_touched() -> None:
    given_one = Envelope(resource=delimited(b"\x1a", b"https://cache_salt"), scope=b"")
    assert splice_resource(given_one, {}, [SECRET]) is given_one
