"""Three thousand lookups of the engines' own code, the same in every run: what CI plays."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import programs
from .scoring import Score, score
from .table import MODES, figures

SEED, REQUESTS = 5, 200


@pytest.fixture(scope="module")
def sglang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of SGLang."""
    folder = tmp_path_factory.mktemp("sglang")
    programs.play("sglang", folder, REQUESTS, [(mode, SEED) for mode in MODES["sglang"]])
    return folder


@pytest.fixture(scope="module")
def dynamo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a real frontend before mock engines, in real time: the same requests in every run, not the same bytes."""
    folder = tmp_path_factory.mktemp("dynamo")
    programs.play("dynamo", folder, REQUESTS // 2, [(mode, SEED) for mode in MODES["dynamo"]])
    return folder


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of all modes, made in one process: what takes long is vLLM's import."""
    folder = tmp_path_factory.mktemp("vllm")
    programs.play("vllm", folder, REQUESTS, [(mode, SEED) for mode in MODES["vllm"]])
    return folder


@pytest.mark.server("vllm-python")
@pytest.mark.parametrize("mode", MODES["vllm"])
def test_a_fixed_seed_of_vllm_is_named_as_the_engine_has_it(mode: str, vllm: Path) -> None:
    found = score(vllm / f"{mode}-{SEED}")
    assert found.lookups >= REQUESTS // 3, "a mode that asks nothing proves nothing"
    holds(found, figures("seeds")[mode])


@pytest.mark.server("sglang-python")
@pytest.mark.parametrize("mode", MODES["sglang"])
def test_a_fixed_seed_of_sglang_is_named_as_its_tree_has_it(mode: str, sglang: Path) -> None:
    found = score(sglang / f"{mode}-{SEED}")
    assert found.lookups >= REQUESTS // 2, "a mode that asks nothing proves nothing"
    holds(found, figures("seeds")[mode])


@pytest.mark.server("dynamo-python")
@pytest.mark.parametrize("mode", MODES["dynamo"])
def test_a_fixed_seed_of_dynamo_is_named_as_its_engines_have_it(mode: str, dynamo: Path) -> None:
    found = score(dynamo / f"{mode}-{SEED}")
    assert found.lookups >= REQUESTS // 3, "a mode that asks nothing proves nothing"
    holds(found, figures("seeds")[mode])


def holds(found: Score, least: dict[str, int]) -> None:
    assert found.wrong <= least["wrong"], found.faults
    assert not found.missing, found.faults
    assert found.right >= least["right"], found.reasons
