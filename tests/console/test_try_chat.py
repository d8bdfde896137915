"""The playground's chat: what streams is shown as it comes, counted, and goes back with the next message."""

from __future__ import annotations

import json
import re

import pytest

from contract.catalog import Catalog
from tests.console import engines
from tests.console.panels import HOSTILE, Panel
from tests.console.tabs import Tab

pytestmark = pytest.mark.browser

WEATHER = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
STATUS = '{"type":"queue_status","choices":[],"position":3,"of":7,"eta_ms":4200,"why":"queue"}'
EVENTS = f"event: queue_status\ndata: {STATUS}\n\n"


@pytest.fixture
def catalog() -> Catalog:
    return engines.catalog()


@pytest.fixture
async def panel(tab: Tab, key: str) -> Panel:
    return await Panel.open(tab, key, "chat")


async def test_an_answer_streams_and_the_next_message_brings_it_back(panel: Panel) -> None:
    await panel.run(re.compile(r"Answered with 2 tokens; the first came after \d+ ms"), user="echo hello there")
    await panel.expect(panel.output.locator(".turn.assistant .text")).to_have_text("hello there ")
    await panel.expect(panel.output.locator(".facts").first).to_contain_text("7 read, 2 written")
    await panel.expect(panel.field("user")).to_have_value("")
    await panel.field("user").fill("echo again")
    sent = await panel.call_to_copy("curl")
    assert re.findall(r'"role": "(\w+)"', sent) == ["user", "assistant", "user"]
    assert '"content": "hello there "' in sent
    await panel.press("New conversation")
    await panel.expect(panel.output.locator(".turn")).to_have_count(0)


async def test_a_word_is_shown_before_the_last_one_has_come_and_stop_ends_it(panel: Panel) -> None:
    await panel.run("Working", user="slow one two three four five six seven eight nine")
    await panel.expect(panel.output.locator(".turn.assistant .text")).to_contain_text("one")
    await panel.press("Stop")
    await panel.says("Stopped.")
    await panel.expect(panel.output.locator(".turn.assistant")).to_contain_text("broke off")
    assert "nine" not in await panel.output.locator(".turn.assistant .text").inner_text()
    assert len(json.loads((await panel.call_to_copy("curl")).partition("-d '")[2][:-1])["messages"]) == 1


async def test_tokens_are_shaded_by_their_probability_with_a_table(panel: Panel) -> None:
    await panel.field("logprobs").check()
    await panel.run("Answered", user="echo certain half quarter eighth")
    shades = panel.output.locator(".text span")
    assert [await shades.nth(index).get_attribute("class") for index in range(4)] == ["p0", "p2", "p3", "p4"]
    await panel.output.locator("summary", has_text="as a table").click()
    await panel.expect(panel.output.locator("tbody tr").nth(1)).to_contain_text("50.0 %")


async def test_calls_of_tools_are_shown_and_their_results_go_back(panel: Panel) -> None:
    await panel.open_more()
    await panel.run("and 1 call of tools", user="echo what weather", tools=json.dumps(WEATHER))
    await panel.expect(panel.output.locator("pre")).to_have_text('{"city": "Paris"}')
    await panel.output.get_by_label("Result of weather").fill("sunny")
    sent = await panel.call_to_copy("curl")
    assert '"tool_call_id": "call_1"' in sent
    assert '"content": "sunny"' in sent


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "JSON schema of the answer: this is not JSON"),
        ('{"$ref": "#"}', "It failed: the JSON schema in `response_format` has a `$ref` to `#`"),
    ],
)
async def test_a_wrong_schema_is_said(panel: Panel, schema: str, said: str) -> None:
    await panel.open_more()
    await panel.run(said, user="echo x", schema=schema)


async def test_an_error_shows_sentence_code_and_a_button_that_waits(panel: Panel) -> None:
    await panel.run("It failed:", user="busy")
    fault = panel.root.locator(".error")
    await panel.expect(fault).to_contain_text("429")
    again = fault.get_by_role("button")
    await panel.expect(again).to_have_text(re.compile(r"Try again in \d+ s"))
    await panel.expect(again).to_be_disabled()
    link = await fault.get_by_role("link").get_attribute("href")
    assert re.fullmatch(r"#requests/req_\w+", link or "")
    await panel.field("user").fill("echo better now")
    await panel.expect(again).to_be_enabled()
    await again.click()
    await panel.says("Answered")
    await panel.expect(panel.output.locator(".turn.assistant")).to_contain_text("better now")


async def test_a_stream_that_waits_tells_its_place(panel: Panel) -> None:
    async def wait(route: object) -> None:
        await route.fulfill(body=EVENTS, headers={"content-type": "text/event-stream"})  # type: ignore[attr-defined]

    places: list[str] = []
    await panel.page.expose_function("placed", lambda text: places.append(text))
    await panel.page.evaluate(
        """() => new MutationObserver(() => placed(document.querySelector('.status + p').textContent))
                   .observe(document.querySelector('.status + p'), {childList: true})"""
    )
    await panel.page.route("**/v1/chat/completions", wait)
    await panel.run("Answered", user="echo x")
    assert places[0] == "Position 3 of 7, about 4.2 s"


async def test_what_a_model_writes_is_text(panel: Panel) -> None:
    await panel.run("Answered", user=f"echo {HOSTILE}")
    await panel.expect(panel.output.locator(".turn.assistant .text")).to_contain_text(HOSTILE)
    assert await panel.markup() == 0


async def test_headers_of_a_reply_lead_to_its_request_and_tell_what_was_billed(panel: Panel) -> None:
    await panel.run("Answered", user="echo hello there")
    facts = panel.output.locator("details", has_text="Headers and cost")
    await facts.locator("summary").click()
    await panel.expect(facts).to_contain_text(re.compile(r"engine \d+ ms"))
    await panel.expect(facts).to_contain_text("€0.000011")
    await facts.get_by_role("link").click()
    await panel.expect(panel.page.get_by_role("heading", name="Requests", level=1)).to_be_visible()
