"""The table of options: every key that the configuration takes, with the sentence under it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from whymiss.config import Config, parse, render
from whymiss.tools.options import options


def keys(value: object, prefix: str = "") -> Iterator[str]:
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            inner = getattr(value, name)
            if isinstance(inner, msgspec.Struct):
                yield from keys(inner, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}"


def test_every_key_of_the_default_configuration_is_listed() -> None:
    listed = {one.key for one in options()}
    own = set(keys(Config.default()))
    assert {key for key in own if not any(one.startswith((f"{key}[", f"{key}.")) for one in listed)} <= listed


def test_every_option_has_a_meaning_and_a_default() -> None:
    for one in options():
        assert one.meaning.endswith("."), one.key
        assert one.default, one.key


def test_lists_and_mappings_show_how_their_keys_go_on() -> None:
    listed = {one.key for one in options()}
    assert {"kv_events.sources[].endpoint", "exporters.NAME.endpoint", "workers.map[].worker"} <= listed


def test_a_scalar_option_is_a_key_of_the_file() -> None:
    for one in options():
        if one.default.startswith("`") and "[]" not in one.key and "NAME" not in one.key and "tls" not in one.key:
            name = one.key.rpartition(".")[2]
            assert f"{name}:" in render(parse("{}", {}))
