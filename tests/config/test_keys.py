"""Keys of digests, and the references that were digested with them."""

from __future__ import annotations

import pytest

from whymiss.config import parse
from whymiss.errors import ConfigError

KEYED = "redaction: {digest_key: 0123456789abcdef}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("redaction: {digest_key_file: ' '}", "redaction.digest_key_file: must not be empty"),
        (
            "redaction: {digest_key: 0123456789abcdef, digest_key_file: k}",
            "redaction.digest_key_file: has no use beside digest_key",
        ),
        ("references: {files: [a]}", "redaction.digest_key: must be set: references.files were digested with it"),
        (KEYED + "\nreferences: {files: ['']}", "references.files[0]: must not be empty"),
        (KEYED + "\nreferences: {files: [a, b, a]}", "references.files[2]: the same file as files[0]"),
    ],
)
def test_a_broken_rule_is_told_with_the_users_key(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(text, {})
    assert str(raised.value) == message


@pytest.mark.parametrize("key", ["digest_key: 0123456789abcdef", "digest_key_file: key"])
def test_references_need_a_key_from_anywhere(key: str) -> None:
    config = parse(f"redaction: {{{key}}}\nreferences: {{files: [a, b]}}", {})
    assert config.references.files == ("a", "b")


def test_by_default_there_are_no_references() -> None:
    assert parse("", {}).references.files == ()
