"""``whymiss explain``: who claims a span, what it says, and what is missing."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.emitted import SECRET, Value, encoded
from whymiss.__main__ import main
from whymiss.errors import BadInput
from whymiss.model import Envelope
from whymiss.tools import explain
from whymiss.wire.split import assemble

CAPTURES = Path(__file__).resolve().parents[1] / "captures"
JSON = b"""{"resourceSpans": [{"scopeSpans": [{"scope": {"name": "vllm.tracing.otel"}, "spans": [{
  "traceId": "0102030405060708090a0b0c0d0e0f10", "spanId": "0102030405060708", "name": "llm_request",
  "attributes": [{"key": "gen_ai.request.id", "value": {"stringValue": "chatcmpl-1"}}]}]}]}]}"""


def lines(content: bytes) -> list[dict[str, Any]]:
    out = io.StringIO()
    explain.run(content, as_json=True, out=out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def printed(content: bytes) -> str:
    out = io.StringIO()
    explain.run(content, as_json=False, out=out)
    return out.getvalue()


def of(name: str, attributes: dict[str, Value]) -> bytes:
    return assemble([(Envelope(resource=b"", scope=b""), [encoded(name, attributes)])])


def test_it_says_who_claims_a_span_what_it_says_and_what_is_missing() -> None:
    span, request = lines(JSON)
    assert (span["kind"], span["dialect"]) == ("claimed", "vllm")
    assert span["evidence"] == ["engine request: request_id=chatcmpl-1"]
    assert request["request_id"] == "chatcmpl-1"
    assert [one.split(":")[0].split(" (")[0] for one in request["missing"]] == [
        "worker",
        "first missed block",
        "prompt tokens",
        "cached tokens",
        "a router's decision",
    ]


@pytest.mark.parametrize(
    "wrap", [bytes, gzip.compress, lambda text: text.replace(b"\n", b"") + b"\n" + text.replace(b"\n", b"")]
)
def test_json_gzip_and_json_lines_are_read(wrap: Any) -> None:
    assert {line["kind"] for line in lines(wrap(JSON))} == {"claimed", "request"}


def test_a_recorded_engine_with_a_probe_misses_less_than_a_stock_one() -> None:
    # Requests in protobuf, one behind the other, are one request.
    stock, probed = (
        [row for row in lines(b"".join(file.read_bytes() for file in sorted(folder.glob("*.pb")))) if "missing" in row]
        for folder in (CAPTURES / "01-vanilla-sha256-bytes" / "otlp", CAPTURES / "03-plugin-lookup-spans" / "otlp")
    )
    assert all(any("first missed block" in line for line in row["missing"]) for row in stock)
    # The exception is a prompt without a full block, which has no key.
    keyless = [row["request_id"] for row in probed if any("first missed block" in line for line in row["missing"])]
    assert keyless == ["cmpl-req-04-short-first-block-0"]
    assert all(any("no_worker" in line for line in row["missing"]) for row in (*stock, *probed))


def test_keys_of_blocks_are_said_to_be_known_and_not_printed() -> None:
    key = "1234567890123456789"
    attributes: dict[str, Value] = {
        "prefix_cache.lookup.prompt_tokens": 99,
        "prefix_cache.lookup.first_miss_key": key,
        "prefix_cache.lookup.expected_keys": [key],
        "cache_salt": SECRET,
    }
    for text in (printed(of("lookup", attributes)), json.dumps(lines(of("lookup", attributes)))):
        assert "first_miss_key=(known)" in text
        assert key not in text
        assert SECRET not in text


def test_a_near_miss_says_why_nobody_claims_it() -> None:
    (span,) = lines(of("chat", {"gen_ai.usage.input_tokens": 5}))
    assert span["kind"] == "foreign"
    assert "none of them as cached" in span["note"]


def test_what_a_file_says_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in printed(of("\x1b[2Jrouter", {"vllm.backend_url": "\x1b]0;pwned\x07"}))


def test_all_zero_ids_are_shown_as_rejected() -> None:
    zero = JSON.replace(b"0102030405060708090a0b0c0d0e0f10", b"0" * 32)
    (span,) = lines(zero)
    assert span["kind"] == "rejected"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "JSON"),
        (b'{"resourceLogs": []}', "resourceSpans"),
        (b"\x1f\x8b", "gzip"),
        (b"\xff\xff\xff", "trace request"),
    ],
)
def test_what_cannot_be_read_is_bad_input(content: bytes, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        explain.look(content)


@pytest.mark.parametrize(("content", "code"), [(JSON, 0), (b"", 1), (b"{", 3)])
def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, code: int) -> None:
    file = tmp_path / "traces"
    file.write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        main(["explain", str(file)])
    assert ended.value.code == code
    printed = capsys.readouterr()
    assert ("Traceback" in printed.err) is False
    assert bool(printed.err) is (code == 3)
