#!/usr/bin/env python3
"""Push KV-cache events to whymiss over gRPC, from a publisher that whymiss cannot subscribe to.

Needs grpcio, protobuf and the schema: `pip install whymiss`, or generate `kv_push_pb2` from
`proto/whymiss/wire/kv_push.proto` for any language.
A bearer token, where whymiss asks for one, comes from WHYMISS_TOKEN.

  push_kv_events.py batch --worker engine-0 --seq 0 --stored 11,12 --tokens 1,2,3,4 --block-size 2
  push_kv_events.py batch --worker engine-0 --seq 1 --removed 12
  push_kv_events.py payload --worker engine-0 --seq 2 < batch.msgpack     # an engine's own message
  push_kv_events.py snapshot --worker engine-0 --seq 3 --medium CPU --stored 11
"""

from __future__ import annotations

import argparse
import os  # noqa: TID251 - an example is part of the world
import sys
import time  # noqa: TID251
from collections.abc import Sequence

import grpc  # noqa: TID251

from whymiss.wire.kv_push_pb2 import (
    Event,
    EventBatch,
    Origin,
    Outcome,
    PushRequest,
    PushResponse,
    Removed,
    SnapshotRequest,
    Stored,
)

SERVICE = "/whymiss.kv.v1.KvEvents"


def numbers(text: str) -> list[int]:
    """Read `11,0x1f,13`."""
    return [int(part, 0) for part in text.split(",") if part]


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("batch", "payload", "snapshot"))
    parser.add_argument(
        "--target", default="127.0.0.1:4317", help="where whymiss takes OTLP/gRPC (default: %(default)s)"
    )
    parser.add_argument("--source", default="push_kv_events", help="your name, shown in whymiss's metrics")
    parser.add_argument("--worker", required=True, help="whose cache it is, named as in the worker's spans")
    parser.add_argument("--rank", type=int, help="data-parallel rank")
    parser.add_argument("--model", default="")
    parser.add_argument("--seq", type=int, required=True, help="number of this batch: 0, 1, 2, ... without a gap")
    parser.add_argument("--medium", default="GPU", help="GPU, CPU, DISK, REMOTE (default: %(default)s)")
    parser.add_argument("--block-size", type=int, default=0, help="tokens a block")
    parser.add_argument("--parent", type=lambda text: int(text, 0), help="key of the block before the first stored one")
    parser.add_argument("--stored", type=numbers, default=[], help="keys of blocks that became, or are, resident")
    parser.add_argument("--tokens", type=numbers, default=[], help="token ids of the stored blocks")
    parser.add_argument("--removed", type=numbers, default=[], help="keys of blocks that left")
    return parser.parse_args(argv)


def push(channel: grpc.Channel, given: argparse.Namespace) -> PushResponse:
    """Send one request and return the answer."""
    origin = Origin(source=given.source, worker=given.worker, rank=given.rank, model=given.model)
    now = time.time_ns()
    stored = [
        Stored(
            keys=given.stored,
            parent=given.parent,
            block_size=given.block_size,
            token_ids=given.tokens,
            medium=given.medium,
        )
    ] * bool(given.stored)
    request: PushRequest | SnapshotRequest
    if given.what == "snapshot":
        request = SnapshotRequest(
            origin=origin, seq=given.seq, time_unix_nano=now, media=[given.medium], resident=stored
        )
    elif given.what == "payload":
        request = PushRequest(origin=origin, seq=given.seq, payload=sys.stdin.buffer.read())
    else:
        events = [Event(stored=one) for one in stored]
        if given.removed:
            events.append(Event(removed=Removed(keys=given.removed, medium=given.medium)))
        request = PushRequest(origin=origin, seq=given.seq, events=EventBatch(time_unix_nano=now, events=events))
    call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
        f"{SERVICE}/{'Snapshot' if given.what == 'snapshot' else 'Push'}"
    )
    token = os.environ.get("WHYMISS_TOKEN")
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    return PushResponse.FromString(call(request.SerializeToString(), timeout=10, metadata=metadata))


def main(argv: Sequence[str] | None = None) -> int:
    """Push once, and say what became of it."""
    given = arguments(argv)
    with grpc.insecure_channel(given.target) as channel:
        try:
            response = push(channel, given)
        except grpc.RpcError as error:
            sys.stderr.write(f"{error.code().name}: {error.details()}\n")
            return 1
    missing = (
        f", missing {response.missing_first}..{response.missing_last}" if response.HasField("missing_first") else ""
    )
    sys.stdout.write(f"{response.seq}: {Outcome.Name(response.outcome)}{missing}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
