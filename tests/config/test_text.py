"""The shape of a file and its variables, before any field has a meaning."""

from __future__ import annotations

import contextlib
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whymiss.config.text import Listing, Mapped, Scalar, read, substitute
from whymiss.errors import ConfigError

NAMES = st.text(alphabet=string.ascii_letters + string.digits + "_", min_size=1).filter(
    lambda name: not name[0].isdigit()
)


def problem(text: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as raised:
        read(text, environ)
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        ("plain", "plain"),
        ("$", "$"),
        ("$HOME", "$HOME"),
        ("$$", "$"),
        ("$${env:A}", "${env:A}"),
        ("${env:A}", "1"),
        ("<${env:A}${env:A}>", "<11>"),
        ("$$${env:A}", "$1"),
        ("${env:EMPTY}", ""),
        ("${env:EMPTY:-x}", "x"),
        ("${env:ABSENT:-x}", "x"),
        ("${env:ABSENT:-}", ""),
        ("${env:ABSENT:-tcp://a:1}", "tcp://a:1"),
        ("${env:A:-x}", "1"),
        ("${env:RAW}", "${env:A}$$"),
    ],
)
def test_variables_are_replaced_once(text: str, read_as: str) -> None:
    assert substitute(text, {"A": "1", "EMPTY": "", "RAW": "${env:A}$$"}) == read_as


@pytest.mark.parametrize(
    "text", ["${A}", "${env:}", "${env:1A}", "${env:A", "${", "${env:A-x}", "${file:/etc/passwd}", "${env:A:x}"]
)
def test_what_is_no_variable_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"must be \$\{env:NAME\}"):
        substitute(text, {"A": "1"})


@given(st.text())
def test_doubled_dollars_give_any_text_back(text: str) -> None:
    assert substitute(text.replace("$", "$$"), {}) == text


@given(NAMES, st.text(), st.text(), st.text())
def test_a_variable_gives_its_value_untouched(name: str, value: str, before: str, after: str) -> None:
    escaped = [side.replace("$", "$$") for side in (before, after)]
    assert substitute(f"{escaped[0]}${{env:{name}}}{escaped[1]}", {name: value}) == before + value + after


@given(st.text())
def test_any_text_is_replaced_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        substitute(text, {})


def test_an_absent_variable_is_named_with_its_key_and_line() -> None:
    assert problem("a:\n  b: ${env:GONE}\n") == (
        "a.b: the environment has no GONE; set it, or write ${env:GONE:-default} (line 2)"
    )


def test_a_variable_cannot_add_a_key() -> None:
    tree = read("a: ${env:A}\n", {"A": "1\nb: 2"})
    assert tree == Mapped({"a": Scalar("1\nb: 2", 1, quoted=False)}, 1)


def test_keys_have_no_variables() -> None:
    assert list(read("${env:A}: 1\n", {"A": "x"}).items) == ["${env:A}"]


@pytest.mark.parametrize("text", ["", "   \n", "# nothing\n", "---\n", "~", "null"])
def test_an_empty_file_is_an_empty_mapping(text: str) -> None:
    assert read(text, {}).items == {}


@pytest.mark.parametrize(
    ("value", "scalar"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("'null'", "null"),
        ('""', ""),
        ("no", "no"),
        ("012", "012"),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("${env:NULL}", None),
        ("'${env:NULL}'", "null"),
        ("${env:EMPTY}", ""),
    ],
)
def test_a_scalar_stays_the_text_that_was_written(value: str, scalar: str | None) -> None:
    node = read(f"a: {value}\n", {"NULL": "null", "EMPTY": ""}).items["a"]
    assert isinstance(node, Scalar)
    assert node.text == scalar


def test_lines_are_kept() -> None:
    tree = read("a:\n- 1\n\n- 2\n", {})
    assert tree == Mapped({"a": Listing((Scalar("1", 2, quoted=False), Scalar("2", 4, quoted=False)), 2)}, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "a: given twice, first on line 1 (line 3)"),
        ("x:\n  a: 1\n  a: 1\n", "x.a: given twice, first on line 2 (line 3)"),
        ("a: &x 1\nb: *x\n", "b: aliases are not read: write the value out (line 1)"),
        ("a: &x [*x]\n", "a[0]: aliases are not read: write the value out (line 1)"),
        ("a: !!python/object/apply:os.system [true]\n", "a: tags are not read (line 1)"),
        ("a: !vault x\n", "a: tags are not read (line 1)"),
        ("? [1]\n: 2\n", "a key must be text (line 1)"),
        ("- 1\n", "the file must be a mapping of sections (line 1)"),
        ("text\n", "the file must be a mapping of sections (line 1)"),
        ("a: [1\n", "not YAML: expected ',' or ']', but got '<stream end>' (line 2)"),
        ("a: 1\n---\nb: 2\n", "not YAML: but found another document (line 2)"),
        ("\0", "not YAML: it holds a character that YAML forbids"),
        ("[" * 600, "not a configuration: it is nested too deeply"),
    ],
)
def test_a_wrong_shape_is_named_with_its_line(text: str, message: str) -> None:
    assert problem(text) == message


@given(st.text() | st.text(alphabet="a:-[]{}&*!|>'\"#%@`,? \n\t"))
def test_any_file_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        read(text, {})
