"""Every handle of docs/python-client.md, over engines that obey in this process. Its first block wants a graph."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
from ray.exceptions import RayTaskError

import models
from contract.chat.request import ChatRequest
from contract.embeddings import MAX_INPUTS
from contract.errors import INVALID_REQUEST, ApiError
from contract.speech.engine import Clip
from deployments.client import Connection, connection
from deployments.client.calls import Call
from tests.catalogs import embedded
from tests.docs.pages import ROOT, marked, rows

PAGE = ROOT / "docs/python-client.md"


RESPONSES: list[Response] = []
"""All that were made, the last one at the end."""


class Response:
    """What a handle returns, as Serve's: it blocks where no event loop runs, and is awaited where one does."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self._parts: Iterator[Any] | None = None
        self.cancelled = False

    def result(self) -> Any:
        return asyncio.run(self._work)  # which refuses, too, where an event loop runs

    def __await__(self) -> Any:
        return self._work.__await__()

    def __iter__(self) -> Response:
        return self

    def __next__(self) -> Any:
        if self._parts is None:
            self._parts = iter(asyncio.run(_all(self._work)))
        return next(self._parts)

    def __aiter__(self) -> AsyncGenerator[Any, None]:
        stream: AsyncGenerator[Any, None] = self._work
        return stream

    def cancel(self) -> None:
        self.cancelled = True


class Method:
    """A method of the engine, as a handle offers it."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def remote(self, job: Any) -> Response:
        RESPONSES.append(Response(self._call(job)))
        return RESPONSES[-1]


class Handle:
    """Serve's `DeploymentHandle`, as far as the client uses it."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    def options(self, *, stream: bool) -> Handle:
        assert stream
        return self

    def __getattr__(self, name: str) -> Method:
        return Method(getattr(self._adapter, name))


async def _all(stream: AsyncGenerator[Any, None]) -> list[Any]:
    return [item async for item in stream]


@pytest.fixture
def g() -> Connection:
    catalog = embedded()
    adapters = {model.deployment: models.load(model) for model in catalog.deployed()}
    return connection(catalog, lambda deployment: Handle(adapters[deployment]))  # type: ignore[return-value]


