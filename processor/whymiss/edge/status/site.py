"""Serves the status page, as HTML and as JSON, beside the probes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from aiohttp import web

from ..telemetry.site import Respond
from .page import STYLE, page_of
from .snapshot import Snapshot

REFRESH_SECONDS_MAX: Final = 3600
KEPT_SECONDS: Final = 1.0
"""One look a second is enough for however many people look."""

_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Nothing runs, nothing is loaded, nobody frames it; the style is the one that is in it."""


class StatusSite:
    """Answers ``/status`` and ``/status.json``. ``take`` is called on the event loop, at most once a second."""

    def __init__(self, take: Callable[[], Snapshot], *, now: Callable[[], float] = time.monotonic) -> None:
        self._take = take
        self._now = now
        self._kept: tuple[float, Snapshot] | None = None

    @property
    def routes(self) -> Mapping[str, Respond]:
        """What to serve."""
        return {"/status": self._page, "/status.json": self._json}

    async def _page(self, request: web.Request) -> web.StreamResponse:
        refresh = refresh_seconds(request.query.get("refresh"))
        body = await asyncio.to_thread(page_of, self._snapshot(), refresh)
        return _answer(body.encode(), "text/html")

    async def _json(self, _: web.Request) -> web.StreamResponse:
        return _answer(msgspec.json.encode(self._snapshot()), "application/json")

    def _snapshot(self) -> Snapshot:
        now = self._now()
        if self._kept is None or now - self._kept[0] >= KEPT_SECONDS:
            self._kept = now, self._take()
        return self._kept[1]


def refresh_seconds(asked: str | None) -> int | None:
    """Read how often the page shall load itself again; what is no sensible number is never."""
    if asked is None or not (asked.isascii() and asked.isdigit()) or len(asked) > 6:
        return None
    return min(int(asked), REFRESH_SECONDS_MAX) or None


def _answer(body: bytes, content_type: str) -> web.Response:
    response = web.Response(body=body, content_type=content_type, charset="utf-8", headers=HEADERS)
    response.enable_compression()
    return response
