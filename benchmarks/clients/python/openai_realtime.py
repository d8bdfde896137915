"""OpenAI's SDK: live transcription."""

import asyncio
import base64
import io
import os
import wave

from openai import AsyncOpenAI, OpenAI

from steps import run, step

BASE_URL, KEY = f"{os.environ['PARLANCE_URL']}/v1", os.environ["PARLANCE_KEY"]
MODEL = "voxtral-mini-transcribe"
TRANSCRIPT = "conversation.item.input_audio_transcription"
RATE = 24_000
SILENCE = bytes(2 * RATE)
WITHIN_S = 90


def spoken() -> bytes:
    """A short sentence as PCM16 at 24 kHz, with a second of silence behind it."""
    reply = OpenAI(base_url=BASE_URL, api_key=KEY).audio.speech.create(
        model="tts-1", voice="rooom-f-01", input="Good morning.", response_format="wav", extra_body={"language": "en"}
    )
    with wave.open(io.BytesIO(reply.content)) as file:
        assert (file.getframerate(), file.getnchannels()) == (RATE, 1)
        return file.readframes(file.getnframes()) + SILENCE


def session(turn_detection: dict | None) -> dict:
    """What a session is set to."""
    sound = {"type": "audio/pcm", "rate": RATE}
    transcription = {"model": MODEL, "language": "en"}
    return {
        "type": "transcription",
        "audio": {"input": {"format": sound, "transcription": transcription, "turn_detection": turn_detection}},
    }


def connected(key: str = KEY):
    """A session of this SDK."""
    return AsyncOpenAI(base_url=BASE_URL, api_key=key).realtime.connect(extra_query={"intent": "transcription"})


async def until(connection, kind: str):
    """The first event of this kind, and the kinds of all that came before it."""
    before: list[str] = []
    async with asyncio.timeout(WITHIN_S):
        async for event in connection:
            if event.type == kind:
                return event, before
            assert event.type != "error", event
            before.append(event.type)
    raise AssertionError(f"closed before {kind}, after {before}")


async def append(connection, sound: bytes):
    """Sends sound in pieces of 100 ms."""
    for begin in range(0, len(sound), RATE // 5):
        piece = base64.b64encode(sound[begin : begin + RATE // 5]).decode()
        await connection.input_audio_buffer.append(audio=piece)


@step("live transcription, turns found by the server")
async def found_turns():
    async with connected() as connection:
        await until(connection, "session.created")
        await connection.session.update(session=session({"type": "server_vad"}))
        await until(connection, "session.updated")
        await append(connection, spoken())
        started, _ = await until(connection, "input_audio_buffer.speech_started")
        heard, before = await until(connection, f"{TRANSCRIPT}.completed")
    assert "input_audio_buffer.speech_stopped" in before, before
    assert "input_audio_buffer.committed" in before, before
    assert heard.item_id == started.item_id
    assert "morning" in heard.transcript.lower(), heard.transcript
    assert heard.usage.type == "duration"
    assert heard.usage.seconds > 0


@step("live transcription, turns that the client commits")
async def committed_turns():
    async with connected() as connection:
        await connection.session.update(session=session(None))
        await append(connection, spoken())
        await connection.input_audio_buffer.commit()
        item, _ = await until(connection, "input_audio_buffer.committed")
        heard, _ = await until(connection, f"{TRANSCRIPT}.completed")
    assert heard.item_id == item.item_id
    assert "morning" in heard.transcript.lower(), heard.transcript


@step("live transcription with a client secret")
async def client_secret():
    wanted = {"expires_after": {"anchor": "created_at", "seconds": 60}, "session": session(None)}
    async with AsyncOpenAI(base_url=BASE_URL, api_key=KEY) as client:
        secret = await client.realtime.client_secrets.create(**wanted)
    async with connected(secret.value) as connection:
        opened, _ = await until(connection, "session.created")
        assert opened.session.audio.input.turn_detection is None
        assert opened.session.audio.input.transcription.model == MODEL
        await append(connection, spoken())
        await connection.input_audio_buffer.commit()
        heard, _ = await until(connection, f"{TRANSCRIPT}.completed")
    assert "morning" in heard.transcript.lower(), heard.transcript


@step("an error that a live session survives")
async def error_survived():
    async with connected() as connection:
        await until(connection, "session.created")
        await connection.send({"type": "input_audio_buffer.append", "event_id": "mine", "audio": "not base64"})
        wrong, _ = await until(connection, "error")
        assert (wrong.error.type, wrong.error.event_id) == ("invalid_request_error", "mine"), wrong
        await connection.session.update(session=session(None))
        await until(connection, "session.updated")


if __name__ == "__main__":
    run()
