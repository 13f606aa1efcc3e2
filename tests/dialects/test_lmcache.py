"""LMCache's server: lookups, loads and timeouts, and salts that must not leave."""

from __future__ import annotations

import pytest

from tests.dialects.emitted import SECRET, Value, claimed, said
from whymiss.model import OffloadOutcome, caller_ids, request_ids

# lmcache/v1/mp_observability/subscribers/tracing/{mp_server,timeout}.py: child spans have strings only
SERVER, TIMEOUT = "lmcache_mp.server", "lmcache_mp.timeout"
SESSION = "chatcmpl-abc-0123abcd"


def root(**attributes: Value) -> tuple[OffloadOutcome, ...]:
    found = said("request", {"session_id": SESSION, **attributes}, scope=SERVER)
    return tuple(one for one in found if isinstance(one, OffloadOutcome))


def test_the_root_is_joined_by_the_engines_internal_id() -> None:
    span = claimed("request", {"session_id": SESSION}, scope=SERVER)
    assert span is not None
    assert request_ids(span) == (SESSION, "chatcmpl-abc")
    assert "abc" in caller_ids(span)


def test_a_lookup_found_something_or_missed() -> None:
    assert root(hit_tokens=512, requested_tokens=1024, l2_hit_tokens=256)[0].status == "hit"
    assert root(hit_tokens=512, requested_tokens=1024, l2_hit_tokens=0)[0].tier == "host"
    assert root(hit_tokens=0, requested_tokens=1024, early_exit_reason="")[0].status == "miss"


@pytest.mark.parametrize("reason", ["no_gpu_context", "empty_chunk_hashes", "no_group_layout_descs"])
def test_a_lookup_that_was_given_up_did_not_take_place(reason: str) -> None:
    assert root(hit_tokens=0, early_exit_reason=reason)[0].status == "none"


def test_counts_of_chunks_are_never_told_as_blocks() -> None:
    found = said("mp.lookup_prefetch", {"found_count": "4", "hit_tokens": "1024"}, scope=SERVER)
    assert found == (OffloadOutcome(status="hit"),)


# lmcache/v1/multiprocess/modules/lmcache_driven_transfer.py: num_tokens is 0 unless all chunks arrived
@pytest.mark.parametrize(
    ("attributes", "outcome"),
    [
        ({"retrieved_count": "4", "num_tokens": "1024"}, OffloadOutcome(status="hit")),
        ({"retrieved_count": "3", "num_tokens": "0"}, OffloadOutcome(status="failed")),
        ({"retrieved_count": "0", "num_tokens": "0"}, OffloadOutcome(loaded_blocks=0)),
        # Older servers do not say how much was asked for, and the engine has some of it.
        ({"retrieved_count": "3"}, OffloadOutcome(status="hit")),
    ],
)
def test_a_load_brought_all_a_part_or_nothing(attributes: dict[str, Value], outcome: OffloadOutcome) -> None:
    assert said("mp.retrieve", attributes, scope=SERVER) == (outcome,)


def test_a_timeout_keeps_the_text_of_its_exception_to_itself() -> None:
    events = [("exception", {"exception.type": "LMCacheTimeoutError", "exception.message": f"no {SECRET}"})]
    span = claimed("timeout", {"session_id": SESSION}, scope=TIMEOUT, status=2, events=events)
    assert span is not None
    assert span.says[0] == OffloadOutcome(request_id=SESSION, status="timeout")
    assert {"exception.message", "exception.stacktrace", "transfer_key"} <= set(span.sensitive)
    assert SECRET not in repr(span.says)


@pytest.mark.parametrize("name", ["mp.store", "mp.lookup_prefetch", "mp.retrieve", "mp.new_in_the_next_release"])
def test_a_salt_is_guarded_on_every_span_of_the_server(name: str) -> None:
    span = claimed(name, {"cache_salt": SECRET, "transfer_key": "k"}, scope=SERVER)
    assert span is not None
    assert "cache_salt" in span.digested
    assert "transfer_key" in span.sensitive
    assert span.says == ()


@pytest.mark.parametrize("key", ["cache_salt", "vllm.cache_salt", "gen_ai.request.cache_salt"])
def test_a_salt_is_guarded_on_anybodys_span(key: str) -> None:
    span = claimed("proxy", {key: SECRET})
    assert span is not None
    assert key in span.digested


def test_a_salt_in_an_event_is_guarded_too() -> None:
    span = claimed("proxy", {}, events=[("lookup", {"cache_salt": SECRET})])
    assert span is not None


def test_text_that_only_mentions_a_salt_passes() -> None:
    assert claimed("proxy", {"comment": "cache_salt"}) is None


def test_the_same_span_names_of_others_pass() -> None:
    assert claimed("request", {"session_id": "s"}) is None
    assert claimed("timeout", {"session_id": "s"}) is None
