"""With which code ``whymiss run`` ends where it cannot start, and that its last line says what to mend."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.edge.loops import looped

NOWHERE = """
receivers: {grpc: {endpoint: "127.0.0.1:0"}, http: {endpoint: "127.0.0.1:0"}}
telemetry: {metrics_endpoint: null}
health: {endpoint: null}
"""
KEYED = "redaction: {digest_key: 0123456789abcdef-operator}\n"


async def ended(folder: Path, text: str) -> tuple[int | None, str]:
    """Run with a configuration that cannot work; the code, and the text of the error."""
    file = folder / "whymiss.yaml"
    file.write_text(text, encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "whymiss", "run", "--config", str(file), stderr=asyncio.subprocess.PIPE
    )
    _, said = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, json.loads(said.splitlines()[-1])["error.message"]


@pytest.mark.parametrize("door", ["grpc", "http"])
@looped
async def test_an_address_in_use_ends_with_1_and_is_named(tmp_path: Path, door: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        text = NOWHERE.replace(f'{door}: {{endpoint: "127.0.0.1:0"', f'{door}: {{endpoint: "{endpoint}"')
        assert await ended(tmp_path, text) == (1, f"cannot listen on {endpoint}: Address already in use")


@looped
async def test_a_file_of_the_configuration_that_is_not_there_ends_with_2(tmp_path: Path) -> None:
    text = f"{NOWHERE}{KEYED}references: {{files: [{tmp_path}/gone]}}\n"
    code, said = await ended(tmp_path, text)
    assert code == 2
    assert said == f"references.files[0]: {tmp_path}/gone cannot be read: No such file or directory"


@looped
async def test_a_file_of_the_configuration_that_holds_something_else_ends_with_3(tmp_path: Path) -> None:
    (tmp_path / "record.key").write_bytes(b"short")
    text = f"{NOWHERE}ledger: {{checkpoint_path: {tmp_path}/record}}\n"
    assert await ended(tmp_path, text) == (3, f"{tmp_path}/record.key: not a key of 32 bytes")


@looped
async def test_a_checkpoint_that_cannot_be_kept_ends_with_1_and_is_named(tmp_path: Path) -> None:
    text = f"{NOWHERE}ledger: {{checkpoint_path: {tmp_path}/no/record}}\n"
    assert await ended(tmp_path, text) == (1, f"No such file or directory: {tmp_path}/no/record.key.new")


@looped
async def test_a_hangup_while_it_starts_ends_nothing_and_is_met_once_it_runs(tmp_path: Path) -> None:
    pipe = tmp_path / "whymiss.yaml"
    os.mkfifo(pipe)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "whymiss", "run", "--config", str(pipe), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    async with asyncio.timeout(60):
        try:
            for expected in ("running", "the configuration was read again"):
                # It is opened once somebody reads.
                with await asyncio.to_thread(pipe.open, "w") as file:
                    if expected == "running":
                        process.send_signal(signal.SIGHUP)
                    file.write(NOWHERE)
                while json.loads(await process.stderr.readline())["message"] != expected:
                    pass
        finally:
            process.terminate()
        await process.communicate()
    assert process.returncode == 0
