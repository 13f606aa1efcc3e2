"""An OTLP/HTTP receiver on loopback that keeps the bodies of trace requests as they came."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterable
from typing import Any

_TRACES = "/v1/traces"


class Sink:
    """Listens from construction to ``close``."""

    def __init__(self) -> None:
        self.bodies: list[tuple[int, bytes]] = []
        """When received, in Unix nanoseconds, and what."""
        self._came = threading.Condition()
        sink = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                if self.path == _TRACES:
                    sink._take(body)
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def _take(self, body: bytes) -> None:
        with self._came:
            self.bodies.append((time.time_ns(), body))
            self._came.notify_all()

    def wait_for(self, wanted: Iterable[tuple[bytes, bytes]], seconds: float) -> bool:
        """Until both parts of each pair stand together in some body; False where it takes longer."""
        waiting = set(wanted)

        def all_came() -> bool:
            found = {pair for pair in waiting if any(pair[0] in body and pair[1] in body for _, body in self.bodies)}
            waiting.difference_update(found)
            return not waiting

        with self._came:
            return self._came.wait_for(all_came, seconds)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
