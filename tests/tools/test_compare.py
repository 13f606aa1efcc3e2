"""``whymiss compare`` and ``whymiss reference`` as CI uses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whymiss.__main__ import main

SECRET = "0123456789abcdef-operator"
CONFIG = f"redaction: {{digest_key: '{SECRET}'}}"


def write(folder: Path, name: str, **request: object) -> str:
    path = folder / name
    path.write_text(json.dumps(request), encoding="utf-8")
    return str(path)


def config(folder: Path) -> str:
    path = folder / "whymiss.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return str(path)


def exit_code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return int(left.value.code or 0)


TOKENS = list(range(5000, 5200))
CHANGED = [7 if place == 40 else token for place, token in enumerate(TOKENS)]


def test_exit_codes_are_what_ci_needs(tmp_path: Path) -> None:
    one, same = write(tmp_path, "one", token_ids=TOKENS), write(tmp_path, "same", token_ids=TOKENS)
    other = write(tmp_path, "other", token_ids=CHANGED)
    bad = write(tmp_path, "bad", nothing=1)
    assert exit_code("compare", one, same) == 0
    assert exit_code("compare", one, other) == 1
    assert exit_code("compare", one) == 2
    assert exit_code("compare", one, "no-such-file") == 2
    assert exit_code("compare", one, other, "--reveal-text") == 2
    assert exit_code("compare", one, bad) == 3
    assert exit_code("compare", one, write(tmp_path, "model", token_ids=TOKENS, model="m")) == 3


def test_a_refusal_names_the_file_and_what_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, chat = write(tmp_path, "one", token_ids=TOKENS), write(tmp_path, "chat", messages=[])
    both = write(tmp_path, "both", token_ids=TOKENS, text="secret")
    said = []
    for arguments in ([one], [one, chat], [one, both], [one, "--reference", chat, "--config", config(tmp_path)]):
        assert exit_code("compare", *arguments) in {2, 3}
        said.append(capsys.readouterr().err.removeprefix("whymiss: ").strip())
    assert said == [
        "compare takes two files, or one and --reference; 1 came",
        f"{chat}: has neither token_ids nor text (of messages, what the chat template makes of them)",
        f"{both}: has both token_ids and text, and one of them is the request",
        f"{chat}: not a reference",
    ]


def test_people_read_the_block_and_the_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(tmp_path, "one", token_ids=TOKENS, cache_salt="tenant-1")
    other = write(tmp_path, "other", token_ids=CHANGED, cache_salt="tenant-2")
    assert exit_code("compare", one, other) == 1
    said = capsys.readouterr().out
    assert "first different block: 0" in said
    assert "first different token: 40" in said
    assert "extra key cache_salt differs from block 0 on" in said
    assert "tenant" not in said
    assert "5040" not in said


def test_machines_read_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = write(tmp_path, "one", token_ids=TOKENS), write(tmp_path, "other", token_ids=CHANGED)
    assert exit_code("compare", one, other, "--json", "--block-size", "8") == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["same"], said["block"], said["token_index"], said["blocks"]) == (False, 5, 40, [25, 25])


def test_a_reference_is_written_once_and_compared_with_ever_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = config(tmp_path)
    first = write(tmp_path, "first", token_ids=[*TOKENS, 1, 2])
    second = write(tmp_path, "second", token_ids=[*TOKENS, 3])
    options = ("--name", "support", "--template-version", "7")
    assert exit_code("reference", first, second, "--config", settings, *options) == 0
    written = capsys.readouterr().out
    assert SECRET not in written
    assert "5000" not in written
    known = tmp_path / "support.json"
    known.write_text(written, encoding="utf-8")
    arguments = ("--reference", str(known), "--config", settings)
    assert exit_code("compare", first, *arguments) == 0
    assert exit_code("compare", write(tmp_path, "changed", token_ids=CHANGED), *arguments) == 1
    assert "first different block: 2" in capsys.readouterr().out


def test_a_reference_needs_the_operators_key(tmp_path: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("{}", encoding="utf-8")
    one = write(tmp_path, "one", token_ids=TOKENS)
    assert exit_code("reference", one, "--config", str(empty), "--name", "a", "--template-version", "1") == 2


def test_requests_that_share_no_block_make_no_reference(tmp_path: Path) -> None:
    one, other = write(tmp_path, "one", token_ids=TOKENS), write(tmp_path, "other", token_ids=[1, *TOKENS])
    options = ("--config", config(tmp_path), "--name", "a", "--template-version", "1")
    assert exit_code("reference", one, other, *options) == 3


def test_text_needs_a_tokenizer(tmp_path: Path) -> None:
    one = write(tmp_path, "one", text="hello")
    assert exit_code("compare", one, one) == 3


def test_text_is_compared_as_its_tokens_and_shown_on_request_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the extra tokenizers is not installed")
    vocabulary = {"[UNK]": 0, **{word: number for number, word in enumerate(["now", "is", "monday", "friday"], 1)}}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    file = tmp_path / "tokenizer.json"
    made.save(str(file))
    one, other = write(tmp_path, "one", text="now is monday"), write(tmp_path, "other", text="now is friday")
    arguments = ("compare", one, other, "--tokenizer", str(file), "--block-size", "2")
    assert exit_code(*arguments) == 1
    said = capsys.readouterr().out
    assert "first different token: 2" in said
    assert "friday" not in said
    assert exit_code(*arguments, "--reveal-text") == 1
    assert "friday" in capsys.readouterr().out
