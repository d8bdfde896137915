"""The feed in the page: cut, refused, with states of a newer server, and what a screen reader is told of it."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from contract.telemetry import EngineState
from state.accounts import api_keys
from tests.console.conftest import OpenTab
from tests.console.stage import Stage
from tests.console.tabs import Tab
from tests.console.wire import wired
from tests.waiting import until

ENGINE = "chat-obedient"

NOTE_RUNS = """async () => {
  const { Timeline } = await import("./timeline.js");
  const add = Timeline.prototype.add;
  window.runs = new Map();
  Timeline.prototype.add = function (run) {
    runs.set(this, [...(runs.get(this) ?? []), run]);
    add.call(this, run);
  };
}"""
KNOWS = """async ([name, past]) => {
  const { feed } = await import("./events.js");
  return JSON.stringify(runs.get(feed.engines.get(name).timeline)) === past;
}"""
NOTE_SAYINGS = """() => {
  window.sayings = [];
  const place = document.querySelector("graph-view [role=status]");
  new MutationObserver(() => sayings.push(place.textContent)).observe(place, { childList: true, characterData: true });
}"""


def card(tab: Tab) -> Any:
    return tab.page.locator(".engine", has=tab.page.get_by_role("heading", name=ENGINE, exact=True))


async def follows(tab: Tab, stage: Stage, state: EngineState) -> None:
    """Shows a state, and waits until the page and the band of the server have it."""
    stage.engines[ENGINE].show(state)
    await card(tab).locator(f"[data-state={state.value}]").wait_for()
    await until(lambda: stage.console.feed.past()[ENGINE][-1][1] == state.value)


@pytest.mark.parametrize("after", [0, 1, 60, 300])
async def test_a_feed_that_is_cut_goes_on_where_it_was(open_tab: OpenTab, stage: Stage, key: str, after: int) -> None:
    async with wired(stage.url) as wire:
        tab = await open_tab()
        tab.url = wire.url
        asked: list[str | None] = []
        tab.page.on(
            "request",
            lambda request: (
                request.url.endswith("/console/events") and asked.append(request.headers.get("last-event-id"))
            ),
        )
        await tab.page.goto(f"{tab.url}/console/")
        await tab.page.evaluate(NOTE_RUNS)
        await tab.log_in(key)
        await follows(tab, stage, EngineState.STARTING)
        wire.cut(after)
        await follows(tab, stage, EngineState.FAILED)
        await follows(tab, stage, EngineState.COLD)
        await until(lambda: len(asked) > 1)
        await follows(tab, stage, EngineState.STARTING)
        past = json.dumps(stage.console.feed.past()[ENGINE], separators=(",", ":"))
        await tab.page.wait_for_function(KNOWS, arg=[ENGINE, past])
        assert asked[0] is None
        assert all(asked[1:])


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
