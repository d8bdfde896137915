"""How many words are wrong when our own speech is written down, in every language that the embedded voices speak.

    python -m benchmarks.quality transcription
    python -m benchmarks.quality transcription --languages en de --voices F1 M1
    python -m benchmarks.quality transcription --presets          every preset voice of every engine, by language
    python -m benchmarks.quality transcription --recordings FOLDER    your own, each beside a .txt with what is said

The sentence that samples say is spoken by the embedded speech engine and heard by the embedded transcriber: both
adapters, without Ray and HTTP. Once with the language named, once without. Errors are those of words (WER), of
characters where a language is written without spaces; case and punctuation do not count. A high figure may be the
voice's fault: most languages are spoken by a synthesiser that sounds like a robot. `--presets` keeps to the languages
that the better one speaks.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import configs
import models
from contract.catalog import TranscriptionModel
from contract.speech.engine import SpeechJob
from contract.transcription.engine import TranscriptionJob
from contract.transcription.request import TranscriptionRequest, plan
from contract.transcription.transcript import NO_SPACES, Transcript

VOICES = ("F1", "M1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `python -m benchmarks.quality transcription` takes."""
    parser.add_argument("--languages", nargs="+", help="codes; default all that the engine speaks")
    parser.add_argument("--voices", nargs="+", default=list(VOICES))
    parser.add_argument("--speech", default="supertonic-3", help="model that speaks")
    parser.add_argument("--presets", action="store_true", help="every preset voice, in the languages of its runtime")
    parser.add_argument("--ears", default="whisper-large-v3", help="model that listens")
    parser.add_argument("--recordings", type=Path, metavar="FOLDER", help="sound files, each beside its words in .txt")
    parser.add_argument("--profile", default="embedded", choices=configs.PROFILES, help="whose model listens")


def run(options: argparse.Namespace) -> None:
    """Prints the table, a row when it is known."""
    if options.recordings:
        asyncio.run(_recordings(options))
    else:
        asyncio.run(_presets(options) if options.presets else _table(options))


async def _recordings(options: argparse.Namespace) -> None:
    pairs = recordings(options.recordings)
    ears = configs.load(options.profile).transcription[options.ears]
    ear, language = models.load(ears), (options.languages or [None])[0]
    print("| recording | words | wrong |\n|---|---|---|", flush=True)
    words, wrong = 0, 0.0
    for file, text in pairs:
        heard = await _transcript(ear, ears, file.read_bytes(), language)
        spoken = language or heard.detected or ""
        count, share = len(_units(text, spoken)), errors(text, heard.text, spoken)
        words, wrong = words + count, wrong + count * share
        print(f"| {file.name} | {count} | {share:.1%} |", flush=True)
    print(f"| all | {words} | {wrong / words:.1%} |")
    ear.close()


def recordings(folder: Path) -> list[tuple[Path, str]]:
    """Sound files of `folder` and what is said in them, from the text file of the same name."""
    pairs = [
        (file, text)
        for file in sorted(folder.glob("*"))
        if file.suffix != ".txt" and file.is_file() and (words := file.with_suffix(".txt")).is_file()
        if (text := words.read_text("utf-8").strip())
    ]
    if not pairs:
        raise SystemExit(f"{folder} has no recording beside a text of the same name, such as memo.wav and memo.txt")
    return pairs


async def _table(options: argparse.Namespace) -> None:
    catalog = configs.load("embedded")
    speaker, ears = catalog.speech[options.speech], catalog.transcription[options.ears]
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


async def _presets(options: argparse.Namespace) -> None:
    catalog = configs.load("embedded")
    ears = catalog.transcription[options.ears]
    ear = models.load(ears)
    speakers = {model.provider: model for model in catalog.speech.values() if model.serving}
    spoken = {name: [*model.serving.languages] for name, model in speakers.items() if model.serving}
    languages = options.languages or sorted({code for codes in spoken.values() for code in codes})
    shares: dict[str, list[float]] = {code: [] for code in languages}
    print("| voice | engine | " + " | ".join(languages) + " |\n" + "|---" * (2 + len(languages)) + "|", flush=True)
    for provider, model in speakers.items():
        mouth = models.load(model)
        for voice in (voice.slug for voice in catalog.voices.values() if voice.provider == provider):
            cells: list[str] = []
            for code in languages:
                if code not in spoken[provider] or code not in model.languages:
                    cells.append("")
                    continue
                text = catalog.sentences[code]
                sound = (await mouth.speak_whole(SpeechJob(text, code, voice))).data
                shares[code].append(errors(text, (await _transcript(ear, ears, sound, code)).text, code))
                cells.append(f"{shares[code][-1]:.0%}")
            print(f"| {voice} | {provider} | " + " | ".join(cells) + " |", flush=True)
        mouth.close()
    print("| median | | " + " | ".join(f"{median(shares[code]):.0%}" for code in languages) + " |")
    print(f"\nmedian of all {median(share for row in shares.values() for share in row):.1%}")
    ear.close()


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
    return list("".join(plain.split())) if language in NO_SPACES else plain.split()
