"""The frame of the console: log in, change view, lose the server and get it back."""

from __future__ import annotations

from tests.console.stage import Stage
from tests.console.tabs import Tab


async def test_a_key_opens_the_graph(tab: Tab, key: str) -> None:
    await tab.log_in(key)
    await tab.page.get_by_role("heading", name="chat-obedient").wait_for()
    await tab.page.screenshot(path="/tmp/one.png", full_page=True)
