"""Which spans speak of one half of a disaggregated request, so that another engine's span is waited for."""

from __future__ import annotations

import msgspec
import pytest

from tests.test_join import COMPLETE, HOLD, learned
from tests.timeline import left, span_of
from whymiss.join.groups import HALF, company_of
from whymiss.model import EngineRequest, Evidenced, GatewayUsage, Role, RouteDecision


@pytest.mark.parametrize(
    ("said", "half"),
    [
        (RouteDecision(phase="prefill"), True),
        (RouteDecision(phase="decode"), True),
        (RouteDecision(), False),
        (EngineRequest(prefill_only=True), True),
        (EngineRequest(decode_only=True), True),
        (EngineRequest(prefill_only=True, decode_only=True), False),
        (EngineRequest(), False),
        (GatewayUsage(), False),
    ],
)
def test_a_half_is_what_one_phase_is_said_of(said: Evidenced, half: bool) -> None:
    one = msgspec.structs.replace(span_of(Role.ENGINE, 1, 1), says=(said,))
    assert (HALF in company_of([one])) is half
    plain = span_of(Role.ENGINE, 1, 2)
    assert (HALF in company_of([plain, one])) is half, "whichever span says it"


def test_of_a_pair_the_second_half_is_waited_for_as_long_as_a_hold() -> None:
    router = span_of(Role.ROUTER, 2, 30)
    prefill, decode = (
        msgspec.structs.replace(span_of(Role.ENGINE, 2, number), says=(said,))
        for number, said in ((31, EngineRequest(prefill_only=True)), (32, EngineRequest(decode_only=True)))
    )
    flow = learned().at(20).arrive(router, prefill).at(22).expect().at(23).arrive(decode)
    flow.at(25).expect(left(COMPLETE, router, prefill, decode))
    learned().at(20).arrive(router, prefill).at(28).expect(left(HOLD, router, prefill))
