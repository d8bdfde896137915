"""Whisper's model: how it is loaded, when not to believe its text, and how its words become passages.

It fills what it does not understand with loops. A segment that `is_no_speech` is left out, and one that `is_doubtful`
is transcribed again; where that is no better, one that `is_bearable` is better than nothing. Segments are
of faster-whisper, with words of type `TimedWord`. Passages are a sentence or so each, and none of them is invented.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contract.transcription.engine import LANGUAGES, Segment, TimedWord
from models.transcription.voice_activity import Span
from models.weights.files import WeightsError
from text.sentences import ends_sentence

MAX_REPETITION = 2.4
"""Largest compression ratio of a text; this and the next two are Whisper's own bounds."""

MIN_LOGPROB = -1.0
MAX_NO_SPEECH = 0.6

LOOP_BREATHLESS, MAX_BREATHLESS = 0.15, 0.5
"""Shares of words that take no time: where a repetition is a loop, and where nothing of it can be kept."""

BEARABLE_LOGPROB = -1.5
"""Log probability that mumbled words may have. Noise that passes for a voice has less than -2."""

PAUSE_S = 1.0
"""A passage ends before a longer silence."""

LONG_S = 12.0
"""A passage ends at the next comma after this time, and at any word after half as much again: subtitles are read."""

COMMAS = tuple(",;:،、，；：")

SHORTEST_S = 0.03
"""No word takes less. Those of a loop pile up at a place where nothing of the kind is said."""

TOLERANCE_S = 0.3
"""Seconds that a word may lie outside the speech: times of words are good to some tenths."""


def is_no_speech(segment: Any) -> bool:
    """Says if there was no voice, by the model's own judgement."""
    return bool(segment.no_speech_prob > MAX_NO_SPEECH and segment.avg_logprob < MIN_LOGPROB)


def is_doubtful(segment: Any) -> bool:
    """Says if the text is improbable, a loop, or none of its words has a place in the sound."""
    if is_no_speech(segment) or not segment.text.strip():
        return False
    # A speaker who repeats words takes the time for it; a loop does not.
    loops = segment.compression_ratio > MAX_REPETITION and breathless(segment.words or []) > LOOP_BREATHLESS
    return bool(segment.avg_logprob < MIN_LOGPROB or not segment.words or loops)


def is_bearable(segment: Any) -> bool:
    """Says if a doubtful text is kept, less the words that take no time."""
    return bool(segment.avg_logprob >= BEARABLE_LOGPROB and breathless(segment.words) <= MAX_BREATHLESS)


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
    languages = (
        {code for code in LANGUAGES if token(f"<|{code}|>") is not None} if whisper.model.is_multilingual else {"en"}
    )
    if wrong := set(LANGUAGES) - languages ^ set(lacks_languages):
        raise WeightsError(
            f"`lacks_languages` of `{model_id}` is wrong about {', '.join(sorted(wrong)[:5])}: "
            f"the weights lack {', '.join(sorted(set(LANGUAGES) - languages)) or 'none'}"
        )


def sentences(words: Iterable[TimedWord]) -> Iterator[list[TimedWord]]:
    """The words in passages, cut at ends of sentences, at pauses, and where one gets long.

    Text of words is as the model wrote it, with the spaces before and after.
    """
    passage: list[TimedWord] = []
    for word in words:
        if passage and word.start - passage[-1].end > PAUSE_S:
            yield passage
            passage = []
        passage.append(word)
        if _ends(passage):
            yield passage
            passage = []
    if passage:
        yield passage


def _ends(passage: Sequence[TimedWord]) -> bool:
    text = passage[-1].text.rstrip()
    seconds = passage[-1].end - passage[0].start
    return ends_sentence(text) or (seconds > LONG_S and text.endswith(COMMAS)) or seconds > 1.5 * LONG_S


def is_heard(passage: Sequence[TimedWord], spoken: Iterable[Span]) -> bool:
    """Says if there is speech while the words are said: models fill silence with words that they often saw there."""
    start, end = passage[0].start - TOLERANCE_S, passage[-1].end + TOLERANCE_S
    return any(span.start < end and start < span.end for span in spoken)


def lasts(word: TimedWord) -> bool:
    """Says if it takes the time that a word needs."""
    return word.end - word.start >= SHORTEST_S


def breathless(words: Sequence[TimedWord]) -> float:
    """Share of the words that take no time: nearly 0 if a speaker repeats something, a third and more in a loop."""
    return sum(not lasts(word) for word in words) / len(words) if words else 0.0


def in_order(segments: Iterable[Segment], after_s: float, duration_s: float) -> Iterator[Segment]:
    """Times within the recording, none before one that came earlier."""
    for segment in segments:
        at, words = after_s, []
        for word in segment.words:
            start = min(max(word.start, at), duration_s)
            at = min(max(word.end, start), duration_s)
            words.append(replace(word, start=start, end=at))
        start = words[0].start if words else min(max(segment.start, after_s), duration_s)
        after_s = words[-1].end if words else min(max(segment.end, start), duration_s)
        yield replace(segment, start=start, end=after_s, words=tuple(words))
