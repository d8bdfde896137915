"""Engines for the playground: what they answer can be seen and heard in a browser, and some of it is hostile."""

import asyncio
import dataclasses
import math
import struct
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from contract.catalog import Catalog, Model
from contract.chat.engine import ChatBatch, ChatJob
from contract.chat.usage import usage_of
from contract.embeddings import Embeddings, EmbeddingsJob
from contract.errors import PROVIDER_BUSY
from contract.speech.engine import AudioBlock, SpeechJob
from contract.transcription.engine import TranscriptionJob, TranscriptUpdate
from contract.voice_design.engine import DesignJob, DesignResult
from contract.wires import event
from tests.catalogs import NO_CPUS, behaving, chat, with_serving
from tests.engines import Behaving, ObedientChat, ObedientDesigner, ObedientSpeaker, ObedientTranscriber

RATE = 16_000


class Talker(ObedientChat):
    """Writes what the last message says, word by word; it calls the first tool where there is one.

    `busy` is refused at once, `slow TEXT` takes a second for each word, and `echo TEXT` is TEXT.
    """

    async def stream(self, job: ChatJob) -> AsyncGenerator[ChatBatch, None]:
        request = job.request
        verb, _, text = str(request.messages[-1].content[-1].text if request.messages[-1].content else "").partition(
            " "
        )
        if verb == "busy":
            raise PROVIDER_BUSY(retry_after_s=2)
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": request.model}
        deltas = _calls(request.tools[0].function.name) if request.tools else _words(text or verb)
        for index, (delta, token) in enumerate(deltas):
            if verb == "slow":
                await asyncio.sleep(1)
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            if request.logprobs and token:
                choice["logprobs"] = {"content": [_probability(token, index)]}
            yield ChatBatch(event(chunk | {"choices": [choice]}), 7, index + 1)
        ending = event(chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if request.include_usage:
            ending += event(chunk | {"choices": [], "usage": usage_of(7, len(deltas))})
        yield ChatBatch(ending, 7, len(deltas))


def _words(text: str) -> list[tuple[dict[str, object], str]]:
    return [({"role": "assistant", "content": f"{word} "}, f"{word} ") for word in text.split(" ")]


def _calls(name: str) -> list[tuple[dict[str, object], str]]:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": '{"city": '}}
    rest = {"index": 0, "function": {"arguments": '"Paris"}'}}
    return [({"role": "assistant", "tool_calls": [call]}, ""), ({"tool_calls": [rest]}, "")]


def _probability(token: str, index: int) -> dict[str, object]:
    logprob = index * math.log(0.5)
    other = {"token": "other", "logprob": -3.0, "bytes": None}
    own = {"token": token, "logprob": logprob, "bytes": list(token.encode())}
    return own | {"top_logprobs": [own, other]}


def tone(seconds: float, hertz: float = 220.0) -> bytes:
    """A WAV file of a tone that swells, whose header does not know how long it is, as of a stream."""
    count = int(seconds * RATE)
    samples = (
        int(20_000 * math.sin(math.pi * i / count) * math.sin(2 * math.pi * hertz * i / RATE)) for i in range(count)
    )
    unknown, form = b"\xff" * 4, struct.pack("<IHHIIHH", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    head = b"RIFF" + unknown + b"WAVEfmt " + form + b"data" + unknown
    return head + struct.pack(f"<{count}h", *samples)


class Whistler(ObedientSpeaker):
    async def speak(self, job: SpeechJob) -> AsyncGenerator[AudioBlock, None]:
        if "busy" in job.text.split():
            raise PROVIDER_BUSY(retry_after_s=2)
        sound = tone(0.5)
        yield AudioBlock(sound[:8000], len(job.text) // 2, 0.25)
        yield AudioBlock(sound[8000:], len(job.text), 0.5)


class Listener(ObedientTranscriber):
    async def transcribe(self, job: TranscriptionJob) -> AsyncGenerator[TranscriptUpdate, None]:
        heard = dataclasses.replace(job, audio=b"RIFF")
        async with aclosing(super().transcribe(heard)) as updates:
            async for update in updates:
                yield update


class Whisperer(ObedientDesigner):
    async def design(self, job: DesignJob) -> DesignResult:
        return dataclasses.replace(await super().design(job), sample=tone(0.5))


class Speller(Behaving):
    """A vector counts the letters of its text: texts of the same letters point the same way."""

    async def embed(self, job: EmbeddingsJob) -> Embeddings:
        size = self.model.dimensions
        rows = []
        for text in job.texts:
            counts = [0.0] * size
            for char in text.lower():
                counts[ord(char) % size] += 1
            rows.append(struct.pack(f"<{size}f", *counts))
        return Embeddings(b"".join(rows), size, sum(map(len, job.texts)))


ENGINES = {"speech": "Whistler", "transcription": "Listener", "voice_design": "Whisperer", "embeddings": "Speller"}


@pytest.fixture
def catalog() -> Catalog:
    """These engines, for a file that imports it."""

    def run_here(model: Model, engine: str) -> Model:
        return with_serving(model, adapter=f"tests.console.engines:{engine}", deployment=NO_CPUS)

    known = behaving(talker=run_here(chat("talker"), "Talker"))
    kinds = {
        noun: {id: run_here(model, engine) for id, model in getattr(known, noun).items()}
        for noun, engine in ENGINES.items()
    }
    return known.model_copy(update=kinds)
