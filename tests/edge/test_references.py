"""The files of references: read whole or refused by name, at the start, on SIGHUP, and known again after a restart."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.cases.scene import text
from tests.edge.cores import counted
from tests.edge.kv.test_service import pipeline_of, until
from tests.edge.loops import looped
from tests.edge.publisher import Publisher, numbered
from tests.edge.sinks import GrpcSink, config_for
from tests.edge.test_reload import operated
from tests.ledger.batches import payload, stored
from tests.pipeline.test_templates import GOOD, KEYED, reference
from whymiss.config import Config, parse
from whymiss.edge.references import load
from whymiss.edge.service import Service, serving
from whymiss.errors import BadInput, ConfigError
from whymiss.ledger.ledger import Ledger
from whymiss.reference import Reference


def write(path: Path, what: Reference | None = None, **changes: object) -> Path:
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(what or reference(), **changes)))
    return path


def config(*paths: Path) -> Config:
    return parse(f"{KEYED}\nreferences: {{files: {[str(path) for path in paths]}}}", {})


def test_all_files_are_read_in_order(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one"), write(tmp_path / "two", version="8")
    assert [found.version for found in load(config(two, one))] == ["8", "7"]
    assert load(parse("", {})) == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"format": 1, "name": ?}', "not a reference, nor JSON at byte 22"),
        (b'{"format": 1, ', "not a reference, nor JSON at byte 14"),
        (b'{"format": 1, "name": "secret"}', "not a reference"),
        (b"\xff", "not a reference, nor JSON at byte 0"),
    ],
)
def test_a_file_that_is_no_reference_is_named_with_the_place(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "broken"
    path.write_bytes(content)
    with pytest.raises(BadInput) as refused:
        load(config(write(tmp_path / "good"), path))
    assert str(refused.value) == f"references.files[1]: {path}: {message}"


def test_a_file_that_is_not_there_or_of_another_key_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(ConfigError, match=rf"references\.files\[0\]: {gone} cannot be read: No such file"):
        load(config(gone))
    other = write(tmp_path / "other", key_id="2")
    with pytest.raises(ConfigError, match=rf"{other} was written with another key than redaction\.digest_key"):
        load(config(other))


def test_a_file_without_an_end_is_not_read_to_its_end() -> None:
    with pytest.raises(BadInput, match="too large"):
        load(config(Path("/dev/zero")))


@looped
async def test_a_service_does_not_start_with_a_broken_one(tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_text("{")
    with pytest.raises(BadInput, match="broken"):
        async with serving(config(path)):
            pass


async def hears(publisher: Publisher, tokens: list[int]) -> None:
    """Publish the store of a prompt."""
    seq = len(publisher.kept)
    hashes = tuple(range(1, len(tokens) // 16 + 1))
    publisher.kept.append(payload(stored(hashes=hashes, tokens=tokens, block_size=16)))
    await publisher.send(b"", numbered(seq), publisher.kept[seq])


def learned(service: Service) -> int:
    ledger = pipeline_of(service).ledger
    assert isinstance(ledger, Ledger)
    return len(ledger.digester.translated)


@looped
async def test_references_are_read_again_and_a_broken_one_leaves_the_old_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "one")
    async with Publisher() as publisher:
        source = f"kv_events: {{sources: [{{endpoint: '{publisher.endpoint}', worker: w}}]}}"
        more = f"{KEYED}\n{source}\n"
        async with operated(GrpcSink(), more) as (service, operator):
            await publisher.subscribed()
            await hears(publisher, GOOD)
            await operator.changes(f"{more}references: {{files: ['{path}']}}")
            assert learned(service) == 0  # what was said before it came cannot be known
            await hears(publisher, GOOD)
            await until(lambda: learned(service) == len(GOOD) // 16)
            write(path, key_id="2")
            await operator.changes(operator.more, "failed")
            assert learned(service) == len(GOOD) // 16
            await operator.changes(more)
            assert learned(service) == 0
            assert counted(service.measures, "whymiss.config.reloads") == 3


@looped
async def test_after_a_restart_a_reference_is_known_without_being_stored_again(tmp_path: Path) -> None:
    more = f"""
{KEYED}
references: {{files: ['{write(tmp_path / "one")}']}}
ledger: {{checkpoint_path: '{tmp_path / "ledger"}'}}
"""
    async with Publisher() as publisher, GrpcSink() as sink:
        source = f"kv_events: {{sources: [{{endpoint: '{publisher.endpoint}', worker: w}}]}}"
        async with serving(config_for(sink.port, more=more + source)) as service:
            await publisher.subscribed()
            await hears(publisher, text(64, "something else"))
            await hears(publisher, GOOD)
            await until(lambda: learned(service) == len(GOOD) // 16)
        async with serving(config_for(sink.port, more=more)) as service:
            assert learned(service) == len(GOOD) // 16
