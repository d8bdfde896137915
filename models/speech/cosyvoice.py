"""CosyVoice 3 through its official code, which is a git repository and lives in an environment of its own.

    a style                 inference_instruct2      the voice of the clip, spoken as the style says
    a transcript            inference_zero_shot      the voice and the manner of the clip
    neither                 inference_cross_lingual  the voice of a clip without a transcript

The model reads `<|endofprompt|>` as the end of its instructions; what comes after it is spoken or was spoken in the
clip. It stands in the one text that a call takes besides the spoken one; a cross-lingual call takes none.

docs/engines.md says how the environment is built. Japanese is read well only in katakana: pyopenjtalk is used for it
where that environment has it.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import wave
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, mkstemp
from typing import Any

import numpy as np
from pydantic import Field

from concurrency.semaphore import FairSemaphore
from contract.base import Frozen
from contract.catalog import SpeechModel
from contract.speech.engine import Clip, SpeechJob
from contract.speech.tags import SpeechTag, pieces, tags_of
from models import Imports
from models.options import read
from models.speech.adapter import DENSE, SpeechAdapter, Spoken
from models.speech.voices import StoredVoice, read_clips
from models.weights.files import need_folder
from text.sentences import TextPart, passages

INSTRUCTION = "You are a helpful assistant."
END_OF_PROMPT = "<|endofprompt|>"

PART_CHARS = 200
DENSE_PART_CHARS = 60
"""Characters of a part where each writes a syllable or more: some 80 tokens, as the official code cuts."""

LEAST_RATE = 16_000
"""The code refuses a clip of fewer samples a second."""


class CosyVoiceOptions(Frozen):
    """Options of `CosyVoice`: its recordings by slug."""

    voices: dict[str, StoredVoice] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A voice to imitate.

    Attributes:
        file: the recording; the code reads it from a path.
        transcript: words that are said in it, if known.
        registered: name under which the code knows voice and transcript already.
    """

    file: str
    transcript: str | None
    registered: str = ""


class CosyVoice(SpeechAdapter):
    """One loaded model. Owners take turns on it part by part."""

    options_type = CosyVoiceOptions
    libraries = Imports(("torch", "transformers"))

    def __init__(self, model: SpeechModel, path: Path | None) -> None:
        super().__init__(model, path)
        folder = need_folder(path, model.id)
        options = read(model, CosyVoiceOptions)
        clips = read_clips(options.voices)
        self._turn = FairSemaphore(1)
        self._code = load_code(folder)
        self._folder = TemporaryDirectory(prefix="parlance-clips-")
        self._voices = {slug: self._register(slug, clip) for slug, clip in clips.items()}

    def render(self, job: SpeechJob) -> Iterator[Spoken]:
        """Sound of a few sentences at a time. `text_frontend` is off: it would read German numbers in English."""
        prompt, temporary = self._prompt(job)
        try:
            for part in self._parts(job):
                with self._turn.blocking(job.owner):
                    sound = [item["tts_speech"] for item in self._call(part.text, prompt, job)]
                for tensor in sound:
                    yield Spoken(tensor.squeeze(0).float().cpu().numpy().clip(-1, 1), part.end)
        finally:
            if temporary:
                os.unlink(prompt.file)

    def close(self) -> None:
        super().close()
        self._folder.cleanup()

    def _register(self, slug: str, clip: Clip) -> Prompt:
        file = self._write(clip)
        self._code.add_zero_shot_spk(f"{INSTRUCTION}{END_OF_PROMPT}{_plain(clip.transcript or '')}", file, slug)
        return Prompt(file, clip.transcript, slug)

    def _prompt(self, job: SpeechJob) -> tuple[Prompt, bool]:
        """The voice, and whether its file is this job's own."""
        if job.clip:
            return Prompt(self._write(job.clip), job.clip.transcript), True
        return self.stored(self._voices, job.voice or self.model.default_voice), False

    def _call(self, text: str, prompt: Prompt, job: SpeechJob) -> Iterator[dict[str, Any]]:
        manner: dict[str, Any] = {"stream": False, "speed": job.speed, "text_frontend": False}
        if job.style:
            # Never with a registered voice: its own text would take the place of the style (CosyVoice issue 1400).
            instruction = f"{INSTRUCTION} {_plain(job.style)}{END_OF_PROMPT}"
            yield from self._code.inference_instruct2(text, instruction, prompt.file, **manner)
        elif prompt.registered:
            yield from self._code.inference_zero_shot(text, "", "", zero_shot_spk_id=prompt.registered, **manner)
        elif prompt.transcript:
            transcript = f"{INSTRUCTION}{END_OF_PROMPT}{_plain(prompt.transcript)}"
            yield from self._code.inference_zero_shot(text, transcript, prompt.file, **manner)
        else:
            yield from self._code.inference_cross_lingual(f"{INSTRUCTION}{END_OF_PROMPT}{text}", prompt.file, **manner)

    def _parts(self, job: SpeechJob) -> Iterator[TextPart]:
        limit = DENSE_PART_CHARS if job.language in DENSE else PART_CHARS
        for part in closed_spans(passages(job.text, limit, tags_of(self.model)), self.model):
            if part.text.strip():
                yield TextPart(self._spelled(part.text) if job.language == "ja" else _plain(part.text), part.end)

    def _spelled(self, text: str) -> str:
        """Japanese in katakana, marks left alone."""
        kana = _katakana()
        return "".join(
            piece.text if isinstance(piece, SpeechTag) else kana(_plain(piece)) if piece.strip() else piece
            for piece in pieces(text, self.model)
        )

    def _write(self, clip: Clip) -> str:
        """A file of the clip, for the code reads it several times."""
        samples, rate = clip.samples, clip.sample_rate
        if rate < LEAST_RATE:
            import soxr

            few = np.frombuffer(samples, "<i2")
            samples, rate = soxr.resample(few, rate, LEAST_RATE).astype("<i2").tobytes(), LEAST_RATE
        handle, name = mkstemp(suffix=".wav", dir=self._folder.name)
        with os.fdopen(handle, "wb") as sink, wave.open(sink, "wb") as file:
            file.setparams((1, 2, rate, 0, "NONE", ""))
            file.writeframes(samples)
        return name


