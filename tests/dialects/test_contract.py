"""The input contract is what its data declares, and its page's examples are read as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cases.scene import EPOCH, Prompt, Publisher
from tests.dialects.emitted import encoded, said
from whymiss.config import parse
from whymiss.dialects.contract import (
    LOOKUPS,
    OFFLOADS,
    PARTS,
    RANK,
    REQUEST_IDS,
    RESOURCE,
    ROUTES,
    SENSITIVE,
    WORKER,
    read_lookup,
    read_offload,
    read_route,
)
from whymiss.dialects.declared import CHAIN, FLAG, HASH, Declared, Example, Part
from whymiss.dialects.registry import identify
from whymiss.model import SECOND, Attribute, Cause, Evidenced, Lookup, OffloadOutcome, RouteDecision, Verdict
from whymiss.pipeline import KvSource, Pipeline
from whymiss.tools.contract_page import MOMENT_UNIX_NANOS
from whymiss.wire.fields import read_span
from whymiss.wire.json_in import traces_from_json

PAGE = Path(__file__).resolve().parents[2] / "docs" / "input-contract.md"
READERS = {LOOKUPS.prefix: read_lookup, ROUTES.prefix: read_route, OFFLOADS.prefix: read_offload}
MADE: dict[str, type[Evidenced]] = {
    LOOKUPS.prefix: Lookup,
    ROUTES.prefix: RouteDecision,
    OFFLOADS.prefix: OffloadOutcome,
}
ALL = [pytest.param(part, one, id=part.prefix + one.name) for part in PARTS for one in part.attributes]


class Asked(dict[str, Attribute]):
    """Attributes that remember which of them were asked for."""

    def __init__(self, attributes: dict[str, Attribute]) -> None:
        super().__init__(attributes)
        self.names: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.names.add(str(key))
        return super().__contains__(key)


def told(part: Part, *, without: str = "") -> dict[str, Example]:
    """An example of a part in which no attribute has the value that stands for its absence."""
    return {
        part.prefix + one.name: True if one.kind is FLAG else one.example
        for one in part.attributes
        if one.name != without
    }


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.prefix)
def test_a_reader_asks_for_what_is_declared_and_for_the_request_s_id(part: Part) -> None:
    asked = Asked(dict(told(part)))
    span = msgspec.structs.replace(read_span(encoded("x", {})), attributes=asked)
    assert READERS[part.prefix](span) is not None
    assert asked.names == {part.prefix + one.name for one in part.attributes} | set(REQUEST_IDS)


@pytest.mark.parametrize(("part", "one"), ALL)
def test_what_is_declared_is_read_into_the_field_of_its_name(part: Part, one: Declared) -> None:
    (whole,) = said("x", told(part))
    (rest,) = said("x", told(part, without=one.name))
    assert type(whole) is type(rest) is MADE[part.prefix]
    default = msgspec.structs.asdict(MADE[part.prefix]())
    assert getattr(rest, one.name) == default[one.name]
    assert getattr(whole, one.name) != default[one.name]
    changed = {name for name in default if getattr(whole, name) != getattr(rest, name)}
    assert changed - {"prefix_aware"} == {one.name}


@pytest.mark.parametrize(("part", "one"), ALL)
@pytest.mark.parametrize("wrong", [-1.5, b""])
def test_a_value_of_another_form_is_absent(part: Part, one: Declared, wrong: float | bytes) -> None:
    (read,) = said("x", {**told(part), part.prefix + one.name: wrong})
    assert getattr(read, one.name) == getattr(MADE[part.prefix](), one.name)


@pytest.mark.parametrize(("part", "one"), ALL)
def test_every_attribute_says_what_it_is_and_what_follows_without_it(part: Part, one: Declared) -> None:
    assert one.meaning.endswith(".")
    assert one.missing.endswith(".")
    assert one.kind.read(one.example) is not None
    assert f"`{part.prefix}{one.name}`" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.prefix)
def test_a_span_without_any_attribute_that_is_needed_is_none_of_these(part: Part) -> None:
    needed = {part.prefix + name for name in part.needs}
    assert said("x", {name: value for name, value in told(part).items() if name not in needed}) == ()
    for name in needed:
        assert len(said("x", {name: told(part)[name]})) == 1


def test_hashes_are_what_must_not_leave() -> None:
    hashes = {part.prefix + one.name for part in PARTS for one in part.attributes if one.kind in {HASH, CHAIN}}
    assert set(SENSITIVE) == hashes


def test_a_resource_says_what_is_declared_of_it() -> None:
    assert {one.name for one in RESOURCE} >= {WORKER, RANK}
    identity = identify({one.name: one.example if not isinstance(one.example, list) else None for one in RESOURCE})
    assert (identity.worker, identity.rank) == ("vllm-0", 0)


# --- the page's examples ----------------------------------------------------------------------------------


def examples() -> list[bytes]:
    """The OTLP/JSON requests of the page: lookup, route, offload."""
    found = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(found) == len(PARTS)
    return [one.encode() for one in found]


class Shown(Prompt, frozen=True, kw_only=True):
    """The prompt of the example."""

    @property
    def keys(self) -> list[int]:
        (chain,) = (one.example for one in LOOKUPS.attributes if one.name == "expected_keys")
        assert isinstance(chain, list)
        return [int(key, 16) for key in chain]


def judged(*requests: bytes, events: bool = True) -> list[Verdict]:
    """The verdicts on requests in OTLP/JSON, where the worker had stored the example's prompt and lost blocks 2 to 5."""
    flow = Pipeline(parse("{}", {}), process_key=bytes(32), start_unix_nanos=0)
    flow.judged = []
    looked = MOMENT_UNIX_NANOS / SECOND - EPOCH
    publisher, what = Publisher("vllm-0"), Shown(tokens=tuple(range(100)))
    publisher.stored(looked - 50, what)
    publisher.removed(looked - 40, what, 2, 3, 4, 5)
    publisher.stirs(looked + 0.1)
    for at, seq, payload in publisher.said if events else ():
        source = KvSource(name="vllm-0", worker="vllm-0")
        flow.kv_frames(source, [b"", seq.to_bytes(8, "big"), payload], round((EPOCH + at) * SECOND), now=0.0)
    for request in requests:
        accepted = flow.traces(traces_from_json(request), 1.0)
        assert not accepted.rejected
    flow.drain()
    return [one.verdict for one in flow.judged]


def test_the_examples_together_are_one_lookup_with_a_verdict() -> None:
    (verdict,) = judged(*examples())
    assert (verdict.cause, verdict.worker) == (Cause.EVICTED, "vllm-0")
    assert (verdict.lost_tokens, verdict.block_index) == (64, 2)
    assert (verdict.predicted_blocks, verdict.remote_lookup, verdict.index_version) == (2, "miss", "7")


def test_the_lookup_alone_has_the_same_cause_and_the_others_alone_have_none() -> None:
    lookup, *others = examples()
    (verdict,) = judged(lookup)
    assert (verdict.cause, verdict.lost_tokens) == (Cause.EVICTED, 64)
    assert judged(*others) == []


def test_a_lookup_without_events_is_unknown() -> None:
    (verdict,) = judged(examples()[0], events=False)
    assert (verdict.cause, verdict.reason.value) == (Cause.UNKNOWN, "no_event_source")
