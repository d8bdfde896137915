"""Who may choose a voice, and what the catalogue says of each."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from configs import load
from contract.access import TARIFFS, Caller, Scope
from contract.errors import VOICE_NOT_IN_PLAN
from contract.speech.voices import SYSTEM_VOICES, Voice, access
from tests.contract.bodies import refusal

VOICES = load("embedded").voices

FIXED = {
    "supertonic": {"M1", "M2", "M3", "M4", "M5", "F1", "F2", "F3", "F4", "F5"},
    "cosyvoice": {"de-thorsten"},
    "qwen": {"rooom-f-01", "rooom-f-02", "rooom-m-01", "rooom-m-02"},
}
"""The promised fixed voices of each engine."""


def caller(plan: str, *entitlements: str) -> Caller:
    return Caller(1, "acme", "k", TARIFFS[plan], frozenset(Scope), entitlements=frozenset(entitlements))


def test_fixed_voices_of_the_spec_are_there() -> None:
    for provider, slugs in FIXED.items():
        assert {slug for slug, voice in VOICES.items() if voice.provider == provider} == slugs


def test_slugs_of_the_catalogue_engine_say_gender_and_age() -> None:
    catalogue = [voice for voice in VOICES.values() if voice.provider == "mistral"]
    assert catalogue
    for voice in catalogue:
        prefix, gender, age = voice.slug.split("-")
        low, high = map(int, voice.age_group.split("-"))
        assert (prefix, gender) == ("bib", voice.gender)
        assert low <= int(age) <= high


def test_the_rest_of_the_spec_about_single_voices() -> None:
    assert {slug for slug, voice in VOICES.items() if voice.status} == FIXED["qwen"]
    assert all(VOICES[slug].status_note for slug in FIXED["qwen"])
    ages = {"rooom-f-01": "30-35", "rooom-f-02": "45-50", "rooom-m-01": "30-35", "rooom-m-02": "45-50"}
    assert {slug: VOICES[slug].age_group for slug in ages} == ages
    thorsten = VOICES["de-thorsten"]
    assert (thorsten.gender, thorsten.primary_language, thorsten.origin) == ("m", "de", "cloned")
    assert all(voice.scope == "platform" for voice in VOICES.values())


def test_system_voices_are_no_voices_of_the_catalogue() -> None:
    assert SYSTEM_VOICES == {"default-de": "de", "default-en": "en"}
    assert not SYSTEM_VOICES.keys() & VOICES.keys()


@pytest.mark.parametrize(
    ("plan", "entitlements", "may", "via"),
    [
        ("free", (), False, "tier"),
        ("free", ("voices",), True, "entitlement"),
        ("starter", (), True, "tier"),
        ("starter", ("voices",), True, "tier"),
        ("standard", (), True, "tier"),
        ("pro", (), True, "tier"),
        ("enterprise", (), True, "tier"),
    ],
)
def test_voice_selection_begins_with_starter_or_the_entitlement(
    plan: str, entitlements: tuple[str, ...], may: bool, via: str
) -> None:
    who = caller(plan, *entitlements)
    told = access(who)
    assert (told["selectable"], told["via"], told["tier"]) == (may, via, plan)
    assert (told["hint"] is None) == may
    for voice in VOICES.values():
        assert voice.selectable(who) == (may or voice.provider != "mistral")


def test_a_voice_that_may_not_be_chosen_is_a_403_that_says_what_would_help() -> None:
    error = refusal(VOICES["bib-f-30"].require, caller("free"), fault=VOICE_NOT_IN_PLAN)
    assert (error.fault.status, error.param) == (403, "voice")
    assert all(word in error.message for word in ("bib-f-30", "free", "starter"))
    VOICES["bib-f-30"].require(caller("starter"))
    VOICES["bib-f-30"].require(caller("free", "voices"))
    VOICES["M1"].require(caller("free"))


def test_a_voice_has_no_unknown_keys() -> None:
    with pytest.raises(ValidationError):
        Voice.model_validate({**VOICES["M1"].model_dump(), "tier": "gold"})
    with pytest.raises(ValidationError):
        Voice.model_validate({**VOICES["M1"].model_dump(), "gender": "x"})
