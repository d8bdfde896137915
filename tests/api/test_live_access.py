"""Access to live sessions, by keys and client secrets, places for them, and what ends them."""

import asyncio
import base64
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from openai.types.realtime import ClientSecretCreateResponse
from starlette.websockets import WebSocketState

from audio.listener import RATE, Frames
from contract.access import Scope
from contract.realtime.limits import REALTIME_SESSION_S
from deployments.ingress.app import build_app
from deployments.ingress.front import live as live_sessions
from deployments.ingress.routes import realtime
from tests.api.conftest import Api, app_over, refused
from tests.api.live import (
    SECOND,
    ScriptedStream,
    has_error,
    listening,
    opened,
    refusal,
    revoke,
    scripted_speech,
    sessions,
)
from tests.api.ports import at_port
from tests.waiting import until

__all__ = ["scripted_speech"]

SECRETS = "/v1/realtime/client_secrets"


async def ask_for_secret(api: Api, key: str | None = None, **body: Any) -> httpx.Response:
    return await api.send("POST", SECRETS, key, json={"session": {"type": "transcription"}} | body)


async def secret(api: Api, key: str | None = None, **body: Any) -> str:
    reply = await ask_for_secret(api, key, **body)
    assert reply.status_code == 200, reply.text
    return ClientSecretCreateResponse.model_validate(reply.json()).value


def lasting(seconds: int) -> dict[str, Any]:
    return {"expires_after": {"anchor": "created_at", "seconds": seconds}}


def of_input(**settings: Any) -> dict[str, Any]:
    return {"session": {"type": "transcription", "audio": {"input": settings}}}


@pytest.mark.parametrize("as_protocol", [True, False])
@pytest.mark.parametrize("is_secret", [True, False])
async def test_a_key_or_a_secret_comes_in_a_header_or_among_the_subprotocols(
    api: Api, as_protocol: bool, is_secret: bool
) -> None:
    key = await secret(api, **of_input(turn_detection=None)) if is_secret else api.everything
    protocols = ["realtime", f"openai-insecure-api-key.{key}"]
    how = {"key": "", "subprotocols": protocols} if as_protocol else {"key": key}
    async with listening(api, **how) as live:
        assert live.socket.subprotocol == ("realtime" if as_protocol else None)
        if not is_secret:
            await live.update(turn_detection=None)
        await live.speak(0.5)
        await live.send("input_audio_buffer.commit")
        assert await live.text()


