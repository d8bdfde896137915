"""The browser, and a tab that remembers what went wrong in it."""

import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT

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
