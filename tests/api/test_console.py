"""The console's page, requests and keys: who sees what, what is bounded, and what is never there."""

import asyncio
import gzip
import json
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaling.engine import Timings
from contract.access import OPERATORS, TARIFFS, Caller, Scope
from contract.console import RecordQuery
from contract.errors import UPSTREAM_ERROR
from contract.limits import CONSOLE_BUNDLE_BYTES, CONSOLE_ROWS, CONSOLE_SPANS, KEYLESS_BODY_BYTES, KEYLESS_REQUESTS
from contract.telemetry import Outcome
from contract.tracing import Loading, Stage, StageEntry
from deployments.ingress.app import build_app
from deployments.ingress.console.bundle import FOLDER, read_bundle
from deployments.ingress.console.console import PAGES_AT_ONCE
from deployments.ingress.console.records import FinishedRequest, Record, RecordPage, Records
from state.accounts.api_keys import parse_scopes
from tests.api.conftest import Api, refused
from tests.api.engines import refusing
from tests.waiting import settled

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob: data:; "
    "media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
CALLER = Caller(1, "acme", "key", TARIFFS["pro"], frozenset(Scope))
UNKNOWN = f"req_{'0' * 32}"


async def requests(api: Api, key: str | None = None, **parameters: str) -> list[dict[str, Any]]:
    reply = await api.send("GET", "/console/requests", key, params=parameters)
    assert reply.status_code == 200, reply.text
    return cast("list[dict[str, Any]]", reply.json()["data"])


def ended(number: int = 0, caller: Caller = CALLER, timings: Timings | None = None, **fields: Any) -> FinishedRequest:
    """A request that took a second."""
    request = FinishedRequest(
        f"req_{number:032x}", caller, "POST", "/v1/chat/completions", "obedient", 200, Outcome.OK, None,
        timings or Timings(), (), 1.0, 1_800_000_000.0,
    )  # fmt: skip
    return request._replace(**fields)


@pytest.fixture
def page(tmp_path: Path, api: Api) -> Path:
    """A page of two files, beside one that is none of it."""
    folder = tmp_path / "console"
    (folder / "try").mkdir(parents=True)
    (folder / "index.html").write_text("first")
    (folder / "try/chat.js").write_text("second")
    (folder / "notes.txt").write_text("notes")
    (tmp_path / "secret.js").write_text("secret")
    (folder / "link.js").symlink_to(tmp_path / "secret.js")
    (folder / "linked").symlink_to(tmp_path)
    assert api.service.console
    api.service.console.bundle = read_bundle(folder)
    return folder


async def test_the_page_is_shown_to_anyone(api: Api, page: Path) -> None:
    for path, text, kind in (
        ("", "first", "text/html"),
        ("index.html", "first", "text/html"),
        ("try/chat.js", "second", "text/javascript"),
    ):
        reply = await api.client.get(f"/console/{path}")
        assert (reply.status_code, reply.text) == (200, text)
        assert reply.headers["content-type"].startswith(kind)
        again = await api.client.get(f"/console/{path}", headers={"if-none-match": f'"x", W/{reply.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b"")
        head = await api.client.head(f"/console/{path}", headers={"accept-encoding": "identity"})
        assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(text)))


async def test_it_is_compressed_for_whoever_takes_that(api: Api, page: Path) -> None:
    taken = dict.fromkeys(("gzip", "br, gzip;q=0.5", "*"), "gzip")
    for accepted, encoding in (taken | dict.fromkeys(("gzip;q=0", "identity", ""))).items():
        reply = await api.client.get("/console/", headers={"accept-encoding": accepted})
        assert reply.headers.get("content-encoding") == encoding, accepted
        assert (reply.text, reply.headers["vary"].lower()) == ("first", "accept-encoding")


