"""Qwen3-TTS through its own package, in an environment of its own (`make setup-qwen`).

    variant "base"           speaks with the voice of a recording: stored voices, and clips that come with a request
    variant "voice_design"   speaks with a voice made from a description: `design`

One replica holds one variant. Nothing is handed out before all of it is made, so the parts of a text are generated
together, and with those of other requests that wait: a batch takes little longer than the longest of its parts.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, PositiveInt

from contract.base import Frozen
from contract.catalog import SpeechModel
from contract.errors import STREAM_INCOMPLETE
from contract.speech.engine import Clip, SpeechJob
from models.encoders import Dtype, choose_dtype
from models.options import read
from models.speech.adapter import SpeechAdapter, Spoken
from models.speech.text import passages
from models.speech.voices import StoredVoice, read_clip
from models.weights.files import WeightsError, need_folder
from models.weights.store import home_folder

LANGUAGES = {
    "de": "German",
    "en": "English",
    "fr": "French",
    "es": "Spanish",
    "it": "Italian",
    "pt": "Portuguese",
    "ru": "Russian",
    "ja": "Japanese",
    "ko": "Korean",
    "zh": "Chinese",
}
"""The package takes names."""

PART_CHARS = 300
DENSE_PART_CHARS = 100
DENSE = frozenset({"zh", "ja", "ko"})

SAMPLES_PER_FRAME = 1_920
"""Of the 12 Hz codec: 12.5 frames are a second."""

ATTEMPTS = 2
"""The model is known to miss its end now and then, and to run on; another draw mends that."""

KEPT_CLIPS = 64

Samples = np.ndarray[Any, np.dtype[np.float32]]


class Options(Frozen):
    """Options of `QwenSpeech`.

    Attributes:
        variant: which of the models the weights are.
        voices: recordings by slug; of variant `base` only.
        dtype, device, attention: how the networks are loaded; `attention` may be `flash_attention_2` on a GPU.
        batch: parts that are generated together at most; memory grows with it.
        spare_frames, frames_per_char: a part that becomes longer than this has missed its end. Ten times slower than
            people speak English, three times slower than they speak Chinese.
    """

    variant: Literal["base", "voice_design"] = "base"
    voices: dict[str, StoredVoice] = Field(default_factory=dict)
    dtype: Dtype = "bfloat16"
    device: str | None = None
    attention: str = "sdpa"
    batch: PositiveInt = 8
    spare_frames: PositiveInt = 75
    frames_per_char: PositiveInt = 8


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
    """One loaded variant."""

    options_type = Options

    def __init__(self, model: SpeechModel, path: Path | None) -> None:
        super().__init__(model, path)
        folder = need_folder(path, model.id)
        self.options = read(model, Options)
        home = home_folder()
        clips = {slug: read_clip(slug, voice, home) for slug, voice in self.options.voices.items()}
        self._turn = threading.Lock()
        self._waiting: deque[Passage] = deque()
        self._tts = _load(folder, self.options)
        self._voices = {slug: self._listen(clip) for slug, clip in clips.items()}
        self._book = threading.Lock()
        self._clips: OrderedDict[str, Any] = OrderedDict()

    def render(self, job: SpeechJob) -> Iterator[Spoken]:
        """All of the sound, once all of it is made."""
        limit = DENSE_PART_CHARS if job.language in DENSE else PART_CHARS
        parts = [part for part in passages(job.text, limit) if part.text.strip()]
        prompt, language = self._prompt(job), LANGUAGES[job.language]
        texts = [part.text.strip() for part in parts]
        for part, samples in zip(parts, self._speak(texts, language, prompt), strict=True):
            yield Spoken(samples, part.end)

    def design(self, instruct: str, text: str, language: str, seed: int) -> Samples:
        """`text` with a voice that fits the description. Blocks; the same seed gives the same sound on one machine.

        Args:
            instruct: the description, in words.
            text: what the voice says.
            language: ISO 639-1, one of the engine's.
            seed: of the random numbers.

        Returns:
            Float32 mono [n], -1 to 1, at the engine's sample rate. Raises STREAM_INCOMPLETE if it never ends.
        """
        import torch

        with self._turn:
            torch.manual_seed(seed)
            for _ in range(ATTEMPTS):
                most = self._most_frames(text)
                made, rate = self._tts.generate_voice_design(
                    text=text, instruct=instruct, language=LANGUAGES[language], max_new_tokens=most
                )
                if not _ran_on(made[0], most):
                    return self._checked(made[0], rate)
        raise STREAM_INCOMPLETE()

    def _speak(self, texts: Sequence[str], language: str, prompt: Any) -> list[Samples]:
        """The sound of each text. Whoever has the turn speaks for all who wait."""
        ours = [Passage(text, language, prompt, self._most_frames(text)) for text in texts]
        self._waiting.extend(ours)
        while not all(passage.is_done for passage in ours):
            with self._turn:
                self._speak_batch([self._waiting.popleft() for _ in range(min(self.options.batch, len(self._waiting)))])
        for passage in ours:
            if passage.error:
                raise passage.error
        return [passage.sound for passage in ours if passage.sound is not None]

    def _speak_batch(self, batch: list[Passage]) -> None:
        if not batch:
            return
        try:
            made, rate = self._tts.generate_voice_clone(
                text=[passage.text for passage in batch],
                language=[passage.language for passage in batch],
                voice_clone_prompt=[passage.prompt for passage in batch],
                max_new_tokens=max(passage.most_frames for passage in batch),
            )
            for passage, samples in zip(batch, made, strict=True):
                self._finish(passage, samples, rate)
        except Exception as error:
            for passage in batch:
                passage.error = error

    def _finish(self, passage: Passage, samples: Any, rate: int) -> None:
        if not _ran_on(samples, passage.most_frames):
            passage.sound = self._checked(samples, rate)
            return
        passage.attempts -= 1
        if passage.attempts:
            self._waiting.appendleft(passage)
        else:
            passage.error = STREAM_INCOMPLETE()

    def _prompt(self, job: SpeechJob) -> Any:
        """What the model needs to know of a voice."""
        if job.clip:
            return self._remembered(job.clip)
        slug = job.voice or self.model.default_voice
        if slug not in self._voices:
            raise self.switched_off(slug)
        return self._voices[slug]

    def _remembered(self, clip: Clip) -> Any:
        """An organisation's voice comes with every request, and is listened to once."""
        words = (clip.transcript or "").encode()
        key = hashlib.sha256(b"%d %d %b %b" % (clip.sample_rate, len(words), words, clip.samples)).hexdigest()
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
        (prompt,) = self._tts.create_voice_clone_prompt(
            ref_audio=(samples, clip.sample_rate), ref_text=clip.transcript, x_vector_only_mode=not clip.transcript
        )
        return prompt

    def _most_frames(self, text: str) -> int:
        return self.options.spare_frames + self.options.frames_per_char * len(text)

    def _checked(self, samples: Any, rate: int) -> Samples:
        if rate != self.sample_rate:
            raise RuntimeError(
                f"the weights of `{self.model.id}` speak at {rate} Hz, its stanza says {self.sample_rate}"
            )
        return np.asarray(samples, np.float32).clip(-1, 1)


def _ran_on(samples: Any, most_frames: int) -> bool:
    """Whether the model was stopped; the last code that it may write makes no frame."""
    return len(samples) >= (most_frames - 1) * SAMPLES_PER_FRAME


def _load(folder: Path, options: Options) -> Any:
    """The package's model from a folder. Nothing in it is run, and nothing is fetched."""
    import importlib
    import sys

    import torch

    try:
        package = importlib.import_module("qwen_tts")
    except ImportError as error:
        raise RuntimeError(
            f"`{sys.executable}` has no qwen-tts; `make setup-qwen` makes the environment whose interpreter "
            f"`py_executable` should name"
        ) from error
    device = options.device or ("cuda:0" if torch.cuda.is_available() else "cpu")
    tts = package.Qwen3TTSModel.from_pretrained(
        str(folder),
        device_map=device,
        dtype=choose_dtype(options.dtype, device),
        attn_implementation=options.attention,
        local_files_only=True,
        use_safetensors=True,
    )
    if tts.model.tts_model_type != options.variant:
        raise WeightsError(
            f"`{folder}` holds `{tts.model.tts_model_type}`, but `options.variant` is `{options.variant}`"
        )
    return tts
