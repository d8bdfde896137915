"""What tests hear: the sound of a job, how high it is, and sounds of their own."""

from typing import Any

import numpy as np
import soxr

import configs
import models
from audio.pitch import Pitch, measure
from contract.speech.engine import Clip, SpeechJob
from models.speech.adapter import SpeechAdapter
from tests.quick_speech import quick

Samples = np.ndarray[Any, np.dtype[np.float32]]

GERMAN = [
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
]


def sound_of(engine: SpeechAdapter, job: SpeechJob) -> Samples:
    """float32 [n] at the rate of the engine."""
    return np.concatenate([part.samples for part in engine.render(job)])


def spoken(text: str, language: str, sample_rate: int) -> Samples:
    engine = models.load(quick(configs.load("embedded").speech["supertonic-3"]))
    sound = sound_of(engine, SpeechJob(text, language))
    engine.close()
    return soxr.resample(sound, engine.sample_rate, sample_rate).astype(np.float32)


def pitch_of(samples: Samples, sample_rate: int) -> Pitch:
    pitch = measure(samples, sample_rate)
    assert pitch is not None
    return pitch


def saw(f0_hz: float, sample_rate: int, seconds: float) -> Samples:
    times = np.arange(round(seconds * sample_rate)) / sample_rate
    return (2 * (f0_hz * times % 1) - 1).astype(np.float32)


def tone(f0_hz: float, sample_rate: int = 16_000, seconds: float = 1.0) -> Clip:
    return Clip((saw(f0_hz, sample_rate, seconds) * 8000).astype("<i2").tobytes(), sample_rate)


NO_VOICES = ("silence", "noise", "faint noise", "hum", "beeps", "clicks", "chords")


def noise(kind: str, sample_rate: int, seconds: float = 20) -> Samples:
    """One of NO_VOICES."""
    times, dice = np.arange(round(seconds * sample_rate)) / sample_rate, np.random.default_rng(0)
    notes = 2 ** (np.floor(times * 2) % 5 / 12) * np.array([[220], [277], [330], [440]])
    made = {
        "silence": np.zeros(len(times)),
        "noise": dice.normal(0, 0.2, len(times)),
        "faint noise": dice.normal(0, 0.002, len(times)),
        "hum": 0.4 * np.sin(2 * np.pi * 50 * times) + 0.2 * np.sin(2 * np.pi * 150 * times),
        "beeps": 0.5 * np.sin(2 * np.pi * 1000 * times) * (times % 1 < 0.3),
        "clicks": (np.arange(len(times)) % 8000 == 0).astype(float),
        "chords": (0.15 * np.sin(2 * np.pi * notes * times)).sum(0) * np.exp(-3 * (times * 2 % 1)),
    }
    return made[kind].clip(-1, 1).astype(np.float32)


def babble(sample_rate: int, seconds: float) -> Samples:
    goes = np.sin(2 * np.pi * 2.5 * np.arange(round(seconds * sample_rate)) / sample_rate) > 0
    return 0.3 * saw(120, sample_rate, seconds) * goes
