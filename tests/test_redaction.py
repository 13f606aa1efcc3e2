"""What may leave: sampled state, digests, and attributes that must stay."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from whymiss.config import RedactionConfig, Secret
from whymiss.model import (
    Attribute,
    Cause,
    EngineRequest,
    Envelope,
    Grade,
    Owner,
    Reason,
    ResourceIdentity,
    Role,
    Span,
    Verdict,
)
from whymiss.redaction import Redactor, Sampling, adjusted_count, sampling_of
from whymiss.wire.encode import delimited, encode_attribute
from whymiss.wire.fields import read_span, resource_attributes
from whymiss.wire.split import split

KEY = b"k" * 32
VERDICT = Verdict(
    cause=Cause.EVICTED,
    owner=Owner.PLATFORM,
    reason=Reason.CAPACITY,
    grade=Grade.DIRECT,
    prompt_tokens=100,
    cached_tokens=0,
    first_miss_key=7,
    last_hit_key=6,
    holders=("pod-2",),
    holders_count=1,
    route="pod-1",
)


def span(
    flags: int = 0x101,
    *,
    trace_state: str = "",
    role: Role = Role.ENGINE,
    sensitive: tuple[str, ...] = (),
    raw: bytes = b"",
) -> Span:
    wire = WireSpan(trace_id=b"t" * 16, span_id=b"s" * 8, name="llm_request", flags=flags, trace_state=trace_state)
    return Span(
        raw=raw or wire.SerializeToString(),
        envelope=Envelope(resource=b"", scope=b""),
        trace_id=b"t" * 16,
        span_id=b"s" * 8,
        parent_span_id=b"",
        start_unix_nanos=0,
        end_unix_nanos=1,
        flags=flags,
        trace_state=trace_state,
        role=role,
        dialect="vllm",
        says=(EngineRequest(),),
        resource=ResourceIdentity(),
        sensitive=sensitive,
    )


def left(redactor: Redactor, one: Span, verdict: Verdict | None = VERDICT) -> dict[str, Attribute]:
    redacted = redactor.spans([(one, verdict)], sampled=redactor.is_sampled([one]))
    (group,) = split(redacted.body)
    (raw,) = group.spans
    return dict(read_span(raw).attributes)


@pytest.mark.parametrize(
    ("flags", "trace_state", "expected"),
    [
        (0x101, "", Sampling.SAMPLED),
        (0x001, "", Sampling.SAMPLED),
        # The random-id flag alone: somebody wrote the flags, and not the sampled one.
        (0x102, "", Sampling.UNSAMPLED),
        # Python's exporters: "remote is known" and nothing of the W3C flags.
        (0x100, "", Sampling.UNKNOWN),
        (0x300, "", Sampling.UNKNOWN),
        (0, "", Sampling.UNKNOWN),
        (0x100, "ot=th:0", Sampling.SAMPLED),
        # T is the largest threshold; the trace id's last 56 bits (0x74…) are below it.
        (0x100, "ot=th:f", Sampling.UNKNOWN),
        (0x100, "ot=th:f;rv:ffffffffffffff", Sampling.SAMPLED),
        (0x100, "vendor=1,ot=th:8;rv:80000000000000", Sampling.SAMPLED),
        (0x100, "ot=th:zz", Sampling.UNKNOWN),
    ],
)
def test_the_three_sampling_states(flags: int, trace_state: str, expected: Sampling) -> None:
    assert sampling_of(span(flags, trace_state=trace_state)) is expected


@pytest.mark.parametrize(
    ("trace_state", "expected"),
    [("ot=th:0", 1.0), ("ot=th:8", 2.0), ("ot=th:c", 4.0), ("ot=rv:00000000000000", None), ("", None)],
)
def test_adjusted_counts_of_the_specification(trace_state: str, expected: float | None) -> None:
    assert adjusted_count(span(trace_state=trace_state)) == expected


def test_about_a_hundred() -> None:
    assert adjusted_count(span(trace_state="ot=th:fd70a4")) == pytest.approx(100, rel=1e-3)


IDENTITIES = {
    "prefix_cache.first_miss.digest",
    "prefix_cache.last_hit.digest",
    "prefix_cache.holders.workers",
    "prefix_cache.route.chosen",
}


def test_identities_leave_on_sampled_spans_only() -> None:
    redactor = Redactor(RedactionConfig(), KEY)
    assert set(left(redactor, span(0x101))) >= IDENTITIES
    unsampled = left(redactor, span(0x102))
    assert not set(unsampled) & IDENTITIES
    assert unsampled["prefix_cache.miss.cause"] == "evicted"


def test_the_policy_decides_where_nobody_says() -> None:
    unknown = span(0x300)
    assert Redactor(RedactionConfig(unknown_sampling="treat_as_sampled"), KEY).is_sampled([unknown])
    assert not Redactor(RedactionConfig(unknown_sampling="treat_as_unsampled"), KEY).is_sampled([unknown])


def test_another_span_of_the_request_settles_an_unknown_state() -> None:
    redactor = Redactor(RedactionConfig(unknown_sampling="treat_as_sampled"), KEY)
    assert not redactor.is_sampled([span(0x300), span(0x102)])
    assert redactor.is_sampled([span(0x300), span(0x102), span(0x101)])


def test_the_same_block_has_the_same_digest_under_the_same_key_only() -> None:
    one, other = Redactor(RedactionConfig(), KEY), Redactor(RedactionConfig(), KEY)
    rotated = Redactor(
        RedactionConfig(digest_key=Secret("another key, of 32 bytes or so..."), digest_key_id="2"), b"x" * 32
    )
    assert one.digest(7) == other.digest(7) != one.digest(8)
    assert rotated.digest(7) != one.digest(7)
    assert rotated.digest(7).startswith("2:")


def test_routers_and_tiers_get_their_part_and_not_the_engines() -> None:
    redactor = Redactor(RedactionConfig(), KEY)
    for role in (Role.ROUTER, Role.OFFLOAD):
        attributes = left(redactor, span(role=role))
        assert attributes["prefix_cache.miss.cause"] == "evicted"
        assert "prefix_cache.prompt_tokens" not in attributes
        assert "prefix_cache.first_miss.digest" not in attributes


@given(st.text(min_size=1, max_size=12), st.text(min_size=8, max_size=20))
def test_sensitive_and_dropped_attributes_never_leave(suffix: str, value: str) -> None:
    wire = WireSpan(trace_id=b"t" * 16, span_id=b"s" * 8, name="llm_request")
    wire.attributes.add(key="secret.key").value.string_value = value
    wire.attributes.add(key=f"input.{suffix}").value.string_value = value
    wire.events.add(name="e").attributes.add(key="secret.key").value.string_value = value
    redactor = Redactor(RedactionConfig(drop_attributes=("input.*",)), KEY)
    one = span(raw=wire.SerializeToString(), sensitive=("secret.key",))
    redacted = redactor.spans([(one, None)], sampled=True)
    (group,) = split(redacted.body)
    after = WireSpan.FromString(group.spans[0])
    assert not after.attributes
    assert after.dropped_attributes_count == 2
    assert not after.events[0].attributes


def test_dropped_attributes_leave_no_resource_either() -> None:
    pair = delimited(b"\x0a", encode_attribute("input.value", "a prompt")) + delimited(
        b"\x0a", encode_attribute("a", "b")
    )
    envelope = Envelope(resource=delimited(b"\x0a", pair), scope=b"")
    assert resource_attributes(envelope)["input.value"] == "a prompt"
    redactor = Redactor(RedactionConfig(drop_attributes=("input.*",)), KEY)
    one = msgspec.structs.replace(span(), envelope=envelope)
    (group,) = split(redactor.spans([(one, None)], sampled=True).body)
    assert dict(resource_attributes(group.envelope)) == {"a": "b"}


def test_redacting_twice_changes_nothing_more() -> None:
    redactor = Redactor(RedactionConfig(), KEY)
    once = redactor.spans([(span(), VERDICT)], sampled=True)
    (group,) = split(once.body)
    twice = redactor.spans([(span(raw=group.spans[0]), VERDICT)], sampled=True)
    assert twice.body == once.body
