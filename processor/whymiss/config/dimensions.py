"""What lookups can be broken down by on the class metrics: one field a label, and there alone.

The option that switches labels on, the metrics and the documentation's table are all made from `Dimensions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

OTHER: Final = "_other"
"""Shown for the values of a dimension past its cap."""

VALUE_CHARS_MAX: Final = 256
"""A longer value of a dimension is somebody's mistake, perhaps a prompt, and is shown as `OTHER`."""


class Dimensions(msgspec.Struct, frozen=True, kw_only=True):
    """What a lookup is broken down by. ``None`` is not known, and shows no label.

    Nothing here may be a raw identity: no tenant, salt, request, worker or hash.
    """

    route: Annotated[str | None, Meta(description="The router's own word for why it chose the worker.")] = None
    isolation_policy: Annotated[
        str | None,
        Meta(
            description="What keeps the prompt's blocks from others' with the same tokens: `none`, `adapter`, `salt`, `adapter+salt`, or `other`. "
            "From the extra keys of its KV events, by kind, or from a lookup's `extra_key_kinds`."
        ),
    ] = None
    adapter: Annotated[
        str | None,
        Meta(
            description="The `lora_name` of its KV events; `_none` where it is known that there is none. "
            "Whoever names adapters after tenants switches it off."
        ),
    ] = None
    model: Annotated[str | None, Meta(description="The model's name on the engine's span, else on the router's.")] = (
        None
    )
    model_revision: Annotated[
        str | None,
        Meta(description="The resource attribute `prefix_cache.model_revision` of the engine: nobody else knows."),
    ] = None
    template_version: Annotated[
        str | None,
        Meta(
            description="The version of the reference (`references.files`) that the first missed block was compared with."
        ),
    ] = None
    speculative_method: Annotated[
        str | None,
        Meta(description="The resource attribute `prefix_cache.speculative_method` of the engine: nobody else knows."),
    ] = None
    block_geometry: Annotated[str | None, Meta(description="Tokens a block, and tokens a match unit: `16/16`.")] = None
    prompt_family: Annotated[
        str | None, Meta(description="The name of the reference that the first missed block was compared with.")
    ] = None
    sampling_method: Annotated[
        str | None,
        Meta(description="`counted`, or `extrapolated` where spans stand for others that were not sampled."),
    ] = msgspec.field(name="sampling.method", default=None)


def _meaning(kind: msgspec.inspect.Type) -> str:
    assert isinstance(kind, msgspec.inspect.Metadata), "every dimension says what it is"
    return str((kind.extra_json_schema or {})["description"])


_shape = msgspec.inspect.type_info(Dimensions)
assert isinstance(_shape, msgspec.inspect.StructType), "a struct has fields"

MEANINGS: Final[Mapping[str, str]] = {one.encode_name: _meaning(one.type) for one in _shape.fields}
"""Each label and where its value comes from."""

DIMENSIONS: Final = tuple(MEANINGS)
"""The labels that can be switched on, in the order in which they are shown."""

FIELD_OF: Final[Mapping[str, str]] = {one.encode_name: one.name for one in _shape.fields}
"""The field of each label."""
