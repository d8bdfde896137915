"""How surely our ears find out that a voice did not say its text, and how often they blame one that did.

    python -m benchmarks.quality spoken              speaks and listens, and goes on where it stopped
    python -m benchmarks.quality spoken --judge      tables and `transcribers.toml`, from what was heard already
    python -m benchmarks.quality spoken --clips FOLDER   how often people are blamed who say their text; the folder is
                                                         as `transcription --help` describes it

Kokoro says sentences as they are, and others with a fault: a word or a number left out, another number, a clause said
twice, a tail cut off, a sentence of another language, silence. The embedded transcriber gets the language.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import random
import re
import statistics
import time
import tomllib
import wave
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import configs
import contract
import models
from autoscaling.engine import CallContext, Engine, Timings
from benchmarks import tables
from benchmarks.quality.transcription import clips
from contract.speech.engine import Clip, SpeechJob
from contract.speech.verdict import LEAST_FOUND, MOST_FALSE_ALARMS
from contract.transcription.engine import TranscriptionJob, joined
from deployments.ingress.verifier import SpeechVerifier, wav
from text.spoken import LETTERS, compare

SENTENCES: dict[str, list[str]] = {
    language: lines.split("\n")[:-1]
    for language, lines in tomllib.loads(
        (Path(__file__).parent / "examples" / "spoken.toml").read_text("utf-8")
    ).items()
}
EARS = Path(contract.__file__).parent / "speech" / "transcribers.toml"
SOUNDS = Path(__file__).parent / "results" / "spoken.jsonl"
HEAD = """\
# How surely the ears of a runtime find faults in what a runtime says, by language: shares of faults that were found,
# and of sentences without a fault that were blamed; and voices for which they are too weak. Made by
# `python -m benchmarks.quality spoken`.
"""
SPEECH, LISTENER = "supertonic-3", "voxtral-mini-transcribe"
FAULTS = ("word", "number", "digits", "clause", "tail", "language", "silence")
OF_NUMBERS = ("number", "digits")
"""Faults that come twice as often, as not every sentence can have them."""
VOICES = ("F1", "M1", "F2", "M2", "F4", "M3", "F3", "M5", "F5", "M4")
TAIL_SHARE = (0.55, 0.75)
"""Of a sound whose tail is cut, the share that is left."""
LEAST_LETTERS = 4
"""Of a word that is left out."""
UNSEEN = 5
"""No rule was chosen on one sentence in so many."""
ROW = ("id", "language", "voice", "text", "fault")
"""Of a case, what stands beside what was heard."""
_NUMBER = re.compile(r"\d+(?:[.,: ]\d+)* ?")

Sound = dict[str, Any]


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


def cases() -> Iterator[Case]:
    """Each sentence as it is, then with a fault. Languages take turns, and every voice comes to every language."""
    for number in range(len(SENTENCES["en"])):
        for place, language in enumerate(SENTENCES):
            text, voice = SENTENCES[language][number], VOICES[(number + 2 * place) % len(VOICES)]
            case = Case(f"{language}-{number}", language, voice, text, "", text, language)
            yield case
            faults = FAULTS + OF_NUMBERS if _NUMBER.search(text) else tuple(f for f in FAULTS if f not in OF_NUMBERS)
            yield _faulty(case, faults[(number + place) % len(faults)], random.Random(case.id))


def _faulty(case: Case, fault: str, dice: random.Random) -> Case:
    text, changed = case.text, dict[str, Any](id=f"{case.id}-{fault}", fault=fault)
    match fault:
        case "word":
            words = [m for m in re.finditer(r"[^\W\d_]+ ", text) if len(m[0]) > LEAST_LETTERS]
            changed["spoken"] = _without(text, dice.choice(words))
        case "number":
            changed["spoken"] = _without(text, dice.choice(list(_NUMBER.finditer(text))))
        case "digits":
            number = dice.choice(list(re.finditer(r"[1-9]\d*", text)))
            changed["spoken"] = f"{text[: number.start()]}{_other(int(number[0]), dice)}{text[number.end() :]}"
        case "clause":
            whole = text.split(" ")
            changed["spoken"] = " ".join([*whole, *whole[len(whole) // 2 :]])
        case "tail":
            return replace(case, **changed, cut=dice.uniform(*TAIL_SHARE))
        case "language":
            other = dice.choice([code for code in SENTENCES if code != case.language])
            changed |= {"spoken": dice.choice(SENTENCES[other]), "spoken_language": other}
        case "silence":
            return replace(case, **changed, cut=0.0)
    return replace(case, **changed)


def _without(text: str, part: re.Match[str]) -> str:
    return text[: part.start()] + text[part.end() :]


def _other(number: int, dice: random.Random) -> int:
    return dice.choice([n for n in (number + 1, number + 10, number - 3, number + 100) if n > 0])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--judge", action="store_true", help="only judge what was heard already")
    parser.add_argument("--clips", type=Path, metavar="FOLDER", help="only judge recordings of people")


def run(options: argparse.Namespace) -> None:
    """Speaks and listens, then prints the tables and makes the table of the contract of them."""
    if options.clips:
        asyncio.run(_print_people(options.clips))
        return
    if not options.judge:
        asyncio.run(_listen(SOUNDS))
    sounds = read(SOUNDS)
    print(*report(sounds), sep="\n\n")
    EARS.write_text(table(sounds), "utf-8")


def read(file: Path) -> list[Sound]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


async def _listen(file: Path) -> None:
    """Hears every sentence that `file` lacks, and once more with the text as a hint, where something differs."""
    known = {row["id"] for row in read(file)}
    catalog = configs.load("embedded")
    mouth, ear = (_on_one_core(model) for model in (catalog.speech[SPEECH], catalog.transcription[LISTENER]))
    spoken, whole = None, b""
    with file.open("a", encoding="utf-8") as lines:
        for case in cases():
            if case.id in known:
                continue
            job = SpeechJob(case.spoken, case.spoken_language, case.voice)
            if job != spoken:
                spoken, whole = job, (await mouth.speak_whole(job)).data
            sound, seconds = _cut(whole, case.cut)
            row = {name: value for name, value in asdict(case).items() if name in ROW} | {"seconds": round(seconds, 2)}
            row["heard"], row["heard_s"] = await _transcript(ear, sound, case.language)
            if compare(case.text, row["heard"], case.language).is_doubtful:
                row["again"], row["again_s"] = await _transcript(ear, sound, case.language, case.text)
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")
            lines.flush()
    for adapter in (mouth, ear):
        adapter.close()


async def _print_people(folder: Path) -> None:
    """Recordings of people that are blamed although they say their text, by language and by kind."""
    adapter = _on_one_core(configs.load("embedded").transcription[LISTENER])
    sounds: list[Sound] = []
    for clip in clips(folder, list(SENTENCES)):
        verifier = SpeechVerifier(cast(Engine, Direct(adapter)), clip.language)
        context = CallContext("org-1", Timings())
        verdict = await verifier.verdict(clip.file.read_bytes(), clip.text, context)
        row = {"language": clip.language, "kind": clip.kind, "text": clip.text, "fault": ""}
        sounds.append(row | {"heard": verdict.transcript or ""})
    adapter.close()
    print(_rates("language", sounds), _rates("kind", sounds), sep="\n\n")


def _on_one_core(model: Any) -> Any:
    """The adapter of a model. What runs beside it would hold up each of its threads by the others."""
    return models.load(model.model_copy(update={"serving": model.serving.model_copy(update={"threads": 1})}))


async def _transcript(ear: Any, sound: bytes, language: str, prompt: str | None = None) -> tuple[str, float]:
    """What is heard, and the processor time that it takes, in seconds."""
    started_s = time.process_time()
    pieces = [s.text async for part in ear.transcribe(TranscriptionJob(sound, language, prompt)) for s in part.segments]
    return joined(pieces), round(time.process_time() - started_s, 2)


def _cut(data: bytes, share: float) -> tuple[bytes, float]:
    """The sound up to `share` of its length; of share 0 as much silence. And its seconds."""
    with wave.open(io.BytesIO(data)) as file:
        rate, samples = file.getframerate(), file.readframes(file.getnframes())
    count = len(samples) // 2
    kept = samples[: 2 * int(count * share)] if share else bytes(2 * count)
    return wav(Clip(kept, rate)), len(kept) / 2 / rate


class Direct:
    """A transcriber as the ears of the product ask it, without a gate; it counts hearings."""

    def __init__(self, adapter: Any) -> None:
        self.name, self.hearings, self._adapter = LISTENER, 0, adapter

    async def ready(self, within_s: float, *, timings: Timings) -> None:
        """It is."""

    def stream(self, method: Any, job: TranscriptionJob, *, context: CallContext) -> Any:
        self.hearings += 1
        return self._adapter.transcribe(job)


def report(sounds: list[Sound]) -> list[str]:
    """Parts of the page of results: rates by language, of unseen sentences too; by fault; processor time."""
    unseen = [sound for sound in sounds if int(sound["id"].split("-")[1]) % UNSEEN == UNSEEN - 1]
    faults = {name: [sound for sound in sounds if sound["fault"] == name] for name in FAULTS}
    rates = (f"{name} {found} of {count}" for name, some in faults.items() for found, count in _counts(some)[:1])
    return [_rates("language", sounds, unseen), f"By fault: {', '.join(rates)}.", _costs(sounds)]


def _rates(key: str, *samples: list[Sound]) -> str:
    """A row for each value of `key`, and in each for each sample the faults found and the good sentences blamed."""
    names = dict.fromkeys(sound[key] for sound in samples[0])
    groups = {name: [[sound for sound in sample if sound[key] == name] for sample in samples] for name in names}
    rows = [
        (name, *(f"{blamed} of {count}" if count else "" for some in each for blamed, count in _counts(some)))
        for name, each in [*groups.items(), ("all", samples)]
    ]
    return tables.table(key + " | faults found | good sentences blamed" * len(samples), rows)


def _costs(sounds: list[Sound]) -> str:
    """Processor time of verdicts on good sentences of 5 to 10 s, as shares of their length: one hearing, or two."""
    good = [sound for sound in sounds if not sound["fault"] and 5 <= sound["seconds"] <= 10]
    again = [sound for sound in good if _is_heard_again(sound)]
    parts = []
    for name, some in (("heard once", [sound for sound in good if sound not in again]), ("twice", again)):
        shares = [(sound["heard_s"] + (sound in again and sound["again_s"])) / sound["seconds"] for sound in some]
        median, most = statistics.median(shares or [0]), max(shares, default=0)
        parts.append(f"{name} {median:.2f} (median of {len(some)}; at most {most:.2f})")
    return ", ".join(parts)


def _counts(sounds: list[Sound], letters: int = LETTERS) -> list[tuple[int, int]]:
    """Of those with a fault, and of those without: how many are blamed, and how many there are."""
    kinds = [[sound for sound in sounds if bool(sound["fault"]) is has_fault] for has_fault in (True, False)]
    return [(sum(map(partial(_is_blamed, letters=letters), kind)), len(kind)) for kind in kinds]


def _is_blamed(sound: Sound, letters: int = LETTERS) -> bool:
    transcript = sound["again" if _is_heard_again(sound, letters) else "heard"]
    return compare(sound["text"], transcript, sound["language"], letters).first is not None


def _is_heard_again(sound: Sound, letters: int = LETTERS) -> bool:
    # With fewer letters than the rule asks for there may be doubts that none had when it was heard.
    return "again" in sound and compare(sound["text"], sound["heard"], sound["language"], letters).is_doubtful


def table(sounds: list[Sound]) -> str:
    """What the contract reads: of whom these ears are good enough."""
    catalog = configs.load("embedded")
    ears, speaker = catalog.transcription[LISTENER].runtime, catalog.speech[SPEECH].runtime
    of_languages = {language: [sound for sound in sounds if sound["language"] == language] for language in SENTENCES}
    lines = [f"{language} = {_figures(some)}\n" for language, some in of_languages.items()]
    return f'{HEAD}\n["{ears}"."{speaker}"]\n{"".join(lines)}'


def _figures(sounds: list[Sound]) -> str:
    (found, faults), (blamed, good) = _counts(sounds)
    weak = [voice for voice in VOICES if _is_weak([sound for sound in sounds if sound["voice"] == voice])]
    figures = f"sentences = {good}, found = {found / faults:.3f}, false_alarms = {blamed / good:.3f}"
    return f"{{ {figures}, weak_voices = {json.dumps(sorted(weak))} }}"


def _is_weak(sounds: list[Sound]) -> bool:
    """Whether ears are too weak for a voice in a language: one error is chance, two of some ten sentences are not."""
    (found, faults), (blamed, good) = _counts(sounds)
    return any(
        errors > 1 and errors > share * count
        for errors, count, share in ((faults - found, faults, 1 - LEAST_FOUND), (blamed, good, MOST_FALSE_ALARMS))
    )
