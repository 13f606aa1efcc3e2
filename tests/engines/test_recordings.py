"""Recordings of the engines' own code, a mode each, and those of seeds that failed once: played without an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from .scoring import score
from .table import MODES, figures
from .test_fixed_seeds import holds

RECORDINGS = Path(__file__).resolve().parents[1] / "captures" / "engines"
FAILED = sorted((RECORDINGS / "failed").glob("*-*"))


@pytest.mark.parametrize("mode", [mode for modes in MODES.values() for mode in modes])
def test_a_recording_is_named_as_its_engine_had_it(mode: str) -> None:
    found = score(RECORDINGS / mode)
    assert found.lookups >= 100
    holds(found, figures("recordings")[mode])


@pytest.mark.parametrize("folder", FAILED, ids=[folder.name for folder in FAILED])
def test_a_seed_that_failed_names_no_wrong_cause(folder: Path) -> None:
    found = score(folder)
    assert not found.wrong, found.faults
    assert not found.missing, found.faults