async def test_nothing_else_is_and_what_says_so_runs_no_script(api: Api, page: Path) -> None:
    for path in (
        *("%2e%2e/secret.js", "..%2fsecret.js", "try/..%2f..%2fsecret.js", "%2fetc/passwd", "link.js"),
        *("linked/secret.js", "notes.txt", "try", "try/", "index.html/", "x", "%00", "<img onerror=alert(1)>.js"),
    ):
        reply = await api.client.get(f"/console/{path}")
        refused(reply, 404, "not_found")
        assert reply.headers["content-type"] == "application/json"
        _is_strict(reply)


async def test_every_file_has_a_strict_policy(api: Api) -> None:
    for path in read_bundle():
        _is_strict(await api.client.get(f"/console/{path}"))


def _is_strict(reply: httpx.Response) -> None:
    assert reply.headers["content-security-policy"] == CSP
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert reply.headers["cache-control"] == "no-cache"


def test_the_page_is_small_and_loads_nothing_from_elsewhere() -> None:
    files = read_bundle(FOLDER)
    assert "index.html" in files
    assert sum(len(file.plain) for file in files.values()) < CONSOLE_BUNDLE_BYTES
    assert all(gzip.decompress(file.packed) == file.plain for file in files.values())
    elsewhere = rb"""["'(]*(?:https?:)?//"""
    loaded = rb"(?:(?:src|href)\s*=|\b(?:import|from)|\burl\()\s*" + elsewhere + rb"|@import"
    assert [name for name, file in files.items() if re.search(loaded, file.plain)] == []


FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment"
    r"|DOMParser|setAttribute\(\s*[\"']style|style:\s*[\"'`]"
)
OUTSIDE = re.compile(r"^(?:import|export|})[^=\n]*[\"'](?![.]{1,2}/)[^\"'\n]+[\"']", re.MULTILINE)


def test_modules_make_no_markup_and_import_nothing_from_outside() -> None:
    """So names that others chose stay text."""
    texts = {file.name: file.read_text("utf-8") for file in FOLDER.rglob("*.js")}
    assert {
        name: hits for name, text in texts.items() if (hits := FORBIDDEN.findall(text) + OUTSIDE.findall(text))
    } == {}


@pytest.mark.usefixtures("one_window")
async def test_its_files_do_not_use_up_the_rate_of_a_network(api: Api, page: Path) -> None:
    replies = [await api.client.get("/console/try/chat.js") for _ in range(KEYLESS_REQUESTS + 1)]
    assert {reply.status_code for reply in replies} == {200}


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
async def test_the_bare_address_leads_people_to_the_page_and_programs_nowhere(api: Api, method: str) -> None:
    for accept in ("application/json", "*/*", "", *([BROWSER["accept"]] if method == "POST" else [])):
        reply = await api.client.request(method, "/", headers={"accept": accept})
        assert reply.status_code == 404
        assert method == "HEAD" or reply.json()["error"]["code"] == "not_found"
    if method != "POST":
        evil = {"host": "evil.example"}
        visit = await api.client.request(method, "/", headers=BROWSER | evil)
        assert (visit.status_code, visit.headers["location"], visit.headers["vary"]) == (307, "console/", "accept")
        visit = await api.client.request(method, "/console", headers=evil)
        assert (visit.status_code, visit.headers["location"]) == (307, "console/")
        for path in ("/console", "/console/"):
            visit = await api.client.request(method, path, content=bytes(KEYLESS_BODY_BYTES + 1))
            assert visit.status_code == 413


async def test_without_a_console_its_routes_are_not_there_and_nothing_is_remembered(api: Api) -> None:
    service = replace(api.service, console=None)
    transport = httpx.ASGITransport(build_app(service, has_console=False), raise_app_exceptions=False)
    off = Api(service, httpx.AsyncClient(transport=transport, base_url="http://test"), api.everything)
    assert (await off.chat()).status_code == 200
    for path in ("", "/", "/index.html", "/events", "/requests", f"/requests/{UNKNOWN}", "/keys"):
        reply = await off.client.get(f"/console{path}")
        error = refused(reply, 404, "not_found", says=f"there is nothing at /console{path}")
        assert "content-security-policy" not in reply.headers, error
    refused(await off.client.get("/", headers=BROWSER), 404, "not_found")
    assert api.service.console
    assert not api.service.console.ended


