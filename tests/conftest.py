"""How hard hypothesis looks, and what a test that needs a real program does without it."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import HealthCheck, settings

# No deadline: a busy machine is not a wrong answer.
# A change is judged in CI by the same examples every time; `make deep` is what looks for new ones.
settings.register_profile(
    "fast",
    max_examples=60,
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("deep", max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fast")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked ``server(*programs)`` where a program is missing, but never in CI."""
    for marker in item.iter_markers("server"):
        missing = [program for program in marker.args if shutil.which(program) is None]
        if missing and os.environ.get("CI") == "true":
            pytest.fail(f"CI must have {', '.join(missing)} on its PATH", pytrace=False)
        if missing:
            pytest.skip(f"needs {', '.join(missing)} on the PATH")
