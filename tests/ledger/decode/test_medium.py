from __future__ import annotations

import pytest

from whymiss.ledger.decode.medium import medium_of
from whymiss.model import Tier

SPELLINGS: dict[Tier, list[str | None]] = {
    Tier.DEVICE: ["GPU", "DEVICE", None, "", "cuda:0", "xpu:1", "HPU", "npu:0"],
    Tier.HOST: ["CPU", "CPU_PINNED", "CPU_TIER1", "cpu", "host_pinned"],
    Tier.DISK: ["DISK", "NVME", "STORAGE", "CPU_TIER2", "disk"],
    Tier.REMOTE: ["EXTERNAL", "NETWORK", "REMOTE", "SHARED", "SHARED_STORAGE", "OBJECT_STORE"],
    Tier.OTHER: ["tape", "gpu2", "CPU_TIER3", "host:0"],
}


@pytest.mark.parametrize(("tier", "medium"), [(tier, medium) for tier in SPELLINGS for medium in SPELLINGS[tier]])
def test_a_medium_has_its_tier_and_keeps_its_name(tier: Tier, medium: str | None) -> None:
    assert medium_of(medium) == (tier, (medium or "").lower(), False)
    assert medium_of(medium, "LOCAL") == medium_of(medium)
    assert medium_of(medium, "remote") == (Tier.REMOTE, (medium or "").lower(), True)
