"""The browser, a tab that remembers what went wrong in it, and what goes over its wire."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tests.waiting import until

PACKAGES = Path(os.environ.get("PLAYWRIGHT", ROOT / ".venv/browser"))
AXE = Path(__file__).parent / "node_modules/axe-core/axe.min.js"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

# Violations are counted in the page; `violations` is read when the tab is closed.
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""
REPLY_WITH_ERROR = "Failed to load resource"
"""What the browser's console says of every status from 400 on."""


def needed(thing: object, reason: str) -> None:
    if not thing:
        pytest.skip(reason)


def playwright() -> Any:
    needed(CHROMIUM, "needs Chromium: install the package chromium")
    needed((PACKAGES / "playwright").is_dir(), "needs Playwright: run `make setup-browser`")
    if str(PACKAGES) not in sys.path:
        sys.path.append(str(PACKAGES))
    from playwright import async_api  # type: ignore[import-not-found,unused-ignore]

    return async_api


@asynccontextmanager
async def browser(*flags: str) -> AsyncIterator[Any]:
    async with playwright().async_playwright() as driver:
        chromium = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *flags])
        yield chromium
        await chromium.close()


class Tab:
    """A tab with the console.

    Attributes:
        page: Playwright's.
        faults: uncaught errors and lines of the browser's console.
    """

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self.faults: list[str] = []
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._note)

    def _note(self, message: Any) -> None:
        if message.type == "error" and REPLY_WITH_ERROR not in message.text:
            self.faults.append(message.text)

    async def log_in(self, key: str, view: str = "graph", *, remember: bool = False) -> None:
        await self.page.goto(f"{self.url}/console/#{view}")
        await self.page.get_by_label("Key", exact=True).fill(key)
        if remember:
            await self.page.get_by_label("Remember it").check()
        await self.page.keyboard.press("Enter")
        await self.page.locator("nav a[aria-current=page]").wait_for()

    async def violations(self) -> list[str]:
        found: list[str] = await self.page.evaluate("window.violations ?? []")
        return found

    async def overflow(self) -> list[str]:
        """What reaches beyond the right edge of the page; empty if nothing makes it scroll sideways."""
        wide: list[str] = await self.page.evaluate(
            """() => document.documentElement.scrollWidth <= document.documentElement.clientWidth ? [] :
                 [...document.querySelectorAll("body *")]
                   .filter((node) => node.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
                   .map((node) => `${node.localName}.${node.getAttribute("class")}`)"""
        )
        return wide

    async def barriers(self) -> list[str]:
        """What axe holds against the page for people who see or hear it otherwise, or use a keyboard."""
        needed(AXE.is_file(), "needs axe-core: run `make setup-browser` where there is npm")
        await self.page.evaluate(AXE.read_text("utf-8"))
        result: Any = await self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            json.dumps([rule["id"], rule["help"], [node["html"][:200] for node in rule["nodes"]][:3]])
            for rule in result["violations"]
        ]


PIECE_BYTES = 65_536


class Wire:
    """Passes bytes on, both ways, at an address of its own.

    Attributes:
        url: its address, without a slash at its end.
    """

    def __init__(self, url: str) -> None:
        self._host, _, self._port = url.removeprefix("http://").partition(":")
        self.url = ""
        self._left: dict[asyncio.StreamWriter, int] = {}
        """Bytes that each open connection may still bring to the browser; of cut ones only."""
        self._passing: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        """Tasks that pass bytes on to each browser."""

    def cut(self, after: int) -> None:
        """Ends each connection that is open now after so many more bytes to the browser. New ones are whole."""
        for browser, passing in self._passing.items():
            self._left[browser] = after
            if not after:
                passing.cancel()

    async def connect(self, reader: asyncio.StreamReader, browser: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_connection(self._host, int(self._port))
        asking = asyncio.create_task(self._pass(reader, server))
        passing = self._passing[browser] = asyncio.create_task(self._pass(answers, browser))
        await asyncio.wait([passing])
        del self._passing[browser]
        self._left.pop(browser, None)
        asking.cancel()
        await asyncio.wait([asking])
        for end in (browser, server):
            end.close()
            with suppress(ConnectionError):
                await end.wait_closed()

    async def close(self) -> None:
        self.cut(0)
        await until(lambda: not self._passing)

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while piece := await source.read(PIECE_BYTES):
                left = self._left.get(target, len(piece))
                target.write(piece[:left])
                if target in self._left:
                    self._left[target] = left - len(piece)
                if left < len(piece):
                    return


@asynccontextmanager
async def wired(url: str) -> AsyncIterator[Wire]:
    wire = Wire(url)
    async with await asyncio.start_server(wire.connect, "127.0.0.1", 0) as server:
        wire.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield wire
        await wire.close()
