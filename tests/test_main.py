"""The command line: what it prints, and with which code it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from whymiss import __version__
from whymiss.__main__ import main


def ends(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def write(folder: Path, text: str) -> str:
    file = folder / "whymiss.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_the_list_of_commands_breaks_no_sentence_off(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends("--help") == 0
    assert "..." not in capsys.readouterr().out.split("Commands:")[1]


def test_check_prints_what_a_file_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends("check", write(tmp_path, "join: {hold_seconds: 1m}\n")) == 0
    assert "  hold_seconds: 60.0\n" in capsys.readouterr().out


def test_check_hides_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends("check", write(tmp_path, "redaction: {digest_key: a-very-secret-digest-key}\n")) == 0
    printed = capsys.readouterr()
    assert "digest_key: '[REDACTED]'" in printed.out
    assert "very-secret" not in printed.out + printed.err


def test_a_wrong_file_is_one_line_and_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "join:\n  hold_second: 1\n")
    assert ends("check", file) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"whymiss: {file}: join.hold_second: unknown key; did you mean join.hold_seconds? (line 2)\n"


@pytest.mark.parametrize("command", [["run", "--config"], ["replay", ".", "--config"], ["check"]])
def test_each_command_refuses_a_wrong_file(command: list[str], tmp_path: Path) -> None:
    assert ends(*command, write(tmp_path, "nonsense: 1\n")) == 2


def test_bytes_that_are_not_text_are_a_wrong_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "whymiss.yaml"
    file.write_bytes(b"join: \xff\xfe")
    assert ends("check", str(file)) == 2
    assert capsys.readouterr().err == f"whymiss: {file}: not UTF-8\n"


def test_a_missing_file_is_a_wrong_argument(tmp_path: Path) -> None:
    assert ends("check", str(tmp_path / "absent.yaml")) == 2


def test_version_is_the_package_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends("--version") == 0
    assert capsys.readouterr().out == f"whymiss, version {__version__}\n"


@pytest.mark.parametrize("command", ["run", "check", "replay", "demo"])
def test_each_command_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends(command, "--help") == 0
    assert f"    whymiss {command}" in capsys.readouterr().out
