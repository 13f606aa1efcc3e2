"""The configuration as it stands in files: its own, and the one with the key of the digests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..config import Config, RedactionConfig, Secret, parse
from ..errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


def read(file: Path, environ: Mapping[str, str], *, keys: bool = True) -> Config:
    """Read a configuration file, ``-`` being standard input; with ``keys`` also the key that it names a file of.

    Raises:
        ConfigError: with the name of the file in front of the key.
    """
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8-sig")
        config = parse(text, environ)
        return _with_key(config) if keys else config
    except UnicodeDecodeError:
        raise ConfigError("", f"{file}: not UTF-8") from None
    except OSError as error:
        raise ConfigError("", f"{file}: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError("", f"{file}: {error}") from None


def _with_key(config: Config) -> Config:
    name = config.redaction.digest_key_file
    if name is None:
        return config
    key = "redaction.digest_key_file"
    try:
        text = Path(name).read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise ConfigError(key, "the file is not UTF-8") from None
    except OSError as error:
        raise ConfigError(key, f"the file cannot be read: {error.strerror}") from None
    try:
        redaction: RedactionConfig = msgspec.structs.replace(
            config.redaction, digest_key=Secret(text), digest_key_file=None
        )
    except ConfigError as error:
        raise ConfigError(key, f"the key in the file {error.problem}") from None
    return msgspec.structs.replace(config, redaction=redaction)
