from __future__ import annotations

import stat
from pathlib import Path

import pytest

from whymiss.edge.receivers.grpc_tls import private_directory
from whymiss.errors import ConfigError


def test_a_parent_that_is_missing_or_too_long_for_a_socket_is_passed_over(tmp_path: Path) -> None:
    long, good = tmp_path / ("l" * 100), Path("/dev/shm")
    long.mkdir()
    directory = private_directory([str(tmp_path / "missing"), str(long), str(good)])
    try:
        assert directory.parent == good
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert list(long.iterdir()) == []
    finally:
        directory.rmdir()


def test_without_any_parent_the_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^receivers\.grpc\.tls: needs a directory .* TMPDIR$"):
        private_directory([str(tmp_path / "missing")])
