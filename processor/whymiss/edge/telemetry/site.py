"""A few GET routes on one address: what health and metrics need of an HTTP server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias
from urllib.parse import urlsplit

from aiohttp import web

Respond: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_CLOSING_SECONDS = 2.0
"""How long `Site.stop` lets answers finish that have begun."""


class Site:
    """Serves ``routes`` on ``endpoint``, which is ``host:port`` or ``[v6]:port``; port 0 takes a free one."""

    def __init__(self, endpoint: str, routes: Mapping[str, Respond]) -> None:
        self._endpoint = endpoint
        app = web.Application()
        app.add_routes([web.get(path, answer) for path, answer in routes.items()])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_CLOSING_SECONDS)

    async def start(self) -> None:
        """Listen. Raises `OSError` where the address cannot be had."""
        parts = urlsplit(f"//{self._endpoint}")
        await self._runner.setup()
        await web.TCPSite(self._runner, parts.hostname, parts.port or 0).start()

    async def stop(self) -> None:
        """Stop listening; harmless where `start` was not called or failed."""
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """The port that is listened on, after `start`."""
        port: int = self._runner.addresses[0][1]
        return port
