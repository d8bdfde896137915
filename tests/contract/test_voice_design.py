"""Voice design: what an order may say, the pitch that it aims at, and the states of a draft."""

import itertools
import json
import math
import random
from itertools import pairwise
from typing import Any, get_args

import pytest

from configs import load
from contract.limits import AGE_YEARS, FREE_TEXT_CHARS, INSTRUCT_CHARS, SPEECH_SPEED, TARGET_HZ, VOICE_LABEL_CHARS
from contract.speech.voices import SLUG_CHARS
from contract.voice_design import draft, pitch
from contract.voice_design.draft import DRAFT_STATES, NOT_READY, TRANSITIONS, DraftEvent, DraftState, VoiceSpec
from contract.voice_design.order import AdoptRequest, DesignOrder, voice_spec
from contract.voice_design.replies import options
from contract.voice_design.traits import AXES, Gender
from tests.contract.bodies import read, refusal

CATALOG = load("embedded")
TRAITS = CATALOG.traits
DESIGNER = CATALOG.voice_design["qwen3-tts"]

WOMAN = {"gender": "f", "age_years": 34}


def planned(seed: int = 1, **fields: Any) -> VoiceSpec:
    return voice_spec(read(DesignOrder, WOMAN | fields), TRAITS, DESIGNER, random.Random(seed))


def adopt(**fields: Any) -> AdoptRequest:
    return read(AdoptRequest, fields)


HIDDEN = ["a\x00b", "a\x7f", "a\u202eb", "\u2066a", "a\ue000"]
NO_TEXT = [5, ["a"], {"a": 1}]
REFUSED: dict[str, list[Any]] = {
    "gender": ["x", "male", "F", "", None, 1],
    "age_years": [15, 91, 0, -1, 10**30, 34.0, 34.5, "34", True, [34]],
    "target_hz": [59, 401, 0, -60, 120.5, 120.0, "120", True, 10**20],
    "instruct": ["x" * (INSTRUCT_CHARS + 1), "", "  \n\t ", "a\x00b", "a\x1b[31m", *NO_TEXT],
    "free_text": ["x" * (FREE_TEXT_CHARS + 1), *HIDDEN, *NO_TEXT],
    "label": ["x" * (VOICE_LABEL_CHARS + 1), *HIDDEN, *NO_TEXT],
    "auto_adopt": ["true", 1, [], {}],
}


def test_another_value_is_refused_by_the_name_of_its_field() -> None:
    for field, values in REFUSED.items():
        for value in values:
            assert refusal(planned, **{field: value}).param == field, value


def test_an_age_group_gives_an_age_of_its_own_and_either_of_both_is_given() -> None:
    for group, named in TRAITS.age_groups.items():
        ages = {planned(seed, age_years=None, age_group=group).age_years for seed in range(400)}
        assert ages == set(range(named.from_years, named.to_years + 1))
    for age in ({"age_years": None}, {"age_group": "30-39"}, {"age_years": None, "age_group": None}):
        assert "exactly one of `age_years` and `age_group`" in refusal(planned, **age).message
    assert [planned(age_years=age).age_years for age in (16, 17, 89, 90)] == [16, 17, 89, 90]


def test_an_unknown_trait_or_age_group_is_refused_with_all_that_are_allowed() -> None:
    allowed = {axis: TRAITS.axes[axis].keys() for axis in AXES} | {"age_group": TRAITS.age_groups.keys()}
    for field, ids in allowed.items():
        for id in ("purple", "", "Deep", "x" * 5000, "../etc"):
            error = refusal(planned, **{"age_years": None if field == "age_group" else 34, field: id})
            assert (error.param, all(known in error.message for known in ids)) == (field, True)
            assert len(error.message) < 400


def test_regions_are_cut_and_a_language_of_no_designer_is_refused_with_all_that_are_allowed() -> None:
    codes = {"de-DE": "de", "en": "en", "EN_us": "en", " ja ": "ja", None: "de"}
    assert {code: planned(language=code).language for code in codes} == codes
    for code in ("xx", "", "auto", "tr", "d", "deutsch", "de" * 500):
        error = refusal(planned, language=code)
        assert (error.param, error.extra["supported"]) == ("language", list(DESIGNER.languages))
        assert len(error.message) < 200


