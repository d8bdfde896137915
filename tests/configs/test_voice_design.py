"""Traits and designers as shipped, and what the loader says of those that do not fit together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from configs import PROFILES, load
from contract.limits import AGE_YEARS, INSTRUCT_CHARS, SPEECH_SPEED, VOICE_LABEL_CHARS
from contract.voice_design.traits import AXES, Traits
from tests.configs.test_catalog import edited, refusal

TRAITS = load("embedded").traits


@pytest.mark.parametrize("profile", PROFILES)
def test_traits_are_the_same_in_every_profile(profile: str) -> None:
    assert load(profile).traits == TRAITS


def test_each_axis_has_a_choice() -> None:
    counts = {axis: len(TRAITS.axes[axis]) for axis in AXES}
    assert counts == {"timbre": 5, "character": 8, "tempo": 5, "use_case": 9}
    assert len(TRAITS.age_groups) == 7


def test_every_age_that_can_be_ordered_has_a_group() -> None:
    for age in range(AGE_YEARS[0], AGE_YEARS[1] + 1):
        (group,) = [one for one in TRAITS.age_groups.values() if one.from_years <= age <= one.to_years]
        assert group.from_years <= group.middle_years <= group.to_years


def test_everything_has_a_label_in_german_and_english() -> None:
    for name, id, named in TRAITS.named():
        assert {"de", "en"} <= named.labels.keys(), (name, id)
        assert named.label("ja") == named.labels["en"]


def test_traits_move_pitch_and_tempo_both_ways_and_stay_within_the_limits() -> None:
    shifts = [trait.semitones for trait in TRAITS.axes["timbre"].values()]
    assert shifts == [-2, -1, 0, 1, 2]
    speeds = [trait.speed for trait in TRAITS.axes["tempo"].values()]
    assert speeds == sorted(speeds)
    assert SPEECH_SPEED[0] <= speeds[0] < 1 < speeds[-1] <= SPEECH_SPEED[1]
    for trait in (trait for axis in ("character", "use_case") for trait in TRAITS.axes[axis].values()):
        assert (trait.semitones, trait.speed) == (0, 1)


def test_the_longest_description_and_name_leave_room() -> None:
    longest = [max(entries.values(), key=lambda trait: len(trait.instruct)) for entries in TRAITS.axes.values()]
    assert sum(len(trait.instruct) for trait in longest) < INSTRUCT_CHARS / 4
    for language in ("de", "en"):
        by_label = [max(TRAITS.axes[axis].values(), key=lambda t: len(t.label(language))) for axis in AXES[:2]]
        assert len(TRAITS.name("m", 90, by_label, language)) <= VOICE_LABEL_CHARS


def test_every_designer_has_voices_that_an_engine_speaks() -> None:
    catalog = load("production")
    assert catalog.voice_design
    for model in catalog.voice_design.values():
        (engine,) = (engine for engine in catalog.speech.values() if engine.provider == model.provider)
        assert set(model.languages) <= set(engine.languages) & catalog.sentences.keys()


def test_a_catalogue_without_traits_has_none() -> None:
    assert list(Traits().named()) == []


WRONG = {
    "traits": [
        ("[timbre.low]", "[timbre.deep]", r"traits.toml: "),
        ("[timbre.low]", "[colour.low]", r"traits.toml \[traits\] `colour`"),
        ("semitones = -2", "semitones = -13", r"traits.toml \[traits\] `axes.timbre.deep.semitones`"),
        ("speed = 0.8", "speed = 0", r"traits.toml \[traits\] `axes.tempo.very_slow.speed`"),
        ("is_plain = true", "", r"traits.toml `timbre`: exactly one trait .* 0 have"),
        ("semitones = -2", "is_plain = true", r"traits.toml `timbre`: exactly one trait .* 2 have"),
        ("from_years = 16", "from_years = 17", r"traits.toml \[age_groups.16-19\] `from_years` must be 16"),
        ("to_years = 29", "to_years = 28", r"traits.toml \[age_groups.30-39\] `from_years` must be 29"),
        ("to_years = 29", "to_years = 30", r"traits.toml \[age_groups.30-39\] `from_years` must be 31"),
        ("to_years = 19", "to_years = 15", r"traits.toml \[age_groups.16-19\] `to_years`"),
        ("to_years = 90", "to_years = 89", r"traits.toml `age_groups`: the oldest group ends at 89, .* must end at 90"),
        ("[genders.m]", "[genders.x]", r"traits.toml \[traits\] `genders.x"),
        ('en = "deep"', 'fr = "grave"', r"traits.toml \[timbre.deep\] `labels` must have one in English"),
        ("words.de =", "words.fr =", r"traits.toml \[timbre.deep\] `words.fr`"),
        ('"tieftonig-"', f'"{"t" * 25}-"', r"traits.toml \[timbre.deep\] `words.de`: .* too long"),
        ('"tieftonig-"', '"-"', r"traits.toml \[timbre.deep\] `words.de`: a word is empty"),
        ("[languages.zh]", "[languages.xx]", r"voice_design.toml \[qwen3-tts\] `languages`: .*name for zh"),
        ("[languages.zh]", '[languages.tr]\nlabels.en = "T"\n[languages.zh]', r"traits.toml \[languages.tr\]"),
    ],
    "suggest": [
        ("[false_friends]", "[enemies]", r"suggest.toml \[words\] `enemies`"),
        ("[wording.en]", "[wording.en]\nsmile = 1", r"suggest.toml \[words\] `wording.en.smile`"),
    ],
    "public_figures": [
        ('timbre = "deep"', 'timbre = "dull"', r"public_figures.toml \[morgan freeman\] `timbre`"),
        ('timbre = "deep"', 'colour = "red"', r"public_figures.toml \[morgan freeman\] `colour`"),
        ("age_years = 68", "", r"public_figures.toml \[people\] `figures.0.age_years`"),
    ],
    "voice_design": [
        ('provider = "qwen"', 'provider = "nobody"', r"voice_design.toml \[qwen3-tts\] `provider`"),
        ('"zh"]', '"tr"]', r"voice_design.toml \[qwen3-tts\] `languages`: .*does not speak tr"),
    ],
}
"""By file: what is replaced there with what, and the complaint."""


@pytest.mark.parametrize(("file", "row"), [(file, row) for file, rows in WRONG.items() for row in rows])
def test_traits_and_designers_fit_together(tmp_path: Path, file: str, row: tuple[str, str, str]) -> None:
    old, new, complaint = row
    assert re.match(complaint, refusal(edited(tmp_path, f"{file}.toml", (old, new))))


def test_no_word_is_listed_twice_for_the_same_thing() -> None:
    for name, id, named in TRAITS.named():
        for language, words in named.words.items():
            assert len(set(words)) == len(words), (name, id, language)
