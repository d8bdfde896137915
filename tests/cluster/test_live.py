"""Live sessions through HAProxy, ingress, the network for speech and the real Whisper base."""

import asyncio
import base64
import io
import json
from contextlib import suppress
from typing import Any

import numpy as np
import psutil
import pytest
import soundfile
import soxr
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from benchmarks.quality.transcription import errors
from tests.cluster.conftest import Server
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

TEXT = "Good morning. The train to the coast leaves from platform nine."
ENGINE = "transcription-voxtral-mini-transcribe"
RATE = 24_000
PIECE_S = 0.1
WITHIN_S = 120
TRANSCRIPTION = "conversation.item.input_audio_transcription"


@pytest.fixture(scope="module")
def sentence(server: Server) -> bytes:
    """Our own speech between two pauses, 16 bits at RATE."""
    with server.http() as client:
        body = {"input": TEXT, "voice": "F1", "language": "en", "response_format": "wav"}
        samples, rate = soundfile.read(io.BytesIO(client.post("/audio/speech", json=body).content), dtype="float32")
    pause = np.zeros(RATE, np.float32)
    whole = np.concatenate([pause, soxr.resample(samples, rate, RATE), pause])
    return bytes((whole * 32_767).astype("<i2").tobytes())


def session(server: Server) -> Any:
    headers = {"Authorization": f"Bearer {server.key}"}
    return connect(f"{server.url.replace('http', 'ws')}/v1/realtime?intent=transcription", additional_headers=headers)


async def speak(socket: ClientConnection, sound: bytes) -> None:
    """At the pace of speech."""
    loop = asyncio.get_running_loop()
    began, piece = loop.time(), int(PIECE_S * RATE) * 2
    for start in range(0, len(sound), piece):
        audio = base64.b64encode(sound[start : start + piece]).decode()
        await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
        await asyncio.sleep(max(0.0, began + (start + piece) / 2 / RATE - loop.time()))


async def rest(socket: ClientConnection) -> list[dict[str, Any]]:
    """Everything until the close."""
    await socket.send(json.dumps({"type": "parlance.session.end"}))
    async with asyncio.timeout(WITHIN_S):
        return [json.loads(text) async for text in socket]


@pytest.mark.smoke
async def test_a_sentence_comes_back_as_text(server: Server, sentence: bytes) -> None:
    async with session(server) as socket:
        await speak(socket, sentence)
        events = await rest(socket)
    assert events[0]["type"] == "session.created"
    texts = [event["transcript"] for event in events if event["type"] == f"{TRANSCRIPTION}.completed"]
    assert errors(TEXT, " ".join(texts), "en") < 0.35
    ledger = events[-1]["ledger"]
    assert ledger["unheard_s"] == 0
    assert ledger["received_s"] == pytest.approx(len(sentence) / 2 / RATE, abs=0.01)


async def test_a_replica_that_dies_in_a_turn_loses_no_words(server: Server, sentence: bytes) -> None:
    eventually(lambda: server.replicas(ENGINE), WITHIN_S, "the transcriber did not wake")
    async with session(server) as socket:
        speaking = asyncio.create_task(speak(socket, sentence))
        async with asyncio.timeout(WITHIN_S):
            while json.loads(await socket.recv())["type"] != "input_audio_buffer.speech_stopped":
                pass
        processes = server.replica_processes(ENGINE)
        assert processes
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # a child that has died with the first
                process.kill()
        await speaking
        events = await rest(socket)
    texts = [event["transcript"] for event in events if event["type"] == f"{TRANSCRIPTION}.completed"]
    assert [event for event in events if event["type"] == f"{TRANSCRIPTION}.failed"] == []
    assert errors(TEXT, " ".join(texts), "en") < 0.35
    assert events[-1]["ledger"]["unheard_s"] == 0


async def test_a_refusal_comes_before_the_upgrade(server: Server) -> None:
    with pytest.raises(InvalidStatus) as error:
        await connect(f"{server.url.replace('http', 'ws')}/v1/realtime")
    assert error.value.response.status_code == 401
    assert json.loads(error.value.response.body)["error"]["code"] == "missing_api_key"
