"""The playground's chat: what streams is shown as it comes, counted, and goes back; its numbers."""

import json
import re

import pytest

from tests.console.engines import catalog
from tests.console.panels import HOSTILE, Panel
from tests.console.tabs import Tab

__all__ = ["catalog"]
WEATHER = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
STATUS = '{"type":"queue_status","choices":[],"position":3,"of":7,"eta_ms":4200,"why":"queue"}'
EVENTS = f"event: queue_status\ndata: {STATUS}\n\n"


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


async def cells(panel: Panel, column: int) -> list[str]:
    texts: list[str] = await panel.output.locator(f"tbody tr > :nth-child({column})").all_inner_texts()
    return texts


async def test_bars_of_a_decision_sum_to_one_and_the_threshold_decides(tab: Tab, key: str) -> None:
    panel = await Panel.open(tab, key, "decisions")
    await panel.run("Most likely: billing.")
    shares = [float(text.removesuffix(" %")) for text in await cells(panel, 3)]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    widths = [await bar.get_attribute("width") for bar in await panel.output.locator("rect.fill").all()]
    assert [round(float(width.removesuffix("%")), 1) for width in widths] == shares
    await panel.expect(panel.output.locator(".verdict")).to_have_text("Withheld: below threshold.")
    await panel.output.get_by_label("Threshold").fill("0.5")
    await panel.expect(panel.output.locator(".verdict")).to_have_text("Decided: billing.")


@pytest.mark.parametrize(
    ("kind", "answers", "said"),
    [("score", "bad\nmiddling\ngood", "Most likely: bad."), ("binary", "it is\nit is not", "Most likely: true.")],
)
async def test_scores_and_statements_are_decided_too(tab: Tab, key: str, kind: str, answers: str, said: str) -> None:
    panel = await Panel.open(tab, key, "decisions")
    await panel.field("type").select_option(kind)
    await panel.run(said, options=answers)


async def test_a_pack_of_questions_stands_in_for_ones_own(tab: Tab, key: str) -> None:
    panel = await Panel.open(tab, key, "decisions")
    await panel.field("preset").select_option("colour-v1")
    await panel.expect(panel.field("instructions")).to_be_hidden()
    await panel.run("Most likely: red.", state="The sky.")


async def test_options_are_text_and_the_servers_sentence_is_shown(tab: Tab, key: str) -> None:
    panel = await Panel.open(tab, key, "decisions")
    await panel.run("Most likely: <img src=x onerror=alert(1)> javascript", options=f"{HOSTILE}\nother")
    assert await panel.markup() == 0
    await panel.run("It failed: `questions", options="alone")


async def test_lines_become_points_of_a_map(tab: Tab, key: str) -> None:
    panel = await Panel.open(tab, key, "embeddings")
    await panel.run("4 texts, 4 dimensions", input=f"aaaa\naaaa b\nzzzz\n{HOSTILE}")
    points = panel.output.locator("g.point circle")
    await panel.expect(points).to_have_count(4)
    at = [[float(await point.get_attribute(axis) or 0) for axis in ("cx", "cy")] for point in await points.all()]
    assert all(0 <= x <= 640 and 0 <= y <= 360 for x, y in at)
    distance = [abs(at[0][0] - at[i][0]) + abs(at[0][1] - at[i][1]) for i in (1, 2)]
    assert distance[0] < distance[1]
    similar = panel.output.locator("table", has_text="Similarities").locator("tbody tr").first
    await panel.expect(similar).to_contain_text("1.00")
    assert await panel.markup() == 0


async def test_documents_are_sorted_with_bars(tab: Tab, key: str) -> None:
    panel = await Panel.open(tab, key, "rerank")
    await panel.run("3 documents sorted: the best has index 2.", documents=f"a\nbb\n{HOSTILE}")
    assert await cells(panel, 2) == ["2", "1", "0"]
    widths = [await bar.get_attribute("width") for bar in await panel.output.locator("rect.fill").all()]
    assert widths[0] == "100.00%"
    assert await panel.markup() == 0


async def test_the_documentation_is_searched_and_read(tab: Tab, key: str) -> None:
    panel = await Panel.open(tab, key, "documentation")
    await panel.run("5 sections found.", query="budget of an organisation")
    await panel.output.get_by_text("Read", exact=True).first.click()
    await panel.expect(panel.output.locator("pre").first).to_contain_text("budget")
    await panel.run("It failed:", query="x" * 600)
