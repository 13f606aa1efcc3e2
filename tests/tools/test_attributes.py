"""The table of a verdict's attributes is what the redactor writes on spans, by role, type and sampling."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from whymiss.config import RedactionConfig
from whymiss.model import (
    Attribute,
    Cause,
    Envelope,
    Grade,
    Owner,
    Reason,
    Residency,
    ResourceIdentity,
    Role,
    Span,
    Verdict,
)
from whymiss.redaction import Redactor
from whymiss.tools.attributes import ENGINE, OFFLOAD, ROUTER, WRITTEN
from whymiss.wire.fields import read_span
from whymiss.wire.split import split

TYPES = {str: "string", bool: "bool", int: "int", float: "double"}
ROLES = {ENGINE: Role.ENGINE, ROUTER: Role.ROUTER, OFFLOAD: Role.OFFLOAD}
EVERYTHING = Verdict(
    cause=Cause.EVICTED,
    owner=Owner.PLATFORM,
    reason=Reason.CAPACITY,
    grade=Grade.DIRECT,
    prompt_tokens=100,
    cached_tokens=16,
    recomputed_tokens=84,
    lost_tokens=64,
    sparse_lost_tokens=1,
    block_size=16,
    match_unit=16,
    block_index=1,
    residency=Residency.EVICTED,
    eviction_age_ms=5,
    eviction_reason="capacity",
    holders_count=1,
    holders_tiers=("host",),
    holders=("pod-2",),
    predicted_blocks=2,
    best_blocks=3,
    index_version="7",
    route="pod-1",
    remote_lookup="hit",
    extra_key_kinds=("lora",),
    window_seconds=3600.0,
    history_complete=True,
    fleet_view_complete=False,
    first_miss_key=7,
    last_hit_key=6,
)


def left(role: Role, flags: int) -> Mapping[str, Attribute]:
    """The attributes with which a span of a role leaves; 0x101 is sampled, 0x100 says nothing."""
    raw = WireSpan(trace_id=b"t" * 16, span_id=b"s" * 8, name="a span", flags=flags).SerializeToString()
    span = Span(
        raw=raw,
        envelope=Envelope(resource=b"", scope=b""),
        trace_id=b"t" * 16,
        span_id=b"s" * 8,
        parent_span_id=b"",
        start_unix_nanos=0,
        end_unix_nanos=1,
        flags=flags,
        trace_state="",
        role=role,
        dialect="vllm",
        says=(),
        resource=ResourceIdentity(),
    )
    redactor = Redactor(RedactionConfig(), b"k" * 32)
    (group,) = split(redactor.spans([(span, EVERYTHING)], sampled=flags == 0x101).body)
    return read_span(*group.spans).attributes


def type_of(value: Attribute) -> str:
    return "string[]" if isinstance(value, list | tuple) else TYPES[type(value)]


@pytest.mark.parametrize("spans", ROLES)
def test_the_table_is_what_a_sampled_span_leaves_with(spans: str) -> None:
    found = {name.removeprefix("prefix_cache."): type_of(value) for name, value in left(ROLES[spans], 0x101).items()}
    assert found == {one.name: one.type for one in WRITTEN if spans in one.spans}


@pytest.mark.parametrize("spans", ROLES)
def test_what_identifies_is_not_on_a_span_of_an_unsampled_request(spans: str) -> None:
    found = {name.removeprefix("prefix_cache.") for name in left(ROLES[spans], 0x100)}
    assert found == {one.name for one in WRITTEN if spans in one.spans and not one.identifies}
