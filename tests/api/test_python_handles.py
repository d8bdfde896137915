"""What the API refuses, the handles of Python refuse with the same code, field and sentence."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from contract.errors import ApiError
from contract.limits import CONTEXT_TERMS
from contract.rerank import MAX_DOCUMENTS
from deployments.client import Connection, connection
from tests.api.conftest import Api
from tests.docs.test_python_client import Handle

Ask = Callable[[Connection], Any]

CHAT, EMBEDDER, RERANKER, SCORER = "obedient", "lengths", "longest", "decision-v1"


def handles(api: Api) -> Connection:
    """Over the same engines as the app."""
    catalog = api.service.catalog
    adapters = {model.deployment: api.service.engine(model).adapter for model in catalog.deployed()}  # type: ignore[attr-defined]
    return connection(catalog, lambda deployment: Handle(adapters[deployment]))  # type: ignore[return-value]


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": CHAT, "messages": [{"role": "user", "content": text}], **fields}


def spoken(text: str, **fields: Any) -> dict[str, Any]:
    return {"input": text, "language": "auto", "provider": "supertonic", **fields}


def heard(file: bytes, **fields: Any) -> dict[str, Any]:
    return {"file": file, "model": "voxtral-mini-transcribe", **fields}


def mouth(g: Connection) -> Any:
    return next(handle for handle in g.speech.values() if handle.model.provider == "supertonic")


def voxtral(g: Connection) -> Any:
    return g.transcription["voxtral-mini-transcribe"]


def artist(g: Connection) -> Any:
    return next(iter(g.voice_design.values()))


YES = {"type": "binary", "instructions": "Is it?", "true_description": "yes", "false_description": "no"}
ONE = {"a": {"type": "choice", "instructions": "Which?", "options": [{"id": "a"}]}}
MANY = ["d"] * (MAX_DOCUMENTS + 1)
LONG = "word " * 10_000
OPUS = {"response_format": "opus"}
PNG, IMAGES = (
    b"\x89PNG\r\n\x1a\n" + bytes(8),
    {"images": [{"data_url": "data:image/png;base64,iVBORw0KGgoAAAAAAAAAAA=="}]},
)
DECIDED = {"state": "a", "questions": {"a": YES}}
POLICY: dict[str, Any] = {"policy": {"mode": "threshold"}}
TEMPLATE: dict[str, Any] = {"chat_template_kwargs": {"x": 1}}
KIND: dict[str, Any] = {"input_type": "x"}
ORDER = {"gender": "f", "age_years": 30}
TERMS = {"context_bias": ["Ray"] * (CONTEXT_TERMS + 1)}


REFUSED: list[tuple[str, dict[str, Any], Ask]] = [
    ("/chat/completions", said("a", max_tokens=0), lambda g: g.chat[CHAT].complete("a", max_tokens=0)),
    ("/chat/completions", said("refuse"), lambda g: g.chat[CHAT].complete("refuse")),
    ("/chat/completions", said("a", **TEMPLATE), lambda g: g.chat[CHAT].complete("a", **TEMPLATE)),
    ("/completions", {"model": CHAT, "prompt": []}, lambda g: g.chat[CHAT].write([])),
    ("/tokenize", {"model": CHAT, "prompt": 40 * LONG}, lambda g: g.chat[CHAT].tokenize(40 * LONG)),
    ("/tokenize", said("a", **TEMPLATE), lambda g: g.chat[CHAT].tokenize(said("a")["messages"], **TEMPLATE)),
    ("/detokenize", {"model": CHAT, "tokens": [1, -1]}, lambda g: g.chat[CHAT].detokenize([1, -1])),
    ("/embeddings", {"model": EMBEDDER, "input": []}, lambda g: g.embeddings[EMBEDDER].embed([])),
    ("/embeddings", {"model": EMBEDDER, "input": ["a", ""]}, lambda g: g.embeddings[EMBEDDER].embed(["a", ""])),
    ("/embeddings", {"model": EMBEDDER, "input": ""}, lambda g: g.embeddings[EMBEDDER].submit("")),
    ("/embeddings", {"model": EMBEDDER, "input": "a", **KIND}, lambda g: g.embeddings[EMBEDDER].embed("a", **KIND)),
    ("/rerank", {"model": RERANKER, "query": "", "documents": ["d"]}, lambda g: g.rerank[RERANKER].rerank("", ["d"])),
    ("/rerank", {"model": RERANKER, "query": "q", "documents": []}, lambda g: g.rerank[RERANKER].rerank("q", [])),
    ("/rerank", {"model": RERANKER, "query": "q", "documents": "d"}, lambda g: g.rerank[RERANKER].rerank("q", "d")),
    ("/rerank", {"model": RERANKER, "query": "q", "documents": MANY}, lambda g: g.rerank[RERANKER].rerank("q", MANY)),
    ("/rerank", {"query": "q", "documents": ["d", 1]}, lambda g: g.rerank[RERANKER].rerank("q", ["d", 1])),  # type: ignore[list-item]
    ("/audio/speech", spoken("a", voice="nobody"), lambda g: mouth(g).speak("a", "auto", "nobody")),
    ("/audio/speech", spoken(""), lambda g: mouth(g).speak("")),
    ("/audio/speech", spoken(LONG), lambda g: mouth(g).speak(LONG)),
    ("/audio/speech", spoken("a", response_format="x"), lambda g: mouth(g).speak("a", response_format="x")),
    ("/audio/speech", spoken("a", language="xx"), lambda g: mouth(g).speak("a", "xx")),
    ("/audio/transcriptions", heard(b"a", language="x"), lambda g: voxtral(g).transcribe(b"a", language="x")),
    ("/audio/transcriptions", heard(b"unreadable"), lambda g: voxtral(g).transcribe(b"unreadable")),
    ("/audio/transcriptions", heard(b"a", **TERMS), lambda g: voxtral(g).transcribe(b"a", **TERMS)),
    ("/audio/transcriptions", heard(b"a", **OPUS), lambda g: voxtral(g).transcribe(b"a", **OPUS)),
    ("/audio/voices/designs", {"gender": "f"}, lambda g: artist(g).design("f")),
    ("/audio/voices/designs", ORDER | {"timbre": "x"}, lambda g: artist(g).design("f", age_years=30, timbre="x")),
    ("/audio/voices/designs", ORDER | {"timber": "x"}, lambda g: artist(g).design("f", age_years=30, timber="x")),
    ("/audio/voices/designs", ORDER | {"language": "x"}, lambda g: artist(g).design("f", age_years=30, language="x")),
    ("/audio/voices/designs/suggest", {"text": " "}, lambda g: artist(g).suggest(" ")),
    ("/audio/voices/designs/suggest", {"text": LONG}, lambda g: artist(g).suggest(LONG)),
    ("/decisions", {"state": "a", "preset": "x" * 200}, lambda g: g.decisions[SCORER].decide("a", "x" * 200)),
    ("/decisions", {"state": "a", "questions": {}}, lambda g: g.decisions[SCORER].decide("a", {})),
    ("/decisions", {"state": "a", "questions": ONE}, lambda g: g.decisions[SCORER].decide("a", ONE)),
    ("/decisions", {"state": LONG, "questions": {"a": YES}}, lambda g: g.decisions[SCORER].decide(LONG, {"a": YES})),
    ("/decisions", DECIDED | POLICY, lambda g: g.decisions[SCORER].decide("a", {"a": YES}, **POLICY)),
    ("/decisions", DECIDED | IMAGES, lambda g: g.decisions[SCORER].decide("a", {"a": YES}, [PNG])),
]


async def test_refusals_are_the_same(api: Api) -> None:
    different = []
    for path, body, ask in REFUSED:
        if "file" in body:
            fields = {name: value for name, value in body.items() if name != "file"}
            reply = await api.send("POST", f"/v1{path}", files={"file": ("memo.wav", body["file"])}, data=fields)
        else:
            reply = await api.send("POST", f"/v1{path}", content=json.dumps(body))
        assert reply.status_code >= 400, (path, reply.text)
        error = reply.json()["error"]
        with pytest.raises(ApiError) as refusal:
            ask(handles(api))
        told = refusal.value
        if (told.fault.code, told.param, told.message) != (error["code"], error.get("param"), error["message"]):
            different.append((path, str(body)[:100], error, told))
    assert different == []


async def test_a_connection_shows_its_models_and_not_the_catalogue(api: Api) -> None:
    g = handles(api)
    assert f"chat={[*g.chat]}" in repr(g)
    assert "catalog=" not in repr(g) + repr(mouth(g))
