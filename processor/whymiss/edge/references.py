"""The references that the configuration names, read from their files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import BadInput, ConfigError
from ..reference import Reference, read_reference

if TYPE_CHECKING:
    from ..config import Config

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""A larger file is somebody's mistake: it would be a template of 400,000 blocks."""


def load(config: Config, beside: Path | None = None) -> tuple[Reference, ...]:
    """Read all of them, or none.

    A relative name is one from the working directory, or, where no such file is there, from the folder ``beside``.

    Raises:
        ConfigError: a file cannot be read, or was written with another key than ``redaction.digest_key``.
        BadInput: a file is no reference; the message names it, and the byte where that is known.
    """
    return tuple(
        _load(f"references.files[{at}]", _found(Path(name), beside), config.redaction.digest_key_id)
        for at, name in enumerate(config.references.files)
    )


def _found(path: Path, beside: Path | None) -> Path:
    return beside / path if beside is not None and not path.exists() and (beside / path).exists() else path


def _load(key: str, path: Path, key_id: str) -> Reference:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(key, f"{path} cannot be read: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise BadInput(f"{key}: {path}: not a reference, it is too large", offset=FILE_BYTES_MAX)
    try:
        reference = read_reference(content)
    except BadInput as error:
        raise BadInput(f"{key}: {path}: {error.problem}", offset=error.offset) from None
    if reference.key_id != key_id:
        raise ConfigError(key, f"{path} was written with another key than redaction.digest_key")
    return reference
