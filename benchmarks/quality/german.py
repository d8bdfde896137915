"""How many words are misheard of German, by each who can speak it here: Pico, Kokoro's voices, and espeak-ng.

    python -m benchmarks.quality german
    python -m benchmarks.quality german --voices bib-f-20 bib-m-65

Everyday sentences, by the speakers without the graph. Whisper base listens and is told the language. Case and
punctuation do not count. The designed voices are of a man and a woman, each as the designer first tries it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import configs
import models
from benchmarks.quality.kokoro import WEIGHTS, ears
from benchmarks.quality.transcription import errors
from contract.voice_design.engine import DesignJob
from models import pico
from models.espeak import library
from models.espeak.library import Manner
from models.kokoro.speaker import SAMPLE_RATE, Kokoro
from models.kokoro.styles import KokoroVoice, at_home
from models.weights import store

if TYPE_CHECKING:
    import numpy as np

    Say = Callable[[str], tuple[np.ndarray[Any, np.dtype[np.float32]], int]]

LANGUAGE = "de"
VOICES = ("F1", "de-thorsten", "bib-f-30")
DESIGNED: tuple[tuple[Literal["f", "m"], int], ...] = (("f", 200), ("m", 110))
"""Gender and Hz."""

SENTENCES = (
    "Guten Tag, Sie sprechen mit der Zentrale der Stadtwerke.",
    "Bitte bleiben Sie am Apparat, ich suche Ihre Bestellung.",
    "Der Zug nach Hamburg fährt heute von Gleis neun ab.",
    "Ihre Rechnung ist am fünfzehnten des Monats fällig.",
    "Können Sie mir bitte Ihre Kundennummer nennen?",
    "Das Büro ist montags bis freitags von acht bis siebzehn Uhr geöffnet.",
    "Wir haben Ihre Nachricht erhalten und melden uns in Kürze.",
    "Möchten Sie lieber einen Tisch am Fenster oder im Garten?",
    "Vor der Brücke biegen Sie links in die Schillerstraße ein.",
    "Das Paket wird morgen zwischen zehn und zwölf Uhr zugestellt.",
    "Der Arzt hat erst nächsten Donnerstag wieder einen Termin frei.",
    "Nehmen Sie die Tabletten zweimal täglich nach dem Essen.",
    "In der letzten Woche hat es fast jeden Tag geregnet.",
    "Wie lange dauert die Fahrt von München nach Köln?",
    "Ich habe meine Schlüssel gestern in der Küche vergessen.",
    "Die Heizung im dritten Stock ist schon wieder ausgefallen.",
    "Leider ist der Artikel zurzeit nicht auf Lager.",
    "Für weitere Fragen drücken Sie bitte die Eins.",
    "Unsere Nachbarn bauen gerade ein neues Haus aus Holz.",
    "Vielen Dank für Ihren Anruf und einen schönen Abend noch.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `python -m benchmarks.quality german` takes."""
    parser.add_argument("--voices", nargs="*", default=list(VOICES))


def run(options: argparse.Namespace) -> None:
    """Prints the table, a row when it is known."""
    understood = ears()
    print("| who speaks | by | words wrong |\n|---|---|---|", flush=True)
    for name, runtime, say in speakers(options.voices):
        heard = " ".join(understood(*say(text), LANGUAGE) for text in SENTENCES)
        print(f"| {name} | {runtime} | {errors(' '.join(SENTENCES), heard, LANGUAGE):.1%} |", flush=True)


def speakers(slugs: list[str]) -> Iterator[tuple[str, str, Say]]:
    """Who speaks, by what, and how: text to sound, float32 [n], and its rate."""
    kokoro, presets = Kokoro(store.ensure(WEIGHTS), 2), _presets()
    yield "nobody named", "svox-pico", lambda text: (pico.speak(text, LANGUAGE), pico.SAMPLE_RATE)
    for slug in slugs:
        settings = presets[slug].espeak
        assert settings is not None
        yield slug, "espeak-ng", _espeak(settings.manner(LANGUAGE))
        at_home_here = presets[slug].model_copy(update={"styles": at_home(presets[slug].styles, LANGUAGE)})
        yield slug, "kokoro-82m", _kokoro(kokoro, at_home_here)
    designer = models.load(configs.load("embedded").voice_design["qwen3-tts"])
    for gender, target_hz in DESIGNED:
        voice = designer.propose(_order(gender, target_hz), []).voice
        yield f"designed, {target_hz} Hz", "kokoro-82m", _kokoro(kokoro, voice)
    designer.close()


def _espeak(manner: Manner) -> Say:
    return lambda text: (library.speak(text, manner), library.SAMPLE_RATE)


def _kokoro(kokoro: Kokoro, voice: KokoroVoice) -> Say:
    return lambda text: (kokoro.speak(text, LANGUAGE, voice), SAMPLE_RATE)


def _presets() -> dict[str, KokoroVoice]:
    servings = (model.serving for model in configs.load("embedded").speech.values())
    voices = (serving.options["voices"] for serving in servings if serving)
    return {slug: KokoroVoice.model_validate(voice) for said in voices for slug, voice in said.items()}


def _order(gender: Literal["f", "m"], target_hz: int) -> DesignJob:
    return DesignJob(
        text=SENTENCES[0],
        language=LANGUAGE,
        gender=gender,
        age_years=40,
        instruct="",
        traits={},
        target_hz=target_hz,
        band_hz=(0.9 * target_hz, 1.1 * target_hz),
        speed=1.0,
        attempts=5,
        seed=1,
    )
