"""``whymiss compare``: where two serialised requests stop being the same to a prefix cache.

For CI and staging: serialise the same conversation twice, and fail where a field was reordered or a
timestamp got in. Exit codes: 0 the same, 1 different, 2 wrong usage, 3 input that cannot be read or compared.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TextIO

import msgspec

from ..config import Config
from ..errors import BadInput, ConfigError
from ..reference import Comparison, Reference, Serialised, compare, compare_with, read_reference
from .serialised import Tokenizer, load

DIFFERENT = 1
AROUND = 8
"""Tokens that a snippet shows before and after the first different one."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to compare, and what to print."""

    reference: Path | None = None
    tokenizer: Path | None = None
    block_size: int = 16
    as_json: bool = False
    snippet: bool = False
    """Print the text around the first different token: the only place where whymiss shows any."""


def run(files: tuple[Path, ...], config: Config, options: Options, out: TextIO) -> int:
    """Compare two requests, or one with a reference, and print what differs.

    Raises ``ConfigError`` and ``BadInput``.
    """
    _check_usage(files, options)
    words = None if options.tokenizer is None else Tokenizer(options.tokenizer)
    requests = [load(file, words) for file in files]
    found = _compare(requests, config, options)
    if options.as_json:
        out.write(msgspec.json.encode({"same": found.same, **msgspec.structs.asdict(found)}).decode() + "\n")
    else:
        out.writelines(line + "\n" for line in _lines(found))
    if options.snippet and words is not None and found.token_index is not None:
        out.writelines(line + "\n" for line in _snippets(requests, words, found.token_index))
    return 0 if found.same else DIFFERENT


def _compare(requests: list[Serialised], config: Config, options: Options) -> Comparison:
    secret = config.redaction.digest_key
    if options.reference is None:
        # Without a key of the operator's the digests compare the two values here, and nothing else.
        key = os.urandom(32) if secret is None else secret.reveal().encode()
        return compare(requests[0], requests[1], options.block_size, key)
    if secret is None:
        raise ConfigError("redaction.digest_key", "must be set: a reference is digested with it")
    known = _reference(options.reference)
    return compare_with(known, requests[0], secret.reveal().encode(), config.redaction.digest_key_id)


def _check_usage(files: tuple[Path, ...], options: Options) -> None:
    if len(files) != (2 if options.reference is None else 1):
        raise ConfigError("", f"compare takes two files, or one and --reference; {len(files)} came")
    if options.snippet and (options.tokenizer is None or options.reference is not None):
        raise ConfigError("", "--reveal-text needs --tokenizer and two files")


def _reference(file: Path) -> Reference:
    try:
        return read_reference(file.read_bytes())
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from None
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from None


def _lines(found: Comparison) -> list[str]:
    blocks = f"blocks of {found.block_size} tokens: {found.blocks[0]} and {found.blocks[1]} whole ones"
    if found.same:
        return ["the same", blocks]
    lines = ["different", blocks]
    if found.block is not None:
        reused = min(found.block, *found.blocks)
        lines.append(f"first different block: {found.block} ({reused} blocks in front of it can be reused)")
    if found.token_index is not None:
        lines.append(f"first different token: {found.token_index}")
    if found.same_again:
        lines.append(f"the same again behind it: {found.same_again} blocks, the mark of a volatile value")
    lines.extend(
        f"extra key {entry.kind} differs from block {entry.block} on: {entry.one or 'none'} and {entry.other or 'none'}"
        for entry in found.extra_keys
    )
    return lines


def _snippets(requests: list[Serialised], words: Tokenizer, index: int) -> list[str]:
    begin = max(0, index - AROUND)
    return [f"text: {words.decode(list(request.token_ids[begin : index + AROUND]))!r}" for request in requests]
