"""``whymiss reference``: the chain of a known-good template, as keyed digests in a file.

From several requests of one template the leading blocks that they share are taken. The file holds no
token and no text, and is of use only with the key that it was written with.
"""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

import msgspec

from ..config import Config
from ..errors import BadInput, ConfigError
from ..reference import Reference, chains
from .serialised import Tokenizer, load


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the reference is called, and how it is cut."""

    name: str
    version: str
    block_size: int = 16
    tokenizer: Path | None = None


def run(files: tuple[Path, ...], config: Config, options: Options, out: TextIO) -> int:
    """Write the reference. Raises ``ConfigError`` without a key, and ``BadInput``."""
    secret = config.redaction.digest_key
    if secret is None:
        raise ConfigError("redaction.digest_key", "must be set: a reference is read by other processes")
    words = None if options.tokenizer is None else Tokenizer(options.tokenizer)
    requests = [load(file, words) for file in files]
    chain, own = chains(requests, options.block_size, secret.reveal().encode())
    if not chain:
        raise BadInput("the requests share no whole block")
    first = requests[0]
    reference = Reference(
        name=options.name,
        version=options.version,
        block_size=options.block_size,
        key_id=config.redaction.digest_key_id,
        chain=chain,
        own=own,
        model=first.model,
        tokenizer=first.tokenizer,
        template=first.template,
    )
    out.write(msgspec.json.format(msgspec.json.encode(reference), indent=1).decode() + "\n")
    return 0
