"""Engines that behave, for tests of everything around an engine: they answer at once, wait, fail or die on command.

A chat engine obeys the last message: `say WORD`, `hold SECONDS`, `freeze SECONDS` (nothing else runs in its process),
`fail`, `die`, `segfault`, `exhaust` (its memory), `sicken`, `stream N`, `version PACKAGE`.
"""

import asyncio
import json
import math
import resource
import signal
import struct
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from contract.base import Frozen
from contract.catalog import Model
from contract.chat.engine import ChatBatch, ChatJob, ChatReply
from contract.chat.request import ChatRequest
from contract.chat.usage import usage_of
from contract.completions import CompletionJob, CompletionReply
from contract.decisions.engine import DecisionJob, Measurement, Reading, Readings
from contract.embeddings import Embeddings, EmbeddingsJob
from contract.errors import (
    AUDIO_TOO_LONG,
    AUDIO_UNREADABLE,
    CONTEXT_LENGTH_EXCEEDED,
    INVALID_REQUEST,
    PROVIDER_BUSY,
    RUNTIME_UNAVAILABLE,
    UPSTREAM_ERROR,
)
from contract.rerank import Ranking, RerankJob
from contract.speech.engine import AudioBlock, Clip, SpeechJob
from contract.tokens import DetokenizeJob, Tokenized, TokenizeJob
from contract.transcription.engine import Segment, TimedWord, TranscriptionJob, TranscriptUpdate
from contract.voice_design.engine import DesignJob, DesignResult
from contract.wires import event

DEATHS = {"die": signal.SIGKILL, "segfault": signal.SIGSEGV}
taken: list[bytes] = []


class Behaving:
    """An engine that is well.

    Attributes:
        under_way: calls it works on, so that tests can see that a cancelled one ended.
    """

    def __init__(self, model: Model, path: Path | None) -> None:
        self.model: Any = model
        self.under_way = 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """The block is a call."""
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    async def check_health(self) -> None:
        pass

    def close(self) -> None:
        pass


def fail_or_die(verb: str) -> None:
    """Obeys these commands."""
    if verb == "fail":
        raise ValueError("a secret detail of the inside")
    if verb in DEATHS:
        signal.raise_signal(DEATHS[verb])  # of this thread, which goes no further
    if verb == "exhaust":  # the last 200 MiB that this process may have, from now on
        held_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held_bytes + (200 << 20), resource.getrlimit(resource.RLIMIT_AS)[1]))
        for size in (1 << 20, 1 << 10):
            with suppress(MemoryError):
                taken.extend(iter(partial(bytes.__mul__, b"x", size), b""))
        raise MemoryError


