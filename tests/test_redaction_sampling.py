"""Which spans may be identified: what a span says of itself, what its request says, and the ratio by trace id."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.test_redaction import IDENTITIES, KEY, left, span
from whymiss.config import RedactionConfig, parse
from whymiss.errors import ConfigError
from whymiss.model import Span
from whymiss.redaction import Redactor, Sampling, adjusted_count, randomness, sampling_of, threshold_of

RANDOM = 1 << 56

ratios = st.floats(0, 1)
traces = st.binary(min_size=16, max_size=16)
flags = st.integers(0, 0x3FF)
explicit = st.integers(0, RANDOM - 1)
trace_states = st.one_of(
    st.just(""),
    st.just("vendor=th:8"),
    explicit.map(lambda value: f"ot=rv:{value:014x}"),
    explicit.map(lambda value: f"vendor=1,ot=th:{value:014x}"),
    st.tuples(explicit, explicit).map(lambda pair: f"ot=th:{pair[0]:014x};rv:{pair[1]:014x}"),
)


def spans_of(trace: bytes, *others: tuple[int, str]) -> list[Span]:
    return [
        msgspec.structs.replace(span(number, trace_state=state), trace_id=trace, span_id=bytes([index + 1] * 8))
        for index, (number, state) in enumerate(others)
    ]


def redactor(ratio: float, unknown: str = "treat_as_sampled") -> Redactor:
    text = f"redaction: {{sample_ratio: {ratio!r}, unknown_sampling: {unknown}}}"
    return Redactor(parse(text, {}).redaction, KEY)


@given(traces, ratios, ratios)
def test_a_smaller_ratio_chooses_among_those_of_a_larger_one(trace: bytes, one: float, other: float) -> None:
    (span_,) = spans_of(trace, (0x301, ""))
    smaller, larger = sorted((one, other))
    if redactor(smaller).may_identify(span_, sampled=True):
        assert redactor(larger).may_identify(span_, sampled=True)


@given(traces, ratios)
def test_all_spans_of_a_trace_are_chosen_alike_on_every_replica(trace: bytes, ratio: float) -> None:
    spans = spans_of(trace, (0x301, ""), (0x300, ""), (0, "vendor=1"), (0x101, "ot=th:0"))
    chosen = {redactor(ratio).may_identify(one, sampled=True) for one in spans for _ in range(2)}
    assert len(chosen) == 1


@given(traces, flags, trace_states)
def test_a_ratio_of_one_chooses_all_and_of_zero_none(trace: bytes, number: int, state: str) -> None:
    (one,) = spans_of(trace, (number, state))
    assert not redactor(0).may_identify(one, sampled=True)
    assert redactor(1).may_identify(one, sampled=True) is (sampling_of(one) is not Sampling.UNSAMPLED)


@given(ratios.filter(lambda ratio: ratio > 1e-6), trace_states.filter(lambda state: "rv" in state), traces)
def test_an_explicit_randomness_wins_over_the_trace_id(ratio: float, state: str, trace: bytes) -> None:
    one, other = spans_of(trace, (0x301, state))[0], spans_of(bytes(16), (0x301, state))[0]
    assert randomness(one) == randomness(other) == int(state[-14:], 16)
    assert redactor(ratio).may_identify(one, sampled=True) is (randomness(one) >= threshold_of(ratio))


@given(explicit)
def test_who_kept_a_trace_with_a_threshold_and_we_with_its_ratio_choose_the_same(value: int) -> None:
    # 56 bits do not fit a float: of thresholds of the length that samplers write, 4 digits, all do.
    threshold = value >> 40 << 40
    kept = spans_of((value * 3 % RANDOM).to_bytes(16, "big"), (0x300, f"ot=th:{threshold:014x}"))[0]
    weight = adjusted_count(kept)
    assert weight is not None
    assert redactor(1 / weight).may_identify(kept, sampled=True) is (sampling_of(kept) is Sampling.SAMPLED)


def test_a_quarter_is_a_quarter() -> None:
    of = redactor(0.25)
    step = RANDOM // 1000
    spans = (spans_of((number * step).to_bytes(16, "big"), (0x301, ""))[0] for number in range(1000))
    assert sum(of.may_identify(one, sampled=True) for one in spans) == pytest.approx(250, abs=1)


@given(st.lists(st.tuples(flags, trace_states), min_size=1, max_size=4), traces, ratios)
def test_a_span_that_says_it_is_unsampled_is_never_identified(
    others: list[tuple[int, str]], trace: bytes, ratio: float
) -> None:
    spans = spans_of(trace, *others)
    of = redactor(ratio)
    for one in spans:
        if sampling_of(one) is Sampling.UNSAMPLED:
            assert not of.may_identify(one, sampled=of.is_sampled(spans))


@given(st.lists(st.tuples(flags, trace_states), min_size=1, max_size=4), traces)
def test_a_certain_state_in_the_request_wins_over_the_policy(others: list[tuple[int, str]], trace: bytes) -> None:
    spans = spans_of(trace, *others)
    assume(any(sampling_of(one) is not Sampling.UNKNOWN for one in spans))
    assert redactor(1).is_sampled(spans) is redactor(1, "treat_as_unsampled").is_sampled(spans)


@given(ratios, flags, trace_states, traces)
def test_what_is_not_chosen_leaves_with_its_cause_and_without_identities(
    ratio: float, number: int, state: str, trace: bytes
) -> None:
    (one,) = spans_of(trace, (number, state))
    of = redactor(ratio)
    attributes = left(of, one)
    assert attributes["prefix_cache.miss.cause"] == "evicted"
    assert bool(set(attributes) & IDENTITIES) is of.may_identify(one, sampled=of.is_sampled([one]))


@pytest.mark.parametrize("text", ["1.5", "-0.1", "half", "5s", "nan"])
def test_a_ratio_is_a_number_from_zero_to_one(text: str) -> None:
    with pytest.raises(ConfigError, match=r"redaction\.sample_ratio.*at least 0\S* and at most 1"):
        parse(f"redaction: {{sample_ratio: {text}}}", {})


def test_the_default_chooses_all() -> None:
    assert RedactionConfig().sample_ratio == 1
