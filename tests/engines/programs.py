"""The engines of ``versions.toml``: where they are, and how a run of one is asked for.

``build.sh`` installs them into a cache; ``WHYMISS_ENGINES`` names another folder. Importing this puts the folder of
their interpreters on the PATH, which is where the marker ``server`` looks.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PINS = Path(__file__).with_name("versions.toml")
PLAYERS = {"vllm": "vllm_play", "sglang": "sglang_play", "dynamo": "dynamo_play"}
"""The module of ``oracle`` that plays an engine; ``ENGINE-python`` runs it."""


def cache() -> Path:
    """The folder that ``build.sh`` fills."""
    named = os.environ.get("WHYMISS_ENGINES")
    if named:
        return Path(named)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "whymiss-engines" / hashlib.sha256(PINS.read_bytes()).hexdigest()[:16]


def _put_on_path() -> None:
    folder, path = str(cache() / "bin"), os.environ.get("PATH", "")
    if folder not in path.split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join((folder, path))


_put_on_path()


def play(engine: str, folder: Path, requests: int, wanted: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Path]:
    """Play seeds of modes in one process of the engine; gives the recording of each ``(mode, seed)``."""
    wanted = list(wanted)
    names = [f"{mode}:{seed}" for mode, seed in wanted]
    command = [f"{engine}-python", "-m", f"tests.engines.oracle.{PLAYERS[engine]}", str(requests), str(folder), *names]
    # A hash seed is part of a run: without one Python draws it.
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return {(mode, seed): folder / f"{mode}-{seed}" for mode, seed in wanted}
