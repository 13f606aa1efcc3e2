"""A headless Chromium, driven through its debugging protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import aiohttp

if TYPE_CHECKING:
    from types import TracebackType

SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    *("--disable-dev-shm-usage", "--remote-debugging-port=0", "about:blank"),
)
PATIENCE_SECONDS = 60.0
"""For a start on a busy machine; nothing waits for it where all is well."""

_LISTENING = re.compile(rb"DevTools listening on (ws://\S+)")

Theme = Literal["light", "dark"]


class Chromium:
    """One browser with one tab; its profile is gone with it."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        """What the browser logged of the page: errors of its scripts, and everything that its policy forbade."""
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self._tab = ""

    async def __aenter__(self) -> Self:
        self._profile = Path(tempfile.mkdtemp())
        self._program = await asyncio.create_subprocess_exec(
            "chromium",
            *SWITCHES,
            f"--user-data-dir={self._profile}",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        self._session = aiohttp.ClientSession()
        async with asyncio.timeout(PATIENCE_SECONDS):
            self._socket = await self._session.ws_connect(await self._address(), max_msg_size=0)
            self._listening = [asyncio.create_task(self._listen()), asyncio.create_task(self._drain())]
            target = (await self.ask("Target.createTarget", url="about:blank"))["targetId"]
            self._tab = (await self.ask("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Accessibility"):
                await self.ask(f"{domain}.enable")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        await self._socket.close()
        await self._session.close()
        self._program.terminate()
        await self._program.communicate()
        shutil.rmtree(self._profile, ignore_errors=True)

    async def open(self, address: str, *, width: int, theme: Theme = "light") -> None:
        """Load a page in a window of so many CSS pixels."""
        await self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        await self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self._loaded.clear()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.ask("Page.navigate", url=address)
            await self._loaded.wait()

    async def evaluate(self, expression: str) -> Any:
        """Evaluate JavaScript in the page; the policy of the page does not hold for the debugger."""
        answer = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def roles(self) -> list[tuple[str, str]]:
        """Role and name of everything that a screen reader is told of."""
        nodes = (await self.ask("Accessibility.getFullAXTree"))["nodes"]
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]

    async def picture(self) -> bytes:
        """The whole page as PNG."""
        answer = await self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._tab:
            message["sessionId"] = self._tab
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json(message)
        return await self._answers[number]

    async def _address(self) -> str:
        assert self._program.stderr is not None
        said = b""
        async for line in self._program.stderr:
            said += line
            if found := _LISTENING.search(line):
                return found[1].decode()
        raise AssertionError(f"chromium did not start: {said.decode(errors='replace')}")

    async def _drain(self) -> None:
        assert self._program.stderr is not None
        async for _ in self._program.stderr:
            pass

    async def _listen(self) -> None:
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                answer = self._answers.pop(said["id"])
                if "error" in said:
                    answer.set_exception(AssertionError(said["error"]))
                else:
                    answer.set_result(said["result"])
            elif said["method"] == "Page.loadEventFired":
                self._loaded.set()
            elif said["method"] == "Log.entryAdded":
                self.complaints.append(said["params"]["entry"]["text"])
            elif said["method"] == "Runtime.exceptionThrown":
                self.complaints.append(said["params"]["exceptionDetails"]["text"])