def closed_spans(parts: Iterable[TextPart], model: SpeechModel) -> Iterator[TextPart]:
    """The same parts, each with its spans closed; a span that continues is opened again in the next."""
    going_on: list[str] = []
    for part in parts:
        text = "".join(f"<{name}>" for name in going_on) + part.text
        for mark in pieces(part.text, model):
            if isinstance(mark, SpeechTag) and mark.name in model.spans and mark.text.startswith("<"):
                going_on = going_on[:-1] if mark.closes else [*going_on, mark.name]
        yield TextPart(text + "".join(f"</{name}>" for name in reversed(going_on)), part.end)


def load_code(folder: Path) -> Any:
    """The official model, fed with safetensors and kept from logging what it speaks."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        official = importlib.import_module("cosyvoice.cli.cosyvoice")
        networks = importlib.import_module("cosyvoice.cli.model")
    except ImportError as error:
        raise RuntimeError(
            f"`{sys.executable}` cannot import CosyVoice; docs/engines.md says how to build its environment"
        ) from error
    finally:
        # The code sends everything to standard error, at the lowest level.
        root.setLevel(level)
        root.handlers[:] = handlers
    if _hide_texts not in root.filters:
        root.addFilter(_hide_texts)
    networks.CosyVoiceModel.load = _load_networks
    return official.AutoModel(model_dir=str(folder))


def _load_networks(self: Any, *files: str) -> None:
    """In place of `CosyVoiceModel.load(llm, flow, hift)`, which reads pickles."""
    from safetensors.torch import load_file

    for network, file in zip((self.llm, self.flow, self.hift), files, strict=True):
        network.load_state_dict(load_file(Path(file).with_suffix(".safetensors")), strict=True)
        network.to(self.device).eval()


def _hide_texts(record: logging.LogRecord) -> bool:
    """Keeps records of the official code out: they quote what is spoken."""
    return f"{os.sep}cosyvoice{os.sep}" not in record.pathname


def _plain(text: str) -> str:
    """`text` without the control tokens of the model: a client's `<|endofprompt|>` would end the prompt."""
    return text.replace("<|", "< |")


def _katakana() -> Callable[[str], str]:
    try:
        japanese = importlib.import_module("pyopenjtalk")
    except ImportError:
        return str
    return lambda text: japanese.g2p(text, kana=True)
