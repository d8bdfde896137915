"""Orders of designed voices."""

from typing import Any

from contract.voice_design.engine import DesignJob

TEXTS = {
    "en": "Good morning. This is my voice.",
    "de": "Guten Morgen. So klingt meine Stimme.",
    "fr": "Voici ma voix.",
    "ru": "Доброе утро. Это мой голос.",
}


def job(language: str = "en", target_hz: float = 190, semitones: float = 2, **fields: Any) -> DesignJob:
    """A woman's voice at most `semitones` from `target_hz`, but for what `fields` say."""
    factor = 2 ** (semitones / 12)
    woman = {"gender": "f", "age_years": 30, "instruct": "", "traits": {}, "speed": 1.0}
    order: dict[str, Any] = {"text": TEXTS[language], "band_hz": (target_hz / factor, target_hz * factor)}
    return DesignJob(language=language, target_hz=target_hz, **woman | order | {"attempts": 5, "seed": 1} | fields)
