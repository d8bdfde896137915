"""Who may spend nothing has no engine woken, and none kept awake, whatever is free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autoscaling.engine import NOBODY, owner_name
from contract.access import Scope
from contract.errors import UPSTREAM_ERROR
from tests.api.bodies import BODIES, FORM_TYPE, FORMS
from tests.api.conftest import Api
from tests.api.operations import ENDLESS, OPERATIONS
from tests.waiting import settled


def watched(api: Api) -> Callable[[], list[str]]:
    """Gives what every engine was asked from now on; their adapters refuse all of it."""
    api.all_act(error=UPSTREAM_ERROR())
    engines = [api.engine(deployment) for deployment in api.service.engines]
    return lambda: [name for engine in engines for name in engine.handle.asked]


MESSAGES = [{"role": "user", "content": "say hello"}]
MORE: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "/v1/responses", {"model": "obedient", "input": "say hello", "truncation": "disabled"}),
    ("POST", "/v1/chat/completions", {"model": "obedient", "messages": MESSAGES, "stream": True}),
    ("POST", "/v1/tokenize", {"model": "obedient", "messages": MESSAGES}),
    ("POST", "/v1/audio/speech", {"input": "hello", "provider": "qwen"}),
    ("POST", "/v1/audio/transcriptions", {"upload_id": "none", "format_text": True}),
    ("GET", "/v1/audio/voices/M1/samples/de.mp3", None),
    *(
        ("POST", "/v1/mcp/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        for params in (
            {"name": "chat", "arguments": {"message": "hello"}},
            {"name": "search", "arguments": {"query": "a", "documents": ["b"]}},
        )
    ),
]
"""What the bodies of the routes do not reach."""


@pytest.mark.parametrize("runs", [False, True], ids=["cold", "running"])
@pytest.mark.parametrize("whose", ["organisation", "user"])
async def test_no_route_wakes_an_engine_for_who_may_spend_nothing(api: Api, runs: bool, whose: str) -> None:
    key = await api.key(*Scope, user="ann")
    await api.limit(0, user="ann" if whose == "user" else None)
    asked = watched(api)
    if not runs:
        for deployment in api.service.engines:
            engine = api.engine(deployment)
            engine.handle.sleep()
            engine.watch.failed.set()
            await engine.watch.refresh()
    walked = [(o.method, o.path, BODIES.get(o.plain)) for o in OPERATIONS if o.plain not in {*FORMS, *ENDLESS}]
    for method, path, body in walked + MORE:
        await api.send(method, path, key, json=body if method == "POST" else None)
        assert asked() == [], f"{method} {path}"
    for path, form in FORMS.items():
        await api.send("POST", f"/v1{path}", key, content=form, headers={"content-type": FORM_TYPE.decode()})
        assert asked() == [], path


async def test_every_kind_of_engine_is_asked_for_who_may_spend(api: Api) -> None:
    """The walk above would find one that is."""
    asked = watched(api)
    for method, path, body in MORE:
        await api.send(method, path, json=body)
    for path in ("/messages/count_tokens", "/tokenize", "/detokenize", "/audio/uploads"):
        await api.send("POST", f"/v1{path}", json=BODIES[path])
    await api.send("GET", "/v1/decisions/models")
    await settled()
    names = {"tokenize", "detokenize", "warm", "measured", "speak_whole", "stream", "complete"}
    assert names <= set(asked())


@pytest.mark.parametrize(("limit", "status"), [(0, 402), (1, 200)])
async def test_a_micro_eur_that_is_left_counts_tokens(api: Api, limit: int, status: int) -> None:
    await api.limit(limit)
    reply = await api.send("POST", "/v1/tokenize", await api.key(Scope.CHAT), json=BODIES["/tokenize"])
    assert reply.status_code == status
    if status == 402:
        assert reply.json()["error"]["code"] == "org_spend_limit"


async def test_what_is_held_for_others_is_not_left(api: Api) -> None:
    await api.limit(1)
    caller = await api.state.accounts.authenticate(f"Bearer {await api.key(Scope.CHAT)}")
    async with await api.state.ledger.reserve(caller, line="chat:x", model="x", estimate_micro_eur=1, request_id="r"):
        key = await api.key(Scope.CHAT)
        assert (await api.send("POST", "/v1/tokenize", key, json=BODIES["/tokenize"])).status_code == 402
    assert (await api.send("POST", "/v1/tokenize", key, json=BODIES["/tokenize"])).status_code == 200


async def test_samples_are_made_in_the_turn_of_their_callers_organisation(api: Api) -> None:
    engine = api.engine("speech-supertonic-3")
    caller = await api.caller()
    for key, owner in ((api.everything, owner_name(caller.org_id)), ("", NOBODY)):
        reply = await api.client.get(
            f"/v1/audio/voices/M1/samples/{'de' if key else 'en'}.mp3",
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )
        assert reply.status_code == 200
        assert engine.callers[-1] == owner
