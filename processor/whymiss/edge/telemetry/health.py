"""Alive and ready, for probes. Neither ever depends on the next hop.

A replica that restarts because its backend is down loses what it holds and helps nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from aiohttp import web

from .site import Respond


class Status(StrEnum):
    """How far the service is."""

    STARTING = "starting"
    OK = "ok"
    STOPPING = "stopping"


class Readiness:
    """How far the service is: set by the service, read by the probes and the status page."""

    def __init__(self) -> None:
        self._status = Status.STARTING

    @property
    def status(self) -> Status:
        """How far the service is."""
        return self._status

    def become(self, status: Status) -> None:
        """Go on to the next status."""
        self._status = status


class Probes:
    """Answers ``/livez`` (200 as long as the event loop turns), ``/readyz`` and ``/`` (503 unless `Status.OK`).

    Serve them before everything else starts and until all else has stopped, so that both ends are visible.
    """

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness

    @property
    def routes(self) -> Mapping[str, Respond]:
        """What to serve."""
        return {"/": self._ready, "/readyz": self._ready, "/livez": self._alive}

    async def _ready(self, _: web.Request) -> web.StreamResponse:
        return self._answer(200 if self._readiness.status is Status.OK else 503)

    async def _alive(self, _: web.Request) -> web.StreamResponse:
        return self._answer(200)

    def _answer(self, code: int) -> web.StreamResponse:
        return web.json_response({"status": self._readiness.status}, status=code)
