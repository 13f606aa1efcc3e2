"""The map of DESIGN.md, as a test: which part of the package may import which, and what stays out of the pure root."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "processor" / "whymiss"

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "model": set(),
    "config": {"errors"},
    "wire": {"errors", "model"},
    "dialects": {"errors", "model", "wire"},
    "join": {"config", "model"},
    "ledger": {"config", "errors", "model"},
    "accounting": {"model"},
    "evidence": {"accounting", "config", "model"},
    "attribution": {"model"},
    "redaction": {"config", "errors", "model", "wire"},
    "reference": {"errors"},
    "measures": {"config", "model"},
}
MAY_IMPORT["pipeline"] = set(MAY_IMPORT)
MAY_IMPORT["__init__"] = set()

ROOMS: dict[str, dict[str, set[str]]] = {
    "edge": {
        "config_file": set(),
        "core": set(),
        "otlp_names": set(),
        "pace": set(),
        "references": set(),
        "security": set(),
        "telemetry": set(),
        "checkpoint_file": {"telemetry"},
        "chores": {"telemetry"},
        "spool": {"pace", "telemetry"},
        "exporters": {"otlp_names", "pace", "security", "telemetry"},
        "advance": {"core", "exporters", "pace", "telemetry"},
        "memory": {"core", "exporters", "pace", "telemetry"},
        "receivers": {"core", "exporters", "memory", "otlp_names", "pace", "security", "spool", "telemetry"},
        "kv": {"core", "receivers", "telemetry"},
        "reload": {"kv", "references", "telemetry"},
        "status": {"exporters", "kv", "pace", "spool", "telemetry"},
    },
    "evidence": {
        "requests": set(),
        "accounts": {"requests"},
        "hypotheses": {"accounts", "requests"},
        "missed": {"hypotheses"},
        "peers": {"missed", "requests"},
        "sections": {"hypotheses", "missed", "peers", "requests"},
        "established": {"hypotheses", "missed", "peers", "requests", "sections"},
    },
    "attribution": {"rows": set(), "table": {"rows"}, "verdict": {"rows", "table"}},
    "ledger": {
        "columnar": set(),  # knows no block
        "events": set(),
        "hashing": {"events"},
        "cache_groups": {"events"},
        "time_index": {"columnar"},
        "decode": {"events", "hashing"},
        "segment": {"columnar", "events"},
        "residency": {"columnar", "segment"},
        "compaction": {"columnar", "events", "residency", "segment"},
        "segment_store": {"columnar", "compaction", "events", "residency", "segment", "time_index"},
        "memtable": {"cache_groups", "events", "hashing", "residency", "segment", "segment_store"},
        "query": {"columnar", "events", "memtable", "residency", "segment", "segment_store"},
        "sequencer": {"events", "stream"},
        "ports": {"events", "sequencer"},
        "retention": {"segment", "segment_store", "stream"},
        "ledger": {"decode", "events", "hashing", "ports", "query", "retention", "sequencer", "stream"},
    },
}
"""The folders and single files of a part, and which of their neighbours each may import."""
ROOMS["edge"]["wiring"] = set(ROOMS["edge"])
ROOMS["ledger"]["stream"] = set(ROOMS["ledger"]) - {"decode", "ledger", "ports", "retention", "sequencer"}
ROOMS["ledger"]["checkpoint"] = set(ROOMS["ledger"])
ROOMS["edge"]["service"] = set(ROOMS["edge"])

SET_FROM_OUTSIDE: dict[tuple[str, str], str] = {
    (
        "edge/receivers/otlp_http.py",
        "request.writer.output_size",
    ): "aiohttp takes a 100 Continue for the answer's beginning",
    ("edge/telemetry/logs.py", "record.seen"): "a filter tells a formatter something by the record, as logging says",
}
"""Attributes in ``edge`` that are set on an object made elsewhere, and why no other way is there."""

IMPURE = {"edge", "probes", "tools", "__main__"}

# What is shut out by name, so that the reason is plain; the lists of libraries below shut out the rest.
WORLD = {
    "asyncio",
    "concurrent",
    "datetime",
    "http",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "uuid",
}
LIBRARIES = {"cachetools", "msgspec", "numpy"}
LIBRARIES_OF = {"config": {"yaml"}, "wire": {"google", "opentelemetry"}}

BANNED_WORDS = {"manager", "handler", "helper", "utils", "common", "base", "impl", "data", "info", "obj", "ctx", "process", "do"}  # fmt: skip
FAMILY_WORDS = {"brood", "broods", "hang", "hangs", "kin", "kinship", "nobody", "outlives", "outliving", "stranger", "strangers", "tend", "tends", "twin", "twins"}  # fmt: skip
"""A ledger is a log-structured store: its glossary has the words, and families have none of them."""
SAYS_STORAGE = [*PACKAGE.glob("ledger/**/*.py"), *(PACKAGE.parents[1] / "tests" / "ledger").rglob("*.py")]
PRESCRIBED = {"data_received"}  # asyncio's own name, which a protocol must have
LINES_MAX = 400


def part(path: Path) -> str:
    """The first component below the package."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def is_generated(path: Path) -> bool:
    return re.fullmatch(r"\w+_pb2(_grpc)?\.py", path.name) is not None


