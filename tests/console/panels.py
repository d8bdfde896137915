"""A panel of the view `try`, as one uses it."""

from __future__ import annotations

import re
from typing import Any

from tests.console.tabs import Tab, playwright

PANELS = ("chat", "speech", "transcription", "design", "decisions", "embeddings", "rerank", "documentation")

HOSTILE = "<img src=x onerror=alert(1)> javascript:alert(1) \u202eevil"
"""What a model, a voice or a file may be called: markup, a program as an address, a mark that turns writing."""

WITHIN_MS = 15_000
"""How long a run may take on a machine that is busy with other things."""


class Panel:
    """One panel in a tab.

    Attributes:
        root: its element.
        status: what it says of its last run.
    """

    def __init__(self, tab: Tab, name: str) -> None:
        self.tab, self.page, self.name = tab, tab.page, name
        self.root = self.page.locator(f"section[aria-labelledby=try-{name}]")
        self.status = self.root.locator(".status")
        self.output = self.root.locator(".output")

    @classmethod
    async def open(cls, tab: Tab, key: str, name: str) -> Panel:
        await tab.log_in(key, f"try/{name}")
        return await cls(tab, name).shown()

    async def shown(self) -> Panel:
        await self.root.wait_for()
        await self.expect(self.root.locator("option", has_text="reading the list")).to_have_count(0)
        if self.name == "speech":
            await self.root.locator(".voice").first.wait_for()
        return self

    async def go(self, name: str) -> Panel:
        await self.page.get_by_role("navigation", name="Routes").get_by_role("link").nth(PANELS.index(name)).click()
        return await Panel(self.tab, name).shown()

    def expect(self, locator: Any) -> Any:
        return playwright().expect(locator)

    def field(self, name: str) -> Any:
        return self.root.locator(f"#try-{self.name}-{name}")

    async def open_more(self) -> None:
        await self.root.locator("summary", has_text="More fields").click()

    async def run(self, said: str | re.Pattern[str], **fields: str) -> None:
        for name, text in fields.items():
            await self.field(name).fill(text)
        await self.root.locator("button[type=submit]").click()
        await self.says(said)

    async def says(self, said: str | re.Pattern[str]) -> None:
        await self.expect(self.status).to_contain_text(said, timeout=WITHIN_MS)

    async def press(self, name: str) -> None:
        await self.root.get_by_role("button", name=name, exact=True).click()

    async def call_to_copy(self, language: str) -> str:
        part = self.root.locator("details:has(.code)")
        if await part.get_attribute("open") is None:
            await part.locator("summary").click()
        await part.get_by_role("button", name=language, exact=True).click()
        text: str = await part.locator("code").inner_text()
        return text

    async def markup(self) -> int:
        """How many elements the panel has that only markup of others could have made."""
        return int(await self.root.locator("img, script, iframe, [onerror], a[href^='javascript']").count())