def test_every_handle_answers(g: Connection, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {"g": g}
    exec(compile(marked(PAGE, "run with handles"), PAGE.name, "exec"), namespace)
    assert namespace["recording"]
    assert namespace["answer"]["value"] is not None
    assert "Good" in capsys.readouterr().out


def test_every_handle_is_on_the_page(g: Connection) -> None:
    told = {row[0]: re.findall(r"\w+", row[1]) for row in rows(PAGE, "handle", "calls")}
    kinds = {
        name: next(iter(getattr(g, name).values())) for name in Connection.__dataclass_fields__ if name != "catalog"
    }
    assert told == {
        f"g.{name}[id]": [
            call for call in vars(type(handle)) if not call.startswith("_") and callable(vars(type(handle))[call])
        ]
        for name, handle in kinds.items()
    }


CALLS: list[tuple[str, str, str, tuple[Any, ...]]] = [
    ("chat", "smollm2-135m-instruct", "submit", ("say hello",)),
    ("embeddings", "all-minilm-l6-v2", "submit", (["a cat"],)),
    ("rerank", "all-minilm-l6-v2-cosine", "submit", ("a", ["b"])),
    ("speech", "supertonic-3", "submit", ("Hello.", "en")),
    ("transcription", "voxtral-mini-transcribe", "submit", (b"hello",)),
    ("voice_design", "qwen3-tts", "submit", ("f", 1)),
    ("decisions", "decision-v1", "submit", ("a text", "sentiment-v1")),
]


def submitted(g: Connection, kind: str, id: str, call: str, arguments: tuple[Any, ...]) -> Any:
    fields = {"age_years": 30, "language": "en"} if kind == "voice_design" else {}
    return getattr(getattr(g, kind)[id], call)(*arguments, **fields)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_a_call_is_waited_for_or_awaited_or_both_within_a_running_loop(g: Connection, call: Any) -> None:
    # As in a notebook, whose cells run inside of an event loop.
    async def cell() -> tuple[Any, Any]:
        return submitted(g, *call).result(), await submitted(g, *call)

    waited, awaited = asyncio.run(cell())
    assert type(waited) is type(awaited)
    assert repr(waited) == repr(awaited)


def test_a_stream_is_iterated_in_a_notebook_and_in_an_asynchronous_program(g: Connection) -> None:
    transcriber = g.transcription["voxtral-mini-transcribe"]

    async def cell() -> tuple[list[Any], list[Any]]:
        return list(transcriber.stream(b"one\ntwo")), [part async for part in transcriber.stream(b"one\ntwo")]

    waited, awaited = asyncio.run(cell())
    assert waited == awaited
    assert [segment.text for part in waited for segment in part.segments] == ["one", "two"]


def test_a_stream_that_is_left_early_is_cancelled_and_one_that_ends_is_not(g: Connection) -> None:
    chat = g.chat["smollm2-135m-instruct"]
    parts = iter(chat.stream("stream 3 0"))
    assert next(parts).text == "0 "
    parts.close()  # type: ignore[attr-defined]
    assert RESPONSES[-1].cancelled
    assert "".join(batch.text for batch in chat.stream("stream 3 0")) == "0 1 2 "
    assert not RESPONSES[-1].cancelled


@pytest.mark.parametrize(
    ("call", "code", "field"),
    [
        (lambda g: g.chat["smollm2-135m-instruct"].complete("a", [b"no image"]), "invalid_request_error", "images"),
        (lambda g: g.embeddings["all-minilm-l6-v2"].embed(["a"], dimensions=9), "invalid_request_error", "dimensions"),
        (lambda g: g.speech["supertonic-3"].speak("a", "en", Clip(b"", 24_000)), "cloning_not_supported", "voice"),
        (lambda g: transcriber(g).transcribe(b"a", format_text=True), "invalid_request_error", "format_text"),
    ],
)
def test_what_only_a_handle_can_be_asked_is_refused_by_its_field(
    g: Connection, call: Any, code: str, field: str
) -> None:
    with pytest.raises(ApiError) as refusal:
        call(g)
    assert (refusal.value.fault.code, refusal.value.param) == (code, field)


def transcriber(g: Connection) -> Any:
    return g.transcription["voxtral-mini-transcribe"]


def test_a_refusal_that_ray_has_wrapped_comes_bare_and_a_failure_as_ray_tells_it() -> None:
    class Failing:
        def __init__(self, cause: Exception) -> None:
            self.cause = cause

        def result(self) -> None:
            raise RayTaskError("complete", "trace", self.cause)

    with pytest.raises(ApiError) as refusal:
        Call(Failing(INVALID_REQUEST("no", param="n")), lambda answer: answer).result()
    assert type(refusal.value) is ApiError
    with pytest.raises(RayTaskError):
        Call(Failing(ValueError("a detail")), lambda answer: answer).result()


@pytest.mark.parametrize("count", [1, MAX_INPUTS, MAX_INPUTS + 1])
def test_any_number_of_texts_becomes_vectors_in_their_order(g: Connection, count: int) -> None:
    texts = ["x" * (1 + index % 7) for index in range(count)]
    vectors = g.embeddings["all-minilm-l6-v2"].embed(texts)
    assert vectors.shape == (count, 384)
    assert vectors[:, 0].tolist() == [len(text) for text in texts]


def test_a_whole_request_is_checked_again_with_the_fields_beside_it(g: Connection) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    body = {"model": "another", "messages": [{"role": "user", "content": "say hello"}], "response_format": schema}
    request = ChatRequest.model_validate(body)
    chat = g.chat["smollm2-135m-instruct"]
    reply = chat.complete(request, max_tokens=5)
    assert (reply.text, reply.body["model"]) == ("hello", chat.model.id)
    assert chat._job(request, (), {}).request.response_format == request.response_format


def test_a_designed_voice_speaks_by_its_recipe_or_else_by_its_clip(g: Connection) -> None:
    designer, speech = g.voice_design["qwen3-tts"], g.speech["qwen3-tts"]
    with_recipe = designer.design("f", 1, age_years=30, language="en")
    told = json.loads(speech.speak("Hello.", "en", with_recipe).splitlines()[0])
    assert (told["voice"], told["clip"], told["recipe"]) == (None, None, with_recipe.recipe)
    with_clip = designer.design("f", 1, age_years=30, language="en", instruct="clip")
    told = json.loads(speech.speak("Hello.", "en", with_clip).splitlines()[0])
    assert (told["voice"], "recipe" in told) == (None, False)
    assert told["clip"] == [len(with_clip.clip.samples), 24_000, with_clip.clip.transcript]


def test_a_model_that_is_not_there_is_told_with_those_that_are(g: Connection) -> None:
    with pytest.raises(KeyError, match="smollm2-135m-instruct"):
        g.chat["gpt-5"]
