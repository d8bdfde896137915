"""50 planted secrets through every route and every error: the server never writes any part of them down."""

from __future__ import annotations

import json
import secrets
import traceback
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from typing import Any

from autoscaling.engine import CallContext
from contract.access import Scope
from contract.catalog import Model
from contract.chat.engine import ChatBatch
from deployments.ingress.app import build_app
from deployments.ingress.context import Service
from state import State, keys
from state.rates import Rates
from tests.api.asgi import Answer, ask
from tests.api.bodies import BODIES
from tests.api.conftest import Api
from tests.api.engines import LocalEngine
from tests.api.operations import CATALOG, OPERATIONS, TAKE_API_KEY_HEADER, Operation
from tests.api.records import everything_logged, rows

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
        answer: list[Answer] = []

        async def watched(scope: Any, receive: Any, send: Any) -> None:
            try:
                await self._app(scope, receive, send)
            except Exception:
                self.written.append(traceback.format_exc())
            # Without the service: the catalogue in it is long, the same for each request, and written once below.
            self.written.append(repr(replace(scope["trace"], service=None)))

        headers = [(header, value.encode())]
        answer.append(await ask(watched, operation.method, path or operation.path, headers, body))
        self.statuses.add(answer[0].status)
        return answer[0]


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
    yield json.dumps(good | {"messages": [{"role": "user", "content": canary}], "query": canary}).encode()
    yield json.dumps(good | {"messages": [{"role": "user", "content": canary}], "stream": True}).encode()


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


async def test_nothing_that_was_planted_is_written_down(api: Api) -> None:
    assert len(PLANTED) == 50
    # Each key sends more than its plan allows in a minute.
    api.state.rates = Rates(window_s=1)
    await api.organisation("planted", "enterprise")
    for key in VALID:
        await api.store(key, *Scope, org="planted")
    with everything_logged() as logged:
        planted = Planted(api.state)
        for planted.failing[0] in (False, True):
            await _send_everything(planted)
        me = next(operation for operation in OPERATIONS if operation.path == "/v1/me")
        for key in VALID:
            answer = await planted.ask(me, f"Bearer {key.text}", b"")
            assert answer.status == 200
            planted.written.append(repr(answer))
        planted.written += [repr(planted.service), await rows(api.state)]
    assert {200, 400, 401, 404, 500} <= planted.statuses
    text = "\n".join((*planted.written, logged.getvalue()))
    assert "Traceback" in text, "the test must see what servers log"
    assert [secret for secret in PLANTED if secret in text] == []