def test_a_timbre_moves_the_target_and_an_ordered_pitch_is_the_target_whatever_the_traits() -> None:
    for timbre, trait in TRAITS.axes["timbre"].items():
        decided = planned(timbre=timbre)
        assert decided.target_hz == pitch.target_hz("f", 34, trait.semitones)
        assert decided.band_hz[0] < decided.target_hz < decided.band_hz[1]
    for hz in (60, 61, 399, 400):
        decided = planned(target_hz=hz, timbre="deep")
        assert (decided.target_hz, decided.band_hz) == (hz, pitch.band_hz(hz, pitch.ORDERED_SEMITONES))
        assert f"around {hz} Hz" in decided.instruct


def test_a_given_description_replaces_the_built_one_as_it_is_and_the_words_of_the_client_fit_in() -> None:
    for length in (1, INSTRUCT_CHARS - 1, INSTRUCT_CHARS):
        text = ("A voice like honey,\n deep \U0001f3a7 " * 100)[:length]
        assert planned(instruct=text, timbre="deep", free_text="x").instruct == text
    for length in (1, FREE_TEXT_CHARS - 1, FREE_TEXT_CHARS):
        decided = planned(free_text="x" * length)
        assert decided.instruct.endswith(" " + "x" * length)
        assert len(decided.instruct) <= INSTRUCT_CHARS


def test_a_description_begins_with_gender_age_and_pitch_and_ends_with_the_words_of_the_client() -> None:
    decided = planned(
        gender="m",
        age_years=48,
        timbre="deep",
        character="warm",
        tempo="slow",
        use_case="audiobook",
        language="en",
        free_text="A hint\nof salt.",
    )
    assert decided.instruct == (
        "A 48-year-old man with a low-pitched voice around 99 Hz. The timbre is deep, dark and resonant. "
        "The speaker sounds warm and trustworthy and talks at a slow pace. "
        "A native speaker of English, as heard in audiobooks. A hint of salt."
    )
    assert (decided.label, decided.speed) == ("Male, 48, deep, warm", 0.9)


def test_the_article_is_that_of_the_number() -> None:
    for article, ages in {"An": (18, 80, 89), "A": (79, 90, 28)}.items():
        for age in ages:
            assert planned(age_years=age).instruct.startswith(f"{article} {age}-year-old woman with a ")


def test_texts_are_counted_by_characters_kept_in_one_line_and_not_given_where_they_are_empty() -> None:
    for text in (None, "", " ", "\n"):
        assert planned(free_text=text, label=text) == planned()
    assert planned(free_text="ü" * FREE_TEXT_CHARS, label="ü" * VOICE_LABEL_CHARS)
    assert planned(label="  Meine\n Stimme 👩🏽‍🔬 ").label == "Meine Stimme 👩🏽‍🔬"


def test_a_slug_is_kept_or_refused_where_it_is_malformed() -> None:
    for slug in ("ab", "a1", "0-0", "a-b-c", "x" * SLUG_CHARS[1]):
        assert planned(slug=slug).slug == adopt(slug=slug).slug == slug
    malformed = ("", "a", "A1", "-a", "a-", "a--b", "a b", "ä1", "a/b", "../x", "a\n", "x" * 41, "x" * 9999)
    for slug, ask in itertools.product(malformed, (planned, adopt)):
        error = refusal(ask, slug=slug)
        assert (error.param, len(error.message) < 200) == ("slug", True), slug


def test_a_field_that_does_not_exist_is_refused() -> None:
    for field, ask in itertools.product(("timber", "voice", "age", "model", "constructor"), (planned, adopt)):
        assert refusal(ask, **{field: "deep"}).param == field


