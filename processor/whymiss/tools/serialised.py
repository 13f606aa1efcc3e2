"""Serialised requests from files, and a tokenizer for those that hold text."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import BadInput, ConfigError
from ..reference import Serialised, read_request


class Tokenizer:
    """A ``tokenizer.json`` of the ``tokenizers`` package (the extra of that name)."""

    def __init__(self, file: Path) -> None:
        try:
            library: Any = import_module("tokenizers")
        except ImportError:
            raise ConfigError(
                "", "--tokenizer needs the package tokenizers: pip install 'whymiss[tokenizers]'"
            ) from None
        try:
            self._tokenizer: Any = library.Tokenizer.from_file(str(file))
        # The package raises plain exceptions.
        except Exception:  # noqa: BLE001
            raise BadInput(f"{file}: not a tokenizer") from None

    def encode(self, text: str) -> list[int]:
        """The token ids of a text, as it is: templates add their own special tokens."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: list[int]) -> str:
        """The text of token ids."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False))


def load(file: Path, tokenizer: Tokenizer | None) -> Serialised:
    """A request from its file. Raises ``BadInput``, which names the file."""
    try:
        return read_request(file.read_bytes(), None if tokenizer is None else tokenizer.encode)
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from None
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from None
