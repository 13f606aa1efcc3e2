"""One chain of block hashes in every notation, from spans and events to the verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cases.scene import Prompt, Scene, prompt, stored, text
from whymiss.model import Cause, Grade, Reason, Verdict

SIXTEEN_DIGITS = 1234567890123456
ALL_DIGITS_IN_HEX = 0x1234567890123456


class Fixed(Prompt, frozen=True, kw_only=True):
    """A prompt of eight blocks and a few tokens, whose block hashes are chosen."""

    chosen: tuple[int, ...]

    @property
    def keys(self) -> list[int]:
        return list(self.chosen)


def fixed(*chosen: int) -> Fixed:
    return Fixed(tokens=tuple(text(16 * len(chosen) + 5)), chosen=chosen)


USUAL = prompt(text(16 * 8)).keys
WHAT = fixed(*USUAL[:2], SIXTEEN_DIGITS, USUAL[3], ALL_DIGITS_IN_HEX, *USUAL[5:])

NOTATIONS: dict[str, Callable[[int], str | bytes]] = {
    "decimal": str,
    "hex": lambda key: f"{key:016x}",
    "HEX": lambda key: f"{key:016X}",
    "0x": hex,
    "bytes": lambda key: key.to_bytes(8, "big"),
    "64 hex digits": lambda key: f"{'7' * 48}{key:016x}",
    "32 bytes": lambda key: bytes(24) + key.to_bytes(8, "big"),
}


def told(scene: Scene, write: Callable[[int], Any], what: Prompt = WHAT, **more: Any) -> Verdict:
    """The verdict on a lookup that found nothing, whose chain is told in a notation."""
    scene.engine("again", "w", 5.0, len(what.tokens))
    scene.lookup("again", "w", 5.0, what, 0, expected_keys=[write(key) for key in what.keys], **more)
    return scene.verdict("again")


def gist(verdict: Verdict) -> tuple[Cause, int | None, int | None]:
    return verdict.cause, verdict.lost_tokens, verdict.first_miss_key


@pytest.mark.parametrize("write", NOTATIONS.values(), ids=NOTATIONS)
@pytest.mark.parametrize("more", [{}, {"match_unit": 64}, {"speculative": True, "match_unit": 32}])
def test_a_chain_that_was_resident_is_a_lookup_failure_in_every_notation(
    write: Callable[[int], Any], more: dict[str, Any]
) -> None:
    scene = Scene("w")
    scene["w"].stored(1.0, WHAT)
    verdict = told(scene, write, **more)
    assert gist(verdict) == (Cause.LOOKUP_FAILURE, 128, WHAT.keys[0])


@pytest.mark.parametrize("write", NOTATIONS.values(), ids=NOTATIONS)
def test_a_chain_that_was_evicted_costs_all_of_it_in_every_notation(write: Callable[[int], Any]) -> None:
    scene = Scene("w")
    scene["w"].stored(1.0, WHAT)
    scene["w"].removed(3.0, WHAT, *range(8))
    assert gist(told(scene, write)) == (Cause.EVICTED, 128, WHAT.keys[0])


@pytest.mark.parametrize("write", NOTATIONS.values(), ids=NOTATIONS)
@pytest.mark.parametrize("gone", [False, True])
def test_events_tell_a_chain_in_every_notation(write: Callable[[int], Any], gone: bool) -> None:
    scene = Scene("w")
    hashes = [write(key) for key in WHAT.keys]
    scene["w"].batch(1.0, {**stored(WHAT, 0, 4), "block_hashes": hashes[:4]})
    # The parent is one of the chain: its sixteen digits are decided by the others.
    scene["w"].batch(1.5, {**stored(WHAT, 3), "block_hashes": hashes[3:], "parent_block_hash": hashes[2]})
    if gone:
        scene["w"].batch(3.0, {"type": "BlockRemoved", "block_hashes": hashes[::-1], "medium": "GPU"})
    assert gist(told(scene, write)) == (Cause.EVICTED if gone else Cause.LOOKUP_FAILURE, 128, WHAT.keys[0])


def test_a_chain_that_cannot_be_decided_is_absent_and_says_so() -> None:
    what = fixed(*range(SIXTEEN_DIGITS, SIXTEEN_DIGITS + 8))
    verdicts = {}
    for name, write in NOTATIONS.items():
        scene = Scene("w")
        scene["w"].stored(1.0, what)
        verdicts[name] = told(scene, write, what)
    undecided = verdicts.pop("decimal")
    assert (undecided.cause, undecided.reason) == (Cause.UNKNOWN, Reason.NO_FIRST_MISS_KEY)
    assert undecided.grade is Grade.DIRECT
    assert {gist(verdict) for verdict in verdicts.values()} == {(Cause.LOOKUP_FAILURE, 128, SIXTEEN_DIGITS)}


@pytest.mark.parametrize(
    ("first", "cause"), [(str(SIXTEEN_DIGITS), Cause.UNKNOWN), (f"{SIXTEEN_DIGITS:016x}", Cause.EVICTED)]
)
def test_a_first_missed_key_that_cannot_be_decided_is_absent(first: str, cause: Cause) -> None:
    scene = Scene("w")
    what = fixed(SIXTEEN_DIGITS, *USUAL[1:])
    scene["w"].stored(1.0, what)
    scene["w"].removed(3.0, what, *range(8))
    scene.engine("again", "w", 5.0, len(what.tokens))
    scene.lookup("again", "w", 5.0, what, 0, expected_keys=[], first_miss_key=first)
    verdict = scene.verdict("again")
    assert verdict.cause is cause
    assert verdict.lost_tokens is None
    assert verdict.reason is (Reason.NO_FIRST_MISS_KEY if cause is Cause.UNKNOWN else Reason.CAPACITY)


def test_a_first_missed_key_is_read_in_the_notation_of_its_chain() -> None:
    what = fixed(SIXTEEN_DIGITS, *USUAL[1:])
    scene = Scene("w")
    scene["w"].stored(1.0, what)
    verdict = told(scene, str, what, first_miss_key=str(SIXTEEN_DIGITS))
    assert gist(verdict) == (Cause.LOOKUP_FAILURE, 128, SIXTEEN_DIGITS)


def test_a_removal_that_cannot_be_decided_leaves_the_record_uncertain() -> None:
    scene = Scene("w")
    scene["w"].stored(1.0, WHAT)
    scene["w"].batch(3.0, {"type": "BlockRemoved", "block_hashes": [str(SIXTEEN_DIGITS)], "medium": "GPU"})
    verdict = told(scene, str)
    assert verdict.cause is Cause.UNKNOWN
    assert verdict.reason in {Reason.EVENTS_DROPPED, Reason.EVIDENCE_LATE}
    assert verdict.history_complete is False


@pytest.mark.parametrize(
    ("more", "cause"), [({}, Cause.LOOKUP_FAILURE), ({"speculative": True, "match_unit": 32}, Cause.UNKNOWN)]
)
def test_a_key_that_the_record_never_saw_between_others_is_no_end(more: dict[str, Any], cause: Cause) -> None:
    scene = Scene("w")
    scene["w"].stored(1.0, WHAT)
    wrong = fixed(*WHAT.keys[:2], 77, *WHAT.keys[3:])
    verdict = told(scene, hex, wrong, **more)
    assert gist(verdict) == (cause, None, WHAT.keys[0])


def test_a_first_missed_key_that_the_record_never_saw_before_others_is_not_new() -> None:
    scene = Scene("w")
    scene["w"].stored(1.0, WHAT)
    verdict = told(scene, hex, fixed(77, *WHAT.keys[1:]))
    assert (verdict.cause, verdict.reason) == (Cause.UNKNOWN, Reason.AMBIGUOUS_CHAIN)