async def test_a_request_is_seen_by_its_organisation_and_by_no_other(api: Api) -> None:
    stranger, request_id = await api.stranger(), (await api.chat()).headers["x-request-id"]
    path = f"/console/requests/{request_id}"
    assert (await api.send("GET", path)).json()["request_id"] == request_id
    assert [request["request_id"] for request in await requests(api)] == [request_id]
    assert await requests(api, stranger) == []
    theirs, nobodys = [
        refused(await api.send("GET", path, stranger), 404, "not_found", "request_id")["message"]
        for path in (path, f"/console/requests/{UNKNOWN}")
    ]
    assert theirs.replace(request_id, UNKNOWN) == nobodys


async def test_a_users_key_sees_its_users_requests_and_keys(api: Api) -> None:
    ann, eve = await api.key(Scope.CHAT, user="ann"), await api.key(Scope.CHAT, user="eve")
    hers = (await api.chat(key=ann)).headers["x-request-id"]
    await api.chat(key=eve)
    assert [(request["request_id"], request["user"]) for request in await requests(api, ann)] == [(hers, "ann")]
    assert (await api.send("GET", f"/console/requests/{hers}", eve)).status_code == 404
    assert len(await requests(api)) == 2
    listed = (await api.send("GET", "/console/keys", ann)).json()["data"]
    assert [key["user"] for key in listed] == ["ann"]
    assert {key["user"] for key in (await api.send("GET", "/console/keys")).json()["data"]} == {None, "ann", "eve"}


async def test_keys_are_listed_without_their_texts(api: Api) -> None:
    stranger, narrow = await api.stranger(), await api.key(Scope.CHAT)
    reply = await api.send("GET", "/console/keys", narrow)
    caller = await api.caller(narrow)
    (key,) = [key for key in reply.json()["data"] if key["key_id"] == caller.key_id]
    assert (key["scopes"], key["expires_at"], key["label"]) == (["chat"], None, None)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", key["created_at"])
    for text in (narrow, api.everything, stranger):
        assert text.rpartition("_")[2] not in reply.text
    assert (await api.caller(stranger)).key_id not in reply.text


def test_no_word_grants_the_sight_of_all_organisations_but_its_own() -> None:
    assert parse_scopes(["all"]) == frozenset(Scope) - OPERATORS
    assert parse_scopes(["all", "console:operate"]) == frozenset(Scope)


async def test_a_request_has_its_times_and_its_money(api: Api) -> None:
    reply = await api.chat("say umbrella")
    (request,) = await requests(api)
    assert (request["request_id"], request["status"]) == (reply.headers["x-request-id"], 200)
    assert (request["method"], request["route"], request["model"]) == ("POST", "/v1/chat/completions", "obedient")
    assert (request["engine"], request["outcome"], request["code"]) == ("chat-obedient", "ok", None)
    assert (request["user"], request["key_id"]) == (None, (await api.caller()).key_id)
    (line,) = await api.usage()
    assert request["cost_micro_eur"] == line.cost_micro_eur > 0
    assert sum(request["parts"].values()) == pytest.approx(request["duration_ms"], abs=0.1)
    assert [span["name"] for span in request["spans"]] == ["admission", "queue", "engine", "gateway"]
    edges = [(span["from_ms"], span["to_ms"]) for span in request["spans"]]
    assert [end for _, end in edges] == [*(begin for begin, _ in edges[1:]), request["duration_ms"]]


