"""The prototype of the whymiss probe in vLLM, recorded with 0.32 and 0.33.

| reads | from |
|---|---|
| first missed key, chain, cached tokens, kinds of extra keys | ``vllm.prefix_cache.*`` |

A probe of today emits the input contract (``contract``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..model import Attribute, Evidenced, Lookup, Role
from ..wire.fields import SpanFields
from .claim import Dialect
from .emitter import Emitter
from .values import count, text, told_keys, truth
from .vllm import request_ids

_EXTRA_KIND = re.compile(r"\(\s*'(\w+)'\s*,")
_KNOWN_KINDS = {
    "cache_salt": "cache_salt",
    "lora": "lora",
    "lora_name": "lora",
    "mm": "mm",
    "prompt_embeds": "prompt_embeds",
}


def read_probe(span: SpanFields) -> Evidenced | None:
    """The ``prefix_cache.lookup`` span of the probe prototype (``vllm.prefix_cache.*``)."""
    attributes = span.attributes
    prefix = "vllm.prefix_cache."
    if f"{prefix}num_tokens" not in attributes and f"{prefix}hit_tokens" not in attributes:
        return None
    keys = told_keys(attributes.get(f"{prefix}first_miss.hash"), attributes.get(f"{prefix}block_hashes"))
    return Lookup(
        request_id=text(attributes.get("vllm.request.id")),
        prompt_tokens=count(attributes.get(f"{prefix}num_tokens")),
        cached_tokens=count(attributes.get(f"{prefix}hit_tokens")),
        block_size=count(attributes.get(f"{prefix}block_size")) or None,
        first_miss_key=keys.first_miss,
        expected_keys=keys.expected,
        extra_key_kinds=_kinds(attributes),
        kinds_of_block=True,
        disabled=truth(attributes.get(f"{prefix}skipped")) or False,
        present=truth(attributes.get(f"{prefix}first_miss.present")),
        preempted=truth(attributes.get(f"{prefix}preempted")) or False,
    )


def _kinds(attributes: Mapping[str, Attribute]) -> tuple[str, ...] | None:
    # The prototype printed Python's repr of the extra keys, values included: only the kinds are taken.
    printed = attributes.get("vllm.prefix_cache.first_miss.extra_keys")
    if not isinstance(printed, str):
        return None
    found = {_KNOWN_KINDS[kind] for kind in _EXTRA_KIND.findall(printed) if kind in _KNOWN_KINDS}
    return tuple(sorted(found))


PROBE = Dialect(
    name="vllm_probe",
    role=Role.LOOKUP,
    scopes=(),
    needles=(b"vllm.prefix_cache.",),
    read=read_probe,
    sensitive=(
        "vllm.prefix_cache.block_hashes",
        "vllm.prefix_cache.first_miss.hash",
        "vllm.prefix_cache.first_miss.parent_hash",
        "vllm.prefix_cache.first_miss.extra_keys",
    ),
)

EMITTER = Emitter(
    name="the prototype of a probe in vLLM",
    dialects=(PROBE,),
    gives="first missed key, expected chain, extra-key kinds, opt-outs: `direct` evidence",
    lacks="other workers",
    switch_on="the prototype is not for new installations",
    request_ids=request_ids,
)
