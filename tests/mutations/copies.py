"""Copies of the package to mutate, and tests run against one in a child of this process.

A child is forked with pytest and the libraries imported and nothing of ours, so that a run costs what its
tests cost and not the imports.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import hypothesis
import msgspec
import numpy as np
import pytest
import yaml
from google.protobuf import message

from tests.mutations.mutation import PACKAGE, ROOT, SOURCE, Mutation

PREPARED = (hypothesis, msgspec, np, yaml, message)
"""What children need not import."""

IMPORTED = "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning"
"""Said of these; a warning is an error otherwise."""


class Ran(NamedTuple):
    """A run of tests: pytest's exit code, what it wrote, and the seconds it took."""

    code: int
    said: str
    seconds: float


class Copy:
    """A copy of the package in a folder of its own; one run at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.package = folder / PACKAGE
        shutil.copytree(SOURCE / PACKAGE, self.package, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(self.package, quiet=2)

    @contextmanager
    def without(self, mutation: Mutation) -> Iterator[None]:
        """The package without one guard. Raises ``ValueError`` where the guard is not there."""
        path = self.package / mutation.file
        text = path.read_text(encoding="utf-8")
        # Compiled code is told from stale code by second and size, which a mutation may share.
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
        path.write_text(mutation.applied(text), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")

    def test(self, selection: Iterable[str], seconds_max: float, *options: str) -> Ran:
        """Run tests against this copy. Raises ``TimeoutError``."""
        assert not any(name.partition(".")[0] == PACKAGE for name in sys.modules), "a child imports the copy afresh"
        said = self._folder / "said"
        began = time.monotonic()
        child = os.fork()
        if not child:
            self._become_a_run([*options, *selection], said)
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() - began > seconds_max:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise TimeoutError
            time.sleep(0.02)
        code = os.waitstatus_to_exitcode(ended[1])
        return Ran(code, said.read_text(encoding="utf-8", errors="replace"), time.monotonic() - began)

    def _become_a_run(self, arguments: list[str], said: Path) -> None:
        code = 99
        try:
            with said.open("wb") as out:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
            os.chdir(ROOT)
            sys.path.insert(0, str(self._folder))
            sys.dont_write_bytecode = True
            # Examples that fail against a mutation are none to try first against the product.
            os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(self._folder / "examples")
            plugins = ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:cov", "-W", IMPORTED]
            watched = _Imported(self._folder)
            code = int(pytest.main(["-q", "--tb=no", "--hypothesis-seed=0", *plugins, *arguments], [watched]))
        finally:
            # A child must not return into its parent's stack.
            if sys.exc_info()[0] is not None:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


class _Imported:
    """A plugin that refuses to test another copy of the package than the mutated one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def pytest_collection_finish(self) -> None:
        """Stop with a usage error, which is not taken for a failed test."""
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            found = Path(str(sys.modules[name].__file__)).resolve()
            if not found.is_relative_to(self._folder):
                raise pytest.UsageError(f"{name} was imported from {found}")
