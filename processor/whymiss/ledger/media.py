"""Which tier a medium belongs to, by the spellings that emitters use."""

from __future__ import annotations

from ..model import Tier

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


def tier_of(medium: str | None, *, remote: bool = False) -> tuple[Tier, str]:
    """The tier of a medium and its name in lower case (``""`` where the emitter said none).

    ``remote`` is the emitter's ``locality=REMOTE``, which overrides the medium. A name that is not
    known is ``Tier.OTHER`` under its own name, never device.
    """
    name = (medium or "").lower()
    tier = _TIERS.get(name)
    if tier is None:
        tier = Tier.DEVICE if name.partition(":")[0] in _ACCELERATORS else Tier.OTHER
    return (Tier.REMOTE if remote else tier), name
