"""The input contract: ``prefix_cache.{lookup,route,offload}.*``, which anyone may emit.

| reads | from |
|---|---|
| one lookup inside an engine | ``prefix_cache.lookup.*`` |
| one routing decision | ``prefix_cache.route.*`` |
| one tier's outcome | ``prefix_cache.offload.*`` |

Where a span carries several of these, all of them count. The contract is data: the reader reads what is declared here,
and ``docs/input-contract.md`` is written from it.
"""

from __future__ import annotations

import msgspec

from ..model import Evidenced, Lookup, OffloadOutcome, Role, RouteDecision
from ..wire.fields import SpanFields
from .claim import Dialect
from .declared import CHAIN, COUNT, FLAG, HASH, KIND_NAMES, SIZE, STATUS, TEXT, Declared, Part
from .emitter import Emitter
from .values import first, text, told_keys
from .vllm import request_ids

REQUEST_IDS = ("gen_ai.request.id", "vllm.request.id", "request.id", "request_id")
"""Span attributes that may hold the request's id, the first that does."""

LOOKUPS = Part(
    prefix="prefix_cache.lookup.",
    span="One lookup of the engine's own prefix cache, which starts at the moment of the lookup.",
    needs=("prompt_tokens", "cached_tokens", "disabled"),
    attributes=(
        Declared(
            name="prompt_tokens",
            kind=COUNT,
            unit="tokens",
            meaning="The prompt's length.",
            missing="Taken from the engine's span, else from a gateway's. Without any: no `lost_tokens`.",
            example=100,
        ),
        Declared(
            name="cached_tokens",
            kind=COUNT,
            unit="tokens",
            meaning="What was reused, the local cache and tiers below together.",
            missing="Never zero: the KV events must show where reuse ended, else the verdict is `unknown`.",
            example=32,
        ),
        Declared(
            name="block_size",
            kind=SIZE,
            unit="tokens a block",
            meaning="The size of the blocks that the hashes stand for.",
            missing="That of the worker's KV events, else `attribution.block_size`; without any: `unknown`.",
            example=16,
        ),
        Declared(
            name="match_unit",
            kind=SIZE,
            unit="tokens a unit",
            meaning="The least that can be matched; more than a block on hybrid models. `attribution.match_unit` goes before it.",
            missing="Taken from the block sizes of the groups in the KV events, else one block.",
            example=16,
        ),
        Declared(
            name="first_miss_key",
            kind=HASH,
            unit="",
            meaning="The block hash of the first block that was not reused. `expected_keys` goes before it.",
            missing="Taken from `expected_keys`. Without both: `unknown` (`no_first_miss_key`), but for what spans alone prove.",
            example="0x9f3c5e0a7b1d2c43",
        ),
        Declared(
            name="expected_keys",
            kind=CHAIN,
            unit="",
            meaning="The block hashes of all full blocks of the prompt.",
            missing="The first missed block is judged alone: no `lost_tokens`, and no cause that rests on the blocks behind it.",
            example=[
                *("0x51d7a3f0c8e64b12", "0x07b2946fd13ac85e", "0x9f3c5e0a7b1d2c43"),
                *("0xc4e81b6d2f70a935", "0x3a90d7c25be4f816", "0xe6125f8b94c03d7a"),
            ],
        ),
        Declared(
            name="extra_key_kinds",
            kind=KIND_NAMES,
            unit="",
            meaning="What is hashed beside the tokens of this prompt, by kind and never by value. An empty list: nothing.",
            missing="Taken from the extra keys in the KV events.",
            example=["lora"],
        ),
        Declared(
            name="local_hit_tokens",
            kind=COUNT,
            unit="tokens",
            meaning="The part of `cached_tokens` that was in the engine's own cache.",
            missing="`cached_tokens` less `external_hit_tokens`. Without both: a failed tier may stand behind a full hit.",
            example=32,
        ),
        Declared(
            name="external_hit_tokens",
            kind=COUNT,
            unit="tokens",
            meaning="The part of `cached_tokens` that a tier or a peer was to deliver.",
            missing="See `local_hit_tokens`.",
            example=0,
        ),
        Declared(
            name="sparse_lost_tokens",
            kind=COUNT,
            unit="tokens",
            meaning="What full attention held and another group (Mamba, sliding window) did not.",
            missing="Found from the KV events of the groups, where they are complete.",
            example=0,
        ),
        Declared(
            name="disabled",
            kind=FLAG,
            unit="",
            meaning="The engine or this request did not read the cache.",
            missing="It was read.",
            example=False,
        ),
        Declared(
            name="speculative",
            kind=FLAG,
            unit="",
            meaning="A draft model makes the engine drop its last matched unit (EAGLE, MTP).",
            missing="Nothing was dropped.",
            example=False,
        ),
        Declared(
            name="event_seq",
            kind=COUNT,
            unit="",
            meaning="Number of the last KV-event batch published before the lookup.",
            missing="Nothing follows: it is kept, and no verdict rests on it yet.",
            example=41,
        ),
    ),
)

