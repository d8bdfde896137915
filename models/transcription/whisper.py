"""Whisper's model: how it is loaded, and when not to believe its text. It fills what it does not understand with loops.

is_no_speech(segment)    nobody spoke; leave it out
is_doubtful(segment)     hear the window again
is_bearable(segment)     better than nothing, where a second hearing is no better

A segment is one of faster-whisper's, its words ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contract.transcription.engine import LANGUAGES
from models.transcription.segments import breathless
from models.weights.files import WeightsError

MAX_REPETITION = 2.4
"""How often shorter a text may become when it is compressed; this and the next two are Whisper's own bounds."""

MIN_LOGPROB = -1.0
MAX_NO_SPEECH = 0.6

LOOP_BREATHLESS, MAX_BREATHLESS = 0.15, 0.5
"""Shares of words that take no time: where a repetition is a loop, and where nothing of it can be kept."""

BEARABLE_LOGPROB = -1.5
"""What mumbled words may have. Noise that passes for a voice has less than -2."""


def is_no_speech(segment: Any) -> bool:
    """Whether there was no voice, by the model's own judgement."""
    return bool(segment.no_speech_prob > MAX_NO_SPEECH and segment.avg_logprob < MIN_LOGPROB)


def is_doubtful(segment: Any) -> bool:
    """Whether the text is improbable, a loop, or none of its words has a place in the sound."""
    if is_no_speech(segment) or not segment.text.strip():
        return False
    return bool(segment.avg_logprob < MIN_LOGPROB or not segment.words or _is_loop(segment))


def is_bearable(segment: Any) -> bool:
    """Whether to keep a doubtful text, less the words that take no time."""
    return bool(segment.avg_logprob >= BEARABLE_LOGPROB and breathless(segment.words) <= MAX_BREATHLESS)


def _is_loop(segment: Any) -> bool:
    """Whether words repeat that nobody repeats. Somebody who says the same again takes the time for it."""
    return bool(segment.compression_ratio > MAX_REPETITION and breathless(segment.words) > LOOP_BREATHLESS)


def load(folder: Path, *, device: str, compute_type: str, threads: int) -> Any:
    """faster-whisper's model. Raises WeightsError for a folder that holds none."""
    from faster_whisper import WhisperModel

    # Without this file the library would ask the model hub for another one.
    if missing := [name for name in ("model.bin", "config.json", "tokenizer.json") if not (folder / name).is_file()]:
        raise WeightsError(f"`{folder}` is no model of Whisper for CTranslate2: it has no `{missing[0]}`")
    try:
        whisper = WhisperModel(
            str(folder), device=device, compute_type=compute_type, cpu_threads=threads, local_files_only=True
        )
    except RuntimeError as error:
        raise WeightsError(f"`{folder}` cannot be loaded as a model of Whisper: {error}") from error
    bands = whisper.feature_extractor.mel_filters.shape[0]
    if whisper.model.n_mels != bands:
        raise WeightsError(
            f"the model in `{folder}` hears {whisper.model.n_mels} bands, its `preprocessor_config.json` says {bands}"
        )
    return whisper


def check_languages(whisper: Any, lacks_languages: tuple[str, ...], model_id: str) -> None:
    """Raises WeightsError where the stanza is wrong about what the weights lack: requests are judged by it."""
    token = whisper.hf_tokenizer.token_to_id
    languages = (
        {code for code in LANGUAGES if token(f"<|{code}|>") is not None} if whisper.model.is_multilingual else {"en"}
    )
    if wrong := set(LANGUAGES) - languages ^ set(lacks_languages):
        raise WeightsError(
            f"`lacks_languages` of `{model_id}` is wrong about {', '.join(sorted(wrong)[:5])}: "
            f"the weights lack {', '.join(sorted(set(LANGUAGES) - languages)) or 'none'}"
        )
