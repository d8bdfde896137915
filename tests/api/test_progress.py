"""What a stream is told while it waits, if its request wants that; and what nobody else is told."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import openai
import pytest

from deployments.ingress.wire import events
from state import State
from tests.api.conftest import Api, app_over, serving
from tests.api.engines import LocalEngine, local_engines
from tests.api.ports import at_port
from tests.api.sounds import wav
from tests.catalogs import behaving, chat
from tests.waiting import until

ASKS = {"x-service-progress": "1"}
CHAT = {"model": "obedient", "messages": [{"role": "user", "content": "stream 2 0"}], "stream": True}
STREAMS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "obedient", "prompt": "stream 2 0", "stream": True},
    "/v1/responses": {"model": "obedient", "input": "stream 2 0", "stream": True},
    "/v1/audio/speech": {"input": "Good morning.", "voice": "default-en", "stream_format": "sse"},
}


@dataclass
class Queued:
    """The app over engines of one slot each, which somebody else has."""

    api: Api
    engines: dict[str, LocalEngine]

    async def busy(self, send: Callable[[], Any], leaves: Callable[[], object] | None = None) -> httpx.Response:
        """The reply to what `send` sends, which waits until its wait was looked at, or until `leaves`."""
        slots = {gate: gate.queue.try_enter("org-99") for gate in self.engines.values()}
        sending = asyncio.ensure_future(send())
        await until(leaves or (lambda: any(gate.forecast.waits for gate in slots)))
        for gate, slot in slots.items():
            assert slot
            gate.queue.leave(slot)
        reply: httpx.Response = await sending
        return reply

    def waiting(self) -> int:
        return sum(gate.queue.waiting for gate in self.engines.values())


@asynccontextmanager
async def one_slot(state: State, max_queued: int = 256, **options: Any) -> AsyncIterator[Queued]:
    catalog = behaving(obedient=chat("obedient", max_queued=max_queued))
    engines: Any = local_engines(catalog)
    for engine in engines.values():
        engine.handle.capacity = 1
    async with serving(catalog, state, engines=engines, **options) as api:
        for gate in engines.values():
            for seconds in (1.0, 2.0, 3.0):
                gate.times["service"].add(seconds)
        yield Queued(api, engines)


@pytest.fixture
async def queued(state: State) -> AsyncIterator[Queued]:
    async with one_slot(state) as queued:
        yield queued


def statuses(reply: httpx.Response) -> list[dict[str, Any]]:
    """The contents of the events that tell of a wait."""
    framed = [part for part in reply.text.split("\n\n") if part.startswith("event: queue_status\n")]
    return [json.loads(part.partition("\ndata: ")[2]) for part in framed]


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_that_waits_tells_its_place_and_time_if_that_is_wanted(queued: Queued, path: str) -> None:
    reply = await queued.busy(lambda: queued.api.send("POST", path, json=STREAMS[path], headers=ASKS))
    assert reply.status_code == 200, reply.text
    (status,) = statuses(reply)
    assert (status["position"], status["of"], status["why"]) == (1, 1, "queue")
    assert 500 < status["eta_ms"] <= status["eta_p90_ms"] < 20_000
    ends = ("[DONE]", "response.completed", "speech.audio.done")
    assert any(end in reply.text.split("\n\n")[-2] for end in ends), "and then comes the whole answer"


async def test_a_transcription_tells_it_too(queued: Queued) -> None:
    form = {"files": {"file": ("a.wav", wav(), "audio/wav")}, "data": {"stream": "true"}}
    reply = await queued.busy(lambda: queued.api.send("POST", "/v1/audio/transcriptions", headers=ASKS, **form))
    assert statuses(reply)[0]["type"] == "queue_status"
    assert "transcript.text.done" in reply.text


@pytest.mark.parametrize("path", STREAMS)
async def test_nobody_else_gets_another_byte(queued: Queued, path: str) -> None:
    for headers in ({}, {"x-service-progress": "true"}, {"x-parlance-progress": "1"}):

        async def send(headers: dict[str, str] = headers) -> httpx.Response:
            return await queued.api.send("POST", path, json=STREAMS[path], headers=headers)

        waited = await queued.busy(send, lambda: queued.waiting() == 1)
        assert "queue_status" not in waited.text
        assert len(waited.content) == len((await send()).content)


async def test_what_need_not_wait_or_does_not_stream_is_told_nothing_and_so_are_clients_of_messages(
    queued: Queued,
) -> None:
    """They break on what comes before the message."""
    assert statuses(await queued.api.send("POST", "/v1/chat/completions", json=CHAT, headers=ASKS)) == []
    assert (await queued.api.send("GET", "/v1/models", headers=ASKS)).status_code == 200
    whole = CHAT | {"stream": False, "messages": [{"role": "user", "content": "say hello"}]}
    for path, body, told in (
        ("/v1/chat/completions", whole, r'\{.*"content": ?"hello"'),
        ("/v1/messages", CHAT | {"max_tokens": 9}, "event: message_start\n"),
    ):
        ask = partial(queued.api.send, "POST", path, json=body, headers=ASKS)
        assert re.match(told, (await queued.busy(ask, lambda: queued.waiting() == 1)).text)


async def test_the_prefix_of_the_header_is_the_one_of_reply_headers(state: State) -> None:
    async with one_slot(state, header_prefix="x-house-") as queued:
        reply = await queued.busy(
            lambda: queued.api.send("POST", "/v1/chat/completions", json=CHAT, headers={"X-House-Progress": "1"})
        )
        assert statuses(reply)


@pytest.mark.parametrize(("service_s", "least_s", "most_s"), [(0.1, 1, 1), (20.0, 15, 30), (500.0, 48, 60)])
async def test_a_full_queue_is_a_429_that_says_when_to_come_again(
    state: State, service_s: float, least_s: int, most_s: int
) -> None:
    refusals: list[int] = []
    async with one_slot(state, max_queued=1) as queued:
        gate = queued.engines["chat-obedient"]
        for _ in range(1000):
            gate.times["service"].add(service_s)

        async def refused() -> int:
            waiting = asyncio.ensure_future(queued.api.chat("stream 1 0"))
            await until(lambda: gate.queue.waiting == 1)
            reply = await queued.api.send("POST", "/v1/chat/completions", json=CHAT, headers=ASKS)
            assert (reply.status_code, reply.json()["error"]["code"]) == (429, "busy")
            refusals.append(int(reply.headers["retry-after"]))
            return await waiting

        await queued.busy(refused, lambda: refusals)
    assert least_s <= refusals[0] <= most_s


async def test_a_wait_that_fails_is_an_event_once_it_was_told(state: State) -> None:
    async with one_slot(state, max_queued=2) as queued:
        gate = queued.engines["chat-obedient"]
        slot = gate.queue.try_enter("org-99")
        ask = partial(queued.api.send, "POST", "/v1/chat/completions", json=CHAT, headers=ASKS)
        asking = [asyncio.create_task(ask()) for _ in range(2)]
        await until(lambda: len(gate.forecast.waits) == 2)
        # The organisation that has most waiting makes room for another one.
        other = asyncio.create_task(gate.queue.enter("org-98", partial(asyncio.sleep, 0), 60))
        await until(lambda: any(task.done() for task in asking))
        assert slot
        gate.queue.leave(slot)
        gate.queue.leave(await other)
        replies = await asyncio.gather(*asking)
    assert [reply.status_code for reply in replies] == [200, 200]
    assert all(statuses(reply) for reply in replies)
    answered, refused = sorted((reply.text for reply in replies), key=lambda text: "busy" in text)
    assert answered.endswith("data: [DONE]\n\n")
    assert json.loads(refused.split("data: ")[-1])["error"]["code"] == "busy"


async def test_a_promise_is_repeated_before_silence_is_long(queued: Queued, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "STATUS_SILENCE_S", 0.0)
    monkeypatch.setattr(events, "STATUS_EVERY_S", 0.01)
    gate = queued.engines["chat-obedient"]
    slot = gate.queue.try_enter("org-99")
    sending = asyncio.create_task(queued.api.send("POST", "/v1/chat/completions", json=CHAT, headers=ASKS))
    await until(lambda: gate.forecast.waits)
    await asyncio.sleep(0.1)
    assert slot
    gate.queue.leave(slot)
    told = statuses(await sending)
    assert len(told) > 1
    assert [one["eta_ms"] for one in told] == sorted((one["eta_ms"] for one in told), reverse=True)


async def test_one_who_waits_for_a_start_is_told_so(queued: Queued) -> None:
    gate = queued.engines["chat-obedient"]
    gate.handle.sleep()
    sending = asyncio.create_task(queued.api.send("POST", "/v1/chat/completions", json=CHAT, headers=ASKS))
    await until(lambda: gate.forecast.waits)
    listed = (await queued.api.send("GET", "/v1/models/obedient")).json()
    assert listed["load"] == {"state": "starting", "expected_s": 2.0, "p90_s": pytest.approx(3.0, abs=0.1)}
    gate.handle.may_start.set()
    status = statuses(await sending)[0]
    assert (status["why"], status["position"]) == ("load", 1)
    assert 1000 < status["eta_ms"] <= 2100  # nobody has seen a start, so it is drawn around what the stanza says


async def test_clients_of_openai_read_such_streams(queued: Queued) -> None:
    """By hand and by their helpers, which take every event for one of theirs."""
    async with at_port(app_over(queued.api.service)) as address:
        client = openai.AsyncOpenAI(
            base_url=f"{address}/v1", api_key=queued.api.everything, default_headers=ASKS, max_retries=0
        )

        async def chunks() -> Any:
            stream = await client.chat.completions.create(**CHAT)
            return [chunk async for chunk in stream]

        async def helped_chat() -> Any:
            asked = {key: value for key, value in CHAT.items() if key != "stream"}
            async with client.chat.completions.stream(**asked) as stream:
                return await stream.get_final_completion()

        async def helped_response() -> Any:
            async with client.responses.stream(model="obedient", input="stream 2 0") as stream:
                return await stream.get_final_response()

        read: Any = await queued.busy(chunks)
        assert [choice.delta.content for chunk in read for choice in chunk.choices] == ["0 ", "1 "]
        final: Any = await queued.busy(helped_chat)
        assert final.choices[0].message.content == "0 1 "
        whole: Any = await queued.busy(helped_response)
        assert whole.output_text == "0 1 "
        await client.close()
