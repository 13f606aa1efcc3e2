"""``whymiss whatif``: the figures it prints, what it refuses, and that the published ones come out of it."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.fleet.published import ROUTINGS, label_of
from tests.fleet.traces import FILES, expected, present
from whymiss.__main__ import main
from whymiss.model import Cause
from whymiss.tools import whatif
from whymiss.tools.fleet.replay import Why

CHATS = Path(__file__).parent / "traces" / "chats.jsonl"
"""84 requests of 12 chats that share a system prompt; made, not recorded."""
ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "whatif.md"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(["whatif", *arguments])
    assert left.value.code == 0, capsys.readouterr().err
    found = capsys.readouterr()
    assert found.err == "", "no progress where nobody watches"
    return found.out


def records(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed(capsys, *arguments, "--json").splitlines()]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as left:
        main(["whatif", *arguments])
    found = capsys.readouterr()
    assert found.out == ""
    return left.value.code, found.err


def written(folder: Path, *rows: dict[str, object]) -> str:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_it_prints_a_fleet_a_line_and_the_answer_last(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(
        capsys, str(CHATS), "--workers", "3", "--capacity", "60,120", "--routing", "round_robin", "--routing", "prefix"
    ).splitlines()
    assert lines[:3] == [
        "chats.jsonl: 84 requests, 695.2 k prompt tokens, blocks of 512 tokens",
        "every fleet: workers 3",
        "nobody could reuse 108.0 k tokens of new blocks and 22.5 k at the ends of prompts: at best 81.2 % hit",
    ]
    assert lines[-1] == (
        "of the 263.2 k tokens that the first fleet lost: doubling the capacity saves 96.8 k (37 %); "
        "routing prefix saves 242.2 k (92 %); capacity 120 with routing prefix saves 260.1 k (99 %)"
    )
    table = [line.split() for line in lines[4:-1]]
    assert [
        "60",
        "round_robin",
        "43.4",
        "%",
        "263.2",
        "k",
        "219.1",
        "k",
        "24.1",
        "k",
        "20.0",
        "k",
        "37.3",
        "%",
        "-",
    ] in table
    assert sum(row[1:2] in (["round_robin"], ["prefix"]) for row in table) == 4
    assert not any("\x1b" in line for line in lines)


def test_one_fleet_names_what_it_lost_most_to(capsys: pytest.CaptureFixture[str]) -> None:
    last = printed(capsys, str(CHATS), "--workers", "3", "--capacity", "60").splitlines()[-1]
    assert last == "263.2 k tokens lost, most of them to routing_miss (routing): 219.1 k (83.3 %)"
    assert printed(capsys, str(CHATS)).splitlines()[-1] == "nothing was lost"


def test_where_nothing_helps_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    last = printed(capsys, str(CHATS), "--workers", "3", "--keep", "inf,1").splitlines()[-1]
    assert last == "nothing here saves any of the 152.6 k tokens that the first fleet lost"


def test_json_adds_up_and_names_causes_and_owners(capsys: pytest.CaptureFixture[str]) -> None:
    for one in records(capsys, str(CHATS), "--workers", "2,5", "--capacity", "60", "--tier", "0,30,shared:50"):
        assert one["queried_tokens"] == (
            one["hit_tokens"] + one["lost_tokens"] + one["new_tokens"] + one["unmatchable_tokens"]
        )
        lost: Counter[str] = Counter()
        for row in one["causes"]:
            lost[row["owner"]] += row["missed_tokens"]
        assert lost["platform"] + lost["routing"] == one["lost_tokens"]
        assert sum(row["lookups"] for row in one["causes"]) == one["requests"] == 84


def test_savings_are_against_the_first_fleet(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = records(capsys, str(CHATS), "--workers", "3", "--capacity", "60,120")
    assert first["saved_tokens"] == 0
    assert second["saved_tokens"] == first["lost_tokens"] - second["lost_tokens"] > 0


def test_fleets_that_refuse_other_requests_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, str(CHATS), "--capacity", "inf,20").splitlines()
    assert any(line.startswith("note: ") and "longer than a worker's cache" in line for line in lines)
    assert "note: fleets that served other requests than the first are not compared with it" in lines
    assert records(capsys, str(CHATS), "--capacity", "inf,20")[1]["saved_tokens"] is None


def test_capacity_may_be_said_in_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    assert records(capsys, str(CHATS), "--capacity", "60000t")[0]["capacity"] == 60_000 // 512


def test_token_ids_give_what_their_blocks_give(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    prompts = [list(range(40)), [*range(33), 7, 8], list(range(50)), [9] * 20]
    rows = [{"timestamp": at, "tokens": prompt, "session": at % 2} for at, prompt in enumerate(prompts)]
    rows[2] = {"timestamp": 2, "tokens": list(range(33, 50)), "base": 1, "share": 33, "session": 0}
    identities = [["a", "b", "partial"], ["a", "b", 5], ["a", "b", "c", "d"], [1, 2]]
    blocks = [
        {"timestamp": at, "input_length": len(prompt), "hash_ids": ids, "session": at % 2}
        for at, (prompt, ids) in enumerate(zip(prompts, identities, strict=True))
    ]
    fleets = ["--workers", "2", "--routing", "sticky,prefix"]
    by_tokens = records(capsys, written(tmp_path, *rows), *fleets)
    assert by_tokens == records(capsys, written(tmp_path, *blocks), *fleets, "--block-size", "16")
    assert by_tokens[0]["hit_tokens"] > 0


def test_gzip_and_standard_input_are_read_alike(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plain = records(capsys, str(CHATS), "--capacity", "60")
    packed = tmp_path / "chats.jsonl.gz"
    packed.write_bytes(gzip.compress(CHATS.read_bytes()))
    assert records(capsys, str(packed), "--capacity", "60") == plain
    command = [sys.executable, "-m", "whymiss", "whatif", "-", "--capacity", "60", "--json"]
    piped = subprocess.run(command, input=packed.read_bytes(), capture_output=True, check=True)
    assert [json.loads(line) for line in piped.stdout.splitlines()] == plain


def test_an_identity_that_means_another_prefix_is_another_block(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # Hashes of a block's own tokens, as some traces have them: the second request shares nothing with the first.
    rows = [{"timestamp": 0, "input_length": 1100, "hash_ids": [1, 2, 3]}]
    rows.append({"timestamp": 1, "input_length": 1100, "hash_ids": [9, 2, 3]})
    assert records(capsys, written(tmp_path, *rows))[0]["hit_tokens"] == 0


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"timestamp": 1}, "has neither hash_ids nor tokens"),
        ({"timestamp": 1, "hash_ids": [1, 2]}, "missing required field `input_length`"),
        ({"timestamp": "noon", "hash_ids": [1], "input_length": 512}, "Expected `float`, got `str` - at `$.timestamp`"),
        ({"timestamp": 1, "hash_ids": [1] * 14, "input_length": 6758 // 32}, "211 tokens are not 14 blocks of 512"),
        ({"timestamp": 1, "tokens": [5] * 20, "base": 3, "share": 1}, "base and share must name an earlier row"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(
    row: dict[str, object], problem: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, said = refused(capsys, written(tmp_path, row))
    assert code == 3
    assert said.startswith(f"whymiss: {tmp_path}/trace.jsonl: line 1: ")
    assert problem in said


def test_a_later_line_is_named_and_nothing_of_it_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(CHATS.read_bytes() + b'\n{"timestamp": "my secret prompt", "hash_ids": []}\n')
    code, said = refused(capsys, str(path))
    assert (code, "line 86: " in said, "secret" in said) == (3, True, False)


@pytest.mark.parametrize(
    ("content", "problem"), [(b"", "no request"), (b"\x1f\x8b\x08broken", "not a whole gzip file")]
)
def test_a_file_without_requests_is_refused(
    content: bytes, problem: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(content)
    code, said = refused(capsys, str(path))
    assert code == 3
    assert problem in said


def test_a_gzip_file_cut_short_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(CHATS.read_bytes())[:-40])
    assert refused(capsys, str(path)) == (3, f"whymiss: {path}: not a whole gzip file\n")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["--capacity", "many"],
            "--capacity: 'many' is not a number of blocks, of tokens (3000000t, at least 512), or inf",
        ),
        (["--capacity", "100t"], "--capacity: '100t' is not a number of blocks"),
        (["--workers", "0"], "--workers: '0' is not a whole number from 1 to 4,096"),
        (["--routing", "prefix,best"], "--routing: 'best' is not one of round_robin, random"),
        (["--tier", "shared:none"], "--tier: 'shared:none' is not a number of blocks"),
        (["--keep", "-1"], "--keep: '-1' is not seconds"),
        (["--index-lag", "nan"], "--index-lag: 'nan' is not seconds"),
        (
            ["--workers", ",".join(map(str, range(1, 40))), "--capacity", ",".join(map(str, range(1, 40)))],
            "combinations",
        ),
        (["--plot", "lost.png"], "--plot: writes SVG"),
        (["--plot", "/absent/lost.svg"], "--plot: /absent/lost.svg: No such file"),
    ],
)
def test_a_wrong_option_is_named(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = refused(capsys, str(CHATS), *arguments)
    assert (code, problem in said) == (2, True), said


def test_sticky_needs_sessions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = written(tmp_path, {"timestamp": 0, "input_length": 600, "hash_ids": [1]})
    code, said = refused(capsys, path, "--routing", "sticky")
    assert (code, "sticky needs sessions" in said) == (2, True)


def test_the_plot_has_a_bar_a_fleet_and_tells_what_the_table_tells(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plot = tmp_path / "lost.svg"
    printed(
        capsys, str(CHATS), "--workers", "3", "--capacity", "60", "--routing", "round_robin,prefix", "--plot", str(plot)
    )
    picture = ET.parse(plot).getroot()
    titles = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[:3] == ["routing_miss: 219.1 k", "evicted: 24.1 k", "evicted_elsewhere: 20.0 k"]
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "263.2 k, 43.4 % hit" in texts
    assert "prefix" in texts


class Watched(io.StringIO):
    """A terminal that somebody looks at."""

    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_only() -> None:
    terminal, out = Watched(), io.StringIO()
    assert whatif.run(CHATS, whatif.Options(), out, terminal) == 0
    assert "replaying on 1 fleet" in terminal.getvalue()
    assert "\x1b" not in out.getvalue()


# --- published figures ----------------------------------------------------------------------------------------------

ENGINE = [
    ("mooncake_synthetic_full", 0),
    ("mooncake_synthetic_full", 1),
    *(pytest.param("mooncake_conversation_full", index, marks=pytest.mark.deep) for index in range(2)),
    *(pytest.param("weka_200", index, marks=pytest.mark.deep) for index in range(3)),
]


@pytest.mark.parametrize(("key", "index"), ENGINE)
def test_published_figures_come_out_of_the_tool(key: str, index: int, capsys: pytest.CaptureFixture[str]) -> None:
    path = present(FILES[key.removesuffix("_full")])
    rows = expected()[key]["engine_rule"]
    assert isinstance(rows, list)
    wanted = rows[index]
    fleet = ["--workers", str(wanted["workers"]), "--capacity", str(wanted["capacity"])]
    (found,) = records(capsys, str(path), *fleet, "--routing", ROUTINGS[wanted["routing"]])
    first_miss = dict.fromkeys(wanted["first_miss"], 0)
    for row in found["causes"]:
        first_miss[label_of(Why(Cause(row["cause"]), row["reason"]))] += row["lookups"]
    assert (found["hit_tokens"], first_miss) == (wanted["hit_blocks"] * 512, wanted["first_miss"])


def test_the_guides_example_is_what_the_tool_prints(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = present(FILES["mooncake_conversation"])
    _, _, example = GUIDE.read_text(encoding="utf-8").partition("$ whymiss whatif ")
    command, _, rest = example.partition("\n")
    name, *arguments = command.split()
    plot = tmp_path / arguments.pop()
    lines = printed(capsys, str(path), *arguments, str(plot)).splitlines()
    assert path.name == name
    assert [line.rstrip() for line in lines] == rest.partition("\n```")[0].splitlines()
    assert plot.read_text(encoding="utf-8") == (ROOT / "deploy/images/whatif.svg").read_text(encoding="utf-8")
