"""Orders of voices: their bodies, and the complete specification that follows from each.

parse(DesignOrder, body)                    the order of the client
voice_spec(order, traits, model, draw)      its specification, with random choices for all that the order leaves open
"""

from __future__ import annotations

import math
import random
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from contract.base import Strict
from contract.catalog import VoiceDesignModel
from contract.errors import INVALID_REQUEST
from contract.limits import (
    AGE_YEARS,
    FREE_TEXT_CHARS,
    INSTRUCT_CHARS,
    SPEECH_SPEED,
    SUGGEST_CHARS,
    TARGET_HZ,
    VOICE_LABEL_CHARS,
)
from contract.speech.routing import FALLBACK_LANGUAGE, without_region
from contract.speech.voices import checked_slug
from contract.voice_design.draft import VoiceSpec
from contract.voice_design.pitch import DERIVED_SEMITONES, ORDERED_SEMITONES, band_hz, pitch_words, target_hz
from contract.voice_design.traits import AXES, Axis, Gender, Trait, Traits

UNSEEN = ("Cc", "Cs", "Co")
"""Categories of code points that are not allowed in text for people: some databases and terminals fail on them."""
TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
"""Marks that change the direction of writing, with which one label can look like another."""


def _text(text: str) -> str:
    """Returns `text`. Raises ValueError if it is empty, or has hidden characters other than line breaks."""
    if not text.strip():
        raise ValueError("it is empty")
    for char in text:
        if char in TURNING or (char not in "\t\n\r" and unicodedata.category(char) in UNSEEN):
            raise ValueError(f"it has the control character U+{ord(char):04X}; send plain text")
    return text


def _line(text: str | None) -> str | None:
    """Returns `text` in one line; None if it is empty, as in the unused fields of a form."""
    return " ".join(_text(text).split()) if text and text.strip() else None


Label = Annotated[str | None, Field(max_length=VOICE_LABEL_CHARS), AfterValidator(_line)]
Slug = Annotated[str, AfterValidator(checked_slug)] | None


class DesignOrder(Strict):
    """A body of POST /audio/voices/designs. Traits that it does not name are chosen at random.

    Unknown fields are refused: with `timber` for `timbre`, a random timbre would be billed.

    Attributes:
        age_years, age_group: exactly one of them.
        language: language of the sample sentence; `de` by default. Regions are cut: `de-DE` is `de`.
        free_text: further words at the end of the description.
        label: name for people; derived from the traits by default.
        slug: slug of the voice after adoption.
        auto_adopt: whether the voice is adopted as soon as it is ready.
        instruct: description that replaces the derived one.
        target_hz: median pitch to reach, in place of the one that follows from gender, age and timbre.
    """

    gender: Gender
    age_years: int | None = Field(None, ge=AGE_YEARS[0], le=AGE_YEARS[1])
    age_group: str | None = None
    language: str | None = None
    timbre: str | None = None
    character: str | None = None
    tempo: str | None = None
    use_case: str | None = None
    free_text: Annotated[str | None, Field(max_length=FREE_TEXT_CHARS), AfterValidator(_line)] = None
    label: Label = None
    slug: Slug = None
    auto_adopt: bool = False
    instruct: Annotated[str, Field(max_length=INSTRUCT_CHARS), AfterValidator(_text)] | None = None
    target_hz: int | None = Field(None, ge=TARGET_HZ[0], le=TARGET_HZ[1])

    @model_validator(mode="after")
    def _one_age(self) -> Self:
        if (self.age_years is None) == (self.age_group is None):
            which = "neither was" if self.age_years is None else "both were"
            raise INVALID_REQUEST(f"send exactly one of `age_years` and `age_group`; {which} sent", param="age_years")
        return self


class AdoptRequest(Strict):
    """A body of POST /audio/voices/designs/{id}/adopt; no body is the same as an empty one.

    Attributes:
        slug: slug of the voice, in place of the ordered one.
        label: label of the voice, in place of the ordered one.
    """

    slug: Slug = None
    label: Label = None


