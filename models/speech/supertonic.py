"""Supertonic 3 by its own package: ONNX graphs on a CPU, or on a GPU where the stanza requests one. No network.

The weights are a folder as its publisher lays it out: `onnx/` with four graphs, `voice_styles/` with one file a voice.
`<breath>` and `<sigh>` go to the model as they are; every other angle bracket becomes a space, because the model reads
languages and further marks from them. A letter or digit without a sound in the model is refused, since leaving it out
would change what is said; signs and marks without one are left out.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

from contract.catalog import SpeechModel
from contract.errors import INVALID_REQUEST
from contract.speech.engine import SpeechJob
from contract.speech.tags import pieces
from models import ONNX, Imports
from models.speech.adapter import SpeechAdapter, Spoken
from models.weights.files import WeightsError, need_folder
from text.sentences import passages

PASSAGE_CHARS = 300
"""The model leaves words out of what takes it more than some 13 s to say."""

KOREAN_PASSAGE_CHARS = 120
UNKNOWN_LANGUAGE = "na"
"""Code of the model for any other language."""

ON_CPU = "CPUExecutionProvider"
ON_GPU = "CUDAExecutionProvider"

DIFFUSION_STEPS = 8
"""More steps sound better and take longer."""

SPEED = 1.05
"""A factor of the speed in the training data; its publisher speaks a little faster, too."""

PAUSE_S = 0.3
"""Seconds of silence between two passages."""

_LOADING = Lock()


class Supertonic(SpeechAdapter):
    """Speaks with the voices of its folder. `serving.threads` bounds the CPU threads of each graph."""

    libraries = ONNX + Imports(("supertonic", "regex"))

    def __init__(self, model: SpeechModel, path: Path | None) -> None:
        super().__init__(model, path)
        self._tts = _load(need_folder(path, model.id), self.serving.threads, ON_GPU if self.serving.on_gpu else ON_CPU)
        if self._tts.sample_rate != self.sample_rate:
            raise WeightsError(
                f"the weights of `{model.id}` speak at {self._tts.sample_rate} Hz, but its stanza says "
                f"{self.sample_rate}"
            )
        self._styles = {name: self._tts.get_voice_style(name) for name in self._tts.voice_style_names}
        self._own_voice = model.default_voice or min(self._styles, default="")
        if self._own_voice not in self._styles:
            raise WeightsError(f"the weights of `{model.id}` have no voice `{self._own_voice}`")
        self._sound("Hello.", self._styles[self._own_voice], "en")  # the first run of a graph takes longer

    def render(self, job: SpeechJob) -> Iterator[Spoken]:
        """A passage at a time: as many sentences as the model can say at once."""
        import numpy as np

        style = self.stored(self._styles, job.voice or self._own_voice)
        text = self._readable(job.text)
        limit = KOREAN_PASSAGE_CHARS if job.language == "ko" else PASSAGE_CHARS
        pause = np.zeros(int(PAUSE_S * self.sample_rate), np.float32)
        for passage in passages(text, limit, self.model.tags):
            if not any(map(str.isalnum, passage.text)):
                yield Spoken(pause, passage.end)
                continue
            sound = self._sound(passage.text, style, job.language)
            yield Spoken(sound if passage.end == len(text) else np.concatenate([sound, pause]), passage.end)

    def _sound(self, text: str, style: Any, language: str) -> Any:
        """float32 [n]. The graphs give whole blocks; what is beyond the duration that they predicted is no speech."""
        code = language if language in self.model.languages else UNKNOWN_LANGUAGE
        waves, seconds = self._tts.model([text], style, DIFFUSION_STEPS, SPEED, code)
        return waves[0, : int(seconds[0] * self.sample_rate)].clip(-1, 1)

    def _readable(self, text: str) -> str:
        """A text as long as `text`, with spaces in place of what the model cannot say. Raises INVALID_REQUEST."""
        plain = {char for piece in pieces(text, self.model) if isinstance(piece, str) for char in piece}
        _, unsaid = self._tts.model.text_processor.validate_text("".join(sorted(plain)))
        if refused := [char for char in unsaid if unicodedata.category(char)[0] in "LN"]:
            named = ", ".join(f"`{char}` (U+{ord(char):04X})" for char in refused[:5])
            raise INVALID_REQUEST(f"engine `{self.model.provider}` cannot pronounce {named}", param="input")
        # The package takes characters apart, and would see an angle bracket in some.
        brackets = {char for char in plain if not {"<", ">"}.isdisjoint(unicodedata.normalize("NFKD", char))}
        spaces = dict.fromkeys(map(ord, brackets.union(unsaid)), " ")
        return "".join(
            piece.translate(spaces) if isinstance(piece, str) else piece.text for piece in pieces(text, self.model)
        )


def _load(folder: Path, threads: int | None, provider: str) -> Any:
    """The package's engine. Raises WeightsError, and RuntimeError where the requested GPU cannot be used."""
    import onnxruntime
    from supertonic import TTS, config

    if provider == ON_GPU and hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()  # finds CUDA in its Python packages
    with _LOADING:
        usual = list(config.DEFAULT_ONNX_PROVIDERS)
        config.DEFAULT_ONNX_PROVIDERS[:] = [provider]  # the package reads this list and has no argument for it
        try:
            tts = TTS("supertonic-3", folder, auto_download=False, intra_op_num_threads=threads)
        except (FileNotFoundError, ValueError) as error:
            raise WeightsError(f"`{folder}` is not a model of Supertonic: {error}") from error
        finally:
            config.DEFAULT_ONNX_PROVIDERS[:] = usual
    if provider not in tts.model.vocoder_ort.get_providers():
        raise RuntimeError(
            f"{provider} is not available, but the stanza gives this engine a GPU: install `onnxruntime-gpu`, "
            f"or set `ray_actor_options.num_gpus = 0`"
        )
    return tts
