"""Access: keys, scopes, the turns of organisations; and secrets, of which the server never writes any part down."""

import json
import logging
import secrets
import traceback
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from sqlalchemy import Connection, select

from autoscaling.engine import CallContext
from contract.access import Scope
from contract.catalog import Model
from contract.chat.engine import ChatBatch
from deployments.ingress.app import build_app
from deployments.ingress.context import Service
from state import State, keys
from state.database.tables import metadata
from state.rates import Rates
from tests.api.asgi import Answer, ask
from tests.api.bodies import ADDRESS, BINARY, BODIES, OURS
from tests.api.conftest import Api, app_over
from tests.api.designs import DESIGNS, adopt, discard, made, ordered, poll
from tests.api.engines import LocalEngine
from tests.api.operations import CATALOG, OPERATIONS, TAKE_API_KEY_HEADER, Operation
from tests.api.sounds import wav
from tests.api.uploads import put, ticket_of, transcribe

ORDERS = "/audio/voices/designs"
ADOPTIONS = f"{ORDERS}/x/adopt"

WITH_MODEL = ("/chat/completions", "/completions", "/responses", "/messages", "/embeddings", "/rerank", "/decisions")
FIRST = {
    ("/chat/completions", "JSON", "budget"): (400, "invalid_json"),
    ("/chat/completions", "model", "budget"): (404, "model_not_found"),
    **{(path, "model", "repeated"): (404, "model_not_found") for path in WITH_MODEL},
    **{(path, "repeated", "budget"): (409, "idempotency_in_progress") for path in WITH_MODEL},
    ("/chat/completions", "chat_template_kwargs", "repeated"): (400, "invalid_request_error"),
    **{("/chat/completions", "messages", fault): (400, "images_unsupported") for fault in ("repeated", "budget")},
    **{("/completions", "suffix", fault): (400, "invalid_request_error") for fault in ("repeated", "budget")},
    ("/tokenize", "messages", "budget"): (400, "images_unsupported"),
    ("/audio/uploads", "mime", "repeated"): (415, "unsupported_media_type"),
    ("/audio/uploads", "repeated", "budget"): (409, "idempotency_in_progress"),
    (ADOPTIONS, "draft", "plan"): (404, "not_found"),
    (ADOPTIONS, "draft", "repeated"): (404, "not_found"),
    (ORDERS, "plan", "repeated"): (403, "voice_not_in_plan"),
    (ORDERS, "plan", "budget"): (403, "voice_not_in_plan"),
    (ORDERS, "repeated", "budget"): (409, "idempotency_in_progress"),
}
"""Answers where two things are wrong: the first one decides."""
WRONG: dict[str, Any] = {"model": "unknown", "mime": "text/plain", "chat_template_kwargs": {"x": 1}, "suffix": "s"}
WRONG["messages"] = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": ADDRESS}}]}]
"""Fields that are wrong."""


async def test_body_model_plan_repetition_and_budget_are_looked_at_in_this_order(api: Api) -> None:
    found = {}
    for number, (path, *faults) in enumerate(FIRST):
        org = f"org-{number}"
        await api.organisation(org, "free" if "plan" in faults else "pro")
        if "budget" in faults:
            await api.limit(0, org)
        key = await api.key(*Scope, org=org)
        body = json.dumps(BODIES[path] | {fault: WRONG[fault] for fault in faults if fault in WRONG}).encode()
        body = b"{" if "JSON" in faults else body
        if "repeated" in faults:
            await api.state.idempotency.begin(await api.caller(key), f"POST {path}", "k", sha256(body).hexdigest())
        reply = await api.send("POST", f"/v1{path}", key, content=body, headers={"Idempotency-Key": "k"})
        found[path, *faults] = (reply.status_code, reply.json()["error"]["code"])
    assert found == FIRST


async def test_a_reply_has_an_id_of_ours_and_tells_the_times_of_gateway_and_engine(api: Api) -> None:
    ids = [(await api.send("GET", "/v1/me", headers={"x-request-id": "mine"})).headers["x-request-id"] for _ in "ab"]
    assert len({"mine", *ids}) == 3
    timing = (await api.chat()).headers["server-timing"]
    assert {part.split(";")[0].strip() for part in timing.split(",")} >= {"gateway", "engine"}


async def test_me_lists_every_scope_with_a_granted_flag(api: Api) -> None:
    for granted in (set(Scope), {Scope.CHAT, Scope.MCP}):
        scopes = (await api.send("GET", "/v1/me", await api.key(*granted))).json()["scopes"]
        assert {entry["scope"]: entry["granted"] for entry in scopes} == {scope: scope in granted for scope in Scope}


