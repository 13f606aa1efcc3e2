"""The soak of the benchmarks, cut short: a service of its own under a steady rate, and nothing of it lost or repeated."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 180


def test_a_steady_rate_for_a_while_comes_out_whole_and_once() -> None:
    done = subprocess.run(
        [sys.executable, "tests/bench/bench_soak.py", "--minutes", "0.1", "--rate", "10"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sent = re.search(r"(\d+) lookups sent .* 0 refused, 0 did not come out, 0 came twice", done.stdout)
    assert sent is not None, done.stdout
    assert int(sent[1]) > 10
