"""Qwen3-TTS through its own package, in an environment of its own (`make setup-qwen`).

Its variant `base` speaks with the voice of a recording: stored voices, and clips that come with a request. Nothing is
handed out before all of it is made, so the parts of a text are generated together, and with those of other requests
that wait: a batch takes little longer than the longest of its parts.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, PositiveInt

from contract.catalog import SpeechModel
from contract.errors import STREAM_INCOMPLETE
from contract.speech.engine import Clip, SpeechJob
from models.options import read
from models.qwen_tts import IMPORTS, LANGUAGES, Network, checked, load, plain_text, ran_on
from models.speech.adapter import SpeechAdapter, Spoken
from models.speech.voices import StoredVoice, read_clip
from models.weights.files import need_folder
from models.weights.store import home_folder
from text.sentences import passages

PART_CHARS = 300
DENSE_PART_CHARS = 100
DENSE = frozenset({"zh", "ja", "ko"})

ATTEMPTS = 2
"""The model is known to miss its end now and then, and to run on; another draw mends that."""

KEPT_CLIPS = 64

Samples = np.ndarray[Any, np.dtype[np.float32]]


class Options(Network):
    """Options of `QwenSpeech`, beside those of its network.

    Attributes:
        voices: recordings by slug.
        batch: parts that are generated together at most; memory grows with it.
    """

    voices: dict[str, StoredVoice] = Field(default_factory=dict)
    batch: PositiveInt = 8


@dataclass(slots=True, eq=False)
class Passage:
    """A part of a text, and what became of it: `sound` or `error`."""

    text: str
    language: str
    prompt: Any
    most_frames: int
    attempts: int = ATTEMPTS
    sound: Samples | None = None
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        """Whether it is spoken or has failed."""
        return self.sound is not None or self.error is not None


class QwenSpeech(SpeechAdapter):
    """The engine."""

    options_type = Options
    libraries = IMPORTS

    def __init__(self, model: SpeechModel, path: Path | None) -> None:
        super().__init__(model, path)
        folder = need_folder(path, model.id)
        self.options = read(model, Options)
        home = home_folder()
        clips = {slug: read_clip(slug, voice, home) for slug, voice in self.options.voices.items()}
        self._turn = threading.Lock()
        self._waiting: deque[Passage] = deque()
        self._tts = load(folder, self.options, "base")
        self._plain = plain_text(self._tts)
        self._voices = {slug: self._listen(clip) for slug, clip in clips.items()}
        self._book = threading.Lock()
        self._clips: OrderedDict[str, Any] = OrderedDict()

    def render(self, job: SpeechJob) -> Iterator[Spoken]:
        """All of the sound, once all of it is made."""
        limit = DENSE_PART_CHARS if job.language in DENSE else PART_CHARS
        parts = [part for part in passages(job.text, limit) if part.text.strip()]
        prompt, language = self._prompt(job), LANGUAGES[job.language]
        texts = [self._plain(part.text.strip()) for part in parts]
        for part, samples in zip(parts, self._speak(texts, language, prompt), strict=True):
            yield Spoken(samples, part.end)

    def _speak(self, texts: Sequence[str], language: str, prompt: Any) -> list[Samples]:
        """The sound of each text. Whoever has the turn speaks for all who wait."""
        ours = [Passage(text, language, prompt, self.options.most_frames(text)) for text in texts]
        self._waiting.extend(ours)
        while not all(passage.is_done for passage in ours):
            with self._turn:
                self._speak_batch([self._waiting.popleft() for _ in range(min(self.options.batch, len(self._waiting)))])
        for passage in ours:
            if passage.error:
                raise passage.error
        return [passage.sound for passage in ours if passage.sound is not None]

    def _speak_batch(self, batch: list[Passage]) -> None:
        """Where it fails each passage is tried alone, so that one fails nobody else."""
        if not batch:
            return
        try:
            made, rate = self._tts.generate_voice_clone(
                text=[passage.text for passage in batch],
                language=[passage.language for passage in batch],
                voice_clone_prompt=[passage.prompt for passage in batch],
                max_new_tokens=max(passage.most_frames for passage in batch),
            )
            sounds = [checked(samples, rate, self.sample_rate, self.model.id) for samples in made]
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
        """What the model needs to know of a voice."""
        if job.clip:
            return self._remembered(job.clip, job.owner)
        slug = job.voice or self.model.default_voice
        if slug not in self._voices:
            raise self.switched_off(slug)
        return self._voices[slug]

    def _remembered(self, clip: Clip, owner: str) -> Any:
        """An organisation's voice comes with every request, and is listened to once; for another one, once more."""
        words = (clip.transcript or "").encode()
        head = json.dumps([owner, clip.sample_rate, len(words)]).encode()
        key = hashlib.sha256(head + words + clip.samples).hexdigest()
        with self._book:
            if key in self._clips:
                self._clips.move_to_end(key)
                return self._clips[key]
        with self._turn:
            prompt = self._listen(clip)
        with self._book:
            self._clips[key] = prompt
            if len(self._clips) > KEPT_CLIPS:
                self._clips.popitem(last=False)
        return prompt

    def _listen(self, clip: Clip) -> Any:
        """Voice and manner of a clip; without its words, only the voice."""
        samples = np.frombuffer(clip.samples, "<i2").astype(np.float32) / 32768
        words = self._plain(clip.transcript) if clip.transcript else None
        (prompt,) = self._tts.create_voice_clone_prompt(
            ref_audio=(samples, clip.sample_rate), ref_text=words, x_vector_only_mode=not words
        )
        return prompt
