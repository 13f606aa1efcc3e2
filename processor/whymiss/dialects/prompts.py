"""What in other people's spans may hold prompts, answers and salts.

``SALT`` claims any span with a salt, whoever emitted it, so that a digest leaves in its place. The attributes
in ``PROMPT_ATTRIBUTES`` are the operator's to keep or drop: spans that no dialect claims leave as the bytes
that came, and from claimed ones what ``redaction.drop_attributes`` names is removed, so this is the list to
copy there. An entry that ends in ``*`` is a prefix.
Source: OpenTelemetry ``docs/gen-ai/gen-ai-spans.md``, OpenInference ``spec/semantic_conventions.md``.
"""

from __future__ import annotations

from ..model import Role
from ..wire.fields import SpanFields
from .claim import Dialect
from .emitter import Emitter

PROMPT_ATTRIBUTES = (
    "embedding.embeddings.*",
    "gen_ai.completion*",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.prompt*",
    "gen_ai.retrieval.documents",
    "gen_ai.retrieval.query.text",
    "gen_ai.system_instructions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.tool.definitions",
    "input.value",
    "llm.choices.*",
    "llm.input_messages.*",
    "llm.invocation_parameters",
    "llm.output_messages.*",
    "llm.prompts.*",
    "llm.tools.*",
    "output.value",
)

SALTS = (
    "cache_salt",
    "gen_ai.request.cache_salt",
    "kv_cache.cache_salt",
    "llm.cache_salt",
    "prefix_cache.cache_salt",
    "vllm.cache_salt",
)


def read_nothing(span: SpanFields) -> None:
    """A salt is no evidence."""
    del span


SALT = Dialect(name="salt", role=Role.OFFLOAD, needles=(b"cache_salt",), read=read_nothing, digested=SALTS)

EMITTER = Emitter(
    name="anyone",
    dialects=(SALT,),
    gives="nothing; a salt is replaced by its digest",
    lacks="",
    switch_on="always on",
)
