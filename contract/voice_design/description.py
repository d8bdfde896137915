"""The description that a voice is designed from: what decides most comes first, and is read best there."""

from __future__ import annotations

from collections.abc import Mapping

from contract.limits import INSTRUCT_CHARS
from contract.voice_design.pitch import pitch_words
from contract.voice_design.traits import Axis, Gender, Trait, Traits


def describe(
    gender: Gender,
    age_years: int,
    target_hz: int,
    chosen: Mapping[Axis, Trait],
    language: str,
    free_text: str | None,
    traits: Traits,
) -> str:
    """Gender, age and pitch, then traits, use and language, then the client's own words; INSTRUCT_CHARS at most."""
    article = "An" if age_years == 18 or 80 <= age_years < 90 else "A"
    words = {axis: trait.instruct for axis, trait in chosen.items()}
    sentences = [
        f"{article} {age_years}-year-old {traits.genders[gender].instruct} with a "
        f"{pitch_words(gender, age_years, target_hz)} voice around {target_hz} Hz.",
        f"The timbre is {words['timbre']}.",
        f"The speaker sounds {words['character']} and talks at {words['tempo']}.",
        f"A native speaker of {traits.languages[language].label('en')}, {words['use_case']}.",
    ]
    if free_text:
        sentences.append(free_text)
    return " ".join(sentences)[:INSTRUCT_CHARS].rstrip()
