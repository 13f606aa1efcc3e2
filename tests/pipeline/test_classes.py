"""What a lookup is broken down by is what the evidence says, in words or the operator's own names, and capped."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.cases.scene import Prompt, Scene, prompt, text
from tests.timeline import span_of
from whymiss.dialects.registry import identify
from whymiss.dialects.vllm_probe import read_probe
from whymiss.evidence.sections.isolation import told_isolation
from whymiss.measures import OTHER
from whymiss.model import Attribute, Cause, Lookup, Owner, Request, Role, Verdict
from whymiss.pipeline.classes import dimensions_of
from whymiss.reference import Reference, Serialised, chains
from whymiss.wire.fields import read_span

TENANT = "tenant-acme"
SCAFFOLD = text(64, "scaffold")


def one(topic: str, **identity: str) -> Prompt:
    return prompt([*SCAFFOLD, *text(40, topic)], **identity)


def shown(scene: Scene, name: str) -> list[str | None]:
    """A dimension of every series of the requests, in the order in which they began."""
    scene.verdicts()
    assert scene.flow is not None
    (requests,) = [one for one in scene.flow.measures.snapshot() if one.instrument.name == "prefix_cache.requests"]
    return [dict(point.labels).get(name) for point in requests.points]


def everything_shown(scene: Scene) -> set[str]:
    scene.verdicts()
    assert scene.flow is not None
    return {value for metric in scene.flow.measures.snapshot() for point in metric.points for _, value in point.labels}


# --- What is hashed beside the tokens -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("identity", "policy", "adapter"),
    [
        ({}, "none", "_none"),
        ({"lora": "legal-v2"}, "adapter", "legal-v2"),
        ({"salt": TENANT}, "salt", "_none"),
        ({"lora": "legal-v2", "salt": TENANT}, "adapter+salt", "legal-v2"),
    ],
)
@pytest.mark.parametrize("hit", [0, 3])
def test_events_tell_the_adapter_and_what_keeps_a_prompt_apart(
    identity: dict[str, str], policy: str, adapter: str, hit: int
) -> None:
    shown_by = {}
    for label in ("isolation_policy", "adapter"):
        scene = Scene("w")
        scene.serve("first", "w", 1.0, one("a", **identity))
        scene.serve("second", "w", 5.0, one("b", **identity), hit=hit)
        shown_by[label] = set(shown(scene, label))
    assert shown_by == {"isolation_policy": {policy}, "adapter": {adapter}}


def test_prompts_of_two_adapters_are_told_apart() -> None:
    scene = Scene("w")
    scene.serve("first", "w", 1.0, one("a", lora="legal"))
    scene.serve("second", "w", 5.0, one("a", lora="medical"))
    assert sorted(map(str, shown(scene, "adapter"))) == ["legal", "medical"]


def test_without_a_record_nothing_is_said_of_either() -> None:
    scene = Scene()
    scene.engine("first", None, 1.0, 100)
    assert shown(scene, "adapter") == [None]
    scene = Scene()
    scene.engine("first", None, 1.0, 100)
    assert shown(scene, "isolation_policy") == [None]


@pytest.mark.parametrize(
    ("kinds", "policy"),
    [(["cache_salt"], "salt"), (["lora", "mm"], "adapter"), (["mm"], "none"), (["namespace of mine"], "other")],
)
def test_a_lookup_that_names_kinds_tells_the_policy(kinds: list[str], policy: str) -> None:
    scene = Scene()
    scene.engine("first", "w", 1.0, 104)
    scene.lookup("first", "w", 1.0, one("a"), 0, extra_key_kinds=kinds)
    assert shown(scene, "isolation_policy") == [policy]


def test_kinds_of_one_block_are_not_taken_for_those_of_the_prompt() -> None:
    span = Span(name="lookup")
    span.attributes.add(key="vllm.prefix_cache.num_tokens").value.int_value = 104
    span.attributes.add(key="vllm.prefix_cache.first_miss.extra_keys").value.string_value = "(('lora', 'x'),)"
    probed = read_probe(read_span(span.SerializeToString()))
    assert isinstance(probed, Lookup)
    assert probed.extra_key_kinds == ("lora",)
    assert told_isolation(probed).kept_apart_by is None
    assert told_isolation(msgspec.structs.replace(probed, kinds_of_block=False)).kept_apart_by == ("lora",)


TEXTS = st.text("abcdef-", min_size=4, max_size=10)


@settings(max_examples=20, deadline=None)
@given(
    salts=st.lists(TEXTS.map(lambda one: f"salt {one}"), min_size=1, max_size=3),
    adapters=st.lists(st.none() | TEXTS, min_size=1, max_size=3),
)
def test_no_salt_is_ever_a_label(salts: list[str], adapters: list[str | None]) -> None:
    scene = Scene("w")
    for number, salt in enumerate(salts):
        for other, adapter in enumerate(adapters):
            identity = {"salt": salt} | ({} if adapter is None else {"lora": adapter})
            at = 1.0 + 4 * (number * len(adapters) + other)
            scene.serve(f"{number}-{other}", "w", at, one(f"{number % 2}", **identity))
    labels = everything_shown(scene)
    assert labels & {"salt", "adapter+salt"}
    assert not [label for label in labels for salt in salts if salt in label]


def test_adapters_past_the_cap_are_other() -> None:
    scene = Scene("w", config="{measures: {values_max: 3}}")
    for number in range(8):
        scene.serve(f"{number}", "w", 1.0 + 4 * number, one("a", lora=f"adapter-{number}"))
    names = shown(scene, "adapter")
    assert len(set(names)) == 4
    assert OTHER in names


# --- What the process and the operator say -----------------------------------------------------------


def request(**attributes: Attribute) -> Request:
    span = span_of(Role.ENGINE, 1, 1)
    return Request(engine=msgspec.structs.replace(span, resource=identify(attributes)))


VERDICT = Verdict(cause=Cause.EVICTED, owner=Owner.PLATFORM)


def test_the_engines_resource_tells_its_revision_and_its_speculation() -> None:
    told = {"prefix_cache.model_revision": "4f2c", "prefix_cache.speculative_method": "eagle3", "tenant.id": TENANT}
    found = dimensions_of(request(**told), VERDICT, extrapolated=False)
    assert (found.model_revision, found.speculative_method) == ("4f2c", "eagle3")
    assert TENANT not in msgspec.structs.astuple(found)
    silent = dimensions_of(request(), VERDICT, extrapolated=False)
    assert (silent.model_revision, silent.speculative_method) == (None, None)


def test_a_reference_gives_its_name_and_version_to_the_prompts_that_it_is_compared_with() -> None:
    good = text(160, "template")
    chain, own = chains([Serialised(token_ids=tuple(good))], 16, b"a key of the operator")
    reference = Reference(name="support", version="7", block_size=16, key_id="0", chain=chain, own=own)
    for label, value in (("prompt_family", "support"), ("template_version", "7")):
        scene = Scene("w", config="redaction: {digest_key: 'a key of the operator'}")
        scene.references = (reference,)
        scene.serve("good", "w", 1.0, prompt([*good, *text(60, "a turn")]))
        scene.serve("changed", "w", 5.0, prompt([*good[:50], *text(7, "line"), *good[50:]]), hit=3)
        assert value in shown(scene, label)


@given(kinds=st.none() | st.lists(st.sampled_from(["lora", "cache_salt", "other"]), unique=True).map(tuple))
def test_the_policy_is_always_one_of_a_few_words(kinds: tuple[str, ...] | None) -> None:
    found = dimensions_of(request(), msgspec.structs.replace(VERDICT, kept_apart_by=kinds), extrapolated=False)
    if kinds is None:
        assert (found.isolation_policy, found.adapter) == (None, None)
    else:
        assert found.isolation_policy is not None
        assert set(found.isolation_policy.split("+")) <= {"none", "adapter", "salt", "other"}
        assert found.adapter == (None if "lora" in kinds else "_none")
