"""Qwen3-TTS's own package, loaded from a folder, for what speaks with it and what designs with it.

tts = load(folder, NetworkOptions(), "base")                  the package's model, of one variant
tts.generate_voice_clone(text=[...], ..., max_new_tokens=most)
ran_on(samples, most)                                  the model missed its end and was stopped
plain_text(tts)("Hello <|im_end|>")                    a text of a client without control tokens
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from contract.base import Frozen
from models import Imports
from models.encoders import Dtype, choose_dtype
from models.llm.plain_text import PlainText
from models.weights.files import WeightsError

if TYPE_CHECKING:
    from audio.encoding import Samples

IMPORTS = Imports(("torch", "transformers", "qwen_tts"))

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

SAMPLE_RATE = 24_000
SAMPLES_PER_FRAME = 1_920
"""Samples that the 12 Hz codec makes of one frame: 12.5 frames are a second."""

SPARE_FRAMES, FRAMES_PER_CHAR = 75, 8
"""A text that becomes longer than this has missed its end. Ten times slower than people speak English, three times
slower than they speak Chinese."""


class NetworkOptions(Frozen):
    """Options of every variant: how its networks are loaded."""

    dtype: Dtype = "bfloat16"
    device: str | None = None


def most_frames(text: str) -> int:
    """The number of frames at which `text` is given up."""
    return SPARE_FRAMES + FRAMES_PER_CHAR * len(text)


def ran_on(samples: Any, most_frames: int) -> bool:
    """Says if the model was stopped; the last code that it may write makes no frame."""
    return len(samples) >= (most_frames - 1) * SAMPLES_PER_FRAME


def checked(samples: Any, rate: int, sample_rate: int, model_id: str) -> Samples:
    """Float32 [n], -1 to 1. Raises RuntimeError where the weights speak at another rate than the stanza says."""
    import numpy as np

    if rate != sample_rate:
        raise RuntimeError(f"the weights of `{model_id}` speak at {rate} Hz, but its stanza says {sample_rate}")
    return np.asarray(samples, np.float32).clip(-1, 1)


def plain_text(tts: Any) -> Callable[[str], str]:
    """Puts a space into whatever spells a control token of `tts`: its package puts texts into a chat template."""
    plain = PlainText(tts.processor.tokenizer)
    return lambda text: plain.cut(text, " ")


def load(folder: Path, network: NetworkOptions, variant: Literal["base", "voice_design"]) -> Any:
    """The package's model from a folder. Nothing in it is run, and nothing is fetched. Raises WeightsError."""
    import importlib
    import sys

    import torch

    try:
        package = importlib.import_module("qwen_tts")
    except ImportError as error:
        raise RuntimeError(
            f"`{sys.executable}` has no qwen-tts; run `make setup-qwen` to make the environment of the "
            f"interpreter that `py_executable` should name"
        ) from error
    device = network.device or ("cuda:0" if torch.cuda.is_available() else "cpu")
    tts = package.Qwen3TTSModel.from_pretrained(
        str(folder),
        device_map=device,
        dtype=choose_dtype(network.dtype, device),
        attn_implementation="sdpa",
        local_files_only=True,
        use_safetensors=True,
    )
    if tts.model.tts_model_type != variant:
        raise WeightsError(f"`{folder}` contains `{tts.model.tts_model_type}`, but `{variant}` is needed")
    return tts
