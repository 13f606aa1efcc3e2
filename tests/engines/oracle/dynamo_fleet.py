"""Starts and ends a real Dynamo: a frontend, workers of its backend framework, and a mock engine behind each."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import zmq
from tokenizers import Tokenizer, models, pre_tokenizers

from .dynamo_backend import MODEL
from .dynamo_sink import Sink
from .places import MODELS

BLOCK = 16
_START_SECONDS = 60
_REPLAY_SECONDS = 5
_LATE_SECONDS = 0.3
_PLANES = ("--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _write_model(folder: Path) -> None:
    """A model's configuration with a tokenizer of numbers: prompts are sent as ids, but Dynamo wants one."""
    folder.mkdir()
    config = json.loads((MODELS / "dense" / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config))
    words = {str(number): number for number in range(config["vocab_size"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "0",
        "eos_token": "2",
        "model_max_length": 4096,
        "chat_template": "{% for message in messages %}{{ message.content }}{% endfor %}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(told))


class Publisher:
    """A mock engine's KV events, and its replay socket, which says when all were received."""

    def __init__(self, context: zmq.Context[Any], events: int, replay: int) -> None:
        self._events, self._replay = context.socket(zmq.SUB), context.socket(zmq.DEALER)
        self._events.subscribe(b"")
        self._events.connect(f"tcp://127.0.0.1:{events}")
        self._replay.connect(f"tcp://127.0.0.1:{replay}")
        self._came: dict[int, tuple[int, tuple[bytes, bytes, bytes]]] = {}
        self.frames: list[tuple[int, tuple[bytes, bytes, bytes]]] = []
        """When received, in Unix nanoseconds, and the frames; the index is the sequence number."""

    def drain(self) -> list[bytes]:
        """Payloads since the last call, in order and none missing, after the engine said that it has no more.

        What was published before a subscription reached the engine comes from its replay socket, as to any consumer.
        """
        before, replayed = len(self.frames), self._replayed()
        last = max(replayed, default=before - 1)
        while len(self.frames) <= last:
            number = len(self.frames)
            if number not in self._came and not self._take(_LATE_SECONDS):
                self._came[number] = (time.time_ns(), (b"", number.to_bytes(8, "big"), replayed[number]))
            if number in self._came:
                self.frames.append(self._came.pop(number))
        return [payload for _, (_, _, payload) in self.frames[before:]]

    def _replayed(self) -> dict[int, bytes]:
        self._replay.send_multipart([b"", len(self.frames).to_bytes(8, "big")])
        found: dict[int, bytes] = {}
        while self._replay.poll(_REPLAY_SECONDS * 1000):
            number, payload = self._replay.recv_multipart()[-2:]
            if int.from_bytes(number, "big", signed=True) < 0:
                return found
            found[int.from_bytes(number, "big")] = payload
        raise TimeoutError("a mock engine's replay socket did not answer")

    def _take(self, seconds: float) -> bool:
        if not self._events.poll(int(seconds * 1000)):
            return False
        topic, number, payload = self._events.recv_multipart()
        self._came[int.from_bytes(number, "big")] = (time.time_ns(), (topic, number, payload))
        return True

    def close(self) -> None:
        self._events.close(0)
        self._replay.close(0)


class Fleet:
    """A running Dynamo with two workers; a context manager, which ends every process that it started."""

    def __init__(self, folder: Path, router: str, blocks: int) -> None:
        self._folder, self._router, self._blocks = folder, router, blocks
        self._stack = ExitStack()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._http = _free_port()
        self.publishers: list[Publisher] = []
        self.workers: list[str] = []
        """Dynamo's instance id of each worker."""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        _write_model(self._folder / "model")
        self.sink = Sink()
        self._stack.callback(self.sink.close)
        self._stack.callback(self._end)
        context: zmq.Context[Any] = zmq.Context()
        self._stack.callback(context.term)
        model = str(self._folder / "model")
        for number in range(2):
            events, replay = _free_port(), _free_port()
            mocker = ["-m", "dynamo.mocker", "--model-path", model, "--model-name", f"mock{number}", *_PLANES]
            mocker += ["--endpoint", f"dyn://mock{number}.backend.generate", "--block-size", str(BLOCK)]
            mocker += ["--num-gpu-blocks-override", str(self._blocks), "--speedup-ratio", "4"]
            mocker += ["--zmq-kv-events-ports", str(events), "--zmq-replay-ports", str(replay)]
            self._run(f"mocker-{number}", mocker)
            worker = ["-m", "tests.engines.oracle.dynamo_backend", "--mocker", f"mock{number}", "--model", model]
            worker += ["--events", f"tcp://127.0.0.1:{events}", "--block", str(BLOCK), "--blocks", str(self._blocks)]
            self._run(f"worker-{number}", worker)
            publisher = Publisher(context, events, replay)
            self._stack.callback(publisher.close)
            self.publishers.append(publisher)
        frontend = ["-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(self._http), *_PLANES]
        frontend += ["--router-mode", self._router, "--namespace", "dynamo", "--kv-cache-block-size", str(BLOCK)]
        self._run("frontend", frontend)
        self._await_ready()

    def _run(self, name: str, arguments: list[str]) -> None:
        told = {
            **os.environ,
            "HOME": str(self._folder),
            "DYN_FILE_KV": str(self._folder / "discovery"),
            "DYN_EVENT_PLANE_HOST": "127.0.0.1",
            "DYN_TCP_RPC_HOST": "127.0.0.1",
            "DYN_TCP_RESPONSE_STREAM_HOST": "127.0.0.1",
            "DYN_LOGGING_JSONL": "1",
            "OTEL_SERVICE_NAME": f"dynamo-{name}",
            "OTEL_EXPORT_ENABLED": "1",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.sink.url,
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{self.sink.url}/v1/traces",
            "OTEL_BSP_SCHEDULE_DELAY": "1000",
        }
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen([sys.executable, *arguments], env=told, stdout=log, stderr=subprocess.STDOUT)
        self._processes.append(process)

    def _end(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _await_ready(self) -> None:
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            if any(process.poll() is not None for process in self._processes):
                break
            said = [(self._folder / f"worker-{number}.log").read_text(errors="replace") for number in range(2)]
            found = [re.search(r"^WORKER (\d+)$", one, re.MULTILINE) for one in said]
            if all(found) and self._serves():
                self.workers = [one[1] for one in found if one]
                return
            time.sleep(0.1)
        logs = {path.name: path.read_text(errors="replace")[-1500:] for path in self._folder.glob("*.log")}
        raise RuntimeError(f"Dynamo did not start: {logs}")

    def _serves(self) -> bool:
        """Both workers: a prompt too short for a block leaves nothing in a cache."""
        seen = set()
        for _ in range(12):
            try:
                seen.add(self.complete([5, 6, 7], None)["nvext"]["worker_id"]["decode_worker_id"])
            except (urllib.error.URLError, OSError):
                return False
            if len(seen) == 2 or self._router == "kv":
                return True
        return False

    def complete(self, tokens: list[int], trace: str | None, answer: int = 4) -> dict[str, Any]:
        """The answer of Dynamo's API to a completion; ``trace`` is a ``traceparent``."""
        body = {
            "model": MODEL,
            "prompt": tokens,
            "max_tokens": answer,
            "temperature": 0.0,
            "ignore_eos": True,
            "nvext": {"extra_fields": ["worker_id", "timing"]},
        }
        headers = {"content-type": "application/json"} | ({"traceparent": trace} if trace else {})
        url = f"http://127.0.0.1:{self._http}/v1/completions"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=20) as response:
            answered: dict[str, Any] = json.loads(response.read())
        return answered
