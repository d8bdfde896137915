"""Voices as mixtures: which styles are drawn, and what the real network makes of them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from random import Random

import numpy as np
import parselmouth
import pytest

import configs
import models
from audio.pitch import Pitch
from contract.voice_design.engine import DesignJob
from models.kokoro.styles import KokoroVoice, measured
from models.voice_design import palette
from models.voice_design.adapter import Try
from models.voice_design.kokoro import RANGE_PER_LIVELINESS, USUAL_RANGE, KokoroDesigner, PitchCandidate, PitchRange
from models.voice_design.palette import Ends, ends, mixed, outermost, requested_sound, sheet
from tests.models.hearing import pitch_of
from tests.models.voice_design import jobs
from tests.provenance import read_provenance

CATALOG = configs.load("embedded")
MODEL = CATALOG.voice_design["qwen3-tts"]
NAMES = tuple(measured())
job = partial(jobs.job, semitones=1.5)


def test_every_style_and_every_trait_that_is_named_is_there() -> None:
    assert sheet().styles.keys() <= set(NAMES)
    axes = CATALOG.traits.axes
    assert {axis: set(leanings) - set(axes[axis]) for axis, leanings in sheet().leanings.items()} == {
        axis: set() for axis in sheet().leanings
    }
    asked = [[sound.liveliness for sound in leanings.values()] for leanings in sheet().leanings.values()]
    for sums in (sum(map(max, asked)), sum(map(min, asked))):
        assert 0 <= USUAL_RANGE + RANGE_PER_LIVELINESS * sums <= 99, "what espeak takes"


def test_one_end_speaks_lower_and_one_higher_and_beyond_all_styles_the_outermost_is_taken() -> None:
    for gender, target_hz, seed in product("fm", (85, 110, 150, 190, 230, 300), range(20)):
        drawn = ends(job(gender=gender, target_hz=target_hz), NAMES, Random(seed))
        assert palette.pitch_of(drawn.below) <= target_hz < palette.pitch_of(drawn.above)
        for shares in (*drawn, mixed(drawn, 0.3)):
            assert sum(shares.values()) == pytest.approx(1)
    last = outermost(NAMES)
    for target_hz in (60, 400):
        drawn = ends(job(target_hz=target_hz), NAMES, Random(1))
        assert (drawn.below == last.below, drawn.above == last.above) == (target_hz == 60, target_hz == 400)


def test_a_mixture_is_of_both_ends() -> None:
    for above, names in ((0, {"a", "b"}), (0.5, {"a", "b", "c"}), (1, {"b", "c"})):
        shares = mixed(Ends({"a": 0.4, "b": 0.6}, {"b": 0.3, "c": 0.7}), above)
        assert set(shares) == names
        assert sum(shares.values()) == pytest.approx(1)


def drawn_styles(job: DesignJob) -> Counter[str]:
    return Counter(name for seed in range(200) for end in ends(job, NAMES, Random(seed)) for name in end)


def test_most_styles_are_of_the_gender_and_native_ones_come_first() -> None:
    for gender, target_hz in (("f", 190), ("m", 110)):
        drawn = drawn_styles(job(gender=gender, target_hz=target_hz))
        assert sum(count for name, count in drawn.items() if name[1] == gender) > 0.9 * drawn.total()
    for language, families in (("en", "ab"), ("de", "fei"), ("fr", "f"), ("es", "e"), ("it", "i")):
        drawn = drawn_styles(replace(job(), language=language))
        natives = [name for name in sheet().styles if name[0] in families and name[1] == "f"]
        others = [name for name in drawn if name[0] not in families]
        assert max(drawn[name] for name in natives) > max(drawn[name] for name in others), language


def test_traits_lean_to_styles_that_sound_so_and_unknown_ones_nowhere() -> None:
    def mean(quality: str, **traits: str) -> float:
        drawn = drawn_styles(job(traits=traits))
        return sum(getattr(sheet().styles[name], quality) * n for name, n in drawn.items()) / drawn.total()

    brightness, liveliness = mean("brightness"), mean("liveliness")
    assert mean("brightness", timbre="bright") > brightness + 0.1
    assert mean("brightness", timbre="deep", character="warm") < brightness - 0.1
    assert mean("liveliness", character="energetic") > liveliness + 0.1
    assert mean("liveliness", character="calm") < liveliness - 0.1
    assert requested_sound(job(traits={"timbre": "neutral", "tempo": "fast"})) == requested_sound(job())


@pytest.fixture(scope="module")
def designer() -> Iterator[KokoroDesigner]:
    loaded = models.load(MODEL)
    yield loaded
    loaded.close()


def said_by(voice: KokoroVoice) -> PitchCandidate:
    return PitchCandidate(PitchRange(0, outermost(NAMES), "f1"), 0.0, voice)


def praat_hz(samples: np.ndarray, sample_rate: int) -> float:
    heights = parselmouth.Sound(samples.astype(np.float64), sample_rate).to_pitch(0.01, 50, 550)
    frequencies = heights.selected_array["frequency"]
    return float(np.median(frequencies[frequencies > 0]))


def test_styles_are_as_high_as_praat_says(designer: KokoroDesigner) -> None:
    for style in ("am_onyx", "bm_lewis", "af_heart", "jf_tebukuro"):
        sound = designer.speak(job(text=CATALOG.sentences["en"]), said_by(KokoroVoice(styles={style: 1})))
        pitch = pitch_of(sound, designer.sample_rate)
        assert pitch.f0_hz == pytest.approx(praat_hz(sound, designer.sample_rate), rel=0.03), style


async def test_a_voice_comes_out_at_the_pitch_that_was_ordered(designer: KokoroDesigner) -> None:
    for language, gender, target_hz in (
        *(("en", "m", 105), ("en", "f", 195), ("fr", "f", 200), ("de", "m", 115)),
        *(("de", "f", 210), ("ru", "m", 115), ("ru", "f", 210)),
    ):
        made = await designer.design(job(language=language, gender=gender, target_hz=target_hz))
        order = language, gender
        assert made.in_band, order
        assert made.f0_hz == pytest.approx(target_hz, rel=0.095), order
        samples = np.frombuffer(made.clip.samples, "<i2")
        assert made.f0_hz == pytest.approx(praat_hz(samples, made.clip.sample_rate), rel=0.05), order
        assert made.p25_hz < made.f0_hz < made.p75_hz, order
        assert made.seconds > 0
        assert read_provenance(made.sample)["engine"] == ("espeak-ng" if language == "ru" else "kokoro-82m"), order


async def test_the_recipe_is_the_voice(designer: KokoroDesigner) -> None:
    made = await designer.design(job(gender="m", target_hz=110, speed=1.2))
    assert made.recipe is not None
    voice = KokoroVoice.model_validate_json(made.recipe)
    assert voice.espeak is not None
    assert voice.speed == voice.espeak.rate == 1.2
    again = pitch_of(designer.speak(job(), said_by(voice)), designer.sample_rate)
    assert again.f0_hz == pytest.approx(made.f0_hz, rel=0.02)


async def test_equal_jobs_are_equal_voices_and_other_seeds_are_others(designer: KokoroDesigner) -> None:
    first, same = [await designer.design(job(language="de")) for _ in range(2)]
    other = await designer.design(job(language="de", seed=2))
    assert first.recipe == same.recipe != other.recipe


async def test_out_of_reach_the_outermost_voice_is_given(designer: KokoroDesigner) -> None:
    for language, target_hz in product(("en", "de", "ru"), (60, 400)):
        made = await designer.design(job(language=language, target_hz=target_hz))
        assert not made.in_band, (language, target_hz)
        assert (made.f0_hz > target_hz) == (target_hz == 60), (language, target_hz)
        assert made.attempts_used < 5  # what would be heard a second time is not spoken


def test_a_failed_attempt_is_followed_by_another_mixture(designer: KokoroDesigner) -> None:
    first = designer.propose(job(), [])
    assert first is not None
    second = designer.propose(job(), [Try(first, None)])
    assert second is not None
    assert second.voice.styles.keys() != first.voice.styles.keys()


def test_corrections_come_from_what_was_heard(designer: KokoroDesigner) -> None:
    first = designer.propose(job(target_hz=150), [])
    assert first is not None
    low = Try(first, Pitch(140.0, 130.0, 150.0, 300))
    high = Try(first, Pitch(160.0, 150.0, 170.0, 300))
    higher, lower = designer.propose(job(target_hz=150), [low]), designer.propose(job(target_hz=150), [high])
    assert higher is not None
    assert lower is not None
    assert lower.setting < first.setting < higher.setting