async def test_so_many_pages_are_read_at_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = [0]

    async def read(caller: Caller, query: RecordQuery) -> None:
        at_once.append(at_once[-1] + 1)
        await settled()
        at_once.append(at_once[-1] - 1)

    monkeypatch.setattr(api.service.console, "_shared_page", read)
    for name in (names := [f"org-{number}" for number in range(PAGES_AT_ONCE + 1)]):
        await api.organisation(name)
    await asyncio.gather(*[requests(api, await api.key(Scope.CHAT, org=name)) for name in names])
    assert max(at_once) == PAGES_AT_ONCE


async def test_nothing_of_a_request_s_contents_is_there(api: Api) -> None:
    await api.chat("say umbrella")
    await api.send("GET", "/v1/models/umbrella")
    await api.send("POST", "/v1/umbrella?umbrella=1", json={"umbrella": 1}, headers={"user-agent": "umbrella"})
    reply = await api.send("GET", "/console/requests")
    assert len(reply.json()["data"]) == 2
    assert "umbrella" not in reply.text
    routes = {request["route"] for request in reply.json()["data"]}
    assert routes == {"/v1/chat/completions", "/v1/models/{model_id:path}"}


async def test_what_was_refused_and_what_failed_is_there_with_its_code(api: Api) -> None:
    await api.send("POST", "/v1/embeddings", await api.key(Scope.CHAT), json={})
    await api.chat(model="none")
    refusing(api, UPSTREAM_ERROR())
    await api.chat()
    assert [(r["outcome"], r["status"], r["code"], r["cost_micro_eur"]) for r in await requests(api)] == [
        ("failed", 502, "upstream_error", 0),
        ("refused", 404, "model_not_found", None),
        ("refused", 403, "missing_scope", None),
    ]


async def test_requests_without_a_key_and_those_of_the_console_itself_are_not(api: Api) -> None:
    await api.client.get("/healthz")
    await api.client.get("/v1/me", headers={"authorization": "Bearer x"})
    for path in ("/console/requests", "/v1/console/keys", "/console/"):
        await api.send("GET", path)
    assert await requests(api) == []


async def test_pages_lead_from_the_newest_to_the_oldest(api: Api) -> None:
    ids = [(await api.chat()).headers["x-request-id"] for _ in range(5)]
    seen, cursor = [], None
    while True:
        parameters = {"limit": "2"} | ({"before": cursor} if cursor else {})
        page = (await api.send("GET", "/console/requests", params=parameters)).json()
        seen += [request["request_id"] for request in page["data"]]
        assert page["has_more"] == (page["next_cursor"] is not None) == (len(seen) < 5)
        if not (cursor := page["next_cursor"]):
            break
    assert seen == ids[::-1]
    assert await requests(api, before=UNKNOWN) == []


async def test_requests_are_found_by_model_and_outcome(api: Api) -> None:
    await api.chat()
    await api.chat(model="none")
    assert [request["outcome"] for request in await requests(api, outcome="refused")] == ["refused"]
    assert [request["outcome"] for request in await requests(api, model="obedient")] == ["ok"]
    assert await requests(api, model="obedient", outcome="refused") == []


async def test_a_parameter_that_cannot_be_says_what_can(api: Api) -> None:
    for parameter, values in {
        "limit": ("0", str(CONSOLE_ROWS + 1), "-1", "x", "1.5", "٣", ""),
        "before": ("x", "req_", f"req_{'0' * 31}", f"req_{'0' * 32}0", ""),
        "outcome": ("OK", "none", ""),
    }.items():
        for value in values:
            reply = await api.send("GET", "/console/requests", params={parameter: value})
            refused(reply, 400, "invalid_request_error", parameter, says=f"`{parameter}` is {value!r}")


def page_of(records: Records, **fields: Any) -> list[Record]:
    page = RecordPage(RecordQuery(**fields), CALLER)
    page.take(records.newest_first(CALLER.org_id))
    return page.records


