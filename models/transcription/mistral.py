"""Speech to text by an HTTP API: Mistral's, or a server of one's own with the same endpoint.

    POST {address}/audio/transcriptions      one request for each recording; the file goes up as it came
      wire "mistral"    `context_bias`; times or a language, not both; words among the segments
      wire "openai"     `prompt`; `verbose_json` where times are wanted; words in a list of their own

Made after the published schema of both; no request has gone to Mistral itself yet.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Literal, NamedTuple

import httpx

from contract.catalog import TranscriptionModel
from contract.transcription.engine import TranscriptionJob, TranscriptUpdate
from models import Imports
from models.options import read
from models.provider import CONNECT_S, ProviderError, ProviderOptions, check_status, provider_failures
from models.transcription import answers
from models.transcription.adapter import Recording, TranscriptionAdapter

log = logging.getLogger(f"parlance.{__name__}")

SENDING_S = 60.0
"""Seconds for the provider to accept the next piece of the file. Its answer has `deadline_s` of the stanza."""

ANSWER_BYTES = 32 << 20
"""Four hours of fast speech, with the time of every word, are 16 MiB."""

BLOCK_BYTES = 1 << 16

Form = dict[str, str | list[str]]


class MistralTranscriptionOptions(ProviderOptions):
    """Options of `MistralTranscription`.

    Attributes:
        times: granularities of times that the provider has. Without any, a whole recording is one segment.
        takes_terms: whether it accepts terms.
        lacks_languages: codes that it does not know.
    """

    times: tuple[Literal["segment", "word"], ...] = ("segment", "word")
    takes_terms: bool = True
    lacks_languages: tuple[str, ...] = ()


class MistralTranscription(TranscriptionAdapter):
    """Calls a provider. Nothing that was said, and never the key, comes into a log or an error."""

    options_type = MistralTranscriptionOptions
    imports = Imports(("httpx",))

    def __init__(self, model: TranscriptionModel, path: Path | None) -> None:
        super().__init__(model, path)
        self.options = read(model, MistralTranscriptionOptions)
        self._wire = WIRES[self.options.wire]
        self._closing: asyncio.Task[None] | None = None
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(SENDING_S, connect=CONNECT_S, read=self.serving.deadline_s),
            follow_redirects=False,
            **self.options.client_settings(model.id, self.serving.max_ongoing_requests),
        )
        # What a compressed answer grows to is known too late: none is asked for, and none is taken.
        self._client.headers["Accept-Encoding"] = "identity"

    async def listen(self, job: TranscriptionJob, recording: Recording) -> AsyncGenerator[TranscriptUpdate, None]:
        """One part, when the provider has answered. Raises PROVIDER_BUSY, UPSTREAM_ERROR."""
        times = self._times(job)
        seconds = recording.sound.seconds
        with provider_failures(self.model.id):
            async with asyncio.timeout(self.serving.deadline_s):
                body = await self._send(job, times, recording.file)
                words_in = self._wire.words_in if times == "word" else None
                answer = await asyncio.to_thread(answers.read, body, seconds, words_in)
        yield TranscriptUpdate(seconds, seconds, job.language or answer.language, answer.segments)

    @property
    def active_s(self) -> float:
        """Now: how long a provider may take has a limit of its own."""
        return time.monotonic()

    async def check_health(self) -> None:
        """Never raises: whether the provider is well is seen at the next request."""

    def close(self) -> None:
        try:
            self._closing = asyncio.get_running_loop().create_task(self._client.aclose())
        except RuntimeError:
            log.debug("the connections of %s end with the process", self.model.id)

    def _times(self, job: TranscriptionJob) -> str | None:
        """The granularity to request: words if the job wants them, else segments; None if the provider has neither."""
        granularities = ("word", "segment") if job.words else ("segment",)
        return next((name for name in granularities if name in self.options.times), None)

    async def _send(self, job: TranscriptionJob, times: str | None, recording: bytes | Path) -> bytes:
        """The body of the answer. Raises PROVIDER_BUSY, ProviderError and errors of httpx."""
        form = self._wire.form(job, times) | {"model": self.options.model}
        with recording.open("rb") if isinstance(recording, Path) else nullcontext(recording) as file:
            head = file if isinstance(file, bytes) else os.pread(file.fileno(), 16, 0)
            files = {"file": (f"recording.{_ending(head)}", file, "application/octet-stream")}
            async with self._client.stream("POST", "audio/transcriptions", data=form, files=files) as response:
                return await _body(response)


async def _body(response: httpx.Response) -> bytes:
    check_status(response)
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ProviderError("its answer is compressed")
    body = bytearray()
    async for block in response.aiter_raw(BLOCK_BYTES):
        body += block
        if len(body) > ANSWER_BYTES:
            raise ProviderError("its answer is too long")
    return bytes(body)


def _of_mistral(job: TranscriptionJob, times: str | None) -> Form:
    """Its documentation says that times and a language do not go together. Times go first: it detects the language."""
    form: Form = {}
    if times:
        form["timestamp_granularities"] = times
    elif job.language:
        form["language"] = job.language
    if terms := [term for term in job.terms if "," not in term]:
        form["context_bias"] = terms
    return form


def _of_openai(job: TranscriptionJob, times: str | None) -> Form:
    form: Form = {"response_format": "verbose_json" if times else "json"}
    if times:
        form["timestamp_granularities[]"] = times
    if job.language:
        form["language"] = job.language
    if hint := job.prompt or ", ".join(job.terms):
        form["prompt"] = hint
    return form


class TranscriptionWire(NamedTuple):
    """Transcription in one schema: its fields, for a job and what is to be timed, and the place of words."""

    form: Callable[[TranscriptionJob, str | None], Form]
    words_in: str


WIRES = {"mistral": TranscriptionWire(_of_mistral, "segments"), "openai": TranscriptionWire(_of_openai, "words")}


def _ending(head: bytes) -> str:
    """The ending by which servers know the format: some look at nothing else. `head` is how the file begins."""
    if head[4:8] == b"ftyp":
        return "m4a"
    if head[:1] == b"\xff" and head[1:2] and head[1] & 0xF6 == 0xF0:
        return "aac"
    return next((name for start, name in ENDINGS.items() if head.startswith(start)), "mp3")


ENDINGS = {b"RIFF": "wav", b"OggS": "ogg", b"fLaC": "flac", b"\x1aE\xdf\xa3": "webm"}
