"""Search and reading of the documentation: what users ask finds the right page, and no query is an error."""

from __future__ import annotations

import asyncio
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deployments.ingress.mcp.documentation import ROOT, Documentation, sections

QUESTIONS = tomllib.loads((Path(__file__).parent / "docs_questions.toml").read_text("utf-8"))["found_in"]


@pytest.fixture(scope="module")
def documentation() -> Documentation:
    return Documentation()


async def test_nearly_nine_of_ten_questions_find_their_page_among_the_first_three(documentation: Documentation) -> None:
    missed = {}
    for question, places in QUESTIONS.items():
        found = [hit.id for hit in await documentation.search(question, 3)]
        if not any(id == place or id.startswith(f"{place}#") for id in found for place in places):
            missed[question] = found
    assert len(QUESTIONS) == 99
    assert len(missed) <= 11, missed


class Counted(ThreadPoolExecutor):
    """The threads that a process shares, and how often they were asked for."""

    asked = 0

    def submit(self, *arguments: Any, **options: Any) -> Any:
        self.asked += 1
        return super().submit(*arguments, **options)


async def test_searches_wait_for_each_other_and_take_no_thread_of_others(documentation: Documentation) -> None:
    shared = Counted(1)
    asyncio.get_running_loop().set_default_executor(shared)
    found = await asyncio.gather(*(documentation.search("keys", 3) for _ in range(40)), documentation.read("README.md"))
    assert all(found)
    assert shared.asked == 0


async def test_each_question_has_a_place_that_exists(documentation: Documentation) -> None:
    for question, places in QUESTIONS.items():
        assert [place for place in places if await documentation.read(place)], question


HOSTILE = (
    '"',
    "'",
    "''; DROP TABLE passages; --",
    "AND",
    "OR OR OR",
    "NOT chat",
    "NEAR(chat speech, 2)",
    "title:chat",
    "{title headings}: chat",
    "chat*",
    "^chat",
    "(chat",
    "a + b - c",
    "\0chat\0",
    "\\",
    "%",
    "_",
    "___",
    "…",
    "日本語",
    "e\u0301",
    "x" * 500,
    "a " * 250,
    "",
    "   ",
)


async def test_any_text_is_a_query(documentation: Documentation) -> None:
    for query in HOSTILE:
        assert len(await documentation.search(query, 3)) <= 3, query


async def test_words_of_the_query_language_are_words(documentation: Documentation) -> None:
    assert await documentation.search("NEAR(rerank", 1) == await documentation.search("near rerank", 1)


async def test_many_can_ask_at_once_also_the_first_time() -> None:
    fresh = Documentation()
    answers = await asyncio.gather(*(fresh.search("which voices are there", 3) for _ in range(50)))
    assert all(answer == answers[0] for answer in answers)


@pytest.mark.parametrize("count", [1, 2, 20])
async def test_a_section_is_found_once(documentation: Documentation, count: int) -> None:
    ids = [hit.id for hit in await documentation.search("model", count)]
    assert len(ids) == len(set(ids)) == count


async def test_what_is_found_can_be_read(documentation: Documentation) -> None:
    found = await documentation.search("chat speech decisions key model engine", 20)
    assert len(found) == 20
    for hit in found:
        text = await documentation.read(hit.id)
        assert text
        assert text in (await documentation.read(hit.id.partition("#")[0]) or "")


@pytest.mark.parametrize(
    "id", ["", "#", "docs/", "docs/api.md#", "../README.md", "/etc/passwd", "docs/../README.md", "pyproject.toml", "\0"]
)
async def test_only_pages_can_be_read(documentation: Documentation, id: str) -> None:
    assert await documentation.read(id) is None


async def test_pages_are_those_of_this_repository(documentation: Documentation) -> None:
    for page in ("README.md", "CHANGELOG.md", "docs/api.md", "docs/decisions/0003-haproxy.md"):
        assert await documentation.read(page) == (ROOT / page).read_text("utf-8")


async def test_a_place_without_pages_finds_nothing(tmp_path: Path) -> None:
    assert await Documentation(tmp_path).search("chat", 3) == []


def test_a_page_is_cut_at_its_headings_and_not_inside_code() -> None:
    page = "before\n# One\ntext\n```sh\n# no heading\n```\n## Two `x`\n### Three\n## Two `x`\n#no heading\n"
    assert [(section.headings, section.id) for section in sections("p.md", page)] == [
        (("p.md",), "p.md"),
        (("One",), "p.md#one"),
        (("One", "Two `x`"), "p.md#two-x"),
        (("One", "Two `x`", "Three"), "p.md#three"),
        (("One", "Two `x`"), "p.md#two-x-1"),
    ]
