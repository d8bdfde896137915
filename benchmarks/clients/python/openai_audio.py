"""OpenAI's SDK: speech and transcription."""

import io
import os

from openai import AsyncOpenAI, OpenAI

from steps import run, step

BASE_URL, KEY = f"{os.environ['PARLANCE_URL']}/v1", os.environ["PARLANCE_KEY"]
MORNING = {"model": "tts-1", "voice": "F1", "input": "Good morning.", "extra_body": {"language": "en"}}

client = OpenAI(base_url=BASE_URL, api_key=KEY)


def spoken(form: str = "wav") -> bytes:
    """A short sentence."""
    return client.audio.speech.create(**MORNING, response_format=form).content


@step("speech")
def speech():
    assert spoken().startswith(b"RIFF")
    assert len(spoken("mp3")) > 1_000


@step("streamed speech")
def speech_streamed():
    with client.audio.speech.with_streaming_response.create(**MORNING, response_format="mp3") as reply:
        assert sum(len(piece) for piece in reply.iter_bytes()) > 1_000


@step("speech, async")
async def speech_async():
    async with AsyncOpenAI(base_url=BASE_URL, api_key=KEY) as anew:
        reply = await anew.audio.speech.create(**MORNING, response_format="wav")
    assert reply.content.startswith(b"RIFF")


@step("transcription")
def transcription():
    sound = io.BytesIO(spoken())
    transcript = client.audio.transcriptions.create(
        model="whisper-large-v3", file=("morning.wav", sound), language="en", response_format="verbose_json"
    )
    assert "morning" in transcript.text.lower()
    assert transcript.segments


@step("speech as pcm", cannot="raw samples cannot say that a machine spoke; take `wav`", error="400")
def pcm():
    spoken("pcm")


@step("translation of sound", cannot="no engine translates", error="404")
def translation():
    client.audio.translations.create(model="whisper-large-v3", file=("morning.wav", io.BytesIO(spoken())))


if __name__ == "__main__":
    run()