class ObedientChat(Behaving):
    """Does what the last message says; `cached N` had so many tokens in the cache."""

    def __init__(self, model: Model, path: Path | None) -> None:
        super().__init__(model, path)
        self.is_sick = False

    async def complete(self, job: ChatJob) -> ChatReply:
        request = job.request
        with self.working():
            text = await self._obey(_last(request))
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": request.model}
        cached = int(text) if _last(request).startswith("cached ") else 0
        return ChatReply(body | {"choices": [choice], "usage": usage_of(7, 3)}, 7, 3, cached)

    async def stream(self, job: ChatJob) -> AsyncGenerator[ChatBatch, None]:
        """`stream N SECONDS`: N events, SECONDS apart. `stream N SECONDS fail|die`: and then that. Else two words."""
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": job.request.model}
        async with aclosing(self._counted(_last(job.request))) as indices:
            async for index in indices:
                delta = {"index": 0, "delta": {"role": "assistant", "content": f"{index} "}, "finish_reason": None}
                yield ChatBatch(event(chunk | {"choices": [delta]}), 7, index + 1)

    async def counted(
        self, job: ChatJob | CompletionJob
    ) -> AsyncGenerator[ChatBatch | ChatReply | CompletionReply, None]:
        """The counts of `stream N SECONDS`, then the whole answer."""
        text = _last(job.request) if isinstance(job, ChatJob) else str(job.request.prompt[0])
        if text.startswith("stream"):
            async with aclosing(self._counted(text)) as indices:
                async for index in indices:
                    yield ChatBatch(b"", 7, index + 1)
        yield await (self.complete(job) if isinstance(job, ChatJob) else self.write(job))

    async def write(self, job: CompletionJob) -> CompletionReply:
        """Each prompt is obeyed, as the last message of a chat."""
        with self.working():
            texts = [await self._obey(str(prompt)) for prompt in job.request.prompt]
        choices = [
            {"index": index, "text": text, "logprobs": None, "finish_reason": "stop"}
            for index, text in enumerate(texts)
        ]
        usage = usage_of(7, 3)
        body: Any = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": job.request.model}
        return CompletionReply(body | {"choices": choices, "usage": usage}, 7, 3)

    async def write_stream(self, job: CompletionJob) -> AsyncGenerator[ChatBatch, None]:
        """As `stream`."""
        chunk = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": job.request.model}
        async with aclosing(self._counted(str(job.request.prompt[0]))) as indices:
            async for index in indices:
                choice = {"index": 0, "text": f"{index} ", "logprobs": None, "finish_reason": None}
                yield ChatBatch(event(chunk | {"choices": [choice]}), 7, index + 1)

    async def tokenize(self, job: TokenizeJob) -> Tokenized:
        """A token is a character, its id the code point."""
        text = _last(job.request) if job.request else job.text or ""
        return Tokenized([ord(char) for char in text], list(text) if job.with_strings else None)

    async def detokenize(self, job: DetokenizeJob) -> str:
        return "".join(map(chr, job.ids))

    async def check_health(self) -> None:
        if self.is_sick:
            raise RuntimeError("it was told to be")

    async def _obey(self, text: str) -> str:
        verb, _, rest = text.partition(" ")
        if verb == "hold":
            await asyncio.sleep(float(rest))
        if verb == "freeze":
            time.sleep(float(rest))  # noqa: ASYNC251 (that is what it does)
        if verb == "refuse":
            raise INVALID_REQUEST("the engine refuses this", param="messages")
        if verb == "version":
            return version(rest)
        if verb == "count":
            return str(self.under_way - 1)
        await self._end(verb)
        return rest or "ok"

    async def _counted(self, text: str) -> AsyncGenerator[int, None]:
        with self.working():
            verb, *rest = text.split()
            count, pause_s, *end = (*rest, "") if verb == "stream" else ("2", "0", "")
            for index in range(int(count)):
                yield index
                await asyncio.sleep(float(pause_s))
            await self._end(end[0])

    async def _end(self, verb: str) -> None:
        if verb == "sicken":
            self.is_sick = True
        fail_or_die(verb)


class BrokenChat:
    """An engine whose start always fails."""

    def __init__(self, model: Model, path: Path | None) -> None:
        raise RuntimeError("these weights cannot be loaded")


class CountingEmbedder(Behaving):
    """Vectors that repeat the length of the text, its prompt included; of token ids, their number."""

    async def embed(self, job: EmbeddingsJob) -> Embeddings:
        size = self.model.dimensions
        lengths = [len(job.prompt) + len(text) for text in job.texts]
        if not job.truncate and max(lengths) > self.model.context_window:
            raise CONTEXT_LENGTH_EXCEEDED(f"`input` has {max(lengths)} tokens", param="input")
        rows = b"".join(struct.pack(f"<{size}f", *[float(length)] * size) for length in lengths)
        return Embeddings(rows, size, sum(lengths))


class LengthReranker(Behaving):
    """Longer documents are more relevant."""

    async def rerank(self, job: RerankJob) -> Ranking:
        return Ranking(tuple(float(len(document)) for document in job.documents), sum(map(len, job.documents)))


