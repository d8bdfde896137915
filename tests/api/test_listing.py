"""Lists of models and runtimes, and the pages of the site."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from starlette.staticfiles import StaticFiles

from contract import VERSION
from contract.access import Scope
from contract.catalog.base import DefaultSpeechRuntime, SpeechRuntime
from contract.limits import KEYLESS_REQUESTS
from deployments.ingress.routes import service
from tests.api.asgi import ask
from tests.api.conftest import Api, app_over, refused
from tests.catalogs import with_serving
from tests.docs.pages import ROOT

SPEAKERS = ("supertonic-3", "cosyvoice-3", "voxtral-mini-tts", "qwen3-tts")
TRANSCRIBERS = ("voxtral-mini-transcribe", "whisper-large-v3")
KINDS = (
    {"obedient": "chat", "lengths": "embedding", "longest": "rerank"}
    | dict.fromkeys(SPEAKERS, "tts")
    | dict.fromkeys(TRANSCRIBERS, "stt")
)


async def test_every_model_that_is_set_up_is_listed_and_says_what_it_costs_and_takes(api: Api) -> None:
    body = (await api.send("GET", "/v1/models/obedient")).json()
    assert (body["object"], isinstance(body["created"], int)) == ("model", True)
    assert (body["tier"], body["context_window"], body["runtime"]) == ("default", 1000, "obedient")
    body = (await api.send("GET", "/v1/models")).json()
    assert body["object"] == "list"
    listed = {model["id"]: model for model in body["data"]}
    assert {id: model["kind"] for id, model in listed.items()} == KINDS
    for id, model in listed.items():
        assert model["price_micro_eur"], id
        assert all(isinstance(price, int) for price in model["price_micro_eur"].values())
        assert model["limits"], id
    assert listed["obedient"]["price_micro_eur"] == {"input_tokens": 1_000_000, "output_tokens": 2_000_000}
    assert listed["lengths"]["limits"]["inputs"] == 2048
    assert listed["longest"]["limits"]["documents"] == 1000
    assert listed["obedient"]["limits"]["images"] == 0
    assert listed["qwen3-tts"]["limits"]["input_characters"] == 2000
    assert listed["qwen3-tts"]["limits"]["reference_clip_s"] == 0
    assert listed["cosyvoice-3"]["limits"]["reference_clip_s"] == 30
    assert "yue" not in listed["whisper-large-v3"]["limits"]["languages"]
    hears = listed["voxtral-mini-transcribe"]["limits"]
    assert (hears["timestamp_granularities"], hears["context_terms"]) == (["segment", "word"], 100)


async def test_organisation_sees_only_models_enabled_for_it(api: Api) -> None:
    await api.change(models=frozenset({"lengths"}))
    key = await api.key("chat")  # the cache knows the other key's organisation as it was
    body = (await api.send("GET", "/v1/models", key)).json()
    assert [model["id"] for model in body["data"]] == ["lengths"]
    assert (await api.chat(key=key)).status_code == 404


async def test_healthz_needs_no_key_shows_running_replicas_to_any_and_refuses_a_wrong_one(api: Api) -> None:
    reply = await api.client.get("/healthz")
    assert (reply.status_code, reply.json()) == (200, {"status": "ok", "version": VERSION, "replicas": {}})
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
    assert subprocess.check_output(command, text=True, cwd=ROOT) == f"Parlance {VERSION}\n"


@pytest.fixture
def mixed(api: Api) -> Api:
    """`supertonic-3` speaks English and French with `fine`, all else with `plain`."""
    speech, plain = api.service.catalog.speech, SpeechRuntime(runtime="plain", description="Like a robot.")
    two = {"runtime": "fine", "license": "MIT", "languages": ("en", "fr"), "fallback": plain}
    return api.with_models(speech=speech | {"supertonic-3": with_serving(speech["supertonic-3"], **two)})


async def test_the_header_names_what_spoke_this_text(mixed: Api) -> None:
    for language, ran in {"en": "fine", "fr": "fine", "de": "plain", "vi": "plain"}.items():
        body = {"input": "Hello.", "voice": "F1", "language": language, "model": "plain"}
        reply = await mixed.send("POST", "/v1/audio/speech", json=body)
        assert (reply.status_code, reply.headers["x-service-model-served"]) == (200, ran)
        assert reply.headers.get("x-service-model-requested") == (None if ran == "plain" else "plain")


async def test_models_and_voices_say_who_speaks_what(mixed: Api) -> None:
    listed = {model["id"]: model for model in (await mixed.send("GET", "/v1/models")).json()["data"]}
    model = listed["supertonic-3"]
    assert (model["runtime"], model["license"]) == ("fine", "MIT")
    fine, plain = model["runtimes"]
    assert fine == {"runtime": "fine", "license": "MIT", "description": None, "languages": ["en", "fr"]}
    assert (plain["runtime"], plain["license"], plain["description"]) == ("plain", None, "Like a robot.")
    assert {*fine["languages"], *plain["languages"]} == set(mixed.service.catalog.speech["supertonic-3"].languages)
    assert "runtimes" not in listed["voxtral-mini-tts"]
    voices = {voice["slug"]: voice for voice in (await mixed.send("GET", "/v1/audio/voices")).json()["data"]}
    assert (voices["F1"]["runtime"], voices["F1"]["runtimes"]) == ("fine", [fine, plain])
    assert "runtimes" not in voices["bib-f-30"]


async def test_samples_are_kept_under_what_spoke_them(mixed: Api) -> None:
    for language in ("fr", "vi"):
        reply = await mixed.client.get(f"/audio/voices/F1/samples/{language}.mp3")
        assert reply.status_code == 200
    assert await mixed.state.blobs.find("samples/fine/F1-fr.mp3")
    assert await mixed.state.blobs.find("samples/plain/F1-vi.mp3")
    assert not await mixed.state.blobs.find("samples/fine/F1-vi.mp3")


@pytest.fixture
def clear(api: Api) -> Api:
    """The default engine speaks German with `clear` where a request names no voice."""
    speech, clear = api.service.catalog.speech, DefaultSpeechRuntime(runtime="clear", languages=("de",))
    changed = with_serving(speech["voxtral-mini-tts"], runtime="fine", by_default=clear)
    return api.with_models(speech=speech | {changed.id: changed})


async def test_a_request_without_a_voice_is_named_after_what_speaks_by_default(clear: Api) -> None:
    for voice, ran in {None: "clear", "default-de": "clear", "bib-f-30": "fine", "default-en": "fine"}.items():
        text = "Good morning to you all." if voice == "default-en" else "Guten Morgen, liebe Leute."
        reply = await clear.send("POST", "/v1/audio/speech", json={"input": text} | ({"voice": voice} if voice else {}))
        assert (reply.status_code, reply.headers["x-service-model-served"]) == (200, ran), voice


async def test_models_list_what_speaks_by_default_and_voices_what_speaks_them(clear: Api) -> None:
    listed = {model["id"]: model for model in (await clear.send("GET", "/v1/models")).json()["data"]}
    spoken = {by["runtime"]: by["languages"] for by in listed["voxtral-mini-tts"]["runtimes"]}
    assert spoken["clear"] == ["de"]
    assert "de" not in spoken["fine"]
    voices = {voice["slug"]: voice for voice in (await clear.send("GET", "/v1/audio/voices")).json()["data"]}
    assert voices["bib-f-30"]["runtime"] == "fine"
    assert "runtimes" not in voices["bib-f-30"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site of two pages, beside a file that is none of it."""
    folder = tmp_path / "site"
    (folder / "try").mkdir(parents=True)
    (folder / "index.html").write_text("first")
    (folder / "try/index.html").write_text("second")
    (tmp_path / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    monkeypatch.setattr(service, "SITE", StaticFiles(directory=folder, check_dir=False))
    return folder


async def test_pages_are_shown_to_anyone(api: Api, site: Path) -> None:
    for path, text in {"": "first", "index.html": "first", "try/": "second", "try/index.html": "second"}.items():
        reply = await api.client.get(f"/docs/{path}")
        assert (reply.status_code, reply.text) == (200, text)
        assert reply.headers["content-type"].startswith("text/html")
        assert reply.headers["content-security-policy"] == "frame-ancestors 'none'"
        assert reply.headers["x-content-type-options"] == "nosniff"
        again = await api.client.get(f"/docs/{path}", headers={"if-none-match": reply.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        head = await api.client.head(f"/docs/{path}")
        assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(text)))


async def test_nothing_else_is_and_the_way_there_has_no_name_of_the_clients(api: Api, site: Path) -> None:
    reply = await api.client.get("/docs", headers={"host": "evil.example"})
    assert (reply.status_code, reply.headers["location"]) == (307, "/docs/")
    for path in (
        *("../secret", "%2e%2e/secret", "..%2fsecret", "try/..%2f..%2fsecret", "%2fetc/passwd", "link"),
        *("try", "x", "x/", "%00"),
    ):
        refused(await api.client.get(f"/docs/{path}"), 404, "not_found")


async def test_what_is_not_built_says_how_it_is(api: Api, site: Path) -> None:
    assert (await ask(app_over(api.service), "GET", "/docs/", query=b"a=\xff")).status == 200
    (site / "index.html").unlink()
    reply = await api.client.get("/docs/")
    assert reply.status_code == 404
    assert "`make docs`" in reply.json()["error"]["message"]


@pytest.mark.usefixtures("one_window")
async def test_pages_count_for_the_rate_of_a_network(api: Api, site: Path) -> None:
    left = [(await api.client.get("/docs/")).headers["x-ratelimit-remaining"] for _ in range(KEYLESS_REQUESTS)]
    assert left == [str(count) for count in reversed(range(KEYLESS_REQUESTS))]
    assert (await api.client.get("/docs/")).status_code == 429
