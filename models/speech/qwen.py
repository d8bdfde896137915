"""Qwen3-TTS through its own package, in an environment of its own (`make setup-qwen`).

Its variant `base` speaks with the voice of a recording: stored voices, and clips that come with a request. Nothing is
handed out before all of it is made, so the parts of a text are generated together, and with those of other requests
that wait: a batch takes little longer than the longest of its parts.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from contract.catalog import SpeechModel
from contract.errors import STREAM_INCOMPLETE
from contract.speech.engine import Clip, SpeechJob
from models.options import read
from models.qwen_tts import IMPORTS, LANGUAGES, NetworkOptions, checked, load, most_frames, plain_text, ran_on
from models.speech.adapter import SpeechAdapter, Spoken
from models.speech.voices import StoredVoice, read_clips
from models.weights.files import need_folder
from text.sentences import passages

if TYPE_CHECKING:
    from audio.encoding import Samples

PART_CHARS = 300
DENSE_PART_CHARS = 100
DENSE = frozenset({"zh", "ja", "ko"})

ATTEMPTS = 2
"""The model is known to miss its end now and then, and to run on; another draw mends that."""

MAX_PASSAGES = 8
"""Passages that are generated together; memory grows with them."""

MAX_CLIPS = 64
"""Clips of requests with voices that stay in memory."""


class QwenSpeechOptions(NetworkOptions):
    """Options of `QwenSpeech`: its recordings by slug, beside those of its network."""

    voices: dict[str, StoredVoice] = Field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Passage:
    """A part of a text, and its outcome: `sound` or `error`."""

    text: str
    language: str
    prompt: Any
    most_frames: int
    attempts: int = ATTEMPTS
    sound: Samples | None = None
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self.sound is not None or self.error is not None


class QwenSpeech(SpeechAdapter):
    """Qwen3-TTS, variant `base`."""

    options_type = QwenSpeechOptions
    libraries = IMPORTS

    def __init__(self, model: SpeechModel, path: Path | None) -> None:
        from cachetools import LRUCache

        super().__init__(model, path)
        folder = need_folder(path, model.id)
        options = read(model, QwenSpeechOptions)
        clips = read_clips(options.voices)
        self._turn = threading.Lock()
        self._waiting: deque[Passage] = deque()
        self._tts = load(folder, options, "base")
        self._plain = plain_text(self._tts)
        self._voices = {slug: self._encode_clip(clip) for slug, clip in clips.items()}
        self._clips_lock = threading.Lock()
        self._clips: LRUCache[str, Any] = LRUCache(MAX_CLIPS)

    def render(self, job: SpeechJob) -> Iterator[Spoken]:
        """All of the sound, once all of it is made."""
        limit = DENSE_PART_CHARS if job.language in DENSE else PART_CHARS
        parts = [part for part in passages(job.text, limit) if part.text.strip()]
        prompt, language = self._prompt(job), LANGUAGES[job.language]
        texts = [self._plain(part.text.strip()) for part in parts]
        for part, samples in zip(parts, self._speak(texts, language, prompt), strict=True):
            yield Spoken(samples, part.end)

    def _speak(self, texts: Sequence[str], language: str, prompt: Any) -> list[Samples]:
        """The sound of each text. The thread that has the model speaks for all that wait."""
        queued = [Passage(text, language, prompt, most_frames(text)) for text in texts]
        self._waiting.extend(queued)
        while not all(passage.is_done for passage in queued):
            with self._turn:
                self._speak_batch([self._waiting.popleft() for _ in range(min(MAX_PASSAGES, len(self._waiting)))])
        for passage in queued:
            if passage.error:
                raise passage.error
        return [passage.sound for passage in queued if passage.sound is not None]

    def _speak_batch(self, batch: list[Passage]) -> None:
        """Speaks a batch. If it fails, each passage is tried alone, so that one fails no other."""
        if not batch:
            return
        try:
            outputs, rate = self._tts.generate_voice_clone(
                text=[passage.text for passage in batch],
                language=[passage.language for passage in batch],
                voice_clone_prompt=[passage.prompt for passage in batch],
                max_new_tokens=max(passage.most_frames for passage in batch),
            )
            sounds = [checked(samples, rate, self.sample_rate, self.model.id) for samples in outputs]
        except Exception as error:
            if len(batch) == 1:
                batch[0].error = error
            else:
                for passage in batch:
                    self._speak_batch([passage])
            return
        for passage, sound in zip(batch, sounds, strict=True):
            self._finish(passage, sound)

    def _finish(self, passage: Passage, sound: Samples) -> None:
        if not ran_on(sound, passage.most_frames):
            passage.sound = sound
            return
        passage.attempts -= 1
        if passage.attempts:
            self._waiting.appendleft(passage)
        else:
            passage.error = STREAM_INCOMPLETE()

    def _prompt(self, job: SpeechJob) -> Any:
        if job.clip:
            return self._cached_prompt(job.clip, job.owner)
        return self.stored(self._voices, job.voice or self.model.default_voice)

    def _cached_prompt(self, clip: Clip, owner: str) -> Any:
        """The prompt of a clip. A client sends its clip with every request; it is encoded once per organisation."""
        words = (clip.transcript or "").encode()
        head = json.dumps([owner, clip.sample_rate, len(words)]).encode()
        key = hashlib.sha256(head + words + clip.samples).hexdigest()
        with self._clips_lock:
            if key in self._clips:
                return self._clips[key]
        with self._turn:
            prompt = self._encode_clip(clip)
        with self._clips_lock:
            self._clips[key] = prompt
        return prompt

    def _encode_clip(self, clip: Clip) -> Any:
        """Voice and manner of a clip; without its words, only the voice."""
        samples = np.frombuffer(clip.samples, "<i2").astype(np.float32) / 32768
        words = self._plain(clip.transcript) if clip.transcript else None
        (prompt,) = self._tts.create_voice_clone_prompt(
            ref_audio=(samples, clip.sample_rate), ref_text=words, x_vector_only_mode=not words
        )
        return prompt
