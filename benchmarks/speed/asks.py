"""One request of each kind that a model takes, put to its adapter; with how long it took and what came of it."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import time
from array import array
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import configs
from contract.catalog import ChatModel, DecisionModel, EmbeddingModel, RerankModel, SpeechModel, VoiceDesignModel
from contract.chat.engine import ChatJob
from contract.chat.request import ChatRequest
from contract.decisions.engine import DecisionJob
from contract.decisions.questions import BinaryQuestion
from contract.embeddings import EmbeddingsJob
from contract.rerank import RerankJob
from contract.speech.engine import Clip, SpeechJob
from contract.transcription.engine import TranscriptionJob
from contract.voice_design.order import DesignOrder, voice_spec
from contract.wires import contents
from deployments.ingress.verifier import wav

ANSWER_TOKENS = 256
TEXTS = 64
TONE_HZ, TONE_S, SAMPLE_RATE = 220, 5, 16_000
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Weather of a city", "parameters": SCHEMA},
}


class Asked(NamedTuple):
    what: str
    seconds: float
    result: str


async def _timed(work: Awaitable[Any]) -> tuple[Any, float]:
    """The result, and seconds until it was there."""
    started_s = time.perf_counter()
    return await work, time.perf_counter() - started_s


def picture(colour: str = "red") -> str:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (256, 256), colour).save(file, "png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


async def chat(engine: Any, model: ChatModel, _: Path | None) -> list[Asked]:
    """A streamed answer, a schema, a tool, thoughts, and an image, where the model has them."""
    done = [await _streamed(engine, model)]
    forced = {"response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}}
    done.append(await _whole("schema", engine, model, "Where is the Eiffel Tower?", **forced))
    if model.tool_parser:
        done.append(await _whole("tool", engine, model, "How is the weather in Paris? Call the tool.", tools=[WEATHER]))
    if model.thinking:
        done.append(await _whole("thoughts", engine, model, "What is 17 times 23?", reasoning_effort="high"))
    if model.vision:
        parts = [{"type": "image_url", "image_url": {"url": picture()}}, {"type": "text", "text": "Which colour?"}]
        done.append(await _whole("image", engine, model, parts))
    return done


def _job(model: ChatModel, content: Any, **fields: Any) -> ChatJob:
    body = {"model": model.id, "messages": [{"role": "user", "content": content}], "max_tokens": ANSWER_TOKENS}
    effort = {"reasoning_effort": "none"} if model.thinking else {}
    return ChatJob(ChatRequest.model_validate(body | effort | {"temperature": 0} | fields))


async def _streamed(engine: Any, model: ChatModel) -> Asked:
    started = time.perf_counter()
    first_s, tokens = 0.0, 0
    job = _job(model, "Tell me about the sea.", stream=True, stream_options={"include_usage": True})
    async for batch in engine.stream(job):
        first_s = first_s or time.perf_counter() - started
        for event in contents(batch.events):
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    spent_s = time.perf_counter() - started
    rate = tokens / max(spent_s - first_s, 1e-9)
    return Asked("text", spent_s, f"{tokens} tokens, {rate:.0f} tokens/s, the first after {1000 * first_s:.0f} ms")


async def _whole(what: str, engine: Any, model: ChatModel, content: Any, **fields: Any) -> Asked:
    reply, spent_s = await _timed(engine.complete(_job(model, content, **fields)))
    message = reply.body["choices"][0]["message"]
    calls = [call["function"]["arguments"] for call in message.get("tool_calls", [])] or [
        message.get("reasoning_content"),
        message["content"],
    ]
    return Asked(what, spent_s, _short(" | ".join(part for part in calls if part)))


async def decisions(engine: Any, model: DecisionModel, _: Path | None) -> list[Asked]:
    """A question about a text, and one about an image."""
    questions: dict[str, tuple[str, tuple[str, ...]]] = {"text": ("I was charged twice and want my money back.", ())}
    if model.reads_images:
        questions["image"] = ("The picture is of one colour.", (picture(),))
    done = []
    for what, (state, images) in questions.items():
        question = BinaryQuestion(
            type="binary",
            instructions="Is this about money?" if what == "text" else "Is it red?",
            true_description="yes, it is",
            false_description="no, it is not",
        )
        found, spent_s = await _timed(engine.read_job(DecisionJob(state, (question,), images), 1.0))
        chances = [math.exp(value) if value is not None else 0.0 for value in found.reads[0].logprobs]
        done.append(Asked(what, spent_s, f"yes {chances[0]:.3f}, no {chances[1]:.3f}, {found.input_tokens} tokens"))
    return done


async def embeddings(engine: Any, model: EmbeddingModel, _: Path | None) -> list[Asked]:
    """Passages together, and a query with its prompt."""
    passages = tuple(f"def number_{number}(): return {number}  # one of many" for number in range(TEXTS))
    done = []
    for what, texts, prompt in (
        ("passages", passages, ""),
        ("query", ("Which is 7?",), model.prompts.get("query", "")),
    ):
        found, spent_s = await _timed(engine.embed(EmbeddingsJob(texts, prompt=prompt)))
        rate = found.prompt_tokens / spent_s
        done.append(Asked(what, spent_s, f"{len(texts)} of {found.dimensions} numbers, {rate:.0f} tokens/s"))
    return done


async def rerank(engine: Any, model: RerankModel, _: Path | None) -> list[Asked]:
    """Two documents of which one fits, many times over."""
    documents = ("Paris is the capital of France.", "Bread is baked from flour.") * (TEXTS // 2)
    found, spent_s = await _timed(engine.rerank(RerankJob("What is the capital of France?", documents)))
    scores = f"{found.scores[0]:.3f} and {found.scores[1]:.3f}"
    return [Asked("documents", spent_s, f"{scores}, {found.prompt_tokens / spent_s:.0f} tokens/s")]


async def speech(engine: Any, model: SpeechModel, _: Path | None) -> list[Asked]:
    job = SpeechJob("The next train to Hamburg leaves from platform five.", "en", voice=model.default_voice)
    block, spent_s = await _timed(engine.speak_whole(job))
    speed = block.seconds / spent_s
    return [Asked("sentence", spent_s, f"{block.seconds:.1f} s of sound, {speed:.1f} times real time")]


async def transcription(engine: Any, _: Any, recording: Path | None) -> list[Asked]:
    audio = await asyncio.to_thread(recording.read_bytes) if recording else tone()
    started = time.perf_counter()
    updates = [part async for part in engine.transcribe(TranscriptionJob(audio))]
    spent_s = time.perf_counter() - started
    text = " ".join(segment.text for part in updates for segment in part.segments)
    return [Asked("recording", spent_s, f"{updates[-1].duration_s:.1f} s of sound: {_short(text)}")]


async def voice_design(engine: Any, model: VoiceDesignModel, _: Path | None) -> list[Asked]:
    catalog = configs.load("production")
    order = DesignOrder(gender="f", age_years=32, language="en", character="warm")
    planned = voice_spec(order, catalog.traits, model, Random(1))
    made, spent_s = await _timed(engine.design(planned.job(catalog.sentences["en"], model.max_attempts)))
    return [Asked("order", spent_s, f"{made.f0_hz:.0f} Hz")]


def tone() -> bytes:
    samples = (int(9_000 * math.sin(2 * math.pi * TONE_HZ * at / SAMPLE_RATE)) for at in range(TONE_S * SAMPLE_RATE))
    return wav(Clip(array("h", samples).tobytes(), SAMPLE_RATE))


def _short(text: str) -> str:
    return json.dumps(text if len(text) <= 60 else f"{text[:60]}…", ensure_ascii=False)


ASKS: dict[str, Callable[[Any, Any, Path | None], Awaitable[list[Asked]]]] = {
    "chat": chat,
    "decisions": decisions,
    "embeddings": embeddings,
    "rerank": rerank,
    "speech": speech,
    "transcription": transcription,
    "voice_design": voice_design,
}
"""By capability."""
