"""The frame of the console: log in, change view by keyboard, lose the server and get it back; its feed."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from contract.telemetry import EngineState
from deployments.ingress.console.bundle import PAGE
from state.accounts import api_keys
from tests.console.conftest import OpenTab
from tests.console.stage import Stage
from tests.console.tabs import Tab
from tests.relay import Relay
from tests.waiting import until

FOLLOWS_MS = 2_000
"""Within which the picture follows the graph."""

WRONG_KEY = "prl_" + "x" * 40


async def test_a_wrong_key_gets_the_server_s_own_sentence(tab: Tab, stage: Stage) -> None:
    reply = await stage.api.send("GET", "/v1/me", key=WRONG_KEY)
    await tab.page.goto(f"{tab.url}/console/")
    await tab.page.get_by_label("Key", exact=True).fill(WRONG_KEY)
    await tab.page.keyboard.press("Enter")
    await tab.page.get_by_role("alert").filter(has_text=reply.json()["error"]["message"]).wait_for()


async def test_the_console_is_used_by_keyboard_alone(tab: Tab, stage: Stage, key: str) -> None:
    stage.api.everything = key
    request_id = (await stage.api.chat()).headers["x-request-id"]
    await tab.page.goto(f"{tab.url}/console/")
    await tab.page.locator("#key:focus").wait_for()
    await tab.page.keyboard.type(key)
    await tab.page.keyboard.press("Enter")
    await tab.page.locator("graph-view").wait_for()
    await reach(tab, "Requests")
    await tab.page.keyboard.press("Enter")
    await tab.page.locator(f"[href='#requests/{request_id}']").wait_for()
    while not await tab.page.evaluate("document.activeElement.hash?.startsWith('#requests/')"):
        await tab.page.keyboard.press("Tab")
    await tab.page.keyboard.press("Enter")
    await tab.page.locator(".detail h2:focus").wait_for()


async def reach(tab: Tab, text: str) -> None:
    for _ in range(40):
        await tab.page.keyboard.press("Tab")
        if await tab.page.evaluate("document.activeElement.textContent") == text:
            return
    raise AssertionError(f"no Tab reaches {text}")


async def test_the_key_is_in_no_address_and_is_stored_only_when_that_is_ticked(open_tab: OpenTab, key: str) -> None:
    for remembers in (False, True):
        tab = await open_tab()
        addresses: list[str] = []
        tab.page.on("request", lambda request, seen=addresses: seen.append(request.url))
        await tab.log_in(key, remember=remembers)
        await tab.page.get_by_role("link", name="Usage").click()
        await tab.page.locator(".budget p").first.wait_for()
        stored = await tab.page.evaluate("[JSON.stringify(localStorage), JSON.stringify(sessionStorage)]")
        assert key not in stored[0]
        assert (key in stored[1]) is remembers
        assert not [address for address in [*addresses, tab.page.url] if key in address]
        await tab.page.reload()
        await tab.page.locator("usage-view" if remembers else "#key").wait_for()


async def test_several_tabs_follow_an_engine_at_once(open_tab: OpenTab, stage: Stage, key: str) -> None:
    first = await open_tab()
    tabs = [first, *[await open_tab(context=first.page.context) for _ in range(3)]]
    for tab in tabs:
        await tab.log_in(key)
        await card(tab).wait_for()
    for state in (EngineState.COLD, EngineState.READY, EngineState.COLD, EngineState.STARTING):
        stage.engines[ENGINE].show(state)
        for tab in tabs:
            await card(tab).locator(f"[data-state={state.value}]").wait_for(timeout=FOLLOWS_MS)


async def test_the_page_recovers_when_the_server_is_killed_and_comes_back(tab: Tab, stage: Stage, key: str) -> None:
    await tab.log_in(key)
    await tab.page.locator(".engine").first.wait_for()
    await stage.stop()
    await tab.page.locator(".banner .note").wait_for()
    stage.engines["chat-obedient"].show(EngineState.FAILED)
    await stage.start()
    await tab.page.locator("[data-state=failed]").wait_for()
    await tab.page.locator(".banner:empty").wait_for(state="attached")


async def test_a_page_of_before_an_upgrade_offers_to_reload(tab: Tab, stage: Stage, key: str) -> None:
    await tab.log_in(key, remember=True)
    await tab.page.locator(".engine").first.wait_for()
    await stage.stop()
    await tab.page.locator(".banner .note").wait_for()
    await stage.start()
    bundle = stage.console.bundle
    stage.console.bundle = bundle | {PAGE: replace(bundle[PAGE], digest="of-the-next-version")}
    await tab.page.get_by_role("button", name="Reload").click()
    await tab.page.locator(".engine").first.wait_for()
    assert await tab.page.locator(".banner").is_hidden()


async def test_a_cache_that_mixes_modules_of_two_versions_is_left_by_one_reload(tab: Tab, key: str) -> None:
    await tab.page.route("**/console/format.js", old_module, times=1)
    await tab.log_in(key)
    await tab.page.locator(".engine").first.wait_for()
    assert await tab.page.evaluate("sessionStorage.length") == 0


async def test_a_page_whose_files_are_not_whole_says_so_and_stays(tab: Tab) -> None:
    loads: list[str] = []
    tab.page.on("domcontentloaded", lambda page: loads.append(page.url))
    await tab.page.route("**/console/format.js", old_module)
    await tab.page.goto(f"{tab.url}/console/")
    await tab.page.get_by_role("alert").filter(has_text="The console could not start").wait_for()
    await tab.page.wait_for_load_state("networkidle")
    assert len(loads) == 2
    assert [fault for fault in tab.faults if "does not provide an export" not in fault] == []
    tab.faults.clear()


async def old_module(route: Any) -> None:
    await route.fulfill(content_type="text/javascript", body="export const other = 1;")


ENGINE = "chat-obedient"

KNOWS = """async ([name, sinceMs]) => {
  const { feed } = await import("./events.js");
  return feed.engines.get(name).timeline.sinceMs === sinceMs;
}"""
NOTE_SAYINGS = """() => {
  window.sayings = [];
  const place = document.querySelector("graph-view [role=status]");
  new MutationObserver(() => sayings.push(place.textContent)).observe(place, { childList: true, characterData: true });
}"""


def card(tab: Tab) -> Any:
    return tab.page.locator(".engine", has=tab.page.get_by_role("heading", name=ENGINE, exact=True))


async def follows(tab: Tab, stage: Stage, state: EngineState) -> None:
    stage.engines[ENGINE].show(state)
    await card(tab).locator(f"[data-state={state.value}]").wait_for()
    await until(lambda: stage.console.feed.past()[ENGINE][-1][1] == state.value)


@pytest.mark.parametrize("after", [0, 1, 60, 300])
async def test_a_feed_that_is_cut_goes_on_where_it_was(open_tab: OpenTab, stage: Stage, key: str, after: int) -> None:
    async with Relay(int(stage.url.rpartition(":")[2])) as relay:
        tab = await open_tab()
        tab.url = f"http://127.0.0.1:{relay.port}"
        asked: list[str] = []
        tab.page.on("request", lambda request: asked.append(request.url))
        await tab.page.goto(f"{tab.url}/console/")
        await tab.log_in(key)
        await follows(tab, stage, EngineState.STARTING)
        relay.cut(after)
        await follows(tab, stage, EngineState.FAILED)
        await follows(tab, stage, EngineState.COLD)
        await until(lambda: sum(url.endswith("/console/events") for url in asked) > 1)
        await follows(tab, stage, EngineState.STARTING)
        since_ms = stage.console.feed.past()[ENGINE][-1][0]
        await tab.page.wait_for_function(KNOWS, arg=[ENGINE, since_ms])


async def test_a_key_that_is_revoked_ends_the_feed_with_a_word(tab: Tab, stage: Stage, key: str) -> None:
    await tab.log_in(key)
    await card(tab).wait_for()
    public_id, now_s = key.split("_")[1], int(time.time())
    await stage.service.state.database.run(lambda connection: api_keys.revoke(connection, public_id, now_s))
    await tab.page.get_by_role("button", name="Log in again").click()
    await tab.page.locator("#key:focus").wait_for()
    assert await tab.page.locator(".engine").count() == 0


async def test_a_state_of_a_newer_server_is_shown_by_its_word(tab: Tab, stage: Stage, key: str) -> None:
    await tab.log_in(key)
    await card(tab).wait_for()
    stage.engines[ENGINE].show(SimpleNamespace(value="dozing"))  # type: ignore[arg-type]
    await card(tab).locator("[data-state=dozing]", has_text="dozing").wait_for()
    await tab.page.get_by_text("1 dozing", exact=False).wait_for()
    await card(tab).locator("summary").click()
    await card(tab).locator("tbody td", has_text="dozing").wait_for()
    assert await tab.barriers() == []


async def test_a_screen_reader_hears_once_of_each_change_that_matters(tab: Tab, stage: Stage, key: str) -> None:
    await tab.log_in(key)
    await card(tab).wait_for()
    await tab.page.evaluate(NOTE_SAYINGS)
    news = tab.page.locator("graph-view [role=status]")
    await follows(tab, stage, EngineState.STARTING)
    await news.filter(has_text=f"{ENGINE} is starting").wait_for(state="attached")
    await follows(tab, stage, EngineState.READY)
    await news.filter(has_text=f"{ENGINE} is ready").wait_for(state="attached")
    for state in 2 * (EngineState.BUSY, EngineState.READY):
        stage.engines[ENGINE].show(state)
        await card(tab).locator(f"[data-state={state.value}]").wait_for()
    stage.engines["chat-other"].show(EngineState.FAILED)
    await news.filter(has_text="chat-other is failed").wait_for(state="attached")
    sayings = await tab.page.evaluate("sayings")
    assert sayings == [f"{ENGINE} is starting", f"{ENGINE} is ready", "chat-other is failed"]


@pytest.mark.parametrize(
    "hash_", ["%", "requests/%E0%A4%A", "requests/<img src=x onerror=alert(1)>", "javascript:alert(1)"]
)
async def test_an_address_that_others_made_opens_the_page(tab: Tab, key: str, hash_: str) -> None:
    await tab.log_in(key, hash_)
    await tab.page.locator("main h1").wait_for()
    assert await tab.page.locator("main img").count() == 0