class ObedientSpeaker(Behaving):
    """A file is its text: a block for each word, after one that tells what was asked.

    The word `hold` never ends, `fail` and `die` do that, `busy` is a provider that takes no more.
    """

    async def speak(self, job: SpeechJob) -> AsyncGenerator[AudioBlock, None]:
        """Word by word."""
        with self.working():
            words, spoken = job.text.split(), 0
            for index, word in enumerate(words):
                await self._obey(word)
                spoken = len(job.text) if index + 1 == len(words) else spoken + len(word) + 1
                head = _told(job) if index == 0 else b""
                yield AudioBlock(head + f"{word} ".encode(), spoken, float(index + 1))
            yield AudioBlock(b"end", spoken, float(len(words)))

    async def speak_whole(self, job: SpeechJob) -> AudioBlock:
        """All words at once."""
        blocks = [block async for block in self.speak(job)]
        return AudioBlock(b"".join(block.data for block in blocks), blocks[-1].characters, blocks[-1].seconds)

    async def _obey(self, word: str) -> None:
        if word == "hold":
            await asyncio.Event().wait()
        if word == "busy":
            raise PROVIDER_BUSY()
        fail_or_die(word)


def _told(job: SpeechJob) -> bytes:
    """One line of JSON."""
    clip = job.clip
    about = {name: getattr(job, name) for name in ("language", "voice", "style", "speed", "format")}
    about["clip"] = [len(clip.samples), clip.sample_rate, clip.transcript] if clip else None
    about |= {"recipe": job.recipe} if job.recipe else {}
    return json.dumps(about).encode() + b"\n"


class ObedientDesigner(Behaving):
    """A description of one command is obeyed, any other gives a voice at the pitch that was ordered: two seconds of
    it, made in 1.5 s.

    `hold` waits until `go` is set, `hold SECONDS` so long, `fail` raises, `fail N` does so N times, `die` ends the
    process, `busy` takes no more, `unheard` gives no voice, `far` never reaches the band, `clip` has no recipe.
    """

    def __init__(self, model: Model, path: Path | None) -> None:
        super().__init__(model, path)
        self.jobs: list[DesignJob] = []
        self.go = asyncio.Event()

    async def design(self, job: DesignJob) -> DesignResult:
        self.jobs.append(job)
        with self.working():
            await self._obey(*job.instruct.split())
        f0_hz = 2.0 * job.target_hz if job.instruct == "far" else job.target_hz + 0.04
        return DesignResult(
            clip=Clip(b"\1\0" * 48_000, 24_000, job.text),
            sample=json.dumps({"sample": job.seed}).encode(),
            recipe=None if job.instruct == "clip" else json.dumps({"seed": job.seed}),
            f0_hz=f0_hz,
            p25_hz=f0_hz - 5,
            p75_hz=f0_hz + 5,
            voiced_windows=90,
            in_band=job.band_hz[0] <= f0_hz <= job.band_hz[1],
            attempts_used=job.attempts if job.instruct == "far" else 1,
            seconds=1.5,
        )

    async def _obey(self, verb: str, number: str = "", *_: str) -> None:
        if verb == "hold":
            await (asyncio.sleep(float(number)) if number else self.go.wait())
        if verb == "die" or (verb == "fail" and (not number or len(self.jobs) <= int(number))):
            fail_or_die(verb)
        if verb == "busy":
            raise PROVIDER_BUSY()
        if verb == "unheard":
            raise UPSTREAM_ERROR()


class TranscriberOptions(Frozen):
    """What the catalogue looks at."""

    lacks_languages: tuple[str, ...] = ()