async def test_a_client_secret_opens_sessions_and_nothing_else_until_it_ends(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = (await ask_for_secret(api, **lasting(10))).json()
    assert made["value"].startswith("ek_")
    assert made["session"]["audio"]["input"]["transcription"] == {"model": "voxtral-mini-transcribe"}
    refused(await api.send("GET", "/v1/models", key=made["value"]), 401, "invalid_api_key")
    monkeypatch.setattr(api.state.clock, "now_s", made["expires_at"] - 1)
    async with listening(api, key=made["value"]) as live:
        monkeypatch.setattr(api.state.clock, "now_s", made["expires_at"])
        assert await live.is_well()
    assert await refusal(api, made["value"]) == (401, "expired_api_key")


async def test_times_in_replies_are_by_the_clock_of_the_database(api: Api) -> None:
    api.state.clock.now_s = 2e9  # type: ignore[attr-defined]
    responded = await api.send("POST", "/v1/responses", json={"model": "obedient", "input": "hi"})
    assert responded.json()["created_at"] == 2e9
    made = (await ask_for_secret(api)).json()
    assert (made["expires_at"], made["session"]["expires_at"]) == (2e9 + 600, 2e9 + REALTIME_SESSION_S)
    async with listening(api) as live:
        assert (await live.update())["expires_at"] == 2e9 + REALTIME_SESSION_S


async def test_bounds_of_a_client_secret(api: Api) -> None:
    taken = (lasting(10), lasting(600), {"max_sessions": 1}, {"max_sessions": 10})
    beyond = (lasting(9), lasting(601), {"max_sessions": 0}, {"max_sessions": 11})
    for bodies, status in ((taken, 200), (beyond, 400)):
        assert [(await ask_for_secret(api, **body)).status_code for body in bodies] == [status] * 4
    caller, _ = await api.state.client_secrets.open(await secret(api))
    assert caller.rate_owners[0].requests_per_minute == 30
    reply = await ask_for_secret(api, **of_input(transcription={"language": "klingon"}))
    refused(reply, 400, "invalid_request_error", "session.audio.input.transcription.language")
    reply = await ask_for_secret(api, **of_input(transcription={"prompt": "x" * 2000}))
    refused(reply, 400, "invalid_request_error", "session")
    refused(await ask_for_secret(api, await api.key(Scope.CHAT)), 403, "missing_scope")


async def test_a_client_secret_that_was_changed(api: Api) -> None:
    payload, kid, signature = (await secret(api)).removeprefix("ek_").split(".")
    forged = base64.urlsafe_b64encode(b'["x",99999999999,"{}"]').decode().rstrip("=")
    for wrong in (f"ek_{forged}.{kid}.{signature}", f"ek_{payload}.{kid}.AAAA", "ek_", "ek_a.b", "ek_ä.b.c"):
        assert await refusal(api, wrong.encode().decode("latin-1")) == (401, "invalid_api_key")


async def test_a_key_that_is_revoked_ends_its_session_and_its_secrets(
    api: Api, pass_cache_time: Callable[[], None]
) -> None:
    key = await api.key(*Scope)
    value = await secret(api, key)
    async with listening(api, key=key) as live:
        assert await live.is_well()
        await revoke(api, key)
        pass_cache_time()
        await live.speak(0.5)
        await live.pause()
        assert await live.text()
        assert (await live.error())["code"] == "invalid_api_key"
        assert await live.closed() == 1008
    assert (await refusal(api, value))[0] == 401


async def test_sessions_that_are_refused_are_answered_with_an_error(api: Api) -> None:
    limited = await api.key(*Scope)
    for expected, asked in (
        ((401, "missing_api_key"), {"key": ""}),
        ((401, "invalid_api_key"), {"key": "prl_wrong"}),
        ((403, "missing_scope"), {"key": await api.key(Scope.CHAT)}),
        ((403, "foreign_origin"), {"origin": "https://evil.example"}),
        ((400, "invalid_request_error"), {"path": "/v1/realtime?intent=conversation"}),
        ((404, "not_found"), {"path": "/v1/models"}),
    ):
        assert await refusal(api, **asked) == expected
    await api.limit(0)
    assert await refusal(api, limited) == (402, "org_spend_limit")


async def test_pages_that_may_open_one(api: Api) -> None:
    mine = api.changed(allowed_origins=frozenset({"https://app.example"}), public_url="https://api.example")
    async with at_port(app_over(mine.service)) as address:
        port = int(address.rpartition(":")[2])
        taken = f"http://127.0.0.1:{port}", "https://app.example", "https://api.example", "https://api.example:443"
        others = f"http://127.0.0.1:{port + 1}", "http://127.0.0.1", "https://app.example:8443", "http://api.example"
        for origin in taken:
            async with opened(mine, address, origin=origin) as live:
                assert live.socket
        for origin in others:
            assert await refusal(mine, address=address, origin=origin) == (403, "foreign_origin")


async def test_where_live_sessions_are_off_their_routes_are_not_there(api: Api) -> None:
    async with at_port(build_app(api.service, has_live=False)) as address:
        for path in ("/v1/realtime", "/realtime"):
            assert await refusal(api, path=path, address=address) == (404, "not_found")
        headers = {"Authorization": f"Bearer {api.everything}"}
        async with httpx.AsyncClient(base_url=address, headers=headers) as client:
            for path in (SECRETS, SECRETS.removeprefix("/v1")):
                refused(await client.post(path, json={}), 404, "not_found")
            assert (await client.get("/v1/me")).status_code == 200
            assert not any("realtime" in path for path in (await client.get("/openapi.json")).json()["paths"])


@pytest.mark.parametrize("most", [1, 2, 3])
async def test_a_client_secret_opens_so_many_sessions(api: Api, most: int) -> None:
    limited: dict[str, Any] = {} if most == 2 else {"max_sessions": most}
    value = await secret(api, **limited)
    async with sessions(api, *[value] * most) as (address, lives):
        assert await refusal(api, value, address=address) == (429, "rate_limit_exceeded")
        assert await lives[-1].is_well()


async def test_client_secrets_leave_half_of_the_streams_and_of_the_rate_to_their_key(api: Api) -> None:
    await api.organisation("small", "free")  # 4 streams, 20 requests
    key = await api.key(*Scope, org="small")
    first, second, third = [await secret(api, key) for _ in range(3)]
    async with sessions(api, first, second) as (address, _):
        for _ in range(20):
            assert await refusal(api, third, address=address) == (429, "rate_limit_exceeded")
        assert api.state.rates.open_streams == 2
        async with opened(api, address, key=key) as live:
            assert await live.is_well()
        assert (await api.send("GET", "/v1/me", key)).status_code == 200


async def test_an_organisation_has_half_of_the_sessions_of_a_process(api: Api) -> None:
    api.service.live.most = 4
    other = await api.stranger()
    async with sessions(api, *[api.everything] * 2, other) as (address, lives):
        assert await refusal(api, address=address) == (429, "rate_limit_exceeded")
        assert all([await live.is_well() for live in lives])
        async with opened(api, address, key=other):
            assert await refusal(api, address=address) == (503, "overloaded")


async def test_an_organisation_holds_half_of_the_sound(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_sessions, "REALTIME_SOUND_BYTES", 4 * RATE)
    async with listening(api) as live:
        await live.update(turn_detection=None)
        await live.append(SECOND)
        await live.append(SECOND, event_id="too much")
        error = await live.error()
        assert has_error(error, "rate_limit_exceeded", says="your organisation")
        assert error["event_id"] == "too much"
        await live.send("input_audio_buffer.commit")
        await live.text()
        assert (await live.end())["received_s"] == 1


async def test_a_client_that_loses_its_place_is_informed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice itself: tests/api/test_live_turns.py."""
    api.service.live.most = 2
    other = await api.stranger()
    await api.organisation("third")
    third = await api.key(*Scope, org="third")
    async with sessions(api, api.everything, other) as (address, (first, _)):
        monkeypatch.setattr(live_sessions, "REALTIME_IDLE_S", 0)
        async with opened(api, address, key=third):
            assert (await first.next("parlance.session.expiring"))["why"] == "idle"
            assert (await first.next("parlance.session.ledger"))["is_last"]
            assert (await first.closed(), len(api.service.live)) == (1000, 2)


async def test_a_key_without_a_stream_takes_no_place(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.organisation("small", "free")
    full = await api.key(*Scope, org="small")
    async with sessions(api, api.everything, *[full] * 4) as (address, lives):
        api.service.live.most = 5
        monkeypatch.setattr(live_sessions, "REALTIME_IDLE_S", 0)
        assert await refusal(api, full, address=address) == (429, "rate_limit_exceeded")
        assert all([await live.is_well() for live in lives])


@pytest.mark.parametrize(("why", "closes_in_s"), [("time_limit", 0.3), ("draining", 0.2)])
async def test_a_session_that_ends_says_so_before(
    api: Api, monkeypatch: pytest.MonkeyPatch, why: str, closes_in_s: float
) -> None:
    monkeypatch.setattr(realtime, "REALTIME_NOTICE_S", 0.3)
    monkeypatch.setattr(realtime, "REALTIME_SESSION_S", 0.6 if why == "time_limit" else 60)
    monkeypatch.setattr(realtime, "DRAIN_S", 0.2)
    async with listening(api, "/realtime", compression="deflate") as live:
        assert "sec-websocket-extensions" not in live.socket.response.headers  # type: ignore[union-attr]
        await live.speak(0.5)
        if why == "draining":
            api.service.live.drain()
        notice = await live.next("parlance.session.expiring")
        assert (notice["why"], notice["closes_in_s"]) == (why, closes_in_s)
        last = await live.next("parlance.session.ledger")
        assert (last["is_last"], last["ledger"]["heard_s"]) == (True, pytest.approx(0.5, abs=0.04))
        assert await live.closed() == 1000
    assert len(api.service.live) == 0


async def test_sound_on_its_way_when_the_session_ends_is_in_the_ledger(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(realtime, "DRAIN_S", 0)
    order: list[str] = []
    released, listen, end = asyncio.Event(), ScriptedStream.listen, ScriptedStream.end

    async def slow_listen(stream: ScriptedStream, sound: bytes) -> Frames:
        order.append("sound comes")
        await released.wait()
        order.append("sound is taken")
        return await listen(stream, sound)

    async def noted_end(stream: ScriptedStream) -> Frames:
        order.append("the stream ends")
        return await end(stream)

    def is_ending() -> bool:
        return len(order) > 1 or any(task.get_name() == "end of session" for task in asyncio.all_tasks())

    monkeypatch.setattr(ScriptedStream, "listen", slow_listen)
    monkeypatch.setattr(ScriptedStream, "end", noted_end)
    async with listening(api) as live:
        await live.speak(0.5)
        await until(lambda: order)
        api.service.live.drain()
        await until(is_ending)
        await asyncio.sleep(0)  # the end runs as far as it can
        released.set()
        ledger = (await live.next("parlance.session.ledger"))["ledger"]
    assert order == ["sound comes", "sound is taken", "the stream ends"]
    assert (ledger["received_s"], ledger["heard_s"], ledger["pending_s"]) == (0.5, pytest.approx(0.5, abs=0.04), 0)


def socket_over(connection: Any) -> Any:
    """The session's end of a connection, with a name."""
    socket = realtime._Socket(connection)
    socket.session = cast(Any, SimpleNamespace(id="sess_1"))
    return socket


async def test_a_client_that_never_reads_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        """As uvicorn is while the client reads nothing and sends nothing."""

        application_state = WebSocketState.CONNECTED

        async def wait(self, *_: str) -> Any:
            await asyncio.Event().wait()

        send_text = receive = wait

    monkeypatch.setattr(realtime, "WRITE_S", 0.01)
    socket = socket_over(Full())
    serving = asyncio.create_task(socket.serve())
    await asyncio.sleep(0)
    await socket.send("session.created")
    await asyncio.wait_for(serving, 5)
    await socket.send("session.updated")  # is not tried


async def test_the_end_of_a_session_is_not_cut_for_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone() -> dict[str, str]:
        return {"type": "websocket.disconnect"}

    stuck = SimpleNamespace(
        application_state=WebSocketState.CONNECTED, receive=gone, send_text=lambda _: asyncio.Event().wait()
    )
    monkeypatch.setattr(realtime, "WRITE_S", 0.01)
    socket, billed = socket_over(stuck), asyncio.Event()

    async def serve() -> None:
        await socket.serve()
        await billed.wait()

    serving = asyncio.create_task(serve())
    await socket.send("parlance.session.ledger")
    billed.set()
    await serving


async def test_a_socket_that_begins_to_close_is_sent_nothing() -> None:
    class Closing:
        """As uvicorn is once it has refused a frame."""

        application_state = WebSocketState.CONNECTED

        async def send_text(self, text: str) -> None:
            raise RuntimeError

        async def close(self, code: int, reason: str) -> None:
            raise RuntimeError

    socket = socket_over(Closing())
    await socket.send("session.created")
    await socket.close(1000, "")
