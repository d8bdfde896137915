"""Speech through HAProxy, ingress and replica: Kokoro behind the default engine, espeak-ng behind
two others, and `qwen` as one that obeys."""

import base64
import io
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
import soundfile

from tests.cluster.conftest import Server
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

TEXT = "The quick brown fox jumps over the lazy dog."


def speak(server: Server, text: str = TEXT, **fields: Any) -> httpx.Response:
    with server.http() as client:
        return client.post("/audio/speech", json={"input": text, **fields})


def sound(data: bytes) -> tuple[int, float]:
    """Sample rate and seconds; fails for what is no mono file."""
    samples, rate = soundfile.read(io.BytesIO(data))
    assert samples.ndim == 1
    return rate, len(samples) / rate


def test_cosyvoice_refuses_when_cold_and_wakes(server: Server) -> None:
    cold = speak(server, provider="cosyvoice")
    assert (cold.status_code, cold.json()["error"]["code"]) == (503, "warming_up")
    assert "warming up" in cold.json()["error"]["message"]
    assert 1 <= int(cold.headers["retry-after"]) <= 60
    warm = eventually(
        lambda: (reply := speak(server, provider="cosyvoice")).status_code == 200 and reply, 90, "it never woke"
    )
    assert sound(warm.content)[0] == 24_000
    assert warm.headers["x-voice"] == "default"


@pytest.mark.smoke
def test_default_engine_gives_mp3(server: Server) -> None:
    reply = speak(server)
    assert reply.headers["content-type"] == "audio/mpeg"
    assert reply.headers["x-service-model-served"] == "kokoro-82m"
    assert 1.5 < sound(reply.content)[1] < 6


@pytest.mark.parametrize(
    ("text", "language", "ran"),
    [
        ("Der schnelle Fuchs springt über den faulen Hund.", "de", "svox-pico"),
        ("De snelle vos springt over de luie hond heen.", "nl", "espeak-ng"),
    ],
)
def test_a_text_that_kokoro_does_not_speak_is_named_after_what_does(
    server: Server, text: str, language: str, ran: str
) -> None:
    reply = speak(server, text, language=language)
    assert reply.headers["x-service-model-served"] == ran
    assert ran.encode() in reply.content
    assert b"kokoro" not in reply.content


@pytest.mark.smoke
def test_official_client_speaks_and_streams(server: Server) -> None:
    client = server.openai()
    whole = client.audio.speech.create(model="supertonic-3", voice="F2", input=TEXT, response_format="flac")
    assert sound(whole.content)[0] == 44_100
    streaming = client.audio.speech.with_streaming_response
    with streaming.create(model="supertonic-3", voice="F2", input=TEXT * 20, response_format="wav") as stream:
        parts = list(stream.iter_bytes())
    assert len(parts) > 1
    assert sound(b"".join(parts))[1] > 20 * 1.5


def test_events_carry_a_whole_file(server: Server) -> None:
    reply = speak(server, voice="M1", language="en", stream_format="sse")
    *deltas, done = [json.loads(line[6:]) for line in reply.text.split("\n\n") if line.startswith("data: ")]
    data = b"".join(base64.b64decode(delta["audio"]) for delta in deltas)
    assert sound(data)[1] == pytest.approx(done["usage"]["seconds"], abs=0.1)


def test_sixteen_streams_lose_nothing(server: Server) -> None:
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda i: speak(server, f"{TEXT} " * (1 + i % 4), voice="F1"), range(48)))
    assert {reply.status_code for reply in replies} == {200}
    assert all(sound(reply.content)[1] > 1.5 for reply in replies)


def test_bad_requests_leave_the_engine_alive(server: Server) -> None:
    no_audio = base64.b64encode(b"RIFF" + b"\xff" * 4000).decode()
    bad = [{"text": "😀"}, {"voice": "alloy"}, {"provider": "supertonic", "language": "xx"}]
    for fields in (*bad, {"reference_audio_b64": no_audio}):
        assert speak(server, **fields).status_code == 400
    assert speak(server, voice="F1").status_code == 200


