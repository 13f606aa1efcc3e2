"""Which spans may identify a prompt, and what a digest gives away."""

from __future__ import annotations

import msgspec
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status as WireStatus

from tests.timeline import span_of
from whymiss.config import RedactionConfig
from whymiss.model import Cause, Grade, Owner, Role, Verdict
from whymiss.redaction import Redactor
from whymiss.wire.fields import read_span
from whymiss.wire.split import split

KEY = b"a key of these tests"
SPAN = span_of(Role.ENGINE, 1, 1)


def redactor(ratio: float = 1.0, key: bytes = KEY) -> Redactor:
    return Redactor(RedactionConfig(sample_ratio=ratio), key)


@pytest.mark.parametrize(("flags", "may"), [(0, True), (1, True), (2, False), (3, True)])
def test_a_span_that_is_not_sampled_stands_alone_with_that(flags: int, may: bool) -> None:
    span = msgspec.structs.replace(SPAN, flags=flags)
    assert redactor().may_identify(span, sampled=True) is may
    assert redactor().may_identify(span, sampled=False) is False


def test_only_the_configured_share_of_traces_may_identify() -> None:
    low, high = SPAN, msgspec.structs.replace(SPAN, trace_id=b"\xff" * 16)
    assert [redactor(0.5).may_identify(span, sampled=True) for span in (low, high)] == [False, True]
    assert [redactor(0.0).may_identify(span, sampled=True) for span in (low, high)] == [False, False]


def test_digests_are_short_and_depend_on_the_key() -> None:
    one, other = redactor(), redactor(key=KEY[::-1])
    assert one.digest(7) != other.digest(7)
    assert one.text_digest("salt") != other.text_digest("salt")
    assert {len(one.digest(7)), len(one.text_digest("salt"))} == {16}


# --- salts and the text of exceptions ------------------------------------------------------------------

SALT, SECRET = "tenant-7-salt", "the prompt was: pay Ann 100"


def leaving(flags: int, *, sensitive: tuple[str, ...] = (), digested: tuple[str, ...] = ()) -> tuple[bytes, WireSpan]:
    """What leaves of a span with a salt, on itself and in an event, and with an exception; no verdict on it."""
    wire = WireSpan(trace_id=bytes(15) + b"\1", span_id=bytes(7) + b"\1", name="llm_request", flags=flags)
    wire.status.code, wire.status.message = WireStatus.STATUS_CODE_ERROR, SECRET
    for attributes in (wire.attributes, wire.events.add(name="e").attributes):
        attributes.add(key="cache_salt").value.string_value = SALT
        attributes.add(key="exception.message").value.string_value = SECRET
    one = msgspec.structs.replace(
        SPAN, raw=wire.SerializeToString(), flags=flags, sensitive=sensitive, digested=digested
    )
    redacting = redactor()
    (group,) = split(redacting.spans([(one, None)], sampled=redacting.is_sampled([one])).body)
    (raw,) = group.spans
    return bytes(raw), WireSpan.FromString(bytes(raw))


@pytest.mark.parametrize("flags", [1, 2])
def test_a_salt_never_leaves_as_it_is(flags: int) -> None:
    raw, _ = leaving(flags, digested=("cache_salt",))
    assert SALT.encode() not in raw


def test_the_digest_of_a_salt_leaves_on_sampled_spans_only() -> None:
    digest = redactor().text_digest(SALT)
    sampled, unsampled = (leaving(flags, digested=("cache_salt",)) for flags in (1, 2))
    assert {one.key: one.value.string_value for one in sampled[1].attributes}["cache_salt"] == digest
    assert digest.encode() not in unsampled[0]
    assert [one.key for one in unsampled[1].attributes] == ["exception.message"]


def test_the_text_of_an_exception_does_not_leave_in_the_status_either() -> None:
    raw, wire = leaving(1, sensitive=("exception.message",))
    assert SECRET.encode() not in raw
    assert (wire.status.code, wire.status.message) == (WireStatus.STATUS_CODE_ERROR, "")


def test_a_status_stays_where_the_text_of_exceptions_may_leave() -> None:
    _, wire = leaving(1, digested=("cache_salt",))
    assert wire.status.message == SECRET


# --- what is whose to carry ----------------------------------------------------------------------------

VERDICT = Verdict(
    cause=Cause.EVICTED, owner=Owner.PLATFORM, grade=Grade.DIRECT, first_miss_key=7, last_hit_key=6, route="pod-1"
)


@pytest.mark.parametrize(("role", "digests"), [(Role.ENGINE, 2), (Role.LOOKUP, 2), (Role.ROUTER, 0), (Role.OFFLOAD, 0)])
def test_the_digests_of_blocks_leave_on_spans_of_the_engine_only(role: Role, digests: int) -> None:
    wire = WireSpan(trace_id=b"t" * 16, span_id=b"s" * 8, name="any")
    one = msgspec.structs.replace(SPAN, role=role, raw=wire.SerializeToString())
    (group,) = split(redactor().spans([(one, VERDICT)], sampled=True).body)
    names = set(read_span(group.spans[0]).attributes)
    assert sum(name.endswith(".digest") for name in names) == digests
    assert "prefix_cache.route.chosen" in names
