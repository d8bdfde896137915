"""Search: POST /embeddings, POST /rerank, and the documentation, of which any text finds the right page."""

import asyncio
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from deployments.ingress.mcp.documentation import ROOT, Documentation, sections
from tests.api.conftest import Api, refused


async def embed(api: Api, input: object = "x", **fields: Any) -> httpx.Response:
    return await api.send("POST", "/v1/embeddings", json={"model": "lengths", "input": input} | fields)


async def test_a_cut_can_be_forbidden(api: Api) -> None:
    window = api.service.catalog.embeddings["lengths"].context_window
    refused(await embed(api, "x" * (window + 1), truncate=False), 400, "context_length_exceeded")
    assert await api.usage() == []
    for length, truncate in ((window, False), (window + 1, True)):
        assert (await embed(api, "x" * length, truncate=truncate)).status_code == 200


async def test_a_prompt_of_the_stanza_stands_before_the_text(api: Api) -> None:
    models = dict(api.service.catalog.embeddings)
    models["lengths"] = models["lengths"].model_copy(update={"prompts": {"query": "ask: ", "code": "c "}})
    prompted = api.with_models(embeddings=models)
    for kind, length in {"query": 6, "search_query": 6, "code": 3, "document": 1, "clustering": 1, None: 1}.items():
        assert (await embed(prompted, input_type=kind)).json()["data"][0]["embedding"][0] == length, kind
    assert (await embed(api, input_type="query")).json()["data"][0]["embedding"][0] == 1, "it has no prompts"


async def test_an_unknown_input_type_is_400_and_the_known_ones_are_named(api: Api) -> None:
    known = "query, document, code, classification, clustering, search_query"
    for kind in ("image", "", "QUERY", 1, ["query"], {}):
        refused(await embed(api, input_type=kind), 400, "invalid_request_error", "input_type", known)


@pytest.mark.parametrize("path", ["/v2/rerank", "/v1/v2/rerank"])
async def test_clients_of_coheres_second_version_get_the_same_answer(api: Api, path: str) -> None:
    body = {"model": "longest", "query": "q", "documents": ["aa", "aaaa", "a"], "top_n": 2, "max_tokens_per_doc": 9}
    ours, theirs = [(await api.send("POST", one, json=body)).json() for one in ("/v1/rerank", path)]
    assert theirs | {"id": None} == ours | {"id": None}
    assert [result["index"] for result in theirs["results"]] == [1, 0]
    assert theirs["meta"]["billed_units"]["search_units"] == 1
    assert len(await api.usage()) == 2


QUESTIONS = tomllib.loads((Path(__file__).parent / "docs_questions.toml").read_text("utf-8"))["found_in"]


@pytest.fixture(scope="module")
def documentation() -> Documentation:
    return Documentation()


async def test_nearly_nine_of_ten_questions_find_their_page_among_the_first_three(documentation: Documentation) -> None:
    missed = {}
    for question, places in QUESTIONS.items():
        found = [hit.id for hit in await documentation.search(question, 3)]
        assert [place for place in places if await documentation.read(place)], "it has a place that exists"
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


def test_searches_wait_for_each_other_and_take_no_thread_of_others(documentation: Documentation) -> None:
    shared = Counted(1)

    async def searched() -> Sequence[Any]:
        asyncio.get_running_loop().set_default_executor(shared)
        each = (documentation.search("keys", 3) for _ in range(40))
        return await asyncio.gather(*each, documentation.read("README.md"))

    assert all(asyncio.run(searched())), "in a loop of its own: others have work in their threads"
    assert shared.asked == 0


async def test_any_text_is_a_query_and_words_of_the_query_language_are_words(documentation: Documentation) -> None:
    for query in (
        *('"', "'", "''; DROP TABLE passages; --", "\0chat\0", "\\", "%", "_", "___", "", "   "),
        *("AND", "OR OR OR", "NOT chat", "NEAR(chat speech, 2)", "title:chat", "{title headings}: chat"),
        *("chat*", "^chat", "(chat", "a + b - c", "…", "日本語", "e\u0301", "x" * 500, "a " * 250),
    ):
        assert len(await documentation.search(query, 3)) <= 3, query
    assert await documentation.search("NEAR(rerank", 1) == await documentation.search("near rerank", 1)


async def test_many_can_ask_at_once_also_the_first_time() -> None:
    fresh = Documentation()
    answers = await asyncio.gather(*(fresh.search("which voices are there", 3) for _ in range(50)))
    assert all(answer == answers[0] for answer in answers)


async def test_a_section_is_found_once(documentation: Documentation) -> None:
    for count in (1, 2, 20):
        ids = [hit.id for hit in await documentation.search("model", count)]
        assert len(ids) == len(set(ids)) == count


async def test_what_is_found_can_be_read(documentation: Documentation) -> None:
    found = await documentation.search("chat speech decisions key model engine", 20)
    assert len(found) == 20
    for hit in found:
        text = await documentation.read(hit.id)
        assert text
        assert text in (await documentation.read(hit.id.partition("#")[0]) or "")


async def test_pages_of_this_repository_and_nothing_else_can_be_read(documentation: Documentation) -> None:
    none = [
        "",
        "#",
        "docs/",
        "docs/api.md#",
        "../README.md",
        "docs/../README.md",
        "/etc/passwd",
        "pyproject.toml",
        "\0",
    ]
    assert [id for id in none if await documentation.read(id) is not None] == []
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
