"""A folder of weights becomes faster-whisper's model, or an error that says what it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contract.transcription.languages import LANGUAGES
from models.weights.files import WeightsError


def load(folder: Path, *, device: str, compute_type: str, threads: int) -> Any:
    """faster-whisper's model. Raises WeightsError for a folder that holds none."""
    from faster_whisper import WhisperModel

    # Without this file the library would ask the model hub for another one.
    if missing := [name for name in ("model.bin", "config.json", "tokenizer.json") if not (folder / name).is_file()]:
        raise WeightsError(f"`{folder}` is not a model of Whisper for CTranslate2: it has no `{missing[0]}`")
    try:
        whisper = WhisperModel(
            str(folder), device=device, compute_type=compute_type, cpu_threads=threads, local_files_only=True
        )
    except RuntimeError as error:
        raise WeightsError(f"`{folder}` cannot be loaded as a model of Whisper: {error}") from error
    bands = whisper.feature_extractor.mel_filters.shape[0]
    if whisper.model.n_mels != bands:
        raise WeightsError(
            f"the model in `{folder}` expects {whisper.model.n_mels} mel bands, but its `preprocessor_config.json` "
            f"says {bands}"
        )
    return whisper


def check_languages(whisper: Any, lacks_languages: tuple[str, ...], model_id: str) -> None:
    """Raises WeightsError where the stanza is wrong about what the weights lack: requests are judged by it."""
    token = whisper.hf_tokenizer.token_to_id
    known = (
        {code for code in LANGUAGES if token(f"<|{code}|>") is not None} if whisper.model.is_multilingual else {"en"}
    )
    if wrong := set(LANGUAGES) - known ^ set(lacks_languages):
        raise WeightsError(
            f"`lacks_languages` of `{model_id}` is wrong about {', '.join(sorted(wrong)[:5])}: "
            f"the weights lack {', '.join(sorted(set(LANGUAGES) - known)) or 'none'}"
        )
