"""What lookups can be broken down by. The documentation's table is this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

OTHER: Final = "_other"
"""Shown for the values of a dimension past its cap."""

VALUE_CHARS_MAX: Final = 256
"""A longer value of a dimension is somebody's mistake, perhaps a prompt, and is shown as `OTHER`."""


class Dimensions(msgspec.Struct, frozen=True, kw_only=True):
    """What a lookup is broken down by. ``None`` is not known, and shows no label.

    Nothing here may be a raw identity: no tenant, salt, request, worker or hash.
    """

    route: str | None = None
    isolation_policy: str | None = None
    adapter: str | None = None
    model: str | None = None
    model_revision: str | None = None
    template_version: str | None = None
    speculative_method: str | None = None
    block_geometry: str | None = None
    prompt_family: str | None = None
    sampling_method: str | None = None


MEANINGS: Final[Mapping[str, str]] = {
    "route": "The router's own word for why it chose the worker.",
    "isolation_policy": (
        "What keeps the prompt's blocks from others' with the same tokens: `none`, `adapter`, `salt`, `adapter+salt`, or `other`. "
        "From the extra keys of its KV events, by kind, or from a lookup's `extra_key_kinds`."
    ),
    "adapter": (
        "The `lora_name` of its KV events; `_none` where it is known that there is none. "
        "Whoever names adapters after tenants switches it off."
    ),
    "model": "The model's name on the engine's span, else on the router's.",
    "model_revision": "The resource attribute `prefix_cache.model_revision` of the engine: nobody else knows.",
    "template_version": "The version of the reference (`references.files`) that the first missed block was compared with.",
    "speculative_method": "The resource attribute `prefix_cache.speculative_method` of the engine: nobody else knows.",
    "block_geometry": "Tokens a block, and tokens a match unit: `16/16`.",
    "prompt_family": "The name of the reference that the first missed block was compared with.",
    "sampling.method": "`counted`, or `extrapolated` where spans stand for others that were not sampled.",
}
"""Each dimension and where its value comes from."""

DIMENSIONS: Final = tuple(MEANINGS)
"""The labels that can be switched on, in the order in which they are shown."""
