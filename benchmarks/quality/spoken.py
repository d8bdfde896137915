"""How surely our ears find out that a voice did not say its text, and how often they blame one that did.

    python -m benchmarks.quality spoken --sounds var/spoken.jsonl      speaks and listens, and goes on where it stopped
    python -m benchmarks.quality spoken --sounds var/spoken.jsonl --judge     the tables, from what was heard already

Kokoro says sentences as they are, and others with a fault of which the ears are not told: a word or a number left out,
another number, a clause said twice, a tail cut off, a sentence of another language, silence. The embedded transcriber
listens with the language named. Both are the adapters, without Ray and HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import random
import re
import time
import tomllib
import wave
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import configs
import contract
import models
from contract.speech.engine import SpeechJob
from contract.transcription.engine import TranscriptionJob
from text.spoken import LETTERS, MISHEARD, compare

HALVES: dict[str, dict[str, list[str]]] = tomllib.loads(
    (Path(__file__).parent / "examples" / "spoken.toml").read_text("utf-8")
)
EARS = Path(contract.__file__).parent / "speech" / "ears.toml"
SPEECH, LISTENER = "supertonic-3", "voxtral-mini-transcribe"
THRESHOLDS = range(1, 13)
FAULTS = ("word", "number", "digits", "clause", "tail", "language", "silence")
VOICES = ("F1", "M1", "F2", "M2", "F4", "M3", "F3", "M5", "F5", "M4")
TAIL_SHARE = (0.55, 0.75)
"""Of a sound whose tail is cut, the share that is left."""
LEAST_LETTERS = 4
"""Of a word that is left out."""


@dataclass(frozen=True, slots=True)
class Case:
    """A sentence, what is spoken in its place, and in which language and by which voice.

    `fault` is empty where it is spoken as it is. `cut` is the share of the sound that is left, 0 is silence.
    """

    id: str
    language: str
    voice: str
    text: str
    fault: str = ""
    spoken: str = ""
    spoken_language: str = ""
    cut: float = 1.0


def cases(languages: list[str], rounds: int, seed: int) -> Iterator[Case]:
    """In each round of each language one sentence as it is, and one with a fault."""
    dice = random.Random(seed)
    pairs = {code: _pairs(code, dice) for code in languages}
    for number in range(rounds):
        for place, code in enumerate(languages):
            # Every voice comes to every language, in turn.
            clean, faulty = (VOICES[(number + 2 * place + step) % len(VOICES)] for step in (0, 1))
            yield _clean(f"{code}-{number}", code, clean, _sentence(next(pairs[code]), dice))
            fault = FAULTS[(number + place) % len(FAULTS)]
            first, second = next(pairs[code])
            while fault in ("number", "digits") and "{n}" not in first:
                first, second = next(pairs[code])
            text = _sentence((first, second), dice)
            yield _faulty(_clean(f"{code}-{number}-{fault}", code, faulty, text), fault, dice, languages)


def sentences(language: str, dice: random.Random) -> Iterator[str]:
    """Sentences of a language without end, each of its pairs of halves once before any comes again."""
    return (_sentence(halves, dice) for halves in _pairs(language, dice))


def _pairs(language: str, dice: random.Random) -> Iterator[tuple[str, str]]:
    every = [(first, second) for first in HALVES[language]["first"] for second in HALVES[language]["second"]]
    while True:
        dice.shuffle(every)
        yield from every


def _sentence(halves: tuple[str, str], dice: random.Random) -> str:
    return ", ".join(halves).replace("{n}", str(dice.randint(12, 980)))


def _clean(id: str, language: str, voice: str, text: str) -> Case:
    return Case(id, language, voice, text, spoken=text, spoken_language=language)


def _faulty(case: Case, fault: str, dice: random.Random, languages: list[str]) -> Case:
    text, changed = case.text, asdict(case) | {"fault": fault}
    match fault:
        case "word":
            words = [m for m in re.finditer(r"[^\W\d_]+ ", text) if len(m[0]) > LEAST_LETTERS]
            gone = dice.choice(words)
            changed["spoken"] = text[: gone.start()] + text[gone.end() :]
        case "number":
            changed["spoken"] = re.sub(r"\d+ ?", "", text)
        case "digits":
            changed["spoken"] = re.sub(r"\d+", lambda m: str(_other(int(m[0]), dice)), text)
        case "clause":
            first, second = text.split(", ", 1)
            changed["spoken"] = f"{first}, {second[:-1]}, {second}"
        case "tail":
            changed["cut"] = dice.uniform(*TAIL_SHARE)
        case "language":
            other = dice.choice([code for code in HALVES if code != case.language])
            changed |= {"spoken": _sentence(next(_pairs(other, dice)), dice), "spoken_language": other}
        case "silence":
            changed["cut"] = 0.0
    return Case(**changed)


def _other(number: int, dice: random.Random) -> int:
    return dice.choice([n for n in (number + 1, number + 10, number - 3, number + 100) if n != number])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `python -m benchmarks.quality spoken` takes."""
    parser.add_argument("--sounds", type=Path, required=True, help="what was heard, a line of JSON for each sentence")
    parser.add_argument("--languages", nargs="+", default=list(HALVES), choices=HALVES)
    parser.add_argument(
        "--rounds", type=int, default=100, help="sentences as they are in each language, and as many with a fault"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--judge", action="store_true", help="only judge what was heard already")
    parser.add_argument("--write", action="store_true", help=f"write {EARS.name} of the contract")


def run(options: argparse.Namespace) -> None:
    """Speaks and listens, then prints the tables; `--write` makes the table of the contract of them."""
    if not options.judge:
        asyncio.run(_listen(options))
    sounds = [json.loads(line) for line in options.sounds.read_text("utf-8").splitlines()]
    print(report(sounds))
    if options.write:
        EARS.write_text(table(sounds), "utf-8")


async def _listen(options: argparse.Namespace) -> None:
    """Hears every sentence as the product does: once more with the text as a hint, where something seems to differ."""
    lines = options.sounds.read_text("utf-8").splitlines() if options.sounds.exists() else []
    known = {json.loads(line)["id"] for line in lines}
    catalog = configs.load("embedded")
    mouth, ear = models.load(catalog.speech[SPEECH]), models.load(catalog.transcription[LISTENER])
    options.sounds.parent.mkdir(parents=True, exist_ok=True)
    with options.sounds.open("a", encoding="utf-8") as file:
        for case in cases(options.languages, options.rounds, options.seed):
            if case.id in known:
                continue
            job = SpeechJob(case.spoken, case.spoken_language, case.voice)
            sound, seconds = _cut((await mouth.speak_whole(job)).data, case.cut)
            started, processor_s = time.perf_counter(), time.process_time()
            row = asdict(case) | {"heard": await _transcript(ear, sound, case.language), "seconds": seconds}
            if _differs(row, row["heard"]):
                row["again"] = await _transcript(ear, sound, case.language, case.text)
            spent, processor_s = time.perf_counter() - started, time.process_time() - processor_s
            row |= {"listened_s": spent, "processor_s": processor_s}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
    for adapter in (mouth, ear):
        adapter.close()


async def _transcript(ear: Any, sound: bytes, language: str, prompt: str | None = None) -> str:
    parts = [part async for part in ear.transcribe(TranscriptionJob(sound, language, prompt))]
    return " ".join(segment.text for part in parts for segment in part.segments)


def _cut(data: bytes, share: float) -> tuple[bytes, float]:
    """The sound up to `share` of its length; of share 0 as much silence. And its seconds."""
    with wave.open(io.BytesIO(data)) as file:
        rate, samples = file.getframerate(), file.readframes(file.getnframes())
    count = len(samples) // 2
    kept = samples[: 2 * int(count * share)] if share else bytes(2 * count)
    out: Any = io.BytesIO()
    with wave.open(out, "wb") as writer:
        writer.setparams((1, 2, rate, 0, "NONE", ""))
        writer.writeframes(kept)
    return out.getvalue(), len(kept) / 2 / rate


Sound = dict[str, Any]


def report(sounds: list[Sound]) -> str:
    """Every table as Markdown."""
    seconds = sum(sound["seconds"] for sound in sounds)
    shares = [sum(sound[name] for sound in sounds) / seconds for name in ("listened_s", "processor_s")]
    mean = f"{len(sounds)} sounds of {seconds / len(sounds):.1f} s in the mean"
    cost = f"{mean}; a verdict takes {shares[0]:.2f} of the length"
    parts = [
        _rates("language", sounds, lambda sound: sound["language"]),
        _rates("fault", [sound for sound in sounds if sound["fault"]], lambda sound: sound["fault"]),
        "| letters | faults found | good sentences blamed |\n|---|---|---|\n"
        + "\n".join(_row(f"{letters}", sounds, letters) for letters in THRESHOLDS),
        f"{cost}, and {shares[1]:.2f} of it in processor time.",
    ]
    return "\n\n".join(parts)


def _rates(title: str, sounds: list[Sound], key: Callable[[Sound], str]) -> str:
    groups = [[sound for sound in sounds if key(sound) == name] for name in dict.fromkeys(map(key, sounds))]
    rows = [_row(key(group[0]), group) for group in groups] + [_row("all", sounds)]
    return f"| {title} | faults found | good sentences blamed |\n|---|---|---|\n" + "\n".join(rows)


def _row(name: str, sounds: list[Sound], letters: int = LETTERS) -> str:
    cells = [
        _cell([sound for sound in sounds if bool(sound["fault"]) is has_fault], letters) for has_fault in (True, False)
    ]
    return f"| {name} | {' | '.join(cells)} |"


def _cell(sounds: list[Sound], letters: int) -> str:
    blamed = sum(map(partial(_is_blamed, letters=letters), sounds))
    return f"{blamed} of {len(sounds)}, {blamed / len(sounds):.1%}" if sounds else ""


def _is_blamed(sound: Sound, letters: int = LETTERS) -> bool:
    first = compare(sound["text"], sound["heard"], sound["language"], letters)
    hears_again = first.longest <= MISHEARD and "again" in sound
    return first.first is not None and not (hears_again and not _differs(sound, sound["again"], letters))


def _differs(sound: Sound, transcript: str, letters: int = LETTERS) -> bool:
    return compare(sound["text"], transcript, sound["language"], letters).first is not None


def table(sounds: list[Sound]) -> str:
    """What the contract reads: of whom these ears are good enough. It keeps the rows of other ears and speakers."""
    catalog = configs.load("embedded")
    ears, speaker = catalog.transcription[LISTENER].runtime, catalog.speech[SPEECH].runtime
    rows = tomllib.loads(EARS.read_text("utf-8"))
    rows.setdefault(ears, {})[speaker] = {code: _figures(sounds, code) for code in HALVES}
    head = "".join(line for line in EARS.read_text("utf-8").splitlines(keepends=True) if line.startswith("#"))
    for ears, speakers in rows.items():
        for speaker, languages in speakers.items():
            lines = (
                f"{code} = {{ {', '.join(f'{name} = {value}' for name, value in figures.items())} }}"
                for code, figures in languages.items()
            )
            head += f'\n["{ears}"."{speaker}"]\n' + "\n".join(lines) + "\n"
    return head


def _figures(sounds: list[Sound], language: str) -> dict[str, float]:
    of_language = [sound for sound in sounds if sound["language"] == language]
    faulty = [_is_blamed(sound) for sound in of_language if sound["fault"]]
    good = [_is_blamed(sound) for sound in of_language if not sound["fault"]]
    shares = {"found": sum(faulty) / len(faulty), "false_alarms": sum(good) / len(good)}
    return {"sentences": len(good), **{name: round(share, 3) for name, share in shares.items()}}
