"""The list of mutations is kept true to the source; whether tests notice them is run by `make deep`."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.mutations.listed import MUTATIONS
from tests.mutations.mutation import PACKAGE, ROOT, SOURCE


@pytest.mark.parametrize("file", sorted({one.file for one in MUTATIONS}))
def test_every_mutation_applies_once_and_leaves_a_program(file: str) -> None:
    text = (SOURCE / PACKAGE / file).read_text(encoding="utf-8")
    for mutation in MUTATIONS:
        if mutation.file == file:
            changed = mutation.applied(text)
            assert changed != text, mutation.name
            ast.parse(changed, mutation.name)


def test_the_tests_of_every_mutation_are_there() -> None:
    selected = {part.partition("::")[0] for one in MUTATIONS for part in one.tests.split()}
    assert [part for part in sorted(selected) if not (ROOT / part).exists()] == []


def test_each_mutation_has_a_name_of_its_own() -> None:
    assert [name for name, count in Counter(one.name for one in MUTATIONS).items() if count > 1] == []


def test_a_mutation_whose_text_is_gone_or_stands_twice_does_not_apply() -> None:
    mutation = MUTATIONS[0]
    for text in ("", mutation.old * 2):
        with pytest.raises(ValueError, match=mutation.name):
            mutation.applied(text)
