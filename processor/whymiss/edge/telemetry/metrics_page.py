"""Where the service's metrics are read."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from aiohttp import web

from .negotiation import format_for, takes_gzip
from .prometheus import Exposition

if TYPE_CHECKING:
    from ...measures import MetricSnapshot
    from .site import Respond

Show: TypeAlias = Callable[[], Iterable["MetricSnapshot"]]
"""Brings the gauges up to date and yields one metric at a time, between which others have their turn."""


class MetricsPage:
    """Answers ``/metrics``: Prometheus text, or OpenMetrics with exemplars."""

    def __init__(self, show: Show, resource: Mapping[str, str]) -> None:
        self._show = show
        self._exposition = Exposition(resource)
        self._turn = asyncio.Lock()

    @property
    def routes(self) -> Mapping[str, Respond]:
        """What to serve."""
        return {"/metrics": self._metrics}

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        form, gzipped = format_for(_header(request, "Accept")), takes_gzip(_header(request, "Accept-Encoding"))
        headers = {"Content-Type": form.value, "Vary": "Accept, Accept-Encoding"}
        if gzipped:
            headers["Content-Encoding"] = "gzip"
        # One at a time: a full set of series is megabytes of text, and many scrapers are one too many. Who reads
        # slowly keeps its own text only, and nobody waiting.
        async with self._turn:
            pieces = await _in_turns(self._exposition.portions(self._show(), form), gzipped=gzipped)
        response = web.StreamResponse(headers=headers)
        response.content_length = sum(map(len, pieces))
        await response.prepare(request)
        for piece in pieces if request.method != "HEAD" else ():
            await response.write(piece)
        await response.write_eof()
        return response


async def _in_turns(portions: Iterable[bytes], *, gzipped: bool) -> list[bytes]:
    """Make all portions, and let everybody else on the loop have a turn after each."""
    made: list[bytes] = []
    # The text repeats itself so much that the quickest level leaves a fiftieth of it.
    packer = zlib.compressobj(level=1, wbits=zlib.MAX_WBITS | 16) if gzipped else None
    for portion in portions:
        made.append(portion if packer is None else packer.compress(portion))
        await asyncio.sleep(0)
    if packer is not None:
        made.append(packer.flush())
    return [piece for piece in made if piece]


def _header(request: web.Request, name: str) -> str:
    """A list-valued header, which may come in several lines."""
    return ",".join(request.headers.getall(name, []))