class ObedientTranscriber(Behaving):
    """A recording is a text here, one command a line. Each line that is none is heard as a segment of a second, and so
    is a WAV file as a whole.

    `hold SECONDS`, `fail`, `die`, `unreadable`, `lasts SECONDS` (of the whole recording), `silence SECONDS`,
    `speaks CODE`, `told` (heard as what the engine was asked).
    """

    options_type = TranscriberOptions

    async def transcribe(self, job: TranscriptionJob) -> AsyncGenerator[TranscriptUpdate, None]:
        with self.working():
            lines = [line for line in _recording(job).splitlines() if line]
            commands = {line.split()[0]: line for line in lines}
            if "unreadable" in commands:
                raise AUDIO_UNREADABLE("the recording cannot be decoded: the file is not audio", param="file")
            spoken = [line for line in lines if line.split()[0] not in TRANSCRIBER_COMMANDS]
            duration_s = float(commands.get("lasts", f"lasts {len(spoken)}").split()[1])
            if duration_s > job.max_seconds:
                raise AUDIO_TOO_LONG(f"the recording lasts more than {job.max_seconds:g} s", param="file")
            yield TranscriptUpdate(duration_s)
            language, at_s = job.language or commands.get("speaks", "speaks en").split()[1], 0.0
            for line in lines:
                match line.split():
                    case ["hold", seconds]:
                        await asyncio.sleep(float(seconds))
                    case ["fail" | "die" as verb]:
                        fail_or_die(verb)
                    case ["silence", seconds]:
                        at_s += float(seconds)
                    case ["told"]:
                        answer = Segment(_asked(job), at_s, at_s + 1)
                        yield TranscriptUpdate(duration_s, duration_s, language, (answer,))
                    case _ if line in spoken:
                        yield TranscriptUpdate(duration_s, at_s + 1, language, (_segment(line, at_s, job.words),))
                        at_s += 1
            yield TranscriptUpdate(duration_s, duration_s, language)


TRANSCRIBER_COMMANDS = ("hold", "fail", "die", "unreadable", "lasts", "silence", "speaks", "told")


def _recording(job: TranscriptionJob) -> str:
    audio = job.audio if isinstance(job.audio, bytes) else Path(unquote(job.audio.removeprefix("file://"))).read_bytes()
    return "a real sound" if audio.startswith(b"RIFF") else audio.decode()


def _asked(job: TranscriptionJob) -> str:
    return json.dumps({name: getattr(job, name) for name in ("language", "prompt", "terms", "words", "owner")})


def _segment(text: str, start: float, timed: bool) -> Segment:
    words = text.split()
    step = 1 / len(words)
    times = tuple(TimedWord(word, start + i * step, start + (i + 1) * step) for i, word in enumerate(words))
    figures = {"tokens": (1, 2), "temperature": 0.0, "avg_logprob": -0.25, "compression_ratio": 1.0}
    return Segment(text, start, start + 1, times if timed else (), no_speech_prob=0.01, **figures)


class SteadyScorer(Behaving):
    """Favours the first option of every question: twice the weight of the next one, and so on."""

    async def decide(self, job: DecisionJob) -> Readings:
        """`fail` and `unmeasured` as a state do that; `mass X` puts that much on the options together."""
        state, questions = job.state, job.questions
        if state == "fail":
            raise ValueError(f"cannot digest {questions!r}")
        if state == "unmeasured":
            raise RUNTIME_UNAVAILABLE()
        mass = float(state.split()[1]) if state.startswith("mass ") else 1.0
        reads = []
        for question in questions:
            weights = [2.0**-index for index in range(len(question.labels))]
            total = sum(weights)
            reads.append(Reading(tuple(math.log(mass * weight / total) for weight in weights), 0.001))
        return Readings(tuple(reads), len(state) + len(questions))

    async def measured(self, job: None = None) -> Measurement:
        return Measurement(
            measured_at=1,
            fingerprint="0",
            prompt_version="1",
            questions=4,
            accuracy=0.5,
            label_mass=0.9,
            calibration_error=0.1,
            temperature=1.0,
            latency_ms=1.0,
        )

    async def measure(self, presets: object) -> None:
        pass


def _last(request: ChatRequest) -> str:
    return "".join(part.text or "" for part in request.messages[-1].content or [])
