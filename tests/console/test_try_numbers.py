"""The playground's panels of numbers: bars, a map, an order, and what the documentation has."""

from __future__ import annotations

import pytest

from contract.catalog import Catalog
from tests.console import engines
from tests.console.panels import HOSTILE, Panel
from tests.console.tabs import Tab

pytestmark = pytest.mark.browser


@pytest.fixture
def catalog() -> Catalog:
    return engines.catalog()


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
