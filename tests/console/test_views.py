"""Views graph, requests and usage: in both themes, on a narrow page, with nothing to show, with hostile names."""

import pytest
from sqlalchemy import update

from contract.telemetry import EngineState
from state.accounts import organisations
from state.database.tables import api_keys
from tests.console.conftest import OpenTab
from tests.console.stage import Stage
from tests.console.tabs import Tab

VIEWS = {"graph": ".engine", "requests": ".requests tbody tr", "usage": ".usage-bars"}

HOSTILE = ("<img src=x onerror=alert(1)>", "javascript:alert(1)", "\u202eevil\u2066\u200f", "n" * 10_000)


async def use(stage: Stage, key: str) -> str:
    stage.api.everything = key
    engine = stage.engines["chat-obedient"]
    engine.show(EngineState.BUSY, used=2, waiting=3)
    stage.engines["chat-other"].show(EngineState.FAILED, slots=0)
    engine.load_s, engine.behind = 0.2, 3
    waited: str = (await stage.api.chat()).headers["x-request-id"]
    engine.load_s = 0.0
    await stage.api.chat("fail")
    await stage.api.chat("refuse")
    return waited


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_every_view_is_for_everybody(open_tab: OpenTab, stage: Stage, key: str, theme: str, width: int) -> None:
    waited = await use(stage, key)
    tab = await open_tab(theme=theme, width=width)
    await tab.page.goto(f"{tab.url}/console/")
    await tab.page.locator("#key").wait_for()
    assert await tab.barriers() == []
    await tab.log_in(key)
    for view, sign in VIEWS.items():
        await tab.page.goto(f"{tab.url}/console/#{view}")
        await tab.page.locator(sign).first.wait_for()
        assert (await tab.overflow(), await tab.barriers()) == ([], []), view
    await tab.page.goto(f"{tab.url}/console/#requests/{waited}")
    await tab.page.locator(".waterfall").wait_for()
    assert (await tab.overflow(), await tab.barriers()) == ([], [])


EDGES = """() => [...document.querySelectorAll(".engine")].map((card, number) => {
  card.querySelector("h2 .name").textContent = (number % 2 ? "a-long-name " : "name").repeat(20);
  const inner = card.getBoundingClientRect().right - parseFloat(getComputedStyle(card).paddingRight);
  const parts = [...card.querySelectorAll("header *, .facts *")];
  return Math.max(...parts.map((part) => part.getBoundingClientRect().right)) - inner;
})"""
"""By how many pixels the state and the numbers of each card, with a long name, stand beyond its right edge."""
LINES = """() => ["label.field", "input:not([type=checkbox]), select, button, .check"].map((parts) => [...new Set(
  [...document.querySelectorAll("form[aria-label=Filters]")].flatMap((form) => [...form.querySelectorAll(parts)])
    .map((part) => part.getBoundingClientRect()).flatMap(({ top, bottom }) => [top, bottom].map(Math.round)))])"""
"""Upper and lower edges of the labels of the filters, and of their fields and buttons."""


@pytest.mark.parametrize("width", [1280, 1000, 360])
async def test_what_belongs_together_is_on_one_line(open_tab: OpenTab, stage: Stage, key: str, width: int) -> None:
    for engine in stage.engines.values():
        engine.show(EngineState.STARTING, slots=0)
    tab = await open_tab(width=width)
    await tab.log_in(key)
    await tab.page.locator(".engine .badge").first.wait_for()
    assert max(await tab.page.evaluate(EDGES)) <= 0
    await tab.page.goto(f"{tab.url}/console/#requests")
    await tab.page.get_by_label("Outcome").wait_for()
    labels, fields = await tab.page.evaluate(LINES)
    assert len(labels) == 2
    assert len(fields) == (2 if width > 400 else 4)


async def test_a_request_says_why_it_waited(tab: Tab, stage: Stage, key: str) -> None:
    waited = await use(stage, key)
    await tab.log_in(key, "requests")
    await tab.page.get_by_label("Request id").fill(waited)
    await tab.page.keyboard.press("Enter")
    text = await tab.page.locator(".lead").inner_text()
    assert text.startswith("It waited ")
    assert "for chat-obedient to load, behind 3 others." in text
    assert await tab.page.locator(".waterfall tbody .phase").count() == 4


async def test_requests_are_filtered_by_model_and_outcome(tab: Tab, stage: Stage, key: str) -> None:
    await use(stage, key)
    await tab.log_in(key, "requests")
    await tab.page.locator(".requests tbody tr").first.wait_for()
    await tab.page.get_by_label("Outcome").select_option("refused")
    await tab.page.locator(".requests tbody tr[data-outcome=ok]").first.wait_for(state="detached")
    assert await tab.page.locator(".requests tbody tr").count() == 1
    await tab.page.get_by_label("Model").fill("another")
    await tab.page.keyboard.press("Enter")
    await tab.page.get_by_text("Clear the filters").wait_for()


async def test_where_there_is_nothing_the_page_says_what_to_do(tab: Tab, key: str) -> None:
    await tab.log_in(key, "requests")
    await tab.page.get_by_text("No request to a model has come yet.").wait_for()
    await tab.page.goto(f"{tab.url}/console/#usage")
    await tab.page.get_by_text("Nothing was used in this time.").wait_for()
    await tab.page.get_by_text("There is no limit.").wait_for()
    await tab.page.goto(f"{tab.url}/console/#requests/req_{'0' * 32}")
    await tab.page.get_by_role("alert").filter(has_text="has no request").wait_for()


@pytest.mark.parametrize("name", HOSTILE, ids=["markup", "program", "direction", "long"])
async def test_names_of_others_stay_text(open_tab: OpenTab, stage: Stage, name: str) -> None:
    await stage.api.organisation("other")
    key = await stage.key(org="other")

    def rename(connection: object) -> None:
        organisations.change(connection, "other", {"name": name})  # type: ignore[arg-type]
        connection.execute(update(api_keys).values(label=name))  # type: ignore[attr-defined]

    await stage.service.state.database.run(rename)
    tab = await open_tab(width=360)
    await tab.log_in(key, "usage")
    await tab.page.locator("th[scope=row]").first.wait_for()
    visible = name.replace("\u202e", "[U+202E]").replace("\u2066", "[U+2066]").replace("\u200f", "[U+200F]")
    label = await tab.page.locator("tbody td bdi").first.text_content()
    assert label == (visible if len(visible) < 200 else visible[:200] + "…")
    assert await tab.page.locator("main img, main a[href^=javascript]").count() == 0
    assert await tab.overflow() == []