@pytest.mark.parametrize("count", [9_999, 10_000, 10_001])
def test_ten_thousand_are_remembered_of_an_organisation(count: int) -> None:
    records = Records()
    records.add({1: [Record.of(ended(number)) for number in range(count)]})
    assert len(records) == min(count, 10_000)
    assert page_of(records)[0].request_id == f"req_{count - 1:032x}"
    assert (records.find(1, f"req_{0:032x}") is None) == (count > 10_000)
    assert records.find(2, f"req_{count - 1:032x}") is None


def test_of_all_together_the_organisation_that_has_most_loses_its_oldest() -> None:
    records = Records(most=60, most_of_all=100)
    for org_id, count in ((1, 30), (2, 60), (3, 25)):
        records.add({org_id: [Record.of(ended(number)) for number in range(count)]})
        assert len(records) <= 100
    counts = {org_id: len(list(records.newest_first(org_id))) for org_id in (1, 2, 3)}
    assert counts == {1: 30, 2: 45, 3: 25}


async def test_a_finished_request_takes_less_than_a_kilobyte_if_nobody_opens_the_console(api: Api) -> None:
    def waited() -> Timings:
        stages = [(Stage.ADMISSION, ""), (Stage.QUEUE, "e"), (Stage.LOAD, "e"), (Stage.ENGINE, "e"), (Stage.SETTLE, "")]
        return Timings(stages=[StageEntry(stage, 0.1 * n + 0.0123, engine) for n, (stage, engine) in enumerate(stages)])

    console, count = api.service.console, 2000
    assert console
    tracemalloc.start()
    console.ended.extend(ended(number, timings=waited()) for number in range(count))
    await console.share()
    taken_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken_bytes / count < 1024


def test_of_a_request_with_very_many_stages_the_first_are_remembered_and_the_last() -> None:
    stages = [StageEntry((Stage.QUEUE, Stage.ENGINE)[number % 2], number / 1000) for number in range(500)]
    shown = Record.of(ended(timings=Timings(stages=stages))).shown()
    assert len(shown["spans"]) == CONSOLE_SPANS
    assert (shown["spans"][-1]["from_ms"], shown["spans"][-1]["to_ms"]) == (499.0, 1000.0)


def test_a_load_has_phases_where_its_replica_has_told_them_beside_how_many_waited_before() -> None:
    def phases(loading: Loading | None) -> list[tuple[str, float, float]]:
        timings = Timings(stages=[StageEntry(Stage.ADMISSION, 0.0)], waited_behind=7)
        timings.enter(Stage.LOAD, "chat-x")
        timings.loaded(loading)
        assert timings.stages
        timings.stages[1].began_s, timings.stages[2].began_s = 0.1, 0.9
        shown = Record.of(ended(timings=timings)).shown()
        span = shown["spans"][1]
        assert (shown["waited_behind"], span["name"], span["engine"]) == (7, "load", "chat-x")
        return [(phase["name"], phase["from_ms"], phase["to_ms"]) for phase in span["phases"]]

    assert phases(Loading(process_s=0.2, model_s=0.4, import_s=0.1, way="fork")) == [
        ("load.place", 100.0, 300.0),
        ("load.process", 300.0, 500.0),
        ("load.import", 500.0, 600.0),
        ("load.weights", 600.0, 900.0),
    ]
    assert phases(None) == []


HOSTILE = st.sampled_from(
    ["<img src=x onerror=alert(1)>", "javascript:alert(1)", "\u202eevil\u2066", "</script>", '"\\']
)


@given(label=HOSTILE | st.text(max_size=40), model=HOSTILE | st.text(max_size=40))
def test_whatever_names_say_is_text_in_json(label: str, model: str) -> None:
    caller = replace(CALLER, user=label, user_id=1)
    record = Record.of(ended(caller=caller, model=model))
    shared = Record(*json.loads(json.dumps(record)))
    assert (shared.shown()["user"], shared.shown()["model"]) == (label, model) or not label
    assert list(shared) == json.loads(json.dumps(record))
