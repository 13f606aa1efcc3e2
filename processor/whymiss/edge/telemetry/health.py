"""Alive and ready, for probes. Neither ever depends on the next hop.

A replica that restarts because its backend is down loses what it holds and helps nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from aiohttp import web

from .web import Answer, Site


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


class Health:
    """Answers ``/livez`` (200 as long as the event loop turns), ``/readyz`` and ``/`` (503 unless `Status.OK`).

    Start it before everything else and stop it last, so that both ends are visible. ``pages`` are for humans, on the
    same port.
    """

    def __init__(self, endpoint: str, readiness: Readiness, pages: Mapping[str, Answer] | None = None) -> None:
        self._readiness = readiness
        probes = {"/": self._ready, "/readyz": self._ready, "/livez": self._alive}
        self._site = Site(endpoint, {**(pages or {}), **probes})

    async def start(self) -> None:
        """Listen. Raises `OSError` where the address cannot be had."""
        await self._site.start()

    async def stop(self) -> None:
        """Stop listening."""
        await self._site.stop()

    @property
    def port(self) -> int:
        """The port that is listened on, after `start`."""
        return self._site.port

    async def _ready(self, _: web.Request) -> web.StreamResponse:
        return self._answer(200 if self._readiness.status is Status.OK else 503)

    async def _alive(self, _: web.Request) -> web.StreamResponse:
        return self._answer(200)

    def _answer(self, code: int) -> web.StreamResponse:
        return web.json_response({"status": self._readiness.status}, status=code)