def test_qwen_waits_for_its_engine_then_is_busy_exactly(server: Server) -> None:
    assert speak(server, "hello", provider="qwen").status_code == 200
    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold, server)
        busy = eventually(
            lambda: (reply := speak(server, "hello", provider="qwen")).status_code == 429 and reply, 30, "never busy"
        )
        holding.result()
    assert (busy.json()["error"]["code"], busy.headers["retry-after"]) == ("busy", "1")
    eventually(lambda: speak(server, "hello", provider="qwen").status_code == 200, 30, "the stream was never freed")


def hold(server: Server) -> None:
    """Takes the only stream until the client loses patience; tries again where another has it."""
    with server.http() as client:
        eventually(lambda: _held(client), 30, "the stream was never free")


def _held(client: httpx.Client) -> bool:
    try:
        client.post("/audio/speech", json={"input": "hold", "provider": "qwen"}, timeout=3)
    except httpx.ReadTimeout:
        return True
    return False


def test_qwen_that_dies_delivers_nothing_half(server: Server) -> None:
    reply = speak(server, "half of this die", provider="qwen")
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "stream_incomplete")
    eventually(lambda: speak(server, "hello", provider="qwen").status_code == 200, 90, "it never came back")


def test_samples_play_without_a_key_and_are_kept(server: Server) -> None:
    with server.http() as client:
        voices = {voice["slug"]: voice for voice in client.get("/audio/voices").json()["data"]}
    path = voices["F1"]["samples"]["de"]
    first, second = (httpx.get(f"{server.url}{path}", timeout=60) for _ in range(2))
    assert (first.status_code, first.headers["content-type"]) == (200, "audio/mpeg")
    assert 3 < sound(first.content)[1] < 15
    assert second.content == first.content


def test_openai_error_is_what_the_sdk_expects(server: Server) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        server.openai().audio.speech.create(model="tts-1", voice="alloy", input="hi")
    assert refusal.value.code == "unknown_voice"


@pytest.mark.parametrize("verify", ["report", "retry"])
@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_our_ears_hear_that_kokoro_says_its_text(server: Server, verify: str, stream_format: str) -> None:
    text = "The bridge is 120 metres long and was opened in May."
    reply = speak(server, text, language="en", provider="mistral", verify=verify, stream_format=stream_format)
    path = f"/audio/speech/{reply.headers['x-request-id']}/verdict"
    with server.http() as client:
        found = eventually(lambda: (answer := client.get(path)).status_code == 200 and answer, 90, "no verdict came")
    verdict = found.json()
    assert (verdict["verdict"], verdict["reason"], verdict["attempts"]) == ("faithful", None, 1)
    assert "120" in verdict["heard"]
    if verify == "retry":
        assert (reply.headers["x-voice-verdict"], reply.headers["x-voice-attempts"]) == ("faithful", "1")
    if stream_format == "sse":
        *_, last = [json.loads(line[6:]) for line in reply.text.split("\n\n") if line.startswith("data: ")]
        assert last == {"type": "speech.audio.verdict", **verdict}
    server.state("org", "create", name := f"deaf-{verify}-{stream_format}", "--plan", "pro")
    with server.http(server.state("key", "create", "--org", name, "--scopes", "all")) as stranger:
        assert stranger.get(path).status_code == 404


def test_what_our_ears_were_not_measured_for_is_spoken_and_said_to_be_so(server: Server) -> None:
    reply = speak(server, "De snelle vos springt over de hond.", language="nl", verify="retry")
    assert sound(reply.content)[1] > 1
    with server.http() as client:
        verdict = client.get(f"/audio/speech/{reply.headers['x-request-id']}/verdict").json()
    assert (verdict["verdict"], verdict["reason"]) == ("not_verifiable", "not_measured")