def test_equal_orders_differ_equal_chances_do_not_and_every_trait_is_drawn() -> None:
    assert planned(1) == planned(1)
    plans = [planned(seed) for seed in range(400)]
    assert len({tuple(sorted(p.traits.items())) for p in plans[:50]}) > 20
    assert len({p.seed for p in plans[:50]}) == 50
    assert {axis: {p.traits[axis] for p in plans} for axis in AXES} == {axis: set(TRAITS.axes[axis]) for axis in AXES}


def order_by_chance(draw: random.Random) -> dict[str, Any]:
    body: dict[str, Any] = {"gender": draw.choice("mf")}
    body |= draw.choice([{"age_years": draw.randint(*AGE_YEARS)}, {"age_group": draw.choice(list(TRAITS.age_groups))}])
    possible: dict[str, Any] = {axis: draw.choice(list(TRAITS.axes[axis])) for axis in AXES}
    possible |= {
        "language": draw.choice(DESIGNER.languages),
        "free_text": "".join(draw.choices("aä \n,.{}%👩🏽日", k=draw.randint(0, FREE_TEXT_CHARS))),
        "label": "".join(draw.choices("aä -日", k=draw.randint(0, VOICE_LABEL_CHARS))),
        "slug": "x" * draw.randint(*SLUG_CHARS),
        "auto_adopt": draw.random() < 0.5,
        "instruct": "i" * draw.randint(1, INSTRUCT_CHARS),
        "target_hz": draw.randint(*TARGET_HZ),
    }
    return body | {name: value for name, value in possible.items() if draw.random() < 0.4}


def test_whatever_is_ordered_the_limits_hold() -> None:
    draw = random.Random(11)
    for _ in range(2000):
        body = order_by_chance(draw)
        decided = voice_spec(read(DesignOrder, body), TRAITS, DESIGNER, draw)
        assert AGE_YEARS[0] <= decided.age_years <= AGE_YEARS[1]
        assert TARGET_HZ[0] <= decided.target_hz <= TARGET_HZ[1]
        assert decided.band_hz[0] < decided.target_hz < decided.band_hz[1]
        assert SPEECH_SPEED[0] <= decided.speed <= SPEECH_SPEED[1]
        assert 1 <= len(decided.instruct) <= INSTRUCT_CHARS
        assert 1 <= len(decided.label) <= VOICE_LABEL_CHARS
        assert decided.label.isprintable() or "\u200d" in decided.label
        assert 0 <= decided.seed < 2**31
        given = {axis: body[axis] for axis in AXES if axis in body}
        assert decided.traits | given == decided.traits
        assert decided.language == body.get("language", "de")
        assert (decided.slug, decided.auto_adopt) == (body.get("slug"), body.get("auto_adopt", False))


def test_options_name_everything_that_an_order_takes() -> None:
    offered = options(TRAITS, DESIGNER, True)
    assert offered["available"] is True
    assert options(TRAITS, DESIGNER, False)["available"] is False
    for axis in AXES:
        for trait in offered["traits"][axis]:
            assert planned(**{axis: trait["id"]}).traits[axis] == trait["id"]
            assert {"de", "en"} <= trait["labels"].keys()
    for group in offered["age_groups"]:
        assert group["from_years"] <= planned(age_years=None, age_group=group["id"]).age_years <= group["to_years"]
    assert [language["id"] for language in offered["languages"]] == list(DESIGNER.languages)
    assert [gender["id"] for gender in offered["genders"]] == ["f", "m"]
    limits = offered["limits"]
    assert (limits["adopted_voices"], limits["concurrent_drafts"], limits["draft_timeout_s"]) == (10, 3, 1200)
    assert (limits["instruct_chars"], limits["age_years"], limits["target_hz"]) == (2000, [16, 90], [60, 400])
    assert limits["sample_url_s"] == 3600
    assert json.loads(json.dumps(offered)) == offered


GENDERS: tuple[Gender, ...] = ("m", "f")
AGES = range(AGE_YEARS[0], AGE_YEARS[1] + 1)


def semitones(hz: float, other: float) -> float:
    return 12 * math.log2(hz / other)


