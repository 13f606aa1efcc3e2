"""The checkpoint on disk: replaced whole, private, and no obstacle to a start."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from tests.ledger.test_sequencer import A, B, state, store
from whymiss.edge.checkpoint_file import KEY_BYTES, CheckpointFile, Checkpoints
from whymiss.errors import BadInput
from whymiss.ledger.checkpoint import LedgerSnapshots
from whymiss.ledger.hashing import Digester
from whymiss.ledger.ledger import Ledger
from whymiss.model import Residency, StreamId

STREAM = StreamId("engine", 0)


def ledger_of(file: CheckpointFile) -> Ledger:
    return Ledger(digester=Digester(file.key()))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_restart_finds_what_was_written(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path / "ledger")
    ledger = ledger_of(file)
    assert file.resume(LedgerSnapshots(ledger), 0.0) == 0
    ledger.accept(STREAM, 0, store(1, A))
    file.write(LedgerSnapshots(ledger), 0.0)
    anew = ledger_of(CheckpointFile(tmp_path / "ledger"))
    assert file.resume(LedgerSnapshots(anew), 0.0) == 1
    assert state(anew, A) is Residency.RESIDENT


def test_only_this_user_can_read_it_and_its_key_stands_apart(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path / "ledger")
    ledger = ledger_of(file)
    ledger.accept(STREAM, 0, store(1, A))
    file.write(LedgerSnapshots(ledger), 0.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ledger", "ledger.key"]
    assert [mode(path) for path in tmp_path.iterdir()] == [0o600, 0o600]
    key = (tmp_path / "ledger.key").read_bytes()
    assert len(key) == KEY_BYTES
    assert key not in (tmp_path / "ledger").read_bytes()
    assert file.key() == key


def test_a_damaged_one_is_a_line_and_a_cold_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "ledger"
    file = CheckpointFile(path)
    ledger = ledger_of(file)
    ledger.accept(STREAM, 0, store(1, A))
    file.write(LedgerSnapshots(ledger), 0.0)
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    anew = ledger_of(file)
    with caplog.at_level("ERROR"):
        assert file.resume(LedgerSnapshots(anew), 0.0) == 0
    assert anew.streams() == []
    (line,) = caplog.records
    assert "the checkpoint cannot be read; the record begins anew" in line.getMessage()


def test_an_empty_file_is_a_cold_start(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(b"")
    file = CheckpointFile(path)
    assert file.resume(LedgerSnapshots(ledger_of(file)), 0.0) == 0


def test_a_key_file_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ledger.key").write_bytes(b"short")
    with pytest.raises(BadInput):
        CheckpointFile(tmp_path / "ledger").key()


def test_a_write_that_fails_leaves_the_former_one(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path / "ledger")
    ledger = ledger_of(file)
    ledger.accept(STREAM, 0, store(1, A))
    file.write(LedgerSnapshots(ledger), 0.0)
    before = (tmp_path / "ledger").read_bytes()
    (tmp_path / "ledger.new").mkdir()
    ledger.accept(STREAM, 1, store(2, B))
    Checkpoints(file, LedgerSnapshots(ledger), 1.0).stop()
    assert (tmp_path / "ledger").read_bytes() == before


def test_what_is_taken_while_it_is_written_waits_for_the_next_one(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path / "ledger")
    ledger = ledger_of(file)
    ledger.accept(STREAM, 0, store(1, A))

    async def write() -> None:
        writing = asyncio.create_task(file.write_in_turns(LedgerSnapshots(ledger), 0.0))
        await asyncio.sleep(0)
        ledger.accept(STREAM, 1, store(2, B))
        await writing

    asyncio.run(write())
    anew = ledger_of(file)
    file.resume(LedgerSnapshots(anew), 0.0)
    assert (state(anew, A), state(anew, B)) == (Residency.RESIDENT, Residency.NEVER_SEEN)


def test_it_is_written_again_and_again(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path / "ledger")
    ledger = ledger_of(file)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise asyncio.CancelledError
        await asyncio.sleep(0)

    async def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            await Checkpoints(file, LedgerSnapshots(ledger), 60.0, now=lambda: 0.0, sleep=sleep).run()

    asyncio.run(run())
    assert slept == [60.0, 60.0, 60.0]
    assert file.resume(LedgerSnapshots(ledger_of(file)), 0.0) == 0
    assert (tmp_path / "ledger").is_file()
