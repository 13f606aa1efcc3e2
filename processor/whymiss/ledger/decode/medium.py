"""Storage medium to tier: the spellings that emitters use for a medium, and the tier that each belongs to."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ...model import Tier

_TIERS = {
    "": Tier.DEVICE,
    "gpu": Tier.DEVICE,
    "device": Tier.DEVICE,
    "cpu": Tier.HOST,
    "cpu_pinned": Tier.HOST,
    "cpu_tier1": Tier.HOST,
    "host_pinned": Tier.HOST,
    "disk": Tier.DISK,
    "nvme": Tier.DISK,
    "storage": Tier.DISK,
    "cpu_tier2": Tier.DISK,
    "external": Tier.REMOTE,
    "network": Tier.REMOTE,
    "remote": Tier.REMOTE,
    "shared": Tier.REMOTE,
    "shared_storage": Tier.REMOTE,
    "object_store": Tier.REMOTE,
}

# Torch device strings ("cuda:0"): emitters that know no media names write where the tensor lives.
_ACCELERATORS = frozenset({"cuda", "hip", "hpu", "mps", "musa", "npu", "tpu", "xla", "xpu"})


class Medium(NamedTuple):
    """Where an event happened."""

    tier: Tier
    medium: str
    """The emitter's name in lower case; ``""`` where it said none."""
    remote: bool


@lru_cache(maxsize=256)
def medium_of(medium: str | None, locality: str | None = None) -> Medium:
    """The tier of a medium. ``locality=REMOTE`` overrides what its name says.

    A name that is not known is ``Tier.OTHER`` under its own name, never device.
    """
    name = (medium or "").lower()
    tier = _TIERS.get(name)
    if tier is None:
        tier = Tier.DEVICE if name.partition(":")[0] in _ACCELERATORS else Tier.OTHER
    remote = locality is not None and locality.upper() == "REMOTE"
    return Medium(Tier.REMOTE if remote else tier, name, remote)
