"""Recordings of real engines, read for accounting: streams from raw KV events, requests from spans."""

from __future__ import annotations

import base64
import gzip
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.accounting.residence import Book
from whymiss.accounting import Account, Batch, Habits, Limits, Outcome, Request, RequestId, Store, Stream
from whymiss.dialects.registry import DIALECTS, identify, said_by
from whymiss.model import SECOND, EngineRequest, RouteDecision, StreamId
from whymiss.wire.fields import read_span

SLACK = 5_000_000
CAPTURES = Path(__file__).parents[1] / "captures"
DENSE = {"full_attention", "mla_attention"}
NAMES = {
    "BlockStored": (
        *("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"),
        *("extra_keys", "group_idx"),
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines, gzipped or not."""
    zipped = path.with_name(path.name + ".gz")
    text = gzip.decompress(zipped.read_bytes()) if zipped.exists() else path.read_bytes()
    return (msgspec.json.decode(line) for line in text.splitlines() if line.strip())


def key_of(raw: int | bytes) -> int:
    return int.from_bytes(raw[-8:], "big") if isinstance(raw, bytes) else raw & (1 << 64) - 1


class Publisher:
    """One life of one publisher: its batches with depths, its residency."""

    def __init__(self, topic: str, rank: int, size: int | None) -> None:
        self.worker = topic.split("@")[1] if topic.count("@") >= 2 else topic
        self.rank, self.size = rank, size
        self.book, self.sequence = Book(), -1
        self.batches: list[Batch | None] = []
        """``None``: events were lost here."""

    def take(self, sequence: int, payload: Sequence[Any]) -> None:
        if sequence != self.sequence + 1:
            self.batches.append(None)
        self.sequence = sequence
        first, stores = self.book.events, list[Store]()
        run: int | None = None
        for event in map(_mapped, payload[1]):
            if not _is_dense(event):
                self.book.other()
                continue
            if event["type"] == "BlockStored":
                store = self._store(event, run)
                run = None
                stores.append(store)
            elif event["type"] == "BlockRemoved":
                run = self.book.events if run is None else run
                self.book.removed([key_of(raw) for raw in event["block_hashes"]])
            else:
                run = None
                self.book.cleared()
        unix_nanos = round(payload[0] * SECOND)
        self.batches.append(Batch(unix_nanos=unix_nanos, first=first, after=self.book.events, stores=tuple(stores)))

    def _store(self, event: Mapping[str, Any], run: int | None) -> Store:
        keys = tuple(key_of(raw) for raw in event["block_hashes"])
        raw = event.get("parent_block_hash")
        parent = None if raw is None else key_of(raw)
        if self.size is None and parent is None:
            self.size = event["block_size"]
        ordinal = self.book.events
        start = 0 if parent is None else self.book.depths[parent] + 1 if parent in self.book.depths else None
        if event["block_size"] != self.size:
            self.book.other()
            start = None
        session = bool(event.get("session_id"))
        told = 0
        while session and told < len(keys) and self.book.surely(keys[told], ordinal):
            told += 1
        if event["block_size"] == self.size:
            self.book.stored(keys[told:], None if start is None else start + told)
        return Store(
            keys=keys,
            parent=parent,
            start=start,
            block_size=event["block_size"],
            ordinal=ordinal,
            position=ordinal if run is None else run,
            session=session,
        )


def _mapped(event: Any) -> Mapping[str, Any]:
    if isinstance(event, dict):
        return event
    return {"type": event[0], **dict(zip(NAMES[event[0]], event[1:], strict=False))}


def _is_dense(event: Mapping[str, Any]) -> bool:
    if (event.get("medium") or "GPU").upper() != "GPU":
        return False
    kind = event.get("kv_cache_spec_kind")
    return kind in DENSE if kind is not None else not event.get("group_idx")


def publishers(folder: Path, size: int | None = None) -> list[Publisher]:
    """Every life of every publisher, in the order of their first messages."""
    living: dict[tuple[str, int], Publisher] = {}
    found: list[Publisher] = []
    for line in lines(folder / "kv_events_raw.jsonl"):
        topic, number, raw = (base64.b64decode(frame) for frame in line["frames_b64"])
        payload = msgspec.msgpack.decode(raw, strict=False)
        name = (topic.decode(), (payload[2] if len(payload) > 2 else None) or 0)
        sequence = int.from_bytes(number, "big")
        if name not in living or sequence <= living[name].sequence:
            living[name] = Publisher(*name, size)
            found.append(living[name])
        living[name].take(sequence, payload)
    return found


def streams(lives: Sequence[Publisher], habits: Habits | None = None) -> list[Stream]:
    """The streams of some lives, confirmed at their ends; a second life of a name is a stream of its own."""
    counts: defaultdict[str, int] = defaultdict(int)
    found = []
    for life in lives:
        name = f"{life.worker}/{counts[life.worker + str(life.rank)]}"
        counts[life.worker + str(life.rank)] += 1
        stream = Stream(
            StreamId(name, life.rank), life.book, life.size or 1, habits, from_birth=life.batches[0] is not None
        )
        for batch in life.batches:
            if batch is None:
                stream.lost()
            else:
                stream.append(batch)
        stream.confirm(1 << 62)
        found.append(stream)
    return found


class Told(msgspec.Struct, frozen=True):
    """A request as its span tells of it."""

    label: str
    trace_id: str
    worker: str
    said: EngineRequest
    start: int
    end: int
    ended: int
    """When the last span of its trace ended: a bound where the engine's span ends before its request."""
    dialect: str


def told(folder: Path) -> list[Told]:
    """What the engines' spans of a recording say, in the order of arrival."""
    aliases = _aliases(folder)
    found: list[Told] = []
    routed: dict[str, str] = {}
    ended: defaultdict[str, int] = defaultdict(int)
    for line in lines(folder / "otlp" / "index.jsonl"):
        message = ExportTraceServiceRequest.FromString((folder / "otlp" / line["file"]).read_bytes())
        for resource_spans in message.resource_spans:
            attributes = {one.key: one.value.string_value for one in resource_spans.resource.attributes}
            identity = identify(attributes)
            for span in (span for scope in resource_spans.scope_spans for span in scope.spans):
                trace_id = span.trace_id.hex()
                ended[trace_id] = max(ended[trace_id], span.end_time_unix_nano)
                for dialect, said in said_by(read_span(span.SerializeToString()), DIALECTS):
                    if isinstance(said, RouteDecision) and said.worker is not None:
                        routed[trace_id] = aliases.get(said.worker, said.worker)
                    if isinstance(said, EngineRequest) and said.prompt_tokens is not None:
                        times = (span.start_time_unix_nano, span.end_time_unix_nano)
                        name = identity.pod_name or ""
                        found.append(Told(span.span_id.hex(), trace_id, name, said, *times, 0, dialect.name))
    found.sort(key=lambda one: (one.start, one.label))
    return [
        msgspec.structs.replace(one, worker=one.worker or routed.get(one.trace_id, ""), ended=ended[one.trace_id])
        for one in found
    ]


def _aliases(folder: Path) -> dict[str, str]:
    """The workers' other names, as whymiss is told of them."""
    path = folder / "whymiss.yaml"
    tree = yaml.safe_load(path.read_text()) if path.exists() else {}
    names = (tree.get("workers") or {}).get("aliases") or {}
    return {alias: worker for worker, several in names.items() for alias in several}


def request_of(one: Told, among: Sequence[Stream]) -> Request:
    """A span as accounting is told of it."""
    said, start = one.said, one.start
    end, counted = one.end, start
    if one.dialect == "dynamo_engine":  # it ends when the stream is set up, and the first token counts from there
        end, counted = max(one.ended, one.end), one.end
    first = end if said.first_token_seconds is None else counted + round(said.first_token_seconds * SECOND)
    low = start + round((said.queue_seconds or 0) * SECOND)
    prefill = None if said.prefill_seconds is None else round(said.prefill_seconds * SECOND)
    named = [stream for stream in among if stream.name.worker.split("/")[0] == one.worker] or among
    living = [
        stream for stream in named if stream.begins_unix_nanos <= end + SLACK and _ended(stream, named) >= end - SLACK
    ]
    assert said.prompt_tokens is not None
    return Request(
        id=RequestId(bytes.fromhex(one.label)),
        streams=tuple(stream.name for stream in living),
        prompt_tokens=said.prompt_tokens,
        completion_tokens=said.completion_tokens or 0,
        low=low,
        high=first if prefill is None else first - prefill,
        first=first,
        end=max(end, first),
        prefill_nanos=prefill,
    )


def _ended(stream: Stream, among: Sequence[Stream]) -> int:
    """When the next life of a publisher began."""
    worker = stream.name.worker.split("/")[0]
    lives = [one for one in among if one.name.rank == stream.name.rank and one.name.worker.split("/")[0] == worker]
    after = lives.index(stream) + 1
    return lives[after].begins_unix_nanos if after < len(lives) else 1 << 62


def play(
    folder: Path,
    *,
    limits: Limits | None = None,
    habits: Habits | None = None,
    keep: Callable[[Told], bool] = lambda _: True,
) -> list[tuple[Told, Outcome]]:
    """The outcome of every kept request of a recording."""
    among = streams(publishers(folder), habits)
    account = Account(limits)
    for stream in among:
        account.add(stream)
    kept = [one for one in told(folder) if keep(one)]
    for one in kept:
        account.note(request_of(one, among))
    return [(one, account.outcome(RequestId(bytes.fromhex(one.label)))) for one in kept]
