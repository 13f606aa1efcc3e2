"""The simulator itself: it keeps the rules of vLLM's pool, agrees with the replay model, and writes real bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.fleet.prompts import Injection
from tests.fleet.published import replay
from tests.fleet.simulate import simulate
from tests.fleet.spec import SECOND, Faults, FleetSpec, KvFrames, OtlpRequest, SimEvent, Truth
from tests.fleet.tier import TierSpec
from tests.fleet.traces import Ask, Trace, load


def trace(*requests: tuple[Sequence[int], int]) -> Trace:
    """A hand-made trace of 16-token blocks: the blocks of each request, and its length in tokens."""
    asks = [Ask(float(at), length, 1, tuple(blocks), 0) for at, (blocks, length) in enumerate(requests)]
    return Trace("made", 16, tuple(asks), len(asks))


def truths(events: Iterable[SimEvent]) -> list[Truth]:
    return [event for event in events if isinstance(event, Truth)]


def batches(events: Iterable[SimEvent]) -> list[list[dict[str, object]]]:
    """The events of every batch that has some."""
    decoded = [msgspec.msgpack.decode(event.frames[2])[1] for event in events if isinstance(event, KvFrames)]
    return [batch for batch in decoded if batch]


def test_identical_prompt_of_exactly_eight_blocks_recomputes_the_last_one() -> None:
    spec = FleetSpec(workers=1, capacity=100, block_size=16)
    events = list(simulate(trace((range(8), 128), (range(8), 128)), spec))
    again = truths(events)[1]
    assert (again.cause, again.cached_tokens, again.block_index) == ("none", 112, 7)
    first, second = batches(events)
    keys = first[0]["block_hashes"]
    assert isinstance(keys, list)
    assert second == [{**second[0], "block_hashes": keys[-1:], "parent_block_hash": keys[-2]}]


def test_full_hit_publishes_nothing() -> None:
    events = list(simulate(trace((range(8), 130), (range(8), 131)), FleetSpec(workers=1, capacity=100)))
    assert truths(events)[1].cached_tokens == 128
    assert len(batches(events)) == 1


def test_tail_is_evicted_first_one_event_a_block_and_before_the_stores() -> None:
    events = list(simulate(trace((range(4), 64), (range(10, 13), 48)), FleetSpec(workers=1, capacity=5)))
    stored, second = batches(events)
    keys = stored[0]["block_hashes"]
    assert isinstance(keys, list)
    assert [event["type"] for event in second] == ["BlockRemoved", "BlockRemoved", "BlockStored"]
    assert [event["block_hashes"] for event in second[:2]] == [[keys[3]], [keys[2]]]


def test_one_of_two_copies_may_leave_and_the_block_is_still_there() -> None:
    requests = trace((range(4), 64), (range(4), 64), (range(10, 13), 48), (range(4), 65))
    events = list(simulate(requests, FleetSpec(workers=1, capacity=6)))
    assert sum(event["type"] == "BlockRemoved" for event in batches(events)[2]) == 2
    last = truths(events)[3]
    assert (last.cause, last.block_index) == ("evicted", 3)


def test_prefill_in_chunks_publishes_one_chain() -> None:
    events = list(simulate(trace((range(8), 128)), FleetSpec(workers=1, capacity=100, chunk_blocks=3)))
    chunks = [batch[0] for batch in batches(events)]
    hashes = [chunk["block_hashes"] for chunk in chunks]
    assert [len(keys) for keys in hashes if isinstance(keys, list)] == [3, 3, 2]
    for before, after in pairwise(chunks):
        keys = before["block_hashes"]
        assert isinstance(keys, list)
        assert after["parent_block_hash"] == keys[-1]


def test_clear_is_published_with_the_next_step_before_its_stores() -> None:
    spec = FleetSpec(workers=1, capacity=100, heartbeats=False, faults=Faults(clears=((0.5, 0),)))
    events = list(simulate(trace((range(4), 66), (range(4), 66)), spec))
    assert [event["type"] for event in batches(events)[1]] == ["AllBlocksCleared", "BlockStored"]
    again = truths(events)[1]
    assert (again.cause, again.reason, again.lost_tokens) == ("evicted", "cleared", 64)


def test_restart_begins_at_sequence_zero_again() -> None:
    spec = FleetSpec(workers=1, capacity=100, heartbeats=False, faults=Faults(restarts=((0.5, 0),)))
    events = list(simulate(trace((range(4), 66), (range(4), 66)), spec))
    sequences = [int.from_bytes(event.frames[1], "big") for event in events if isinstance(event, KvFrames)]
    assert sequences == [0, 0, 1]
    assert truths(events)[1].reason == "restarted"


def test_evicted_and_held_elsewhere_and_lost_elsewhere_are_told_apart() -> None:
    a, b = (range(4), 66), (range(10, 14), 66)
    two = FleetSpec(workers=2, capacity=5)
    assert [one.cause for one in truths(simulate(trace(a, a), two))] == ["no_recent_match", "routing_miss"]
    assert [one.cause for one in truths(simulate(trace(a, b, b, a), two))][2:] == ["routing_miss", "evicted_elsewhere"]
    alone = truths(simulate(trace(a, b, a), FleetSpec(workers=1, capacity=5)))[2]
    assert (alone.cause, alone.reason, alone.lost_tokens) == ("evicted", "capacity", 64)


def test_answer_fills_blocks_one_by_one() -> None:
    requests = Trace("made", 16, (Ask(0.0, 30, 40, (1,), 0),), 1)
    events = list(simulate(requests, FleetSpec(workers=1, capacity=100, answer_tokens_max=40)))
    sizes = [event["block_hashes"] for batch in batches(events) for event in batch]
    assert [len(keys) for keys in sizes if isinstance(keys, list)] == [1, 1, 1, 1]


def test_messages_arrive_in_order_and_with_distinct_times_a_publisher() -> None:
    events = list(simulate(load("mooncake_synthetic_full").first(60), FleetSpec(capacity=400)))
    times = [event.received_unix_nanos for event in events if isinstance(event, KvFrames | OtlpRequest)]
    assert times == sorted(times)
    stamps = [
        (event.worker, msgspec.msgpack.decode(event.frames[2])[0]) for event in events if isinstance(event, KvFrames)
    ]
    assert len(set(stamps)) == len(stamps)


def test_spans_are_those_of_a_stock_engine() -> None:
    events = list(simulate(load("miniswe").first(3), FleetSpec(workers=1)))
    requests = [ExportTraceServiceRequest.FromString(one.body) for one in events if isinstance(one, OtlpRequest)]
    spans = [scope for one in requests for resource in one.resource_spans for scope in resource.scope_spans]
    assert {scope.scope.name for scope in spans} == {"vllm.tracing.otel"}
    span = spans[0].spans[0]
    said = {attribute.key: attribute.value for attribute in span.attributes}
    assert (span.name, span.flags) == ("llm_request", 0x300)
    assert said["gen_ai.usage.prompt_tokens"].int_value == load("miniswe").asks[0].input_length
    assert not any("cached" in name for name in said)


def test_same_run_gives_the_same_bytes() -> None:
    spec = FleetSpec(capacity=300, lookup_spans=True, router_spans=True, faults=Faults(drop_batches=0.05))
    small = load("mooncake_synthetic_full").first(40)
    assert list(simulate(small, spec)) == list(simulate(small, spec))


@pytest.mark.parametrize(
    ("key", "routing"),
    [
        ("miniswe", "sticky"),
        pytest.param("mooncake_synthetic_full", "rr", marks=pytest.mark.deep),
        pytest.param("mooncake_conversation_full", "rr", marks=pytest.mark.deep),
        pytest.param("weka_60", "sticky", marks=pytest.mark.deep),
    ],
)
def test_engine_without_evictions_gives_the_labels_of_the_replay_model(key: str, routing: str) -> None:
    spec = FleetSpec(workers=4, capacity=None, routing="rr" if routing == "rr" else "sticky", heartbeats=False)
    labels = "".join(truth.label for truth in truths(simulate(load(key), spec)))
    assert labels == replay(load(key), 4, None, routing, engine_rule=True).labels


def test_salt_makes_another_identity_of_the_same_tokens() -> None:
    spec = FleetSpec(workers=1, injection=Injection(salted=0.5, tenants=1), seed=3)
    causes = {one.cause for one in truths(simulate(trace(*[(range(4), 66)] * 12), spec))}
    assert causes == {"no_recent_match", "extra_key_mismatch", "none"}


def test_edit_diverges_and_comes_back() -> None:
    spec = FleetSpec(workers=1, injection=Injection(edited=0.5), seed=3)
    found = truths(simulate(trace(*[(range(40), 650)] * 12), spec))
    assert {one.cause for one in found} == {"no_recent_match", "token_divergence", "none"}


def test_sparse_group_keeps_its_state_where_a_lookup_was_vetoed() -> None:
    shared = tuple(range(70))
    requests = trace(*[((*shared, *range(n, n + 33)), 103 * 16 + 5) for n in (100, 200, 300)])
    spec = FleetSpec(workers=1, capacity=1000, sparse=True, unit_blocks=34, lookup_spans=True)
    found = [(one.cause, one.cached_tokens, one.lost_tokens) for one in truths(simulate(requests, spec))]
    assert found == [
        ("no_recent_match", 0, 0),
        ("sparse_retention", 0, 1088),
        ("below_match_unit", 1088, 0),
    ]


def test_tier_gives_back_what_the_device_lost() -> None:
    requests = trace((range(4), 66), (range(10, 14), 66), (range(4), 66))
    spec = FleetSpec(workers=1, capacity=5, lookup_spans=True, tier=TierSpec(capacity=50))
    assert [one.cached_tokens for one in truths(simulate(requests, spec))] == [0, 0, 64]
    never = FleetSpec(workers=1, capacity=5, lookup_spans=True, tier=TierSpec(capacity=50, unasked=1.0))
    assert truths(simulate(requests, never))[2].cause == "tier_unreachable"


@pytest.mark.parametrize("direct", [True, False])
def test_batch_that_nobody_can_ask_for_touches_what_rests_on_it(*, direct: bool) -> None:
    requests = trace(*((range(4 * number, 4 * number + 4), 64) for number in range(6)))
    seen = set()
    for seed in range(30):
        faults = Faults(drop_batches=0.4, replay=True)
        spec = FleetSpec(workers=2, capacity=100, lookup_spans=direct, seed=seed, faults=faults)
        events = list(simulate(requests, spec))
        last = truths(events)[-1]
        batches = [event for event in events if isinstance(event, KvFrames)]
        arrived = {event.worker: event.received_unix_nanos for event in batches if not event.lost}
        touched = [one for one in truths(events) if one.touched]
        if all(arrived.get(spec.name(worker), 0) > last.at_unix_nanos + SECOND for worker in range(2)):
            assert not touched, "every gap was shown"
        if any(arrived.get(spec.name(worker), 0) < last.at_unix_nanos for worker in range(2)):
            assert touched[-1] is last
            assert last.touched == {"drop"}
        seen.add(bool(touched))
    assert seen == {True, False}


@pytest.mark.parametrize(("again", "cause", "touched"), [(2.5, "evicted", {"cleared"}), (6.0, "stale_index", set())])
def test_reset_that_is_told_late_touches_the_promise_that_it_may_have_broken(
    again: float, cause: str, touched: set[str]
) -> None:
    # Published between the second and the third request: it is only known that it came after the first one's batches.
    asks = [Ask(at, 70, 1, tuple(range(first, first + 4)), 0) for at, first in ((0.0, 0), (2.1, 10), (again, 0))]
    spec = FleetSpec(
        workers=2,
        capacity=100,
        routing="pa",
        router_spans=True,
        lookup_spans=True,
        index_ignores_clears=True,
        faults=Faults(clears=((2.0, 0),)),
    )
    last = truths(simulate(Trace("made", 16, tuple(asks), 3), spec))[-1]
    assert (last.cause, last.touched) == (cause, touched)
