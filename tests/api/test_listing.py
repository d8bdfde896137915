"""GET /models, /models/{id}, /healthz, /openapi.json."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import openai
import pytest

from contract import VERSION
from contract.access import Scope
from tests.api.conftest import Api, refused
from tests.docs.pages import ROOT

SPEAKERS = ("supertonic-3", "cosyvoice-3", "voxtral-mini-tts", "qwen3-tts")
TRANSCRIBERS = ("voxtral-mini-transcribe", "whisper-large-v3")
KINDS = (
    {"obedient": "chat", "lengths": "embedding", "longest": "rerank"}
    | dict.fromkeys(SPEAKERS, "tts")
    | dict.fromkeys(TRANSCRIBERS, "stt")
)


async def test_models_that_are_set_up_are_listed(api: Api) -> None:
    body = (await api.send("GET", "/v1/models")).json()
    assert body["object"] == "list"
    assert {model["id"]: model["kind"] for model in body["data"]} == KINDS


async def test_model_has_the_facts_of_the_spec(api: Api) -> None:
    body = (await api.send("GET", "/v1/models/obedient")).json()
    assert body["object"] == "model"
    assert (body["tier"], body["context_window"], body["runtime"]) == ("default", 1000, "obedient")
    assert isinstance(body["created"], int)


async def test_every_model_says_what_it_costs_and_takes(api: Api) -> None:
    listed = {model["id"]: model for model in (await api.send("GET", "/v1/models")).json()["data"]}
    for id, model in listed.items():
        assert model["price_micro_eur"], id
        assert all(isinstance(price, int) for price in model["price_micro_eur"].values())
        assert model["limits"], id
    assert listed["obedient"]["price_micro_eur"] == {"input_tokens": 1_000_000, "output_tokens": 2_000_000}
    assert listed["lengths"]["limits"]["inputs"] == 2048
    assert listed["longest"]["limits"]["documents"] == 1000
    assert listed["qwen3-tts"]["limits"]["input_characters"] == 2000
    assert (listed["qwen3-tts"]["limits"]["reference_clip_s"], listed["cosyvoice-3"]["limits"]["reference_clip_s"]) == (
        0,
        30,
    )
    assert "yue" not in listed["whisper-large-v3"]["limits"]["languages"]
    hears = listed["voxtral-mini-transcribe"]["limits"]
    assert (hears["timestamp_granularities"], hears["context_terms"]) == (["segment", "word"], 100)


async def test_decision_models_say_what_they_cost(api: Api) -> None:
    body = (await api.send("GET", "/v1/decisions/models")).json()
    assert body["data"]
    for model in body["data"]:
        assert model["price_micro_eur"] == {"input_tokens": 1_000_000, "questions": 100_000_000}
    assert body["limits"]["questions"] == 16


async def test_unknown_model_is_404(api: Api) -> None:
    refused(await api.send("GET", "/v1/models/nobody"), 404, "model_not_found")


async def test_official_client_reads_the_list(api: Api) -> None:
    client = openai.AsyncOpenAI(api_key=api.everything, base_url="http://test/v1", http_client=api.client)
    assert {model.id async for model in client.models.list()} == set(KINDS)
    model = await client.models.retrieve("lengths")
    assert (model.id, (model.model_extra or {})["limits"]["inputs"]) == ("lengths", 2048)


async def test_organisation_sees_only_models_enabled_for_it(api: Api) -> None:
    await api.change(models=frozenset({"lengths"}))
    key = await api.key("chat")  # the cache knows the other key's organisation as it was
    body = (await api.send("GET", "/v1/models", key)).json()
    assert [model["id"] for model in body["data"]] == ["lengths"]
    assert (await api.chat(key=key)).status_code == 404


async def test_healthz_needs_no_key(api: Api) -> None:
    reply = await api.client.get("/healthz")
    assert reply.status_code == 200
    assert reply.json() == {"status": "ok", "version": VERSION, "replicas": {}}


async def test_healthz_shows_running_replicas_to_any_key_and_refuses_a_wrong_one(api: Api) -> None:
    for key in (api.everything, await api.key(Scope.RERANK)):
        assert (await api.send("GET", "/healthz", key)).json()["replicas"]["chat-obedient"] == 1
    refused(await api.send("GET", "/healthz", "prl_wrong"), 401, "invalid_api_key")


async def test_one_version_is_told_everywhere(api: Api) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    document = (await api.client.get("/openapi.json")).json()
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert {project["version"], document["info"]["version"], released[0]} == {VERSION}


@pytest.mark.parametrize("program", ["launch", "state"])
def test_programs_tell_the_version(program: str) -> None:
    command = [sys.executable, "-m", program, "--version"]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout == f"Parlance {VERSION}\n"
    )
