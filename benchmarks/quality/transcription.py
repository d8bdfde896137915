"""How many words are wrong when our own speech is written down, in every language that the embedded voices speak.

    python -m benchmarks.quality transcription
    python -m benchmarks.quality transcription --languages en de --voices F1 M1
    python -m benchmarks.quality transcription --recordings FOLDER    your own, each beside a .txt with what is said
    python -m benchmarks.quality transcription --clips FOLDER    people, beside faster-whisper with its own defaults

The sentence of samples is spoken by the embedded speech engine and transcribed with the language named, and without:
both adapters, without Ray and HTTP. Errors are those of words (WER), of characters where a language is written without
spaces; case and punctuation do not count. A high figure may be the voice's fault: most sound like a robot.

The FOLDER of `--clips` holds sound files and a `clips.toml` that lists them:

    [[clip]]
    file = "en-moon.flac"             in the folder or below it
    text = "We choose to go."         the words; empty where nobody speaks, and any word in a transcript is invented
    language = "en"                   empty where nobody speaks
    kind = "telephone"                any name; the tables have a row for each
    licence = "CC0 1.0"               this and other keys are for readers
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tomllib
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import configs
import models
from benchmarks.tables import table
from contract.catalog import TranscriptionModel
from contract.speech.engine import SpeechJob
from contract.transcription.engine import TranscriptionJob
from contract.transcription.request import TranscriptionRequest, plan
from contract.transcription.transcript import Transcript
from models.weights import store

VOICES = ("F1", "M1")
BOTH = (0, 1)
"""Places of the adapter and of the library in a row."""


@dataclass(frozen=True, slots=True)
class Clip:
    """Recording of a person, and its words; `language` is empty where it is to be detected."""

    file: Path
    text: str
    language: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Words of a clip, and how many are wrong in each transcript; where there are none, those invented."""

    clip: Clip
    words: int
    wrong: tuple[int, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--languages", nargs="+", help="codes; default all that the engine speaks")
    parser.add_argument("--voices", nargs="+", default=list(VOICES))
    parser.add_argument("--model", default="whisper-large-v3", help="transcriber")
    parser.add_argument("--recordings", type=Path, metavar="FOLDER", help="sound files, each beside its words in .txt")
    parser.add_argument("--clips", type=Path, metavar="FOLDER", help="recordings of people, listed in its clips.toml")
    parser.add_argument("--profile", default="embedded", choices=configs.PROFILES, help="of the transcriber")


def run(options: argparse.Namespace) -> None:
    work = _print_recordings if options.recordings else _print_clips if options.clips else None
    asyncio.run((work or _table)(options))


async def _print_recordings(options: argparse.Namespace) -> None:
    """A row for each recording, and one for all."""
    model = configs.load(options.profile).transcription[options.model]
    adapter, language = models.load(model), (options.languages or [""])[0]
    print("| recording | words | wrong |\n|---|---|---|", flush=True)
    rows = []
    for clip in recordings(options.recordings):
        answer = await _transcript(adapter, model, clip.file.read_bytes(), language or None)
        row = _row(clip, language or answer.detected or "", answer.text)
        print(f"| {clip.file.name} | {row.words} | {row.wrong[0] / row.words:.1%} |", flush=True)
        rows.append(row)
    words = sum(row.words for row in rows)
    print(f"| all | {words} | {sum(row.wrong[0] for row in rows) / words:.1%} |")
    adapter.close()


async def _print_clips(options: argparse.Namespace) -> None:
    """Words wrong by language and by kind, and words invented, of this adapter and of the library."""
    from faster_whisper import WhisperModel

    model = configs.load(options.profile).transcription[options.model]
    adapter = models.load(model)
    library = WhisperModel(str(store.ensure(model.weights or "")), "cpu", compute_type="int8")
    rows = []
    for clip in clips(options.clips, options.languages):
        ours = (await _transcript(adapter, model, clip.file.read_bytes(), clip.language or None)).text
        segments, _ = library.transcribe(str(clip.file), language=clip.language or None)
        rows.append(_row(clip, clip.language, ours, "".join(segment.text for segment in segments)))
        print(f"{clip.file.name}: {rows[-1].wrong} of {rows[-1].words}", file=sys.stderr, flush=True)
    adapter.close()
    print(report(rows))


def recordings(folder: Path) -> list[Clip]:
    """Sound files of `folder`, each with the words in the text file of the same name."""
    found = [
        Clip(file, text)
        for file in sorted(folder.glob("*"))
        if file.suffix != ".txt" and file.is_file() and (words := file.with_suffix(".txt")).is_file()
        if (text := words.read_text("utf-8").strip())
    ]
    if not found:
        raise SystemExit(f"{folder} has no recording beside a text of the same name, such as memo.wav and memo.txt")
    return found


def clips(folder: Path, languages: Sequence[str] | None = None) -> list[Clip]:
    """Clips of `folder` in the order of its `clips.toml`; of `languages` alone where these are named."""
    try:
        listed = tomllib.loads((folder / "clips.toml").read_text("utf-8"))["clip"]
        found = [Clip(folder / clip["file"], clip["text"], clip["language"], clip["kind"]) for clip in listed]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise SystemExit(f"{folder} has no clips.toml as --help describes it: {error!r}") from None
    return [clip for clip in found if not languages or clip.language in languages]


def report(rows: Sequence[Row]) -> str:
    spoken, empty = ([row for row in rows if bool(row.words) is has_words] for has_words in (True, False))
    invented = [(row.clip.kind, row.clip.file.name, *row.wrong) for row in empty if any(row.wrong)]
    return "\n\n".join(
        [
            _rates("language", spoken, lambda row: row.clip.language),
            _rates("kind", spoken, lambda row: row.clip.kind),
            table(f"of {len(empty)} without speech | clip | words invented, ours | library", invented),
        ]
    )


def _rates(title: str, rows: Sequence[Row], key: Callable[[Row], str]) -> str:
    cells: list[tuple[object, ...]] = []
    groups = {name: [row for row in rows if key(row) == name] for name in sorted(set(map(key, rows)))}
    for name, some in (groups | {"all": rows}).items():
        words = sum(row.words for row in some)
        cells.append((name, len(some), words, *(f"{sum(row.wrong[by] for row in some) / words:.1%}" for by in BOTH)))
    return table(f"{title} | clips | words | wrong, ours | library", cells)


def _row(clip: Clip, language: str, *texts: str) -> Row:
    words = len(_units(clip.text, language))
    if not words:
        return Row(clip, 0, tuple(len(_units(text, language)) for text in texts))
    return Row(clip, words, tuple(round(errors(clip.text, text, language) * words) for text in texts))


async def _table(options: argparse.Namespace) -> None:
    catalog = configs.load("embedded")
    speaker, ears = catalog.speech["supertonic-3"], catalog.transcription[options.model]
    mouth, ear = models.load(speaker), models.load(ears)
    print(f"{speaker.runtime} speaks, {ears.runtime} listens\n")
    print("| language | " + " | ".join(f"{voice}, named | {voice}, detected" for voice in options.voices) + " |")
    print("|---" * (1 + 2 * len(options.voices)) + "|", flush=True)
    for language in options.languages or speaker.languages:
        cells: list[str] = []
        for voice in options.voices:
            text = catalog.sentences[language]
            sound = (await mouth.speak_whole(SpeechJob(text, language, voice))).data
            for named in (language, None):
                heard = await _transcript(ear, ears, sound, named)
                detected = "" if heard.detected in (language, None) else f" ({heard.detected})"
                cells.append(f"{errors(text, heard.text, language):.0%}{detected}")
        print(f"| {language} | " + " | ".join(cells) + " |", flush=True)
    for adapter in (mouth, ear):
        adapter.close()


async def _transcript(ear: Any, ears: TranscriptionModel, sound: bytes, named: str | None) -> Transcript:
    transcript = Transcript(plan(TranscriptionRequest(language=named), ears))
    async for heard in ear.transcribe(TranscriptionJob(sound, named)):
        transcript.add(heard)
    return transcript


def errors(said: str, heard: str, language: str) -> float:
    """Share of wrong words of `said`, or of characters where `language` has no spaces; above 1 if more was heard."""
    import jiwer

    reference, hypothesis = _units(said, language), _units(heard, language)
    if not hypothesis:
        return 1.0
    result: Any = jiwer.wer(" ".join(reference), " ".join(hypothesis))
    return float(result)


def _units(text: str, language: str) -> Sequence[str]:
    plain = re.sub(r"[^\w\s]|_", " ", unicodedata.normalize("NFKC", text).casefold())
    return list("".join(plain.split())) if re.fullmatch("zh|ja|yue|th|lo|my|km|bo", language) else plain.split()
