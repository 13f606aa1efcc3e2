"""The generated parts of ``docs/input-contract.md``: the input contract's tables, and a request of each kind in OTLP/JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ..dialects.contract import LOOKUPS, OFFLOADS, PARTS, REQUEST_IDS, RESOURCE, ROUTES
from ..dialects.declared import Declared, Example, Part
from .markdown import table

MOMENT_UNIX_NANOS = 1_790_000_000_000_000_000
"""When the examples' lookup took place."""

_TRACE = "5b8efff798038103d269b633813fc60c"
_PLACES = {  # service, span name, span id, start and end in microseconds after the lookup
    ROUTES.prefix: ("router", "route", "eee19b7ec3c1b173", -3000, -2000),
    LOOKUPS.prefix: ("engine", "lookup", "eee19b7ec3c1b174", 0, 100),
    OFFLOADS.prefix: ("engine", "offload", "eee19b7ec3c1b175", 100, 900),
}


def attributes_of(part: Part) -> str:
    """The table of one part's attributes."""
    headings = ["attribute", "type", "unit", "encoding", "what it is", "where it is missing"]
    return table(headings, [_row(part, one) for one in part.attributes])


def _row(part: Part, one: Declared) -> list[str]:
    kind = one.kind
    return [f"`{part.prefix}{one.name}`", kind.type, one.unit, kind.encoding, one.meaning, one.missing]


def example_of(part: Part) -> str:
    """A request with one such span, in OTLP/JSON: one attribute a line."""
    service, name, span_id, start, end = _PLACES[part.prefix]
    of_span = {REQUEST_IDS[0]: "cmpl-7"} | {part.prefix + one.name: one.example for one in part.attributes}
    of_resource: dict[str, Example] = {"service.name": service}
    if service == "engine":
        of_resource["prefix_cache.worker"] = "vllm-0"
    return "\n".join(
        [
            "```json",
            '{"resourceSpans": [{',
            f'  "resource": {{"attributes": [{", ".join(_pair(*pair) for pair in of_resource.items())}]}},',
            f'  "scopeSpans": [{{"scope": {{"name": "my-{service}"}}, "spans": [{{',
            f'    "traceId": "{_TRACE}", "spanId": "{span_id}", "name": "{name}",',
            f'    "startTimeUnixNano": "{MOMENT_UNIX_NANOS + start * 1000}", "endTimeUnixNano": "{MOMENT_UNIX_NANOS + end * 1000}",',
            '    "attributes": [',
            ",\n".join(f"      {_pair(*pair)}" for pair in of_span.items()),
            "    ]",
            "  }]}]",
            "}]}",
            "```",
        ]
    )


def _pair(key: str, value: Example) -> str:
    return json.dumps({"key": key, "value": _value(value)})


def _value(value: Example) -> Mapping[str, object]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        # OTLP/JSON has integers of 64 bits in strings.
        return {"intValue": str(value)}
    if isinstance(value, str):
        return {"stringValue": value}
    return {"arrayValue": {"values": _values(value)}}


def _values(values: Sequence[str]) -> list[Mapping[str, object]]:
    return [_value(one) for one in values]


def request_ids() -> str:
    """The attributes that may hold a request's id, as a list in the order in which they are looked at."""
    return "\n".join(f"{number}. `{name}`" for number, name in enumerate(REQUEST_IDS, 1))


def resource_attributes() -> str:
    """The table of what a resource may say of the engine's process beyond OpenTelemetry's own attributes."""
    rows = [[f"`{one.name}`", one.kind.type, one.kind.encoding, one.meaning, one.missing] for one in RESOURCE]
    return table(["attribute", "type", "encoding", "what it is", "where it is missing"], rows)


def contract() -> str:
    """The whole contract: for each part what its span is, what it needs, its attributes and an example."""
    return "\n\n".join(
        "\n\n".join(
            [
                f"### `{part.prefix}*`",
                f"{part.span} It needs one of {', '.join(f'`{name}`' for name in part.needs)}.",
                attributes_of(part),
                example_of(part),
            ]
        )
        for part in PARTS
    )
