"""The console of a real graph in a real browser: an engine wakes, chats are answered, a sentence is spoken."""

import pytest

from tests.cluster.conftest import Server
from tests.console.panels import Panel
from tests.console.tabs import WATCH, Tab, browser
from tests.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.browser]

ENGINE = "chat-elsewhere"
"""It needs a Python of its own, and so starts for longer than the second between two looks of the feed."""
WITHIN_MS = 120_000

NOTE_STATES = """async (name) => {
  const { feed } = await import("./events.js");
  window.states = [feed.engines.get(name).state];
  feed.addEventListener("change", () => {
    const { state } = feed.engines.get(name);
    if (state !== states.at(-1)) states.push(state);
  });
}"""


async def ran(panel: Panel, said: str, **fields: str) -> None:
    """Runs a panel whose engine may have to start first."""
    for name, text in fields.items():
        await panel.field(name).fill(text)
    await panel.root.locator("button[type=submit]").click()
    await panel.expect(panel.status).to_contain_text(said, timeout=WITHIN_MS)


async def test_an_engine_wakes_before_one_s_eyes_and_the_panels_work(server: Server) -> None:
    eventually(lambda: server.replicas(ENGINE) == 0, 60, "an idle engine does not go to sleep")
    async with browser() as chromium:
        context = await chromium.new_context()
        context.set_default_timeout(WITHIN_MS)
        await context.add_init_script(WATCH)
        tab = Tab(await context.new_page(), server.url)
        await tab.log_in(server.key)
        name = tab.page.get_by_role("heading", name=ENGINE, exact=True)
        await tab.page.locator(".engine", has=name).locator("[data-state=cold]").wait_for()
        await tab.page.evaluate(NOTE_STATES, ENGINE)

        await tab.page.get_by_role("link", name="Try").click()
        chat = await Panel(tab, "chat").shown()
        await chat.field("model").select_option("elsewhere")
        await ran(chat, "Answered", user="say hello")
        await tab.page.wait_for_function("() => states.includes('ready')")
        assert (await tab.page.evaluate("states"))[:3] == ["cold", "starting", "ready"]

        await chat.press("New conversation")
        await chat.field("model").select_option("smollm2-135m-instruct")
        await ran(chat, "Answered", user="Name the capital of France.", temperature="0", max_tokens="32")
        assert "Paris" in await chat.output.inner_text()

        speech = await chat.go("speech")
        await ran(speech, "1 of 1 spoken", input="Good morning.")
        assert await speech.output.locator("audio").evaluate("sound => sound.duration") > 0.5
        assert (tab.faults, await tab.violations()) == ([], [])
