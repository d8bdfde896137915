"""Replies about designed voices: drafts, options of orders, suggestions."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from contract import limits
from contract.catalog import VoiceDesignModel
from contract.speech.voices import SAMPLE_ADDRESS_S, SLUG_CHARS, VoiceObject
from contract.voice_design.draft import DraftState
from contract.voice_design.traits import Axis, Gender, Traits


class Measurements(TypedDict):
    """Measurements of a voice: null while pending. Quartiles and windows exist once there is a clip."""

    f0_hz: float | None
    in_band: bool | None
    attempts_used: int | None
    seconds: float | None
    p25_hz: NotRequired[float]
    p75_hz: NotRequired[float]
    voiced_windows: NotRequired[int]


class VoiceDesignObject(TypedDict):
    """A draft. `traits` maps each axis to the id of a trait, ordered or random."""

    object: Literal["voice_design"]
    id: str
    status: DraftState
    scope: Literal["org"]
    created_at: int
    language: str
    gender: Gender
    age_years: int
    traits: dict[str, str]
    label: str
    instruct: str
    target_hz: int
    band_hz: list[float]
    auto_adopt: bool
    measurements: Measurements
    sample_url: str | None
    duration_ms: NotRequired[int]
    cost_micro_eur: int
    voice_slug: str | None
    voice: VoiceObject | None
    error: str | None


class VoiceDesignList(TypedDict):
    """Drafts of the organisation."""

    object: Literal["list"]
    data: list[VoiceDesignObject]


class NamedOption(TypedDict):
    """Option of an order, with its label by language."""

    id: str
    labels: dict[str, str]


class TraitOption(NamedOption):
    """A trait; `description` is its part of the description of a voice, in English."""

    description: str


class AgeGroupOption(NamedOption):
    """An age group; both ages are included."""

    from_years: int
    to_years: int


class DesignLimits(TypedDict):
    """Limits of voice design; pairs are the lowest and highest allowed value."""

    adopted_voices: int
    concurrent_drafts: int
    attempts: int
    age_years: list[int]
    target_hz: list[int]
    instruct_chars: int
    free_text_chars: int
    label_chars: int
    slug_chars: list[int]
    suggest_text_chars: int
    draft_timeout_s: int
    draft_kept_s: int
    sample_url_s: int


class DesignOptions(TypedDict):
    """Options of an order, the limits, and whether this server accepts orders."""

    object: Literal["voice_design_options"]
    available: bool
    model: str
    genders: list[NamedOption]
    languages: list[NamedOption]
    age_groups: list[AgeGroupOption]
    traits: dict[Axis, list[TraitOption]]
    limits: DesignLimits


class SuggestReply(TypedDict):
    """Traits for an order. `reason` explains them; `hints` (three at most) name what was missing or unclear."""

    gender: Gender
    age_years: int
    language: str
    timbre: str
    character: str
    tempo: str
    use_case: str
    name: str
    reason: str
    hints: list[str]


def options(traits: Traits, model: VoiceDesignModel, available: bool) -> DesignOptions:
    """Returns the options of orders to `model`."""
    return {
        "object": "voice_design_options",
        "available": available,
        "model": model.id,
        "genders": [{"id": id, "labels": gender.labels} for id, gender in traits.genders.items()],
        "languages": [{"id": code, "labels": traits.languages[code].labels} for code in model.languages],
        "age_groups": [
            {"id": group.id, "labels": group.labels, "from_years": group.from_years, "to_years": group.to_years}
            for group in traits.age_groups.values()
        ],
        "traits": {
            axis: [{"id": t.id, "labels": t.labels, "description": t.instruct} for t in named.values()]
            for axis, named in traits.axes.items()
        },
        "limits": _limits(model),
    }


def _limits(model: VoiceDesignModel) -> DesignLimits:
    return {
        "adopted_voices": limits.OWN_VOICES,
        "concurrent_drafts": limits.PENDING_DRAFTS,
        "attempts": model.max_attempts,
        "age_years": list(limits.AGE_YEARS),
        "target_hz": list(limits.TARGET_HZ),
        "instruct_chars": limits.INSTRUCT_CHARS,
        "free_text_chars": limits.FREE_TEXT_CHARS,
        "label_chars": limits.VOICE_LABEL_CHARS,
        "slug_chars": list(SLUG_CHARS),
        "suggest_text_chars": limits.SUGGEST_CHARS,
        "draft_timeout_s": limits.DRAFT_S,
        "draft_kept_s": limits.DRAFT_KEPT_S,
        "sample_url_s": SAMPLE_ADDRESS_S,
    }
