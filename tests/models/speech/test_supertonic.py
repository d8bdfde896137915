"""The adapter of Supertonic and its package's own loader, over a twin that hums: one tone a voice."""

import os
from pathlib import Path

import numpy as np
import pytest

import configs
from contract.catalog import SpeechModel
from contract.speech.engine import SpeechJob
from models.speech.supertonic import KOREAN_PASSAGE_CHARS, PASSAGE_CHARS, Supertonic
from models.weights.files import WeightsError
from tests.models.hearing import pitch_of
from tests.models.refusals import changed, loaded_offline, refused
from tests.twins.supertonic import SECONDS_PER_CHAR, VOICES_HZ, make, whole

CATALOG = configs.load("twins")
MODEL = CATALOG.speech["supertonic-3"]
TEXT = "Hello there, how are you today?"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    make(home / "twins" / "supertonic-3")
    return home


@pytest.fixture(scope="module")
def engine(home: Path) -> Supertonic:
    return loaded_offline(MODEL, home)


def load(home: Path, model: SpeechModel) -> Supertonic:
    return Supertonic(model, home / "twins" / "supertonic-3")


def seconds_of(engine: Supertonic, text: str, language: str = "en", voice: str = "M1") -> float:
    return sum(len(part.samples) for part in engine.render(SpeechJob(text, language, voice))) / 44_100


def test_every_voice_of_the_catalogue_is_there_and_speaks_at_its_own_height(engine: Supertonic) -> None:
    """Without a name it is the voice of the stanza."""
    slugs = [voice.slug for voice in CATALOG.voices.values() if voice.provider == MODEL.provider]
    assert sorted(slugs) == sorted(VOICES_HZ)
    for slug, language in (*((slug, "en") for slug in slugs), (None, "de")):
        (part,) = engine.render(SpeechJob(TEXT, language, slug))
        assert (part.samples.dtype, part.samples.ndim, part.characters) == (np.float32, 1, len(TEXT))
        assert pitch_of(part.samples, 44_100).f0_hz == pytest.approx(whole(VOICES_HZ[slug or "F1"]), rel=0.01), slug


def test_every_language_is_told_to_the_model(engine: Supertonic) -> None:
    """Sound is as long as the duration that was foretold, though the graphs give whole blocks."""
    for language in MODEL.languages:
        characters = len(f"<{language}>{TEXT}</{language}>")
        assert seconds_of(engine, TEXT, language) == pytest.approx(characters * SECONDS_PER_CHAR / 1.05, abs=1e-4)


SAME = {
    "one <en> two": "one en two",  # not a language
    "one </en> two": "one en two",
    "one <laugh> two": "one laugh two",  # a mark of the model that the contract does not have
    "one ＜de＞ two": "one de two",  # becomes angle brackets when it is taken apart
    "a ≮ b": "a b",
    "one 😀👨‍👩‍👧 two": "one two",
    "ten € each": "ten each",
    "soft\u00adhyphen\u200b": "soft hyphen",
    "a\u20ddb": "a b",  # an enclosing circle
}


def test_what_is_no_speech_is_left_out(engine: Supertonic) -> None:
    lengths_s = {text: seconds_of(engine, text) for text in SAME}
    assert lengths_s == pytest.approx({text: seconds_of(engine, same) for text, same in SAME.items()}, abs=1e-4)


def test_marks_reach_the_model(engine: Supertonic) -> None:
    for mark in MODEL.tags:
        extra_s = seconds_of(engine, f"well {mark} no") - seconds_of(engine, f"well {mark.strip('<>')} no")
        assert extra_s == pytest.approx(2 * SECONDS_PER_CHAR / 1.05, abs=1e-4), mark


def test_letters_without_a_sound_are_refused_before_anything_is_spoken(engine: Supertonic) -> None:
    for text, named in (("two ก and ข", "U+0E01"), ("nr \U00010190 \U00020000", "U+20000")):
        with refused("INVALID_REQUEST", named.replace("+", r"\+"), param="input"):
            next(engine.render(SpeechJob(TEXT * 20 + text, "en")))


@pytest.mark.parametrize(("language", "limit"), [("en", PASSAGE_CHARS), ("ko", KOREAN_PASSAGE_CHARS)])
def test_long_texts_are_spoken_in_passages_with_pauses(engine: Supertonic, language: str, limit: int) -> None:
    text = "A sentence of thirty letters.\n" * 25
    ends = [part.characters for part in engine.render(SpeechJob(text, language, "M1"))]
    assert ends == [*range(limit, 750, limit), 750]
    (alone,) = engine.render(SpeechJob(text[:limit], language, "M1"))
    first = next(engine.render(SpeechJob(text, language, "M1")))
    assert len(first.samples) - len(alone.samples) == pytest.approx(0.3 * 44_100, abs=2)
    assert not first.samples[-100:].any()


def test_weights_that_do_not_fit_are_refused(home: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="44100 Hz, but its stanza says 24000"):
        load(home, MODEL.model_copy(update={"sample_rate": 24_000}))
    with pytest.raises(WeightsError, match="no voice `X1`"):
        load(home, MODEL.model_copy(update={"default_voice": "X1"}))
    with pytest.raises(WeightsError, match="names no `weights`"):
        Supertonic(MODEL, None)
    with pytest.raises(WeightsError, match="not a model of Supertonic"):
        Supertonic(MODEL, tmp_path)
    assert not os.listdir(tmp_path)


def test_a_gpu_that_is_not_there_is_not_replaced_by_the_cpu(home: Path) -> None:
    import onnxruntime
    from supertonic import config

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime can use CUDA")
    with pytest.raises(RuntimeError, match="onnxruntime-gpu"):
        load(home, changed(MODEL, deployment={"ray_actor_options": {"num_gpus": 0.1}}))
    assert config.DEFAULT_ONNX_PROVIDERS == ["CPUExecutionProvider"]
