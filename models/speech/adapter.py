"""Base of every speech engine: it renders in a thread; its sound is watermarked, encoded, labelled and signed here.

render(job)      -> Spoken, Spoken, ...          the engine's own part; blocks, a sentence or so at a time
speak(job)       -> AudioBlock, AudioBlock, ...  the file as it grows
speak_whole(job) -> AudioBlock                   the file, once all of it is made
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeVar

from audio import signing
from contract.catalog import SpeechModel
from contract.errors import UNKNOWN_VOICE
from contract.speech.engine import AudioBlock, SpeechEngine, SpeechJob
from models import NOTHING, SOUND, WATERMARK, Imports
from models.stepping import Stepper, ThreadedAdapter

if TYPE_CHECKING:
    from audio.encoding import Samples

Voice = TypeVar("Voice")

LENGTH_FIRST = frozenset({"flac"})
"""Formats that many readers refuse without a length at the beginning, so they come in one piece."""

DENSE = frozenset({"zh", "ja", "ko"})
"""Languages in which a character is a syllable or more."""

MAX_BLOCK_BYTES = 256 * 1024
"""Bytes that cross a handle at once, at most."""


class Spoken(NamedTuple):
    """Sound of a part of the text.

    Attributes:
        samples: float32 mono [n], -1 to 1, at the engine's `sample_rate`.
        characters: number of characters, from the beginning of the text, that are spoken with these.
    """

    samples: Samples
    characters: int


class SpeechAdapter(ThreadedAdapter, SpeechEngine):
    """One engine. Subclasses load in their constructor, after this one, and render; `libraries` is what they import."""

    libraries: ClassVar[Imports] = NOTHING
    _workers: Stepper

    @classmethod
    def imports(cls, model: SpeechModel) -> Imports:
        return SOUND + cls.libraries + (WATERMARK if model.watermark else NOTHING)

    def __init__(self, model: SpeechModel, path: Path | None) -> None:
        self.model = model
        self.serving = model.setup
        self._workers = Stepper(self.serving.max_ongoing_requests, self.serving.deadline_s, model.id)
        self.sample_rate = model.sample_rate
        self._watermark: Watermark | None = None
        if model.watermark:
            from audio.watermark import Watermark

            self._watermark = Watermark()
        self._signature = signing.configured()

    @abstractmethod
    def render(self, job: SpeechJob) -> Iterator[Spoken]:
        """The sound of a job, part by part. Blocks; several run at the same time, each in a thread of its own.

        Raises ApiError for what a client could have known; anything else counts as a failure of the engine.
        """

    def speak(self, job: SpeechJob) -> AsyncGenerator[AudioBlock, None]:
        """The file as it grows; one that is signed, and flac, when all of it is made.

        Leaving the iteration stops the engine after the part that it is at.
        """
        return self._blocks(job, whole=False)

    async def speak_whole(self, job: SpeechJob) -> AudioBlock:
        """The whole file at once; it says how long it is."""
        blocks = [block async for block in self._blocks(job, whole=True)]
        return AudioBlock(b"".join(block.data for block in blocks), blocks[-1].characters, blocks[-1].seconds)

    def stored(self, voices: Mapping[str, Voice], slug: str | None) -> Voice:
        """The voice `slug`. Raises UNKNOWN_VOICE for one of the catalogue that this deployment has no sound for."""
        if slug is None or slug not in voices:
            raise UNKNOWN_VOICE(f"voice `{slug}` is switched off in this deployment; choose another", param="voice")
        return voices[slug]

    async def _blocks(self, job: SpeechJob, *, whole: bool) -> AsyncGenerator[AudioBlock, None]:
        delivered = 0
        async with aclosing(self._workers.run(self._file(job, whole))) as blocks:
            async for block in blocks:
                # A file that comes at its end is billed as far as it is made, if nobody waits for that.
                if block.data or block.characters > delivered:
                    delivered = block.characters
                    yield block

    def _file(self, job: SpeechJob, whole: bool) -> Generator[AudioBlock]:
        from audio.encoding import Encoder
        from audio.provenance import Provenance

        signature = self._signature if job.format in signing.SIGNED else None
        marks = Provenance(self.model.speaker_of(job.language, has_voice=job.has_voice).runtime, int(time.time()))
        whole = whole or signature is not None or job.format in LENGTH_FIRST
        encoder = Encoder(job.format, self.sample_rate, marks, whole=whole)
        samples = characters = 0
        for part in self.render(job):
            samples, characters = samples + len(part.samples), part.characters
            sound = self._watermark.embed(part.samples, self.sample_rate) if self._watermark else part.samples
            yield from _cut(encoder.add(sound), characters, samples / self.sample_rate)
        end = encoder.finish()
        yield from _cut(signature.sign(end, job.format) if signature else end, characters, samples / self.sample_rate)


def _cut(data: bytes, characters: int, seconds: float) -> Iterator[AudioBlock]:
    """At least one block, if an empty one: between two the engine can be stopped."""
    for start in range(0, max(1, len(data)), MAX_BLOCK_BYTES):
        yield AudioBlock(data[start : start + MAX_BLOCK_BYTES], characters, seconds)
