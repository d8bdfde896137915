"""Voxtral on vLLM: every passage of a recording is one request, and its answer one segment.

    passages -> prompt (mistral_common) -> vLLM, some at the same time -> segments, in order

The true times of a segment are those of its passage. The model knows no others, so segments have no words. Its prompt
has a place for sound and for a language, and none for terms or a text that went before. Silence costs no request.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from contract.catalog import TranscriptionModel
from contract.errors import UPSTREAM_ERROR
from contract.transcription.engine import Segment, TranscriptionJob, TranscriptUpdate
from models import ONNX, Imports
from models.llm import adapter, engine
from models.llm.arguments import EngineOptions
from models.options import read
from models.transcription.adapter import SAMPLE_RATE, Recording, TranscriptionAdapter
from models.transcription.voice_activity import WINDOW_S, Span, blocks
from models.weights.files import need_folder

if TYPE_CHECKING:
    from audio.encoding import Samples

log = logging.getLogger(f"parlance.{__name__}")

FOR_AUDIO: dict[str, Any] = {
    "tokenizer_mode": "mistral",
    "config_format": "mistral",
    "load_format": "mistral",
    "limit_mm_per_prompt": {"audio": 1},
    "mm_processor_cache_gb": 0,  # no recording of a client is kept
    "enable_prefix_caching": False,  # nor what was computed from it; no two prompts begin alike
}
"""Engine arguments where a stanza says nothing."""

WINDOW = 2048
"""Tokens of a request, at most. Its sound takes 375 for each 30 s begun, its answer up to MAX_TOKENS."""

TOKENS_PER_S, SPARE_TOKENS = 20, 32
"""Tokens of an answer, at most: twice as many as fast speech needs. A model that repeats itself is stopped there."""

AT_ONCE = 8
"""Passages of one recording that are in the engine at a time, so that passages of other recordings run in between."""


class VoxtralOptions(EngineOptions):
    """Options of `Voxtral`.

    Attributes:
        lacks_languages: codes that it does not know; the tokenizer takes codes of two letters only.
        times, takes_terms: must be in the stanza, because requests are checked by it; other values are impossible.
    """

    lacks_languages: tuple[str, ...] = ()
    times: tuple[Literal["segment"]]
    takes_terms: Literal[False]


TRANSCRIBING = ONNX + Imports(("httpx", "faster_whisper.vad", "mistral_common.protocol.transcription.request"))
"""Modules that find passages and make requests of them, beside those that an engine imports."""


class Voxtral(TranscriptionAdapter, adapter.EngineAdapter):
    """A Voxtral, loaded. Safe for concurrent calls from one event loop."""

    options_type = VoxtralOptions
    libraries = TRANSCRIBING

    def __init__(self, model: TranscriptionModel, path: Path | None) -> None:
        super().__init__(model, path)
        options = read(model, VoxtralOptions)
        folder = need_folder(path, model.id)
        self.engine = engine.start(adapter.spec_of(model, folder, WINDOW, options, FOR_AUDIO | options.engine))
        self._tokenizer: Any = self.engine.renderer.get_tokenizer()
        self._numbers = itertools.count()

    async def listen(self, job: TranscriptionJob, recording: Recording) -> AsyncGenerator[TranscriptUpdate, None]:
        """A part for each passage. Raises UPSTREAM_ERROR if the engine fails."""
        total = recording.sound.seconds
        ahead: deque[tuple[Span, asyncio.Task[str]]] = deque()

        async def first() -> TranscriptUpdate:
            passage, task = ahead[0]
            text = await task
            ahead.popleft()
            start, end = min(passage.start, total), min(passage.end, total)
            return TranscriptUpdate(total, end, job.language, (Segment(text, start, end),) if text else ())

        try:
            async with aclosing(passages(recording)) as spans:
                async for passage in spans:
                    ahead.append((passage, asyncio.create_task(self._hear(recording, passage, job.language))))
                    while len(ahead) >= AT_ONCE or (ahead and ahead[0][1].done()):
                        yield await first()
            while ahead:
                yield await first()
            yield TranscriptUpdate(total, total, job.language)
        finally:
            tasks = [task for _, task in ahead]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _hear(self, recording: Recording, passage: Span, language: str | None) -> str:
        """Transcribes `passage`. Cancelled, it takes its request out of the engine."""
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        params = SamplingParams(
            temperature=0,
            max_tokens=SPARE_TOKENS + int(TOKENS_PER_S * (passage.end - passage.start)),
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        try:
            answer = await self._answer(await self._prompt(recording, passage, language), params)
        except Exception as failure:
            # vLLM's texts may quote what was said, which must not get into a log.
            log.error("a passage of %s failed: %s", self.model.id, type(failure).__name__)
            raise UPSTREAM_ERROR() from None
        if answer.finish_reason not in ("stop", "length"):
            raise UPSTREAM_ERROR()
        return str(answer.text).strip()

    async def _prompt(self, recording: Recording, passage: Span, language: str | None) -> Any:
        from vllm.inputs import TokensPrompt

        samples = recording.samples(*passage)
        tokens, sound = await asyncio.to_thread(prompt_of, self._tokenizer, samples, language)
        prompt = TokensPrompt(prompt_token_ids=tokens, multi_modal_data={"audio": [(sound, SAMPLE_RATE)]})
        renderer: Any = self.engine.renderer
        return await renderer.process_for_engine_async(prompt, time.time(), skip_mm_cache=True)

    async def _answer(self, prompt: Any, params: Any) -> Any:
        """The whole answer. Left early, its request leaves the engine."""
        async with aclosing(self.engine.generate(prompt, params, f"transcription-{next(self._numbers)}")) as outputs:
            (output,) = [output async for output in outputs]
        return output.outputs[0]


def prompt_of(tokenizer: Any, samples: Samples, language: str | None) -> tuple[list[int], Samples]:
    """Token ids of a request for `samples`, float32 [n], and its sound, filled up with silence to whole 30 s."""
    from mistral_common.protocol.transcription.request import TranscriptionRequest
    from mistral_common.tokens.tokenizers.audio import Audio

    wav = Audio(samples, SAMPLE_RATE, format="wav").to_base64("wav")
    encoded = tokenizer.instruct.encode_transcription(TranscriptionRequest(audio=wav, language=language))
    return encoded.tokens, encoded.audios[0].audio_array


ENOUGH_S = 10.0
"""A passage this long is not joined with the next: longer ones say less about when something was said."""

PAUSE_S = 0.2
"""Seconds between spans that are joined, at most. Spans exceed the speech in them by up to 0.4 s on each side."""


async def passages(recording: Recording) -> AsyncGenerator[Span, None]:
    """Passages of at most WINDOW_S seconds with speech, in order; none in silence."""
    passage: Span | None = None
    async for span in _spans(recording):
        if passage and _belong_together(passage, span):
            passage = Span(passage.start, span.end)
        else:
            if passage:
                yield passage
            passage = span
    if passage:
        yield passage


async def _spans(recording: Recording) -> AsyncGenerator[Span, None]:
    parts = blocks(recording.samples, recording.sound.seconds)
    while block := await asyncio.to_thread(next, parts, None):
        for window in block.windows:
            for span in window.spoken:
                yield span


def _belong_together(passage: Span, span: Span) -> bool:
    is_near = span.start - passage.end <= PAUSE_S
    return is_near and passage.end - passage.start < ENOUGH_S and span.end - passage.start <= WINDOW_S