class SuggestRequest(Strict):
    """A body of POST /audio/voices/designs/suggest: `text` describes the voice, in German or English."""

    text: Annotated[str, Field(max_length=SUGGEST_CHARS)]

    @model_validator(mode="after")
    def _some_text(self) -> Self:
        if not self.text.strip():
            raise INVALID_REQUEST("`text` is empty; describe the voice in German or English", param="text")
        return self


def voice_spec(order: DesignOrder, traits: Traits, model: VoiceDesignModel, draw: random.Random) -> VoiceSpec:
    """Returns the complete specification of an order.

    `draw` chooses the seed, and age and traits that the order does not name. The languages are those of `model`, the
    designer. Raises INVALID_REQUEST for ids and languages that do not exist.
    """
    language = _language(order.language, model)
    chosen = {axis: _trait(axis, getattr(order, axis), traits, draw) for axis in AXES}
    age_years = _age_years(order, traits, draw)
    (low, high), speed = SPEECH_SPEED, math.prod(trait.speed for trait in chosen.values())
    shift = sum(trait.semitones for trait in chosen.values())
    target = order.target_hz or target_hz(order.gender, age_years, shift)
    described = describe(order, age_years, target, chosen, language, traits)
    label = traits.name(order.gender, age_years, (chosen["timbre"], chosen["character"]), language)
    return VoiceSpec(
        gender=order.gender,
        age_years=age_years,
        language=language,
        traits={axis: trait.id for axis, trait in chosen.items()},
        speed=round(min(max(speed, low), high), 3),
        instruct=order.instruct or described,
        label=order.label or label[:VOICE_LABEL_CHARS],
        slug=order.slug,
        target_hz=target,
        band_hz=band_hz(target, ORDERED_SEMITONES if order.target_hz else DERIVED_SEMITONES),
        auto_adopt=order.auto_adopt,
        seed=draw.getrandbits(31),
    )


def _language(code: str | None, model: VoiceDesignModel) -> str:
    if code is None:
        return FALLBACK_LANGUAGE if FALLBACK_LANGUAGE in model.languages else model.languages[0]
    language = without_region(code)
    if language not in model.languages:
        # Voice design has no error code of its own for this.
        raise INVALID_REQUEST(
            f"voices cannot be designed in `{code[:20]}`; allowed are {', '.join(model.languages)}",
            param="language",
            extra={"supported": list(model.languages)},
        )
    return language


def _age_years(order: DesignOrder, traits: Traits, draw: random.Random) -> int:
    if order.age_group is None:
        assert order.age_years is not None
        return order.age_years
    group = traits.age_group(order.age_group)
    return draw.randint(group.from_years, group.to_years)


def _trait(axis: Axis, id: str | None, traits: Traits, draw: random.Random) -> Trait:
    return draw.choice(list(traits.axes[axis].values())) if id is None else traits.trait(axis, id)


def describe(
    order: DesignOrder, age_years: int, target_hz: int, chosen: Mapping[Axis, Trait], language: str, traits: Traits
) -> str:
    """Returns gender, age and pitch, traits, use and language, then `free_text`, in at most INSTRUCT_CHARS."""
    article = "An" if age_years == 18 or 80 <= age_years < 90 else "A"
    words = {axis: trait.instruct for axis, trait in chosen.items()}
    sentences = [
        f"{article} {age_years}-year-old {traits.genders[order.gender].instruct} with a "
        f"{pitch_words(order.gender, age_years, target_hz)} voice around {target_hz} Hz.",
        f"The timbre is {words['timbre']}.",
        f"The speaker sounds {words['character']} and talks at {words['tempo']}.",
        f"A native speaker of {traits.languages[language].label('en')}, {words['use_case']}.",
    ]
    if order.free_text:
        sentences.append(order.free_text)
    return " ".join(sentences)[:INSTRUCT_CHARS].rstrip()
