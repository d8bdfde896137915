"""Who may open a live session, and by which key: headers, subprotocols of browsers, client secrets; and its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, nullcontext
from functools import partial
from typing import Any, cast

import httpx
import pytest
from openai.types.realtime import ClientSecretCreateResponse
from starlette.websockets import WebSocketState
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from audio.listener import Frames
from concurrency.fairness import OwnerCounter
from contract.access import Scope
from contract.errors import ApiError
from contract.realtime.limits import REALTIME_IDLE_S
from deployments.ingress.app import build_app
from deployments.ingress.front import live as live_sessions
from deployments.ingress.front.live import LiveSessions
from deployments.ingress.routes import realtime
from state.accounts import api_keys
from tests.api.conftest import Api, app_over, refused
from tests.api.live import PATH, ScriptedStream, listening, opened
from tests.api.ports import at_port
from tests.waiting import until

SECRETS = "/v1/realtime/client_secrets"
BODY = {"session": {"type": "transcription"}}


async def secret(api: Api, **body: Any) -> dict[str, Any]:
    reply = await api.send("POST", SECRETS, json=BODY | body)
    assert reply.status_code == 200, reply.text
    made: dict[str, Any] = reply.json()
    return made


async def refusal(address: str, key: str) -> str:
    """Code of the reply to an upgrade."""
    with pytest.raises(InvalidStatus) as error:
        await connect(address.replace("http", "ws") + PATH, additional_headers={"Authorization": f"Bearer {key}"})
    code: str = json.loads(error.value.response.body)["error"]["code"]
    return code


async def test_a_key_among_the_subprotocols(ears: Api) -> None:
    protocols = ["realtime", f"openai-insecure-api-key.{ears.everything}"]
    async with listening(ears, key="", subprotocols=protocols) as live:
        assert live.socket.subprotocol == "realtime"
        assert await live.is_well()


async def test_a_client_secret_has_the_shape_of_the_sdk(ears: Api) -> None:
    made = await secret(ears, session={"type": "transcription"})
    parsed = ClientSecretCreateResponse.model_validate(made)
    assert parsed.value.startswith("ek_")
    assert made["session"]["audio"]["input"]["transcription"] == {"model": "voxtral-mini-transcribe"}


@pytest.mark.parametrize("as_protocol", [True, False])
async def test_a_client_secret_opens_a_session_as_it_says(ears: Api, as_protocol: bool) -> None:
    made = await secret(ears, session={"type": "transcription", "audio": {"input": {"turn_detection": None}}})
    how = (
        {"key": "", "subprotocols": ["realtime", f"openai-insecure-api-key.{made['value']}"]}
        if as_protocol
        else {"key": made["value"]}
    )
    async with listening(ears, **how) as live:
        await live.speak(0.5)
        await live.send("input_audio_buffer.commit")
        assert await live.text()


async def test_a_client_secret_opens_nothing_else(ears: Api) -> None:
    made = await secret(ears)
    refused(await ears.send("GET", "/v1/models", key=made["value"]), 401, "invalid_api_key")


async def test_a_client_secret_ends(ears: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await secret(ears, expires_after={"anchor": "created_at", "seconds": 10})
    secrets, expires_at = ears.state.client_secrets, made["expires_at"]
    monkeypatch.setattr(secrets, "_wall", lambda: expires_at - 1)
    async with listening(ears, key=made["value"]) as live:
        monkeypatch.setattr(secrets, "_wall", lambda: expires_at)
        assert await live.is_well()
    async with at_port(app_over(ears.service)) as address:
        assert await refusal(address, made["value"]) == "expired_api_key"


@pytest.mark.parametrize(("seconds", "status"), [(9, 400), (10, 200), (600, 200), (601, 400)])
async def test_how_long_a_client_secret_may_last(ears: Api, seconds: int, status: int) -> None:
    reply = await ears.send(
        "POST", SECRETS, json=BODY | {"expires_after": {"anchor": "created_at", "seconds": seconds}}
    )
    assert reply.status_code == status


async def test_a_key_that_is_revoked_takes_its_secrets_along(ears: Api, pass_cache_time: Callable[[], None]) -> None:
    key = await ears.key(*Scope)
    value = (await ears.send("POST", SECRETS, key, json=BODY)).json()["value"]
    await ears.state.database.run(partial(api_keys.revoke, public_id=key.split("_")[1], now_s=1))
    pass_cache_time()
    async with at_port(app_over(ears.service)) as address:
        with pytest.raises(InvalidStatus) as error:
            await connect(address.replace("http", "ws") + PATH, additional_headers={"Authorization": f"Bearer {value}"})
    assert error.value.response.status_code == 401


async def test_a_key_that_is_revoked_ends_its_session(ears: Api, pass_cache_time: Callable[[], None]) -> None:
    key = await ears.key(*Scope)
    async with listening(ears, key=key) as live:
        assert await live.is_well()
        await ears.state.database.run(partial(api_keys.revoke, public_id=key.split("_")[1], now_s=1))
        pass_cache_time()
        await live.speak(0.5)
        await live.pause()
        assert await live.text()
        assert (await live.error())["code"] == "invalid_api_key"
        await live.socket.wait_closed()
    assert live.socket.close_code == 1008


@pytest.mark.parametrize("most", [1, 2, 3])
async def test_a_client_secret_opens_so_many_sessions(ears: Api, most: int) -> None:
    made = await secret(ears, **({} if most == 2 else {"max_sessions": most}))
    async with at_port(app_over(ears.service)) as address, AsyncExitStack() as stack:
        for _ in range(most):
            live = await stack.enter_async_context(opened(ears, address, key=made["value"]))
        assert await refusal(address, made["value"]) == "rate_limit_exceeded"
        assert await live.is_well()


@pytest.mark.parametrize(("sessions", "status"), [(0, 400), (1, 200), (10, 200), (11, 400)])
async def test_how_many_sessions_a_client_secret_may_open(ears: Api, sessions: int, status: int) -> None:
    assert (await ears.send("POST", SECRETS, json=BODY | {"max_sessions": sessions})).status_code == status


async def test_client_secrets_leave_half_of_the_streams_and_of_the_rate_to_their_key(ears: Api) -> None:
    await ears.organisation("small", "free")  # 4 streams, 20 requests
    key = await ears.key(*Scope, org="small")
    values = [(await ears.send("POST", SECRETS, key, json=BODY)).json()["value"] for _ in range(3)]
    async with at_port(app_over(ears.service)) as address, AsyncExitStack() as stack:
        for value in values[:2]:
            await stack.enter_async_context(opened(ears, address, key=value))
        for _ in range(20):
            assert await refusal(address, values[2]) == "rate_limit_exceeded"
        assert ears.state.rates.open_streams == 2
        live = await stack.enter_async_context(opened(ears, address, key=key))
        assert await live.is_well()
        assert (await ears.send("GET", "/v1/me", key)).status_code == 200


class IdleSession:
    """A session that was idle for so long, and leaves at once."""

    def __init__(self, idle_s: float) -> None:
        self.idle_s, self.left = idle_s, ""

    def leave(self, why: str) -> None:
        self.left = why


@pytest.mark.parametrize(
    ("idle_s", "left"),
    [
        ({"a": (REALTIME_IDLE_S - 1, 0), "b": (0,)}, None),
        ({"a": (REALTIME_IDLE_S, 0), "b": (0,)}, "a0"),
        ({"a": (0, REALTIME_IDLE_S + 1), "b": (0,)}, "a1"),
        ({"a": (200, 201), "b": (999,)}, "a1"),
        ({"a": (0, 0), "b": (999,)}, "b0"),
    ],
)  # fmt: skip
def test_an_idle_session_gives_its_place_to_a_new_one(idle_s: dict[str, tuple[float, ...]], left: str | None) -> None:
    sessions, open_ones, new = LiveSessions(most=3), dict[str, IdleSession](), IdleSession(0)
    sessions._organisations = OwnerCounter()
    with ExitStack() as stack:
        for organisation, times in idle_s.items():
            for number, seconds in enumerate(times):
                one = open_ones[f"{organisation}{number}"] = IdleSession(seconds)
                sessions._organisations.take(organisation)
                sessions._places[one] = cast(Any, organisation)
        with nullcontext() if left else pytest.raises(ApiError):
            stack.enter_context(sessions.session(3, new))
        assert [name for name, one in open_ones.items() if one.left] == ([left] if left else [])
        assert len(sessions) == 3


async def test_a_client_that_loses_its_place_is_informed(ears: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    ears.service.live.most = 2
    monkeypatch.setattr(live_sessions, "REALTIME_IDLE_S", 0)
    await ears.organisation("other", "pro")
    await ears.organisation("third", "pro")
    async with at_port(app_over(ears.service)) as address, AsyncExitStack() as stack:
        first, *_ = [
            await stack.enter_async_context(opened(ears, address, key=await ears.key(*Scope, org=org)))
            for org in ("acme", "other", "third")
        ]
        assert (await first.next("parlance.session.expiring"))["why"] == "idle"
        assert (await first.next("parlance.session.ledger"))["is_last"]
        await first.socket.wait_closed()
        assert (first.socket.close_code, len(ears.service.live)) == (1000, 2)


async def test_a_key_without_a_stream_takes_no_place(ears: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    ears.service.live.most = 2
    await ears.organisation("small", "free")
    key = await ears.key(*Scope, org="small")
    async with at_port(app_over(ears.service)) as address, AsyncExitStack() as stack:
        lives = [await stack.enter_async_context(opened(ears, address, key=of)) for of in (ears.everything, key)]
        monkeypatch.setattr(live_sessions, "REALTIME_IDLE_S", 0)
        monkeypatch.setattr(ears.service.live, "_organisations", OwnerCounter())
        ears.state.rates._local_streams.take(next(name for name in ears.state.rates._local_streams if name in key), 3)
        assert await refusal(address, key) == "rate_limit_exceeded"
        assert all([await live.is_well() for live in lives])


async def test_a_client_secret_wants_the_scope(ears: Api) -> None:
    key = await ears.key(Scope.CHAT)
    refused(await ears.send("POST", SECRETS, key=key, json=BODY), 403, "missing_scope")


async def test_a_client_secret_of_a_session_that_cannot_be(ears: Api) -> None:
    settings = {"type": "transcription", "audio": {"input": {"transcription": {"language": "klingon"}}}}
    refused(await ears.send("POST", SECRETS, json={"session": settings}), 400, "invalid_request_error", "language")
    long = {"type": "transcription", "audio": {"input": {"transcription": {"prompt": "x" * 2000}}}}
    refused(await ears.send("POST", SECRETS, json={"session": long}), 400, "invalid_request_error", "session")


@pytest.mark.parametrize(
    ("origin", "is_allowed"),
    [
        ("http://127.0.0.1:{port}", True),
        ("http://127.0.0.1:{other}", False),
        ("http://127.0.0.1", False),
        ("https://app.example", True),
        ("https://app.example:8443", False),
        ("https://api.example", True),
        ("https://api.example:443", True),
        ("http://api.example", False),
    ],
)
async def test_pages_that_may_open_one(ears: Api, origin: str, is_allowed: bool) -> None:
    allowed = frozenset({"https://app.example"})
    api = ears.changed(allowed_origins=allowed, public_url="https://api.example")
    async with at_port(app_over(api.service)) as address:
        port = int(address.rpartition(":")[2])
        named = origin.format(port=port, other=port + 1)
        opening = connect(
            address.replace("http", "ws") + PATH,
            origin=named,  # type: ignore[arg-type]
            additional_headers={"Authorization": f"Bearer {api.everything}"},
        )
        if is_allowed:
            async with opening:
                return
        with pytest.raises(InvalidStatus) as error:
            await opening
        assert error.value.response.status_code == 403


async def test_the_path_without_its_version(ears: Api) -> None:
    async with listening(ears, "/realtime") as live:
        assert await live.is_well()


async def test_no_compression_is_agreed_on(ears: Api) -> None:
    async with listening(ears, compression="deflate") as live:
        assert "sec-websocket-extensions" not in live.socket.response.headers  # type: ignore[union-attr]


async def test_a_session_that_ends_is_told_before(ears: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realtime, "REALTIME_NOTICE_S", 0.3)
    monkeypatch.setattr(realtime, "REALTIME_SESSION_S", 0.6)
    async with listening(ears) as live:
        await live.speak(0.5)
        notice = await live.next("parlance.session.expiring")
        assert notice["why"] == "time_limit"
        ledger = await live.next("parlance.session.ledger")
        assert ledger["ledger"]["heard_s"] == pytest.approx(0.5, abs=0.04)
        await live.socket.wait_closed()
    assert live.socket.close_code == 1000


async def test_a_server_that_goes_says_so(ears: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realtime, "DRAIN_S", 0.2)
    async with listening(ears) as live:
        assert await live.is_well()
        ears.service.live.drain()
        notice = await live.next("parlance.session.expiring")
        assert (notice["why"], notice["closes_in_s"]) == ("draining", 0.2)
        assert (await live.next("parlance.session.ledger"))["is_last"]
        await live.socket.wait_closed()
    assert len(ears.service.live) == 0


async def test_sound_on_its_way_when_the_session_ends_is_in_the_ledger(
    ears: Api, monkeypatch: pytest.MonkeyPatch
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
    async with listening(ears) as live:
        await live.speak(0.5)
        await until(lambda: order)
        ears.service.live.drain()
        await until(is_ending)
        await asyncio.sleep(0)  # the end runs as far as it can
        released.set()
        ledger = (await live.next("parlance.session.ledger"))["ledger"]
    assert order == ["sound comes", "sound is taken", "the stream ends"]
    assert ledger["heard_s"] == pytest.approx(0.5, abs=0.04)


async def test_a_client_that_never_reads_is_left(ears: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realtime, "WRITE_S", 0.2)
    async with listening(ears) as live:
        live.socket.transport.pause_reading()

        async def send() -> None:
            while True:
                settings = {"transcription": {"prompt": "ü" * 4000}}  # each reply says it again
                await live.send("session.update", session={"type": "transcription", "audio": {"input": settings}})

        sending = asyncio.create_task(send())
        await until(lambda: not len(ears.service.live))
        live.socket.transport.abort()
        await asyncio.gather(sending, return_exceptions=True)


async def test_a_socket_that_begins_to_close_is_told_nothing() -> None:
    class Closing:
        """As uvicorn is once it has refused a frame."""

        application_state = WebSocketState.CONNECTED

        async def send_text(self, text: str) -> None:
            raise RuntimeError

        async def close(self, code: int, reason: str) -> None:
            raise RuntimeError

    socket = realtime._Socket(cast(Any, Closing()))
    await socket.send("session.created")
    await socket.close(1000, "")


async def test_many_rude_closes_leave_nothing_behind(ears: Api) -> None:
    async def rude(address: str) -> None:
        async with opened(ears, address) as live:
            await live.speak(0.4)
            live.socket.transport.abort()

    async with at_port(app_over(ears.service)) as address:
        for _ in range(5):
            await asyncio.gather(*(rude(address) for _ in range(10)))
    live = ears.service.live
    assert (len(live), live.sound_bytes.total, ears.state.rates.open_streams) == (0, 0, 0)
    assert ears.service.live.listener.open == 0  # type: ignore[attr-defined]
    left = {task.get_name() for task in asyncio.all_tasks()}
    assert not left & {"transcriber", "draft", "end of session", "key of session", "notice"}


async def test_where_live_sessions_are_off_their_routes_are_not_there(ears: Api) -> None:
    headers = {"Authorization": f"Bearer {ears.everything}"}
    async with at_port(build_app(ears.service, has_live=False)) as address:
        for path in ("/v1/realtime", "/realtime"):
            with pytest.raises(InvalidStatus) as error:
                await connect(address.replace("http", "ws") + path, additional_headers=headers)
            assert error.value.response.status_code == 404
            assert json.loads(error.value.response.body)["error"]["code"] == "not_found"
        async with httpx.AsyncClient(base_url=address, headers=headers) as client:
            for path in ("/v1/realtime/client_secrets", "/realtime/client_secrets"):
                assert (await client.post(path, json={})).json()["error"]["code"] == "not_found"
            assert (await client.get("/v1/me")).status_code == 200
            assert not any("realtime" in path for path in (await client.get("/openapi.json")).json()["paths"])
