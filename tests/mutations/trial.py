"""Trials of mutations: children of one pytest session in which the tests are collected and none has run."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import hypothesis
import pytest

from tests.mutations.markers import mutated, place_of, text_of
from tests.mutations.mutation import PACKAGE, ROOT, SOURCE, Mutation
from tests.mutations.operators import drop
from tests.mutations.swapped import swap

SECONDS_MAX = 900
"""A trial that takes longer is no answer: a guard less must make a test fail, not hang."""

EVERYTHING = Mutation("", "no guard is missing", drop(), "")
"""The trial of all tests against the package as it is: tests that fail anyway notice nothing."""

# What fails need not be made small, and one run is like the next.
hypothesis.settings.register_profile(
    "mutations",
    hypothesis.settings.get_profile("default"),
    max_examples=20,
    deadline=None,
    database=None,
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)


class Ended(NamedTuple):
    """A trial that is over: 0 where all tests passed, 1 where the named one failed, else nothing is known."""

    mutation: Mutation
    code: int
    said: str
    seconds: float


class Trials:
    """Begins trials and waits for them."""

    def __init__(self, session: pytest.Session) -> None:
        self._items = session.items
        self._running: dict[int, tuple[Mutation, int, float]] = {}
        self.failed: str | None = None
        """In a child: the first test that failed."""

    @property
    def count(self) -> int:
        """Tests collected."""
        return len(self._items)

    def begin(self, mutation: Mutation) -> None:
        """Fork a trial."""
        reading, writing = os.pipe()
        child = os.fork()
        if child:
            os.close(writing)
            self._running[child] = (mutation, reading, time.monotonic())
            return
        code, said = 99, ""
        try:
            signal.alarm(SECONDS_MAX)
            _silence()
            code, said = self._tried(mutation)
        except ValueError as problem:
            said = f"{problem}"
        finally:
            # A child must not return into its parent's stack.
            os.write(writing, said.encode()[:4000])
            os._exit(code)

    def wait(self) -> Ended:
        """The next trial that is over."""
        child, status = os.wait()
        mutation, reading, began = self._running.pop(child)
        with os.fdopen(reading, encoding="utf-8", errors="replace") as pipe:
            said = pipe.read()
        return Ended(mutation, os.waitstatus_to_exitcode(status), said, time.monotonic() - began)

    def _tried(self, mutation: Mutation) -> tuple[int, str]:
        items = self._items
        if mutation is not EVERYTHING:
            _mutate(mutation)
            items = _selected(items, mutation.tests.split())
            if not items:
                return 99, f"no test is called {mutation.tests}"
        for item, following in pairwise([*items, None]):
            assert item is not None, "only the last one is nobody"
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed is not None:
                return 1, self.failed
        return 0, ""


def _mutate(mutation: Mutation) -> None:
    place = place_of(mutation)
    parts = [PACKAGE, *Path(place.file).with_suffix("").parts]
    module = importlib.import_module(".".join(part for part in parts if part != "__init__"))
    if Path(str(module.__file__)).resolve() != (SOURCE / PACKAGE / place.file).resolve():
        raise ValueError(f"{module.__name__} was imported from elsewhere: {module.__file__}")
    source = text_of(place.file)
    if not swap(module, source, mutated(source, place.line, mutation)):
        raise ValueError("the mutation changes no function of the module")


def _selected(items: Iterable[pytest.Item], selection: Iterable[str]) -> list[pytest.Item]:
    """The tests of a selection, in its order."""
    everything = list(items)
    found: dict[pytest.Item, None] = {}
    for part in selection:
        for item in everything:
            if item.nodeid == part or item.nodeid.startswith((f"{part}/", f"{part}::", f"{part}[")):
                found[item] = None
    return list(found)


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


class _Loop:
    """The plugin that lets trials take the place of the tests."""

    def __init__(self, judge: Callable[[Trials], None]) -> None:
        self._judge = judge
        self._trials: Trials | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge instead of running tests."""
        self._trials = Trials(session)
        self._judge(self._trials)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the first failure."""
        if report.failed and self._trials is not None and self._trials.failed is None:
            self._trials.failed = report.nodeid


def collected(selection: Iterable[str], judge: Callable[[Trials], None]) -> int:
    """Collect tests and let somebody judge with them; pytest's exit code, 0 where that went well."""
    os.chdir(ROOT)
    plugins = ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:cov", "-p", "no:terminal", "-s"]
    warned = "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning"
    options = ["--hypothesis-profile=mutations", "--hypothesis-seed=0", "-W", warned, *plugins]
    code = int(pytest.main([*options, *selection], [_Loop(judge)]))
    # No test has run in this process, and pytest calls that a failure.
    return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code
