"""Who may open a live session, and by which key: headers, subprotocols of browsers, client secrets; and its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
from openai.types.realtime import ClientSecretCreateResponse
from starlette.websockets import WebSocketState
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from contract.access import Scope
from deployments.ingress.routes import realtime
from state.accounts import api_keys
from tests.api.conftest import Api, app_over, refused
from tests.api.live import PATH, hearing, listening, opened, scripted
from tests.api.ports import at_port
from tests.waiting import until

SECRETS = "/v1/realtime/client_secrets"
BODY = {"session": {"type": "transcription"}}


@pytest.fixture
async def ears(api: Api) -> Api:
    hearing(api)
    return scripted(api)


async def secret(api: Api, **body: Any) -> dict[str, Any]:
    reply = await api.send("POST", SECRETS, json=BODY | body)
    assert reply.status_code == 200, reply.text
    made: dict[str, Any] = reply.json()
    return made


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
        with pytest.raises(InvalidStatus) as error:
            await connect(
                address.replace("http", "ws") + PATH, additional_headers={"Authorization": f"Bearer {made['value']}"}
            )
    assert json.loads(error.value.response.body)["error"]["code"] == "expired_api_key"


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


async def test_a_client_secret_wants_the_scope(ears: Api) -> None:
    key = await ears.key(Scope.CHAT)
    refused(await ears.send("POST", SECRETS, key=key, json=BODY), 403, "missing_scope")


async def test_a_client_secret_of_a_session_that_cannot_be(ears: Api) -> None:
    settings = {"type": "transcription", "audio": {"input": {"transcription": {"model": "gpt-4o-transcribe"}}}}
    refused(await ears.send("POST", SECRETS, json={"session": settings}), 404, "model_not_found", "model")
    long = {"type": "transcription", "audio": {"input": {"transcription": {"prompt": "x" * 2000}}}}
    refused(await ears.send("POST", SECRETS, json={"session": long}), 400, "invalid_request_error", "session")


@pytest.mark.parametrize("origin", ["http://127.0.0.1", "https://app.example"])
async def test_pages_that_may_open_one(ears: Api, origin: str) -> None:
    async with listening(ears.changed(allowed_origins=frozenset({"https://app.example"})), origin=origin) as live:
        assert await live.is_well()


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
    await socket.tell({"type": "session.created"})
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
    assert not left & {"ear", "draft", "end of session", "notice"}
