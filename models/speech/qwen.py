"""Qwen3-TTS through its own package, in an environment of its own (`make setup-qwen`).

    variant "base"           speaks with the voice of a recording: stored voices, and clips that come with a request
    variant "voice_design"   speaks with a voice made from a description: `design`

One replica holds one variant. Nothing is handed out before all of it is made, so the parts of a text are generated
together, as one batch: that takes little longer than the longest of them.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, PositiveInt

from contract.catalog import Frozen, SpeechModel
from contract.errors import STREAM_INCOMPLETE, UNKNOWN_VOICE
from contract.speech import Clip, Utterance
from models.encoders import choose_dtype
from models.speech.engine import SpeechEngine, Spoken
from models.speech.text import Part, passages
from models.speech.voices import StoredVoice, read_clip
from models.weight_files import WeightsError
from models.weights import home_folder

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
    """`serving.options` of this engine.

    Attributes:
        variant: which of the models the weights are.
        voices: recordings by slug; of variant `base` only.
        dtype, device, attention: how the networks are loaded; `attention` may be `flash_attention_2` on a GPU.
        batch: parts that are generated together; memory grows with it.
        spare_frames, frames_per_char: a part that becomes longer than this has missed its end. Ten times slower than
            people speak English, three times slower than they speak Chinese.
    """

    variant: Literal["base", "voice_design"] = "base"
    voices: dict[str, StoredVoice] = Field(default_factory=dict)
    dtype: str = "bfloat16"
    device: str | None = None
    attention: str = "sdpa"
    batch: PositiveInt = 8
    spare_frames: PositiveInt = 75
    frames_per_char: PositiveInt = 8


class QwenSpeech(SpeechEngine):
    """One loaded variant. Batches of several utterances take turns on it."""

    def __init__(self, model: SpeechModel, path: Path | None) -> None:
        super().__init__(model, path)
        if path is None:
            raise WeightsError(f"the stanza of `{model.id}` names no `weights`; Qwen3-TTS cannot run without")
        self.options = Options.model_validate(self.serving.options)
        home = home_folder()
        clips = {slug: read_clip(slug, voice, home) for slug, voice in self.options.voices.items()}
        self._turn = threading.Lock()
        self._tts = _load(path, self.options)
        self._voices = {slug: self._listen(clip) for slug, clip in clips.items()}
        self._clips: OrderedDict[str, Any] = OrderedDict()

    def render(self, utterance: Utterance) -> Iterator[Spoken]:
        """All of the sound, once all of it is made."""
        limit = DENSE_PART_CHARS if utterance.language in DENSE else PART_CHARS
        parts = [part for part in passages(utterance.text, limit) if part.text.strip()]
        prompt = self._prompt(utterance)
        sounds: list[Samples] = []
        for start in range(0, len(parts), self.options.batch):
            sounds += self._speak(parts[start : start + self.options.batch], LANGUAGES[utterance.language], prompt)
        for part, samples in zip(parts, sounds, strict=True):
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
                most = self._most_frames([text])
                made, rate = self._tts.generate_voice_design(
                    text=text, instruct=instruct, language=LANGUAGES[language], max_new_tokens=most
                )
                if not _ran_on(made[0], most):
                    return self._checked(made[0], rate)
        raise STREAM_INCOMPLETE()

    def _speak(self, parts: Sequence[Part], language: str, prompt: Any) -> list[Samples]:
        """The sound of each part. Those that ran on are made once more."""
        done: dict[int, Samples] = {}
        for _ in range(ATTEMPTS):
            left = [index for index in range(len(parts)) if index not in done]
            texts = [parts[index].text.strip() for index in left]
            most = self._most_frames(texts)
            with self._turn:
                made, rate = self._tts.generate_voice_clone(
                    text=texts, language=[language] * len(texts), voice_clone_prompt=prompt, max_new_tokens=most
                )
            done |= {
                index: self._checked(sound, rate)
                for index, sound in zip(left, made, strict=True)
                if not _ran_on(sound, most)
            }
            if len(done) == len(parts):
                return [done[index] for index in range(len(parts))]
        raise STREAM_INCOMPLETE()

    def _prompt(self, utterance: Utterance) -> Any:
        """What the model needs to know of a voice."""
        if utterance.clip:
            return self._remembered(utterance.clip)
        slug = utterance.voice or self.model.default_voice
        if slug not in self._voices:
            raise UNKNOWN_VOICE(f"voice `{slug}` is switched off in this deployment", param="voice")
        return self._voices[slug]

    def _remembered(self, clip: Clip) -> Any:
        """An organisation's voice comes with every request, and is listened to once."""
        words = (clip.transcript or "").encode()
        key = hashlib.sha256(b"%d %d %b %b" % (clip.sample_rate, len(words), words, clip.samples)).hexdigest()
        with self._turn:
            if key not in self._clips:
                self._clips[key] = self._listen(clip)
                if len(self._clips) > KEPT_CLIPS:
                    self._clips.popitem(last=False)
            self._clips.move_to_end(key)
            return self._clips[key]

    def _listen(self, clip: Clip) -> Any:
        """Voice and manner of a clip; without its words, only the voice."""
        samples = np.frombuffer(clip.samples, "<i2").astype(np.float32) / 32768
        return self._tts.create_voice_clone_prompt(
            ref_audio=(samples, clip.sample_rate), ref_text=clip.transcript, x_vector_only_mode=not clip.transcript
        )

    def _most_frames(self, texts: Sequence[str]) -> int:
        return self.options.spare_frames + self.options.frames_per_char * max(map(len, texts))

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
            f"`{sys.executable}` has no qwen-tts; `make setup-qwen` makes the environment that `python` should name"
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
