"""Misses inside the expected prefix of a known-good template, judged with its reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases.scene import Scene, changed, prompt, text
from tests.evidence.test_facts import said
from whymiss.ledger.hashing import Digester
from whymiss.model import Block, Likeness, Prompt, StreamId
from whymiss.pipeline.templates import LearnedTemplates
from whymiss.reference import Reference, Serialised, chains

SECRET = "a key of the operator"
KEYED = f"redaction: {{digest_key: '{SECRET}'}}"
BLOCKS = 10
GOOD = text(16 * BLOCKS, "template")
TURN = text(60, "a turn of its own")
DIVERGED = ("token_divergence", "")


def reference(tokens: Sequence[int] = GOOD, *, version: str = "7", model: str | None = None) -> Reference:
    chain, own = chains([Serialised(token_ids=tuple(tokens))], 16, SECRET.encode())
    return Reference(name="support", version=version, block_size=16, key_id="0", chain=chain, own=own, model=model)


def scene_of(*references: Reference, scope: str = "begun") -> Scene:
    scene = Scene("w", config=f"{{{KEYED}, references: {{scope: {scope}}}}}")
    scene.references = references
    return scene


def shifted(at: int) -> list[int]:
    """The template with a line put into it: nothing behind that is at its place again."""
    return [*GOOD[:at], *text(7, "line"), *GOOD[at:]]


def test_a_scaffold_that_left_the_template_at_a_known_token_is_divergence_at_its_block() -> None:
    verdicts = []
    for references in ((), (reference(),)):
        scene = scene_of(*references)
        scene.serve("good", "w", 1.0, prompt([*GOOD, *TURN]))
        scene.serve("changed", "w", 5.0, prompt([*shifted(50), *TURN]), hit=3)
        verdicts.append(scene.verdict("changed"))
    without, with_it = verdicts
    assert said(without) == ("no_recent_match", "branch")
    assert said(with_it) == DIVERGED
    assert with_it.owner.value == "application"
    assert with_it.block_index == 3
    assert with_it.template_version == "7"
    assert with_it.lost_tokens == 16  # nothing behind it is the template's again
    assert without.template_version is None


def test_the_tokens_that_are_the_templates_again_are_what_was_lost() -> None:
    scene = scene_of(reference())
    scene.serve("good", "w", 1.0, prompt([*GOOD, *TURN]))
    scene.serve("changed", "w", 5.0, prompt([*changed(GOOD, 50), *text(60, "another turn")]), hit=3)
    verdict = scene.verdict("changed")
    assert said(verdict) == DIVERGED
    assert verdict.lost_tokens == 16 * (BLOCKS - 3)


def test_a_template_that_no_request_keeps_to_is_still_known() -> None:
    scene = scene_of(reference())
    for number in range(3):
        scene.serve(
            f"{number}", "w", 1.0 + 4 * number, prompt([*changed(GOOD, 50 + number), *TURN]), hit=3 if number else 0
        )
    verdicts = scene.verdicts()
    assert said(verdicts["0"]) == ("no_recent_match", "first_seen")
    assert [said(verdicts[name]) for name in "12"] == [DIVERGED] * 2


def test_a_prompt_that_keeps_to_the_template_is_not_blamed_for_one_that_did_not() -> None:
    verdicts = []
    for references in ((), (reference(),)):
        scene = scene_of(*references)
        scene.serve("changed", "w", 1.0, prompt([*changed(GOOD, 50), *TURN]))
        scene.serve("good", "w", 5.0, prompt([*GOOD, *TURN]), hit=3)
        verdicts.append(scene.verdict("good"))
    without, with_it = verdicts
    assert said(without) == DIVERGED
    assert said(with_it) == ("no_recent_match", "branch")
    assert with_it.template_version == "7"


def test_what_follows_the_template_is_nobodys_business() -> None:
    scene = scene_of(reference())
    scene.serve("first", "w", 1.0, prompt([*GOOD, *TURN]))
    scene.serve("second", "w", 5.0, prompt([*GOOD, *text(60, "another turn")]), hit=BLOCKS)
    verdict = scene.verdict("second")
    assert said(verdict) == ("no_recent_match", "branch")
    assert verdict.template_version is None


@pytest.mark.parametrize(("scope", "expected"), [("begun", ("no_recent_match", "first_seen")), ("model", DIVERGED)])
def test_a_first_block_is_compared_only_where_all_prompts_of_the_model_are_held_to_it(
    scope: str, expected: tuple[str, str]
) -> None:
    scene = scene_of(reference(), scope=scope)
    scene.serve("plain", "w", 1.0, prompt([*GOOD, *TURN]))
    scene.serve("thinking", "w", 5.0, prompt([*shifted(2), *TURN]))
    verdict = scene.verdict("thinking")
    assert said(verdict) == expected
    assert verdict.block_index == 0


def test_a_salted_prompt_is_compared_by_its_tokens() -> None:
    scene = scene_of(reference())
    scene.serve("one tenant", "w", 1.0, prompt([*GOOD, *TURN], salt="a"))
    scene.serve("the other", "w", 5.0, prompt([*GOOD, *TURN], salt="b"))
    scene.serve("changed", "w", 9.0, prompt([*shifted(50), *TURN], salt="b"), hit=3)
    verdicts = scene.verdicts()
    assert said(verdicts["the other"]) == ("extra_key_mismatch", "")
    assert said(verdicts["changed"]) == DIVERGED


def test_of_two_versions_the_one_that_a_prompt_keeps_to_counts() -> None:
    newer = changed(GOOD, 100)
    scene = scene_of(reference(), reference(newer, version="8"))
    scene.serve("old", "w", 1.0, prompt([*GOOD, *TURN]))
    scene.serve("new", "w", 5.0, prompt([*newer, *TURN]), hit=6)
    scene.serve("changed", "w", 9.0, prompt([*changed(newer, 130), *TURN]), hit=8)
    verdicts = scene.verdicts()
    assert said(verdicts["new"]) != DIVERGED
    assert verdicts["new"].template_version == "8"
    assert said(verdicts["changed"]) == DIVERGED
    assert verdicts["changed"].template_version == "8"


def test_a_lost_message_makes_it_unknown_and_nothing_else() -> None:
    scene = scene_of(reference())
    scene.serve("good", "w", 1.0, prompt([*GOOD, *TURN]))
    scene["w"].dropped()
    scene.serve("changed", "w", 5.0, prompt([*shifted(50), *TURN]), hit=3)
    assert scene.verdict("changed").cause.value == "unknown"


@given(place=st.integers(16, 16 * BLOCKS - 1), length=st.integers(0, 40), cold=st.booleans())
@settings(max_examples=60, deadline=None)
def test_wherever_a_prompt_leaves_the_template_that_block_is_named(place: int, length: int, *, cold: bool) -> None:
    scene = scene_of(reference())
    other = [*GOOD[:place], *text(length + 1, "volatile"), *GOOD[place + 1 :], *TURN]
    before = GOOD[: place // 16 * 16] if cold else [*GOOD, *TURN]
    scene.serve("before", "w", 1.0, prompt([*before, *text(20, "end")]))
    scene.serve("changed", "w", 5.0, prompt(other), hit=place // 16)
    scene.serve("good", "w", 9.0, prompt([*GOOD, *text(80, "another turn")]), hit=place // 16 if cold else BLOCKS)
    verdicts = scene.verdicts()
    assert said(verdicts["changed"]) == DIVERGED
    assert verdicts["changed"].block_index == place // 16
    assert said(verdicts["good"]) != DIVERGED


# --- what is known of a reference, and when ----------------------------------------------------------

STREAM = StreamId("w", 0)
DIGESTER = Digester(bytes(16))


def learning(references: Sequence[Reference], ends: dict[StreamId, int] | None = None) -> LearnedTemplates:
    templates = LearnedTemplates(Digester(bytes(16)))
    templates.adopt(references, SECRET.encode(), ends or {}, "begun")
    return templates


def show(templates: LearnedTemplates, tokens: Sequence[int]) -> None:
    own = DIGESTER.block_digests(tokens, 16, len(tokens) // 16)
    if templates.witness is not None:
        templates.witness(np.array(tokens, np.uint64), 16, own)


def asked(tokens: Sequence[int], depth: int, *, position: int = 0, model: str | None = None) -> Prompt:
    own = DIGESTER.block_digests(tokens, 16, len(tokens) // 16)
    prefix = DIGESTER.prefix_digests(own, 0, 0).tolist()
    known = own.tolist()
    return Prompt(
        stream=STREAM,
        position=position,
        model=model,
        block_size=16,
        above=prefix[depth - 1] if depth else None,
        block=Block(key=1, parent=None, depth=depth, tokens=known[depth], prefix=prefix[depth]),
        tail=lambda count: known[depth + 1 : depth + 1 + count],
        tail_known=True,
    )


OTHER = changed(GOOD, 50)


def test_a_reference_says_nothing_before_its_beginning_was_stored() -> None:
    templates = learning([reference()])
    assert templates.compare(asked(OTHER, 3)) is None
    show(templates, GOOD[:48])
    assert templates.compare(asked(OTHER, 3)) == Likeness(name="support", version="7", differs=True, again=None)
    show(templates, GOOD)
    assert templates.compare(asked(OTHER, 3)) == Likeness(name="support", version="7", differs=True, again=6)
    assert templates.compare(asked(GOOD, 3)) == Likeness(name="support", version="7", differs=False)


def test_nobody_is_shown_tokens_once_all_is_known() -> None:
    templates = learning([reference()])
    assert templates.witness is not None
    show(templates, [*GOOD, *TURN])
    assert templates.witness is None
    assert learning([]).witness is None


def test_what_was_learned_stays_with_references_that_stay() -> None:
    templates = learning([reference()])
    show(templates, GOOD)
    templates.adopt([reference(), reference(OTHER, version="8")], SECRET.encode(), {STREAM: 5}, "begun")
    assert templates.compare(asked(GOOD, 3)) == Likeness(name="support", version="7", differs=False)
    templates.adopt([reference(TURN[:48])], SECRET.encode(), {STREAM: 5}, "begun")
    assert templates.learned == {}


def test_a_lookup_from_before_a_reference_is_not_held_to_what_was_not_seen() -> None:
    templates = learning([reference()], {STREAM: 5})
    show(templates, GOOD[:48])
    assert templates.compare(asked(OTHER, 3, position=4)) is None
    assert templates.compare(asked(OTHER, 3, position=5)) is not None
    templates.adopt([reference(TURN[:48], version="8"), reference()], SECRET.encode(), {STREAM: 9}, "begun")
    assert templates.compare(asked(OTHER, 3, position=5)) is not None


@pytest.mark.parametrize(("model", "held"), [("m", True), (None, True), ("another", False)])
def test_only_prompts_of_its_model_are_held_to_a_reference(model: str | None, *, held: bool) -> None:
    templates = learning([reference(model="m")])
    show(templates, GOOD)
    assert (templates.compare(asked(OTHER, 3, model=model)) is not None) is held


@given(st.lists(st.integers(0, 3), max_size=200), st.lists(st.integers(0, 3), min_size=16, max_size=80))
def test_nothing_is_learned_but_the_tokens_of_the_reference(stored: list[int], good: list[int]) -> None:
    known = reference(good)
    templates = learning([known])
    show(templates, stored[: len(stored) // 16 * 16])
    own = dict(zip(known.own, DIGESTER.block_digests(good, 16, len(good) // 16).tolist(), strict=True))
    assert templates.learned.items() <= own.items()
