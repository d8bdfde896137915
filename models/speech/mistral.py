"""Speech from an HTTP API: Mistral's, or a server of one's own with the same endpoint.

POST {address}/audio/speech          one request for each part of a long text
wire "mistral"    `voice_id`; events that carry base64; float32 samples
wire "openai"     `voice`; a WAV file that grows (vLLM-Omni and others)
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
from pydantic import Field

from contract.catalog import SpeechModel
from contract.speech.engine import SpeechJob
from models import Imports
from models.options import read
from models.provider import CONNECT_S, ProviderError, ProviderOptions, check_status, provider_failures
from models.speech.adapter import SpeechAdapter, Spoken
from text.sentences import passages

if TYPE_CHECKING:
    from audio.encoding import Samples

PART_CHARS = 1_500
"""Mistral advises some 300 words a request at most."""

SILENCE_S = 60.0
"""Between two pieces of an answer."""

LOUDEST = 4.0
"""Floats beyond this are no sound. Honest ones pass 1 by a little, and are cut there."""

PROBE_BYTES = 4096
"""Bytes that the decoder reads at once: a large buffer would wait for half a second of sound."""


class MistralSpeechOptions(ProviderOptions):
    """Options of `MistralSpeech`.

    Attributes:
        voices: slug to the provider's voice. A slug that is missing is switched off.
        default_voices: language to the provider's voice, for requests without one; the first speaks all others.
    """

    voices: dict[str, str] = Field(default_factory=dict)
    default_voices: dict[str, str] = Field(min_length=1)


class MistralSpeech(SpeechAdapter):
    """Calls a provider. Nothing of a text, and never the key, comes into a log or an error."""

    options_type = MistralSpeechOptions
    libraries = Imports(("httpx", "regex"))

    def __init__(self, model: SpeechModel, path: Path | None) -> None:
        super().__init__(model, path)
        self.options = read(model, MistralSpeechOptions)
        self._wire = WIRES[self.options.wire]
        self._client = httpx.Client(
            timeout=httpx.Timeout(SILENCE_S, connect=CONNECT_S),
            **self.options.client_settings(model.id, self.serving.max_ongoing_requests),
        )

    def render(self, job: SpeechJob) -> Iterator[Spoken]:
        """Sound as it arrives. The characters of a part count with its first sound: the provider counts them so too."""
        voice = self._voice(job)
        give_up = time.monotonic() + self.serving.deadline_s
        for part in passages(job.text, PART_CHARS):
            if part.text.strip():
                for samples in self._speak(part.text, voice, give_up):
                    yield Spoken(samples, part.end)

    def close(self) -> None:
        super().close()
        self._client.close()

    def _voice(self, job: SpeechJob) -> str:
        if job.voice is None:
            ids = self.options.default_voices
            return ids.get(job.language) or next(iter(ids.values()))
        return self.stored(self.options.voices, job.voice)

    def _speak(self, text: str, voice: str, give_up: float) -> Iterator[Samples]:
        body = {"model": self.options.model, "input": text, self._wire.voice_field: voice, **self._wire.fields}
        received = 0
        with provider_failures(self.model.id), self._client.stream("POST", "audio/speech", json=body) as response:
            check_status(response)
            for samples in self._wire.read(_audio(response), self.sample_rate):
                if time.monotonic() > give_up:
                    raise ProviderError("it took too long")
                received += len(samples)
                yield samples
            if not received:
                raise ProviderError("it sent no sound")


def _audio(response: httpx.Response) -> Iterator[bytes]:
    """Bytes of the sound, whatever they are wrapped in."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        yield from _events(response.iter_lines())
    elif kind.startswith("audio/") or kind == "application/octet-stream":
        yield from response.iter_bytes()
    else:
        raise ProviderError("its answer is not audio")


def _events(lines: Iterable[str]) -> Iterator[bytes]:
    """Sound out of `speech.audio.delta` events. Reads on to the end, so that the connection can be used again."""
    done = False
    for line in lines:
        if done or not line.startswith("data:"):
            continue
        try:
            event = json.loads(line.removeprefix("data:"))
            kind = event["type"]
            if kind == "speech.audio.delta":
                yield base64.b64decode(event["audio_data"] if "audio_data" in event else event["audio"], validate=True)
        except (ValueError, TypeError, KeyError):
            raise ProviderError("it sent an event that could not be read") from None
        if kind.endswith(".error"):
            raise ProviderError("it reported an error in the middle of the sound")
        done = kind == "speech.audio.done"
    if not done:
        raise ProviderError("its events ended early")


def _from_floats(blocks: Iterable[bytes], sample_rate: int) -> Iterator[Samples]:
    """Samples of raw little-endian float32; the provider's rate is the model's."""
    rest = b""
    for block in blocks:
        data = rest + block
        whole = len(data) - len(data) % 4
        rest = data[whole:]
        samples = np.frombuffer(data[:whole], "<f4")
        if not np.all(np.abs(samples) <= LOUDEST):  # NaN is not either
            raise ProviderError("its answer contains no sound")
        if whole:
            yield samples.clip(-1, 1)
    if rest:
        raise ProviderError("its last sample is incomplete")


def _from_wav(blocks: Iterable[bytes], sample_rate: int) -> Iterator[Samples]:
    """Samples of a WAV file that grows, at `sample_rate`, mono. A header may not know yet how long it becomes."""
    import av

    resampler = av.AudioResampler("flt", "mono", sample_rate)
    try:
        with av.open(_Reader(blocks), "r", format="wav", buffer_size=PROBE_BYTES) as container:
            frames: Iterator[Any] = container.decode(audio=0)
            for frame in chain(frames, (None,)):
                for sound in resampler.resample(frame):
                    yield sound.to_ndarray()[0]
    except (av.FFmpegError, IndexError, ValueError):
        raise ProviderError("its answer contains no sound") from None


class _Reader:
    """Blocks as a file that can be read once."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end."""
        data = self._rest or next(self._blocks, b"")
        self._rest = data[size:]
        return data[:size]


@dataclass(frozen=True, slots=True)
class SpeechWire:
    """Speech in one schema: the name of the voice's field, further fields, and how the sound is read."""

    voice_field: str
    fields: dict[str, Any]
    read: Callable[[Iterable[bytes], int], Iterator[Samples]]


WIRES = {
    "mistral": SpeechWire("voice_id", {"response_format": "pcm", "stream": True}, _from_floats),
    "openai": SpeechWire("voice", {"response_format": "wav", "stream_format": "audio"}, _from_wav),
}