ROUTES = Part(
    prefix="prefix_cache.route.",
    span="One routing decision, which lasts from when the router looked at its index until it had chosen.",
    needs=("worker", "predicted_blocks"),
    attributes=(
        Declared(
            name="worker",
            kind=TEXT,
            unit="",
            meaning="The chosen worker, by any of its names; a rank as `-rank-N`.",
            missing="The decision is taken to be on the worker that served the request.",
            example="vllm-0",
        ),
        Declared(
            name="predicted_blocks",
            kind=COUNT,
            unit="blocks",
            meaning="Leading blocks of the prompt that the router expected on the chosen worker.",
            missing="Nothing was promised: never `stale_index`.",
            example=2,
        ),
        Declared(
            name="best_worker",
            kind=TEXT,
            unit="",
            meaning="The worker with the longest match in the router's index.",
            missing="Taken to be another one than the chosen.",
            example="vllm-1",
        ),
        Declared(
            name="best_blocks",
            kind=COUNT,
            unit="blocks",
            meaning="Leading blocks that the router expected there.",
            missing="A `routing_miss` does not say whether the router knew of a better worker.",
            example=2,
        ),
        Declared(
            name="index_version",
            kind=TEXT,
            unit="",
            meaning="Version of the index that was asked.",
            missing="It is not shown on the verdict.",
            example="7",
        ),
        Declared(
            name="reason",
            kind=TEXT,
            unit="",
            meaning="The router's own word for why it chose: the dimension `route` of the class metrics. Few values.",
            missing="The class metrics do not carry `route`.",
            example="prefix",
        ),
        Declared(
            name="pinned",
            kind=FLAG,
            unit="",
            meaning="The client or its session, and not the router, chose the worker.",
            missing="The router chose.",
            example=False,
        ),
    ),
)

OFFLOADS = Part(
    prefix="prefix_cache.offload.",
    span="What one tier below the engine's own cache found and delivered for one request.",
    needs=("found_blocks", "loaded_blocks", "status"),
    attributes=(
        Declared(
            name="found_blocks",
            kind=COUNT,
            unit="blocks",
            meaning="What the tier said that it had.",
            missing="A failed transfer is named without `lost_tokens`.",
            example=0,
        ),
        Declared(
            name="loaded_blocks",
            kind=COUNT,
            unit="blocks",
            meaning="What arrived. Less than `found_blocks` is a failed transfer.",
            missing="`status` alone says whether it arrived.",
            example=0,
        ),
        Declared(
            name="status",
            kind=STATUS,
            unit="",
            meaning="How the lookup in the tier ended; `none`: none took place.",
            missing="Where the tier holds the block: `unknown` (`lookup_unseen`).",
            example="miss",
        ),
        Declared(
            name="tier",
            kind=TEXT,
            unit="",
            meaning="The tier's name.",
            missing="Nothing follows: it is kept, and no verdict rests on it yet.",
            example="host",
        ),
    ),
)

PARTS = (LOOKUPS, ROUTES, OFFLOADS)