def test_an_anchor_is_met_between_two_the_pitch_is_linear_and_every_age_that_can_be_ordered_has_one() -> None:
    for gender in GENDERS:
        anchors = pitch.ANCHORS_HZ[gender]
        for age, hz in anchors:
            assert pitch.usual_hz(gender, age) == pitch.target_hz(gender, age, 0) == hz
        (age, hz), (later, other) = anchors[1:3]
        assert pitch.usual_hz(gender, (age + later) // 2) == (hz + other) / 2
        assert (anchors[0][0], anchors[-1][0]) == AGE_YEARS
        pitches = [pitch.usual_hz(gender, age) for age in AGES]
        assert all(abs(semitones(one, other)) < 0.5 for one, other in pairwise(pitches))
        with pytest.raises(ValueError, match="91 years"):
            pitch.usual_hz(gender, AGE_YEARS[1] + 1)


def test_the_pitch_is_as_the_literature_has_it() -> None:
    assert min(AGES, key=lambda age: pitch.usual_hz("m", age)) == 40
    falls = [pitch.usual_hz("f", age) for age in AGES]
    assert falls == sorted(falls, reverse=True)
    assert semitones(210, pitch.usual_hz("f", 30)) == pytest.approx(0, abs=1)
    assert semitones(120, pitch.usual_hz("m", 30)) == pytest.approx(0, abs=1.5)
    young, old = (semitones(pitch.usual_hz("f", age), pitch.usual_hz("m", age)) for age in (25, 70))
    assert 8.5 < young < 10.5
    assert 5.5 < old < 6.5


def test_a_shift_is_in_semitones_and_a_target_stays_within_what_can_be_ordered() -> None:
    for gender, shift in itertools.product(GENDERS, (-2, -1, 0, 1, 2)):
        shifted = semitones(pitch.target_hz(gender, 40, shift), pitch.usual_hz(gender, 40))
        assert shifted == pytest.approx(shift, abs=0.1)
    assert (pitch.target_hz("m", 40, -12), pitch.target_hz("f", 16, 12)) == TARGET_HZ
    assert isinstance(pitch.target_hz("f", 33, 1), int)


def test_a_band_is_as_wide_below_the_target_as_above_and_narrower_around_an_ordered_pitch() -> None:
    widths = (pitch.DERIVED_SEMITONES, pitch.ORDERED_SEMITONES)
    for target, half_width in itertools.product((60, 61, 97, 120, 210, 399, 400), widths):
        low, high = pitch.band_hz(target, half_width)
        assert low < target < high
        assert (semitones(target, low), semitones(high, target)) == pytest.approx((half_width, half_width), abs=0.02)
    assert widths == (2.0, 1.5)
    assert (pitch.band_hz(120, 2.0), pitch.band_hz(120, 1.5)) == ((106.9, 134.7), (110.0, 130.9))


def test_a_pitch_is_called_by_what_is_usual_for_the_voice() -> None:
    words = {60: "very low", 95: "low", 108: "medium", 120: "high", 400: "very high"}
    assert {hz: pitch.pitch_words("m", 40, hz) for hz in words} == {hz: f"{word}-pitched" for hz, word in words.items()}


TABLE: dict[DraftState, dict[DraftEvent, DraftState]] = {
    "pending": {"finish": "ready", "fail": "failed", "expire": "failed", "discard": "discarded"},
    "ready": {"adopt": "adopted", "discard": "discarded"},
    "adopted": {"discard": "discarded"},
    "discarded": {"discard": "discarded"},
    "failed": {"discard": "discarded"},
}
"""The transitions of a draft; an event that is missing changes nothing."""


def test_every_event_in_every_state() -> None:
    assert TABLE.keys() == set(DRAFT_STATES)
    for state, after in TABLE.items():
        assert {event: target for event, (sources, target) in TRANSITIONS.items() if state in sources} == after, state
    assert TRANSITIONS.keys() == set(get_args(DraftEvent))
    draft.refuse_adoption("ready")
    for state in NOT_READY:
        assert NOT_READY[state] in refusal(draft.refuse_adoption, state).message
    assert NOT_READY.keys() == set(DRAFT_STATES) - {"ready"}
