"""The guides for operators: their configurations are ours, and no word that users see is left unexplained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from whymiss.attribution import TABLE
from whymiss.config import Config, parse
from whymiss.errors import ConfigError
from whymiss.model import Cause, Grade, Owner, Reason, Tier
from whymiss.tools.options import options

ROOT = Path(__file__).resolve().parents[1]
QUICK_STARTS = ROOT / "collector-config/quick-starts.md"
RUNNING = ROOT / "deploy/README.md"
GUIDES = (QUICK_STARTS, RUNNING)
REFINEMENTS = {
    *(Reason.HOLDER_KNOWN, Reason.HOLDER_UNKNOWN, Reason.PINNED, Reason.CAPACITY, Reason.CLEARED, Reason.RESTARTED),
    *(Reason.AFTER_ROUTE, Reason.BRANCH, Reason.CONCURRENT_PREFILL, Reason.FIRST_SEEN),
}


def sections(file: Path) -> dict[str, str]:
    """The text below each heading of the second order."""
    parts = file.read_text(encoding="utf-8").split("\n## ")[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def blocks(text: str) -> list[str]:
    return re.findall(r"(?ms)^```yaml\n(.*?)^```$", text)


def rows(text: str, heading: str) -> list[str]:
    """The first cells of the table whose first column has a heading."""
    table = re.search(rf"(?m)^\| {heading} \|.*\n\|[-| ]+\n((?:\|.*\n?)+)", text)
    assert table is not None, f"no table of {heading}"
    return [line.split(" |")[0].removeprefix("| ") for line in table[1].splitlines()]


PAIRS = sections(QUICK_STARTS)


@pytest.mark.parametrize("pair", PAIRS)
def test_each_quick_start_has_a_configuration_that_is_one(pair: str) -> None:
    (text,) = blocks(PAIRS[pair])
    config = parse(text, {})
    assert isinstance(config, Config)
    assert config.exporters
    assert config.kv_events.sources or config.kv_events.discovery


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair != "Anything else"])
def test_each_quick_start_says_what_to_switch_on_and_what_to_expect(pair: str) -> None:
    assert rows(PAIRS[pair], "where")
    assert "**See**" in PAIRS[pair]
    assert "**Not to be" in PAIRS[pair] or pair.startswith(("SGLang", "vLLM behind Dynamo"))


@pytest.mark.parametrize(
    "name", ["llm-d", "production-stack", "Dynamo", "SGLang", "LMCache", "Mooncake", "AIBrix", "Envoy"]
)
def test_there_is_a_quick_start_for(name: str) -> None:
    assert any(name in pair for pair in PAIRS)


def test_a_wrong_configuration_would_be_noticed() -> None:
    (text,) = blocks("```yaml\nkv_events: {sauces: []}\n```\n")
    with pytest.raises(ConfigError, match="sauces"):
        parse(text, {})


def test_every_reason_has_a_row_that_says_what_to_do() -> None:
    troubleshooting = sections(RUNNING)["Troubleshooting"]
    tables = re.split(r"(?m)^\| reason \| of \|", troubleshooting)
    assert set(rows(tables[0], "reason")) == {f"`{one}`" for one in Reason if one and one not in REFINEMENTS}
    assert set(rows("| reason | of |" + tables[1], "reason")) == {f"`{one}`" for one in REFINEMENTS}


def test_every_cause_and_owner_has_a_row() -> None:
    glossary = sections(RUNNING)["Glossary"]
    assert rows(glossary, "cause") == [f"`{cause}`" for cause in Cause]
    assert rows(glossary, "owner") == [f"`{owner}`" for owner in Owner]


def test_words_of_evidence_and_tiers_are_in_the_glossary() -> None:
    glossary = sections(RUNNING)["Glossary"]
    for word in (*[grade for grade in Grade if grade is not Grade.NONE], *[tier for tier in Tier if tier != "other"]):
        assert str(word) in glossary


@pytest.mark.parametrize("file", GUIDES, ids=lambda file: file.parent.name)
def test_the_options_that_a_guide_names_exist(file: Path) -> None:
    known = {one.key for one in options()}
    parts = {key.split(".")[0].split("[")[0] for key in known}
    named = re.findall(r"`([a-z_]+(?:\.[a-z_*]+)+)`", file.read_text(encoding="utf-8"))
    ours = {one for one in named if one.split(".")[0] in parts}
    assert ours
    for one in ours:
        pattern = re.escape(one).replace(r"\*", r"[^.]+") + r"(\[\]|\.|$)"
        assert any(re.match(pattern, key) for key in known), one


def test_the_causes_of_the_table_are_those_of_the_glossary() -> None:
    assert {str(row.cause) for row in TABLE} <= {one.strip("`") for one in rows(sections(RUNNING)["Glossary"], "cause")}