RESOURCE = (
    Declared(
        name="prefix_cache.worker",
        kind=TEXT,
        unit="",
        meaning="The engine's name, as its KV events have it. It goes before all other names but `workers.map`.",
        missing="`k8s.pod.uid`, `k8s.pod.name`, `k8s.pod.ip`, `service.instance.id` or `service.name`, if they mean one worker; else the route, "
        "else `workers.sole_source`; else `unknown` (`no_worker`).",
        example="vllm-0",
    ),
    Declared(
        name="prefix_cache.rank",
        kind=COUNT,
        unit="",
        meaning="Its data-parallel rank. That in the name of a vLLM engine core's process goes before it.",
        missing="Taken from the route, else from the only rank whose events fit.",
        example=0,
    ),
    Declared(
        name="prefix_cache.model_revision",
        kind=TEXT,
        unit="",
        meaning="Revision of the model: the dimension `model_revision` of the class metrics.",
        missing="The class metrics do not carry it.",
        example="4f2c",
    ),
    Declared(
        name="prefix_cache.speculative_method",
        kind=TEXT,
        unit="",
        meaning="How drafts are made: the dimension `speculative_method` of the class metrics.",
        missing="The class metrics do not carry it.",
        example="eagle3",
    ),
)
"""Attributes of an engine's resource. No span or event of any emitter says the last two; who starts the process knows both."""

WORKER, RANK, MODEL_REVISION, SPECULATIVE_METHOD = (one.name for one in RESOURCE)


def _request_id(span: SpanFields) -> str | None:
    return text(first(span.attributes, *REQUEST_IDS))


def read_lookup(span: SpanFields) -> Evidenced | None:
    """``prefix_cache.lookup.*``; needs at least the prompt's or the cached tokens, or ``disabled``."""
    if not LOOKUPS.is_told(span.attributes):
        return None
    said = LOOKUPS.values(span.attributes)
    keys = told_keys(*(span.attributes.get(LOOKUPS.prefix + name) for name in ("first_miss_key", "expected_keys")))
    said |= {"first_miss_key": keys.first_miss, "expected_keys": keys.expected}
    return msgspec.convert({**said, "request_id": _request_id(span)}, Lookup)


def read_route(span: SpanFields) -> Evidenced | None:
    """``prefix_cache.route.*``; needs the worker or a prediction."""
    said = ROUTES.values(span.attributes)
    if all(said[name] is None for name in ROUTES.needs):
        return None
    promises = True if said["predicted_blocks"] is not None else None
    return msgspec.convert({**said, "request_id": _request_id(span), "prefix_aware": promises}, RouteDecision)


def read_offload(span: SpanFields) -> Evidenced | None:
    """``prefix_cache.offload.*``; needs a count or a status."""
    said = OFFLOADS.values(span.attributes)
    if all(said[name] is None for name in OFFLOADS.needs):
        return None
    return msgspec.convert({**said, "request_id": _request_id(span)}, OffloadOutcome)


SENSITIVE = tuple(LOOKUPS.prefix + one.name for one in LOOKUPS.attributes if one.kind in {HASH, CHAIN})
LOOKUP = Dialect(
    name="contract_lookup",
    role=Role.LOOKUP,
    needles=(LOOKUPS.prefix.encode(),),
    read=read_lookup,
    sensitive=SENSITIVE,
)
ROUTE = Dialect(name="contract_route", role=Role.ROUTER, needles=(ROUTES.prefix.encode(),), read=read_route)
OFFLOAD = Dialect(name="contract_offload", role=Role.OFFLOAD, needles=(OFFLOADS.prefix.encode(),), read=read_offload)

EMITTER = Emitter(
    name="a probe in the engine",
    dialects=(LOOKUP, ROUTE, OFFLOAD),
    gives="first missed key, expected chain, extra-key kinds, opt-outs: `direct` evidence",
    lacks="other workers",
    switch_on="anything that emits `prefix_cache.{lookup,route,offload}.*`",
    request_ids=request_ids,
)