async def test_a_query_that_is_no_text_is_no_error_of_ours(api: Api) -> None:
    """HAProxy refuses such a line; whoever reaches a replica's own port comes past it."""
    key = (b"authorization", f"Bearer {api.everything}".encode())
    for method, path, status in (
        ("GET", "/nowhere", 404),
        ("PUT", "/v1/me", 405),
        ("GET", "/v1/audio/voices/nobody/samples/de.mp3", 404),
        ("GET", "/files/x", 403),
        ("PUT", "/files/x", 403),
        ("GET", "/v1/audio/voices", 200),
    ):
        answer = await ask(app_over(api.service), method, path, [key], query=b"a=\xff")
        assert answer.status == status, (method, path)


KEYS = 5


@pytest.mark.parametrize("path", [*WITH_MODEL, "/audio/speech", "/audio/transcriptions"])
async def test_all_keys_of_an_organisation_have_one_turn(api: Api, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """To gates and engines, which give owners turns, all keys of an organisation are one owner."""
    calls, jobs = [], []

    def caught(method: Any) -> Any:
        def passed(engine: LocalEngine, name: Any, job: Any, *, context: CallContext) -> Any:
            calls.append(context.owner)
            jobs.append(job.owner)
            return method(engine, name, job, context=context)

        return passed

    for name in ("call", "stream"):
        monkeypatch.setattr(LocalEngine, name, caught(getattr(LocalEngine, name)))
    await api.organisation("rival")
    body: dict[str, Any] = {"json": BODIES[path]} if path in BODIES else {"files": {"file": ("memo.wav", wav())}}
    for key in [*[await api.key(*Scope) for _ in range(KEYS)], await api.key(*Scope, org="rival")]:
        reply = await api.send("POST", f"/v1{path}", key, **body)
        assert reply.status_code == 200, reply.text
    assert calls == [calls[0]] * KEYS + [calls[-1]]
    assert calls[0] != calls[-1]
    assert jobs == calls


async def rows(state: State) -> str:
    """Every row of every table."""

    def read(connection: Connection) -> str:
        found = (row for table in metadata.sorted_tables for row in connection.execute(select(table)).all())
        return "\n".join(map(repr, found))

    return await state.database.run(read)


VALID, UNKNOWN = [keys.mint() for _ in range(10)], [keys.mint() for _ in range(10)]
CREDENTIALS = [f"{scheme} {secrets.token_urlsafe(24)}" for scheme in ("Basic", "Bearer", "Token", "") for _ in range(3)]
CANARIES = [f"canary-{secrets.token_hex(12)}" for _ in range(18)]
PLANTED = [key.text for key in VALID + UNKNOWN] + [text.split(" ")[1] for text in CREDENTIALS] + CANARIES


class Leaky(LocalEngine):
    """Fails with everything it was given in the text of an exception that nobody expects."""

    def __init__(self, model: Model, failing: list[bool]) -> None:
        super().__init__(model)
        self.failing = failing

    async def call(self, method: Any, job: Any, *, context: CallContext) -> Any:
        if self.failing[0]:
            raise ValueError(f"cannot digest {job!r}") from KeyError(repr(job))
        return await super().call(method, job, context=context)

    async def stream(self, method: Any, job: Any, *, context: CallContext) -> AsyncGenerator[Any, None]:
        yield ChatBatch(b"data: {}\n\n", 1, 1)
        raise ValueError(f"cannot digest {job!r}")


class Planted:
    """The app, and all that it wrote down: records, reprs of what it held, uncaught exceptions."""

    def __init__(self, state: State) -> None:
        self.failing = [False]
        engines = {model.deployment: Leaky(model, self.failing) for model in CATALOG.deployed()}
        self.service = Service(CATALOG, engines, state)
        self._app = build_app(self.service)
        self.written: list[str] = []
        self.statuses: set[int] = set()

    async def ask(
        self, operation: Operation, value: str, body: bytes, path: str | None = None, header: bytes = b"authorization"
    ) -> Answer:
        """One request with `value` in `header`; what it raises is kept as a server would log it."""

        async def watched(scope: Any, receive: Any, send: Any) -> None:
            try:
                await self._app(scope, receive, send)
            except Exception:
                self.written.append(traceback.format_exc())
            # Without the service: the catalogue in it is long, the same for each request, and written once below.
            self.written.append(repr(replace(scope["exchange"], service=None)))

        headers = [(header, value.encode())]
        answer = await ask(watched, operation.method, path or operation.path, headers, body)
        self.statuses.add(answer.status)
        return answer


def _variants(operation: Operation, canary: str) -> Iterator[bytes]:
    """Bodies with the canary in every place where one can go wrong."""
    yield f'{{"model": "{canary}'.encode()
    yield json.dumps(canary).encode()
    yield json.dumps([canary]).encode()
    yield b'{"\xff": "' + canary.encode() + b'"}'
    good = BODIES.get(operation.path.removeprefix("/v1"), {"model": "x"})
    yield json.dumps(good | {canary: canary, "user": canary}).encode()
    for name in good:
        for value in (canary, {canary: canary}, [canary], [{"role": canary, "content": canary}]):
            yield json.dumps(good | {name: value}).encode()
    if operation.plain == "/decisions":
        yield from (json.dumps(body).encode() for body in _decisions(canary))
    yield json.dumps(good | {"messages": [{"role": "user", "content": canary}], "query": canary}).encode()
    yield json.dumps(good | {"messages": [{"role": "user", "content": canary}], "stream": True}).encode()


def _decisions(canary: str) -> Iterator[dict[str, Any]]:
    """Bodies with the canary in every place of a decision that a client fills, whole and broken."""
    question = {
        "type": "choice",
        "instructions": canary,
        "options": [{"id": canary, "description": canary}, {"id": "x"}],
    }
    binary = BINARY | {"instructions": canary, "true_description": canary}
    for broken in (question, binary, question | {canary: 1}):
        yield OURS[0] | {"state": {canary: canary}, "request_id": canary, "questions": {canary: broken}}
    yield OURS[0] | {"state": "fail", "questions": {canary: question}}
    yield {"messages": [{"role": "user", "content": canary}], "questions": {canary: question}}
    yield OURS[0] | {"model": canary}
    yield {"state": canary, "preset": canary}


async def _send_everything(planted: Planted) -> None:
    for operation in OPERATIONS:
        for authorization in (*CREDENTIALS, *(f"Bearer {key.text}" for key in UNKNOWN)):
            answer = await planted.ask(operation, authorization, operation.body)
            assert answer.status == 401
            planted.written.append(repr(answer))
            if operation.plain in TAKE_API_KEY_HEADER:
                bare = authorization.removeprefix("Bearer ")
                answer = await planted.ask(operation, bare, operation.body, header=b"x-api-key")
                assert answer.status == 401
                planted.written.append(repr(answer))
        # Every second one: the other spelling of the path gets the rest.
        for index, canary in list(enumerate(CANARIES))[operation.path.startswith("/v1/") :: 2]:
            key = f"Bearer {VALID[index % len(VALID)].text}"
            for body in _variants(operation, canary):
                await planted.ask(operation, key, body)
            if operation.plain in TAKE_API_KEY_HEADER:
                await planted.ask(operation, VALID[index % len(VALID)].text, operation.body, header=b"x-api-key")
            if operation.path.endswith("/x"):
                await planted.ask(operation, key, b"", operation.path[:-1] + canary)


async def test_nothing_that_was_planted_is_written_down(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    assert len(PLANTED) == 50
    # Each key sends more than its plan allows in a minute.
    api.state.rates = Rates(window_s=1)
    await api.organisation("planted", "enterprise")
    for key in VALID:
        await api.store(key, *Scope, org="planted")
    with caplog.at_level(logging.DEBUG):
        planted = Planted(api.state)
        for planted.failing[0] in (False, True):
            await _send_everything(planted)
        me = next(operation for operation in OPERATIONS if operation.path == "/v1/me")
        for key in VALID:
            answer = await planted.ask(me, f"Bearer {key.text}", b"")
            assert answer.status == 200
            planted.written.append(repr(answer))
        planted.written += [repr(planted.service), await rows(api.state)]
    assert {200, 400, 401, 404, 500, 502} <= planted.statuses
    text = "\n".join((*planted.written, caplog.text))
    assert "Traceback" in text, "the test must see what servers log"
    assert [secret for secret in PLANTED if secret in text] == []


async def test_nobody_else_takes_or_changes_what_an_organisation_owns(api: Api) -> None:
    stranger, draft, adopted, ticket = await api.stranger(), await made(api), await made(api), await ticket_of(api)
    assert (await put(api, ticket)).status_code == 200
    voice = (await adopt(api, adopted, slug="our-anna")).json()
    request_id = (await api.chat()).headers["x-request-id"]
    sample, spend = (await api.client.get(voice["sample_url"])).content, await api.spend()
    asked: list[tuple[str, str, dict[str, str] | None]] = [
        ("POST", "/v1/audio/transcriptions", {"upload_id": ticket["upload_id"]}),
        ("POST", "/v1/audio/speech", {"input": "hello", "voice": "our-anna"}),
        ("GET", f"/v1/console/requests/{request_id}", None),
    ]
    for one in (draft, adopted):
        asked += [
            ("DELETE", f"{DESIGNS}/{one['id']}", None),
            ("POST", f"{DESIGNS}/{one['id']}/adopt", {"slug": "ours"}),
        ]
    for method, path, body in asked:
        assert (await api.send(method, path, stranger, json=body)).status_code in (400, 404), path
    theirs = await ordered(api, stranger, gender="m", auto_adopt=True, slug="our-anna")
    while (await poll(api, theirs, stranger))["status"] != "adopted":
        pass
    assert (await discard(api, theirs, stranger)).status_code == 200
    assert (await api.spend(), (await poll(api, draft))["status"]) == (spend, "ready")
    assert (await api.client.get((await poll(api, adopted))["voice"]["sample_url"])).content == sample
    assert (await transcribe(api, ticket)).status_code == 200
