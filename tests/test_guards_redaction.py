"""Which spans may identify a prompt, and what a digest gives away."""

from __future__ import annotations

import msgspec
import pytest

from tests.timeline import span_of
from whymiss.config import RedactionConfig
from whymiss.model import Role
from whymiss.redaction import Redactor

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