FILES = sorted(PACKAGE.rglob("*.py"))
WRITTEN = [path for path in FILES if not is_generated(path)]
PURE = [path for path in WRITTEN if part(path) not in IMPURE]


def each(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(PACKAGE))) for path in paths])


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(path: Path) -> Iterator[str]:
    """Yield ``.part`` for what is ours and the top-level name for the rest."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module is not None
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            yield from resolve(path, node)


def room(path: Path) -> str:
    """The folder or single file of its part that a file is in, or that it is."""
    return path.relative_to(PACKAGE).parts[1].removesuffix(".py")


def neighbours(path: Path) -> Iterator[str]:
    """Yield the rooms of its own part that a file imports, also where only a type checker does."""
    package = path.relative_to(PACKAGE).parts[:-1]
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.ImportFrom) or node.level == 0:
            continue
        below = [*package[: len(package) + 1 - node.level], *(node.module.split(".") if node.module else [])]
        if below[:1] == [package[0]]:
            yield from below[1:2] or [alias.name for alias in node.names]


def files_reached(path: Path) -> Iterator[Path]:
    """Yield the files that a file imports relatively; of a package that is its ``__init__``."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            module = path.parents[node.level - 1].joinpath(*node.module.split("."))
            yield module / "__init__.py" if module.is_dir() else module.with_suffix(".py")


def resolve(path: Path, node: ast.ImportFrom) -> Iterator[str]:
    """Yield the parts that a relative import reaches."""
    above = path.relative_to(PACKAGE).parts[:-1]
    steps = node.level - 1
    assert steps <= len(above), f"{path}: line {node.lineno} reaches out of the package"
    below = [*above[: len(above) - steps], *(node.module.split(".") if node.module else [])]
    if below:
        yield f".{below[0]}"
    else:
        yield from (f".{alias.name}" for alias in node.names)


