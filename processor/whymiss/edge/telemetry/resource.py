"""This process as an OpenTelemetry resource."""

from __future__ import annotations

from uuid import uuid4

from ... import __version__


def own_resource() -> dict[str, str]:
    """The attributes of this process as a resource. Make it once: the instance id is random."""
    return {"service.name": "whymiss", "service.version": __version__, "service.instance.id": str(uuid4())}
