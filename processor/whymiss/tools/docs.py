"""``whymiss docs``: the tables of the documentation, written from the code that they describe.

A table is between ``<!-- generated: NAME -->`` and ``<!-- end: NAME -->``. ``--check`` writes nothing and
fails where a table is not what the code says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

from ..attribution import TABLE
from ..dialects.prompts import PROMPT_ATTRIBUTES
from ..dialects.registry import EMITTERS
from ..errors import BadInput
from ..measures import INSTRUMENTS, MEANINGS
from ..model import Cause, Owner
from .attributes import WRITTEN
from .contract_page import contract, request_ids, resource_attributes
from .decisions import decisions
from .markdown import table
from .options import options

ROOT = Path(__file__).resolve().parents[3]
PAGES = (
    "README.md",
    "DESIGN.md",
    "collector-config/README.md",
    "docs/input-contract.md",
    "docs/reference.md",
    "docs/decisions/README.md",
)


def causes() -> str:
    """The ordered table of causes."""
    rows = [[str(number), f"`{row.cause}`", row.owner.value, row.when] for number, row in enumerate(TABLE, 1)]
    unknown = "Any of these whose evidence has a hole; the reason says which."
    rows.append([str(len(rows) + 1), f"`{Cause.UNKNOWN}`", Owner.OBSERVABILITY.value, unknown])
    return table(["#", "cause", "owner", "when (the first that holds)"], rows)


def metrics() -> str:
    """All metrics by their OTLP names."""
    rows = [
        [
            f"`{one.name}`",
            one.kind.value,
            one.unit,
            ", ".join(f"`{label}`" for label in one.labels) + (" + dimensions" if one.dimensional else ""),
            one.description,
        ]
        for one in INSTRUMENTS
    ]
    return table(["metric", "kind", "unit", "labels", "what it says"], rows)


def dimensions() -> str:
    """What the class metrics can be broken down by."""
    return table(["dimension", "what it is"], [[f"`{name}`", meaning] for name, meaning in MEANINGS.items()])


def attributes() -> str:
    """What a verdict puts on spans."""
    rows = [
        [
            f"`prefix_cache.{one.name}`",
            one.type,
            ", ".join(one.spans),
            one.meaning + (" Sampled spans only." if one.identifies else ""),
        ]
        for one in WRITTEN
    ]
    return table(["attribute", "type", "on spans of", "what it says"], rows)


def decided() -> str:
    """The index of the decisions, in the order of their dates."""
    rows = [
        [
            f"[{one.number}]({one.file})",
            one.date,
            one.title,
            one.parts,
            one.superseded if one.superseded != "none" else "",
        ]
        for one in decisions(ROOT / "docs/decisions")
    ]
    return table(["number", "date", "decision", "parts", "superseded by"], rows)


def emitters() -> str:
    """What each emitter gives, what it does not say, and what switches it on."""
    rows = [
        [one.name, ", ".join(f"`{dialect.name}`" for dialect in one.dialects), one.gives, one.lacks, one.switch_on]
        for one in EMITTERS
    ]
    return table(["emitter", "dialects", "gives", "does not say", "switch on"], rows)


def configuration() -> str:
    """All options of the configuration file."""
    return table(["key", "default", "meaning"], [[f"`{one.key}`", one.default, one.meaning] for one in options()])


def droppable() -> str:
    """The attributes that may hold prompts, ready for ``redaction.drop_attributes``."""
    return (
        "```yaml\nredaction:\n  drop_attributes:\n" + "".join(f'    - "{one}"\n' for one in PROMPT_ATTRIBUTES) + "```"
    )


TABLES: Mapping[str, Callable[[], str]] = {
    "attributes": attributes,
    "causes": causes,
    "decisions": decided,
    "metrics": metrics,
    "dimensions": dimensions,
    "emitters": emitters,
    "options": configuration,
    "prompt attributes": droppable,
    "input contract": contract,
    "contract request ids": request_ids,
    "contract resource": resource_attributes,
}


def rendered(text: str) -> str:
    """A page with its tables as the code has them now."""
    for name, render in TABLES.items():
        begin, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
        before, opened, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if opened and closed:
            text = f"{before}{begin}\n{render()}\n{end}{after}"
    return text


def run(*, check: bool, out: TextIO, root: Path = ROOT) -> int:
    """Write the tables, or with ``check`` compare them; returns the process's exit code.

    Raises ``BadInput`` where there is no page at all: an installed package comes without them.
    """
    if not any((root / page).is_file() for page in PAGES):
        raise BadInput(f"{root}: no checkout, there is none of {', '.join(PAGES)}")
    stale = []
    for page in PAGES:
        path = root / page
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        current = rendered(text)
        if current == text:
            continue
        stale.append(page)
        if not check:
            path.write_text(current, encoding="utf-8")
    for page in stale:
        out.write(f"{page}: {'a generated table is stale: run whymiss docs' if check else 'written'}\n")
    return 1 if stale and check else 0