def names(path: Path) -> Iterator[str]:
    """Yield the names of the module and of its classes and functions."""
    yield path.stem if path.stem != "__init__" else path.parent.name
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def set_from_outside(tree: ast.AST) -> Iterator[str]:
    """Yield each assignment to an attribute of an object that is neither ``self`` or ``cls`` nor made by the same function."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        own = {"self", "cls"} | made_by(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if not (isinstance(node.value, ast.Name) and node.value.id in own):
                    yield ast.unparse(node)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", None) == "setattr":
                yield ast.unparse(node)


def made_by(function: ast.AST) -> set[str]:
    """The local names that a call gives a value, unless it asks an object of ``self`` for one that is there."""
    return {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name) and not ast.unparse(node.value.func).startswith("self.")
    }


def words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+[0-9]*", name)}


@each(PURE)
def test_pure_file_imports_only_what_the_map_allows(path: Path) -> None:
    own = part(path)
    assert own in MAY_IMPORT, f"{own} is not on the map"
    for name in imports(path):
        if name.startswith("."):
            assert name[1:] in MAY_IMPORT[own] | {own}
        else:
            assert name not in WORLD, "the pure root does not know the world"
            assert name != "whymiss", "our own parts are imported relatively, where the map can be read"
            assert name in sys.stdlib_module_names | LIBRARIES | LIBRARIES_OF.get(own, set())


@each(WRITTEN)
def test_protobuf_stays_in_wire(path: Path) -> None:
    assert part(path) == "wire" or "google" not in set(imports(path))


def test_generated_code_stays_in_wire() -> None:
    assert {part(path) for path in FILES if is_generated(path)} <= {"wire"}


def test_no_part_is_off_the_map() -> None:
    # Not equality: a part is put on the map by the commit that decides on it, and built by a later one.
    on_disk = {part(path) for path in FILES}
    assert on_disk <= set(MAY_IMPORT) | IMPURE


def require_no_cycle(map_: dict[str, set[str]]) -> None:
    left = {name: set(may) for name, may in map_.items()}
    while left:
        free = {name for name, may in left.items() if not may & set(left)}
        assert free, f"a cycle among {sorted(left)}"
        left = {name: may for name, may in left.items() if name not in free}


def test_the_map_has_no_cycle() -> None:
    require_no_cycle(MAY_IMPORT)


@each([path for path in WRITTEN if part(path) in ROOMS and room(path) != "__init__"])
def test_file_imports_only_the_rooms_that_the_map_allows(path: Path) -> None:
    may = ROOMS[part(path)]
    assert room(path) in may, f"{room(path)} is not on the map of {part(path)}"
    assert set(neighbours(path)) <= may[room(path)] | {room(path)}


@pytest.mark.parametrize("own", ROOMS)
def test_the_rooms_of_a_part_are_all_there_and_have_no_cycle(own: str) -> None:
    assert set(ROOMS[own]) == {room(path) for path in FILES if part(path) == own} - {"__init__"}
    require_no_cycle(ROOMS[own])


@pytest.mark.parametrize("own", ROOMS)
def test_the_files_of_a_part_with_rooms_have_no_cycle(own: str) -> None:
    files = {path for path in WRITTEN if part(path) == own}
    arrows = {str(path): {str(file) for file in files_reached(path) if file in files} for path in files}
    assert any(arrows.values())
    require_no_cycle(arrows)


@each(WRITTEN)
def test_file_is_short(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= LINES_MAX, "a second concept is a second file"


@each(WRITTEN)
def test_names_say_something(path: Path) -> None:
    for name in set(names(path)) - PRESCRIBED:
        assert not words(name) & BANNED_WORDS, f"{name}: find the noun, or it is two things"
        assert name != "Processor"


def test_names_in_the_ledger_are_those_of_a_store() -> None:
    assert len(SAYS_STORAGE) > 50
    for path in SAYS_STORAGE:
        nodes = list(ast.walk(tree_of(path)))
        bound = {node.id for node in nodes if isinstance(node, ast.Name)} | {
            node.arg for node in nodes if isinstance(node, ast.arg)
        }
        for name in {path.stem, *bound, *names(path)}:
            assert not words(name) & FAMILY_WORDS, f"{path}: {name}"


@each(WRITTEN)
def test_only_redaction_makes_what_the_exporter_takes(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
            assert called != "Redacted" or part(path) == "redaction"


@each([path for path in WRITTEN if part(path) == "edge"])
def test_no_attribute_is_set_from_outside(path: Path) -> None:
    found = {(path.relative_to(PACKAGE).as_posix(), target) for target in set_from_outside(tree_of(path))}
    assert found <= set(SET_FROM_OUTSIDE), "what an object needs it is given when it is made"


def test_every_exception_is_needed() -> None:
    found = {(file, target) for file, _ in SET_FROM_OUTSIDE for target in set_from_outside(tree_of(PACKAGE / file))}
    assert found == set(SET_FROM_OUTSIDE)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("self.port = 1", []),
        ("made = Part()\n    made.port = 1", []),
        ("context = ssl.create()\n    context.port = 1", []),
        ("part.port = 1", ["part.port"]),
        ("part.port += 1", ["part.port"]),
        ("self.part.port = 1", ["self.part.port"]),
        ("part = self.parts.get(1)\n    part.port, x = 1, 2", ["part.port"]),
        ("for part in parts:\n        part.port: int = 1", ["part.port"]),
        ("setattr(part, 'port', 1)", ["setattr(part, 'port', 1)"]),
    ],
)
def test_what_is_set_from_outside_is_found(body: str, found: list[str]) -> None:
    assert list(set_from_outside(ast.parse(f"def f(self, part, parts):\n    {body}"))) == found


@pytest.mark.parametrize(
    ("file", "line", "reached"),
    [
        ("join.py", "from . import model, config", [".model", ".config"]),
        ("join.py", "from .config.tree import Config", [".config"]),
        ("wire/split.py", "from ..model import Span", [".model"]),
        ("wire/split.py", "from . import shallow_pb2", [".wire"]),
        ("wire/__init__.py", "from .split import split", [".wire"]),
        ("wire/split.py", "from .. import edge", [".edge"]),
    ],
)
def test_relative_imports_are_resolved(file: str, line: str, reached: list[str]) -> None:
    (node,) = ast.parse(line).body
    assert isinstance(node, ast.ImportFrom)
    assert list(resolve(PACKAGE / file, node)) == reached


@pytest.mark.parametrize(
    ("name", "banned"),
    [
        ("SpanHandler", True),
        ("do_export", True),
        ("document", False),
        ("_base_url", True),
        ("KVData", True),
        ("processed", False),
        ("base64", False),
    ],
)
def test_banned_words_are_whole_words(name: str, banned: bool) -> None:
    assert bool(words(name) & BANNED_WORDS) is banned
