"""The list of mutations is kept true to the source; whether tests notice them is run by `make deep`."""

from __future__ import annotations

from collections import Counter
from types import ModuleType

import pytest

from tests.mutations.listed import MUTATIONS
from tests.mutations.markers import markers, mutated, place_of, text_of
from tests.mutations.mutation import ROOT
from tests.mutations.swapped import swap
from tests.mutations.unwatched import UNWATCHED


@pytest.mark.parametrize("file", sorted({marker.file for marker in markers()}))
def test_every_mutation_applies_and_leaves_a_program(file: str) -> None:
    text = text_of(file)
    for mutation in MUTATIONS:
        if place_of(mutation).file == file:
            compile(mutated(text, place_of(mutation).line, mutation), mutation.id, "exec")


def test_each_marker_has_one_mutation_and_each_mutation_one_marker() -> None:
    listed = Counter(one.id for one in MUTATIONS)
    assert listed == Counter(marker.id for marker in markers())
    assert [name for name, count in listed.items() if count > 1] == []


def test_the_tests_of_every_mutation_are_there() -> None:
    selected = {part.partition("::")[0] for one in MUTATIONS for part in one.tests.split()}
    assert [part for part in sorted(selected) if not (ROOT / part).exists()] == []


def test_every_guard_that_is_known_to_be_unwatched_is_on_the_list() -> None:
    assert sorted(UNWATCHED - {one.id for one in MUTATIONS}) == []


def test_functions_get_their_mutated_code_wherever_they_are_referred_to() -> None:
    source = "class Box:\n    @property\n    def size(self):\n        return 1\n\ndef twice(n):\n    return 2 * n\n"
    module = ModuleType("boxes")
    exec(compile(source, "boxes", "exec"), vars(module))
    twice, box = module.twice, module.Box()
    assert swap(module, source, source.replace("2 * n", "3 * n")) == 1
    assert (twice(5), box.size) == (15, 1)
    assert swap(module, source, source.replace("return 1", "return 4")) == 1
    assert box.size == 4


def test_a_mutation_outside_of_functions_is_refused_because_it_would_change_nothing() -> None:
    source = "LIMIT = 1\n\ndef limit():\n    return LIMIT\n"
    with pytest.raises(ValueError, match="more than the body"):
        swap(ModuleType("limits"), source, source.replace("LIMIT = 1", "LIMIT = 2"))
