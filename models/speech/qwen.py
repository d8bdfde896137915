"""Qwen3-TTS through its own package, in an environment of its own (`make setup-qwen`).

Its variant `base` speaks with the voice of a recording: stored voices, and clips that come with a request. The parts of
a text are generated together, and with those of other requests that wait, because a batch takes little longer than the
longest of its parts. Owners take turns part by part.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from concurrency.fairness import FairQueue
from contract.catalog import SpeechModel
from contract.errors import STREAM_INCOMPLETE
from contract.speech.engine import Clip, SpeechJob
from models.options import read
from models.qwen_tts import IMPORTS, LANGUAGES, NetworkOptions, checked, load, most_frames, plain_text, ran_on
from models.speech.adapter import DENSE, SpeechAdapter, Spoken
from models.speech.voices import StoredVoice, read_clips
from models.weights.files import need_folder
from text.sentences import passages

if TYPE_CHECKING:
    from audio.encoding import Samples

PART_CHARS = 300
DENSE_PART_CHARS = 100

ATTEMPTS = 2
"""The model is known to miss its end now and then, and to run on; another draw mends that."""

MAX_PASSAGES = 8
"""Passages that are generated together; memory grows with them."""

MAX_CLIPS = 64
"""Clips of requests with voices that stay in memory."""


class QwenSpeechOptions(NetworkOptions):
    """Options of `QwenSpeech`: its recordings by slug, beside those of its network."""

    voices: dict[str, StoredVoice] = Field(default_factory=dict)


@dataclass(slots=True, eq=False, repr=False)
class Passage:
    """A part of the text of a job."""

    job: SpeechJob
    text: str
    prompt: Any
    attempts: int = ATTEMPTS
    outcome: Samples | Exception | None = None


class QwenSpeech(SpeechAdapter):
    """Qwen3-TTS, variant `base`."""

    options_type = QwenSpeechOptions
    libraries = IMPORTS

    def __init__(self, model: SpeechModel, path: Path | None) -> None:
        from cachetools import LRUCache

        super().__init__(model, path)
        options = read(model, QwenSpeechOptions)
        clips = read_clips(options.voices)
        self._turn = threading.Lock()
        self._lock = threading.Lock()  # of what waits, and of the clips
        self._waiting: FairQueue[Passage] = FairQueue()
        self._tts = load(need_folder(path, model.id), options, "base")
        self._plain = plain_text(self._tts)
        self._voices = {slug: self._encode_clip(clip) for slug, clip in clips.items()}
        self._clips: LRUCache[tuple[Any, ...], Any] = LRUCache(MAX_CLIPS)

    def render(self, job: SpeechJob) -> Iterator[Spoken]:
        """The sound of each part. The thread that has the model speaks for all that wait."""
        limit = DENSE_PART_CHARS if job.language in DENSE else PART_CHARS
        parts = [part for part in passages(job.text, limit) if part.text.strip()]
        prompt = self._prompt(job)
        queued = [Passage(job, self._plain(part.text.strip()), prompt) for part in parts]
        try:
            with self._lock:
                self._waiting.note(job.owner)
                for passage in queued:
                    self._waiting.add(job.owner, passage)
            for part, passage in zip(parts, queued, strict=True):
                while passage.outcome is None:
                    self._speak_next()
                if isinstance(passage.outcome, Exception):
                    raise passage.outcome
                yield Spoken(passage.outcome, part.end)
        finally:
            with self._lock:
                for passage in queued:
                    passage.attempts = 0
                    self._waiting.remove(job.owner, passage)

    def _speak_next(self) -> None:
        """Speaks a batch of what waits, a passage of each owner in turn; or waits for the batch under way."""
        is_taken = self._turn.locked()
        with self._turn:
            if not is_taken:
                with self._lock:
                    size = min(MAX_PASSAGES, len(self._waiting))
                    batch = [self._waiting.pop(self._waiting.owners()[0]) for _ in range(size)]
                self._speak_batch(batch)

    def _speak_batch(self, batch: list[Passage]) -> None:
        """Speaks a batch. If it fails, each passage is tried alone, so that one fails no other."""
        if not batch:
            return
        try:
            outputs, rate = self._tts.generate_voice_clone(
                text=[passage.text for passage in batch],
                language=[LANGUAGES[passage.job.language] for passage in batch],
                voice_clone_prompt=[passage.prompt for passage in batch],
                max_new_tokens=max(most_frames(passage.text) for passage in batch),
            )
            sounds = [checked(samples, rate, self.sample_rate, self.model.id) for samples in outputs]
        except Exception as error:
            if len(batch) == 1:
                batch[0].outcome = error
            else:
                for passage in batch:
                    self._speak_batch([passage])
            return
        for passage, sound in zip(batch, sounds, strict=True):
            self._finish(passage, sound)

    def _finish(self, passage: Passage, sound: Samples) -> None:
        with self._lock:
            passage.attempts -= 1
            if not ran_on(sound, most_frames(passage.text)):
                passage.outcome = sound
            elif passage.attempts > 0:
                self._waiting.add(passage.job.owner, passage, first=True)
            else:
                passage.outcome = STREAM_INCOMPLETE()

    def _prompt(self, job: SpeechJob) -> Any:
        if job.clip:
            return self._cached_prompt(job.clip, job.owner)
        return self.stored(self._voices, job.voice or self.model.default_voice)

    def _cached_prompt(self, clip: Clip, owner: str) -> Any:
        """The prompt of a clip. A client sends its clip with every request; it is encoded once per organisation."""
        key = owner, clip.sample_rate, clip.transcript, hashlib.sha256(clip.samples).digest()
        with self._lock:
            if key in self._clips:
                return self._clips[key]
        with self._turn:
            prompt = self._encode_clip(clip)
        with self._lock:
            self._clips[key] = prompt
        return prompt

    def _encode_clip(self, clip: Clip) -> Any:
        """Voice and manner of a clip; without its words, only the voice."""
        samples = np.frombuffer(clip.samples, "<i2").astype(np.float32) / 32768
        words = self._plain(clip.transcript) if clip.transcript else None
        return self._tts.create_voice_clone_prompt(
            ref_audio=(samples, clip.sample_rate), ref_text=words, x_vector_only_mode=not words
        )[0]
