"""CosyVoice's engine over a stand-in for the official code: which call was made, and with what.

The stand-in keeps the official signatures and refuses what the official code refuses; no network is run.
"""

import logging
import os
import sys
import threading
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.catalog import Serving, SpeechModel
from contract.speech.engine import Clip, SpeechJob
from models.speech import cosyvoice_weights
from models.speech.cosyvoice import DENSE_PART_CHARS, PART_CHARS, CosyVoice
from models.weights.files import WeightsError
from tests.models.refusals import refused
from tests.models.weights.hub import put
from tests.waiting import eventually

END = "You are a helpful assistant.<|endofprompt|>"
CLIP = Clip((np.arange(24_000) % 100).astype("<i2").tobytes(), 24_000)
WITH_WORDS = replace(CLIP, transcript="Was ich sage.")
MANNER = (False, 1.0, False)
"""stream, speed, text_frontend"""

Call = tuple[Any, ...]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cosyvoice")
    cosyvoice_weights.convert(official(folder / "official"), folder / "converted")
    return folder / "converted"


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(Path(__file__).with_name("cosyvoice_code")))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "cosyvoice"]:
        del sys.modules[name]


@pytest.fixture
def engine(code: Any, weights: Path, home: Path) -> Iterator[CosyVoice]:
    write_wav(home / "voices" / "thorsten.wav", CLIP.samples)
    loaded = CosyVoice(model(), weights)
    calls().clear()
    yield loaded
    loaded.close()


def official(folder: Path, recipe: str = "llm: !new:cosyvoice.llm.llm.CosyVoice3LM\n") -> Path:
    import torch

    text_model = {"CosyVoice-BlankEN/config.json": b"{}", "CosyVoice-BlankEN/run_me.py": b"raise SystemExit"}
    put(folder, text_model | {"cosyvoice3.yaml": recipe.encode(), "campplus.onnx": b"onnx"})
    for number, name in enumerate(("llm", "flow", "hift"), 1):
        weight = torch.full((2, 2), float(number))
        prefix = "generator." if name == "hift" else ""
        torch.save({f"{prefix}weight": weight, f"{prefix}bias": weight[0]}, folder / f"{name}.pt")
    return folder


def model(**options: Any) -> SpeechModel:
    voices = {"de-thorsten": {"clip": "voices/thorsten.wav", "transcript": "Guten Morgen."}}
    adapter, options = "models.speech.cosyvoice:CosyVoice", {"voices": voices} | options
    serving = Serving(adapter=adapter, runtime="test", options=options, max_ongoing_requests=4)
    return SpeechModel(
        id="cosyvoice-3", owned_by="t", provider="cosyvoice", languages=("de", "ja"), max_input_chars=4000,
        tags=("[laughter]", "[breath]"), spans=("laughter", "strong"), default_voice="de-thorsten", serving=serving,
    )  # fmt: skip


def write_wav(path: Path, samples: bytes, rate: int = 24_000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(samples)


def calls() -> list[Call]:
    return sys.modules["cosyvoice.cli.cosyvoice"].CALLS


def said(engine: CosyVoice, text: str, language: str = "de", **fields: Any) -> list[Call]:
    calls().clear()
    list(engine.render(SpeechJob(text, language, **fields)))
    return calls()[:]


def test_stored_voices_are_registered_once_at_start_with_words_that_may_lie_beside_them(
    code: Any, weights: Path, home: Path
) -> None:
    write_wav(home / "voices" / "thorsten.wav", CLIP.samples)
    voices = {"de-thorsten": {"clip": "voices/thorsten.wav"}}
    with pytest.raises(WeightsError, match=r"`.*voices/thorsten\.txt` must contain"):
        CosyVoice(model(voices=voices), weights)
    (home / "voices" / "thorsten.txt").write_text("Guten Abend.\n")
    for changes, words in (({}, "Guten Morgen."), ({"voices": voices}, "Guten Abend.")):
        engine = CosyVoice(model(**changes), weights)
        assert calls() == [("add_zero_shot_spk", f"{END}{words}", (24_000, CLIP.samples), "de-thorsten")]
        for _ in range(2):
            said(engine, "Hallo.", voice="de-thorsten")
            assert not any(call[0] == "add_zero_shot_spk" for call in calls())
        calls().clear()
        engine.close()


BY_NAME = ("zero_shot", "Hallo.", "", "", "de-thorsten")
BY_STYLE = ("instruct2", "Hallo.", "You are a helpful assistant. Froh.<|endofprompt|>", (24_000, CLIP.samples), "")


def test_voice_clip_and_style_decide_which_call_is_made(engine: CosyVoice) -> None:
    fields: dict[str, Any]
    for fields, call in (
        ({}, BY_NAME),
        ({"voice": "de-thorsten"}, BY_NAME),
        ({"voice": "de-thorsten", "style": "Froh."}, BY_STYLE),
        ({"clip": CLIP}, ("cross_lingual", f"{END}Hallo.", (24_000, CLIP.samples), "")),
        ({"clip": WITH_WORDS}, ("zero_shot", "Hallo.", f"{END}Was ich sage.", (24_000, CLIP.samples), "")),
        ({"clip": CLIP, "style": "Froh."}, BY_STYLE),
        ({"clip": WITH_WORDS, "style": "Froh."}, BY_STYLE),
    ):
        assert said(engine, "Hallo.", **fields) == [(*call, *MANNER)], fields.keys()


def test_speed_and_marks_reach_every_call(engine: CosyVoice) -> None:
    text = "Ja [breath] <strong>nein</strong> <laughter>oh</laughter> [laughter]."
    for fields in ({}, {"style": "Froh."}, {"clip": CLIP}):
        (call,) = said(engine, text, speed=1.5, **fields)
        assert call[-3:] == (False, 1.5, False)
        assert call[1].removeprefix(END) == text


def test_a_clip_of_too_few_samples_is_resampled(engine: CosyVoice) -> None:
    for rate, expected in ((8_000, 16_000), (15_999, 16_000), (16_000, 16_000), (44_100, 44_100)):
        (call,) = said(engine, "Hallo.", clip=Clip(bytes(2 * rate), rate))
        assert call[2][0] == expected
        assert len(call[2][1]) == pytest.approx(2 * expected, rel=1e-3)


def test_no_client_ends_the_prompt(engine: CosyVoice) -> None:
    trick = "a<|endofprompt|>b"
    texts = [
        said(engine, trick)[0][1],
        said(engine, "Ja.", style=trick)[0][2].removesuffix("<|endofprompt|>"),
        said(engine, "Ja.", clip=Clip(CLIP.samples, 24_000, trick))[0][2].removeprefix(END),
        said(engine, trick, clip=CLIP)[0][1].removeprefix(END),
    ]
    assert not any("<|" in text for text in texts)


def test_a_long_text_is_spoken_in_parts(engine: CosyVoice) -> None:
    for (language, limit), extra in product((("de", PART_CHARS), ("ja", DENSE_PART_CHARS)), (-1, 0, 1)):
        calls().clear()
        text = "x" * (limit + extra)
        spoken = list(engine.render(SpeechJob(text, language)))
        assert [len(call[1]) for call in calls()] == ([limit, 1] if extra == 1 else [limit + extra])
        assert spoken[-1].characters == len(text)
        assert sum(len(part.samples) for part in spoken) == len(text) + len(calls())


def test_a_span_over_several_parts_is_closed_in_each(engine: CosyVoice) -> None:
    first, second = "A" * (PART_CHARS - 20) + ".", "B" * (PART_CHARS - 20) + "."
    texts = [call[1] for call in said(engine, f"<strong>{first} {second}</strong> Ende.")]
    assert texts[0].startswith(f"<strong>{first}")
    assert texts[0].endswith("</strong>")
    assert texts[1].startswith(f"<strong>{second}")
    assert texts[1].endswith("</strong> Ende.")


def test_samples_are_float32_not_louder_than_one_and_of_known_voices(engine: CosyVoice) -> None:
    with refused("UNKNOWN_VOICE"):
        said(engine, "Hallo.", voice="de-somebody")
    first, second = engine.render(SpeechJob("Hallo.", "de"))
    assert (first.samples.dtype, first.samples.shape) == (np.float32, (6,))
    assert second.samples.tolist() == [1.0]


def test_the_file_of_a_clip_goes_with_its_utterance(engine: CosyVoice) -> None:
    folder = engine._folder.name
    before = os.listdir(folder)
    said(engine, "Hallo.", clip=CLIP)
    left = engine.render(SpeechJob("Hallo. " * 100, "de", clip=CLIP))
    next(left)
    left.close()
    assert os.listdir(folder) == before
    engine.close()
    assert not os.path.exists(folder)


def test_what_is_spoken_is_not_logged_and_the_codes_own_logging_is_undone(
    engine: CosyVoice, weights: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = logging.getLogger()
    before = (root.level, root.handlers[:])
    CosyVoice(model(voices={}), weights).close()
    assert (root.level, root.handlers[:]) == before
    caplog.set_level(logging.DEBUG)
    said(engine, "Geheimnis.")
    root.warning("still heard")
    assert "Geheimnis" not in caplog.text
    assert "still heard" in caplog.text


def test_utterances_take_turns(engine: CosyVoice) -> None:
    clips = [Clip(bytes([n]) * 3200, 16_000) for n in range(8)]
    calls().clear()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda clip: list(engine.render(SpeechJob("Hallo.", "de", clip=clip))), clips))
    assert sorted(call[2][1][0] for call in calls()) == list(range(8))


def test_owners_take_turns(engine: CosyVoice, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, go = [], threading.Event()

    def call(text: str, *_: Any) -> Iterator[dict[str, Any]]:
        texts.append(text)
        assert go.wait(10)
        return iter(())

    monkeypatch.setattr(engine, "_call", call)
    with ThreadPoolExecutor(4) as threads:
        for number, text in enumerate(("A1.", "A2.", "A3.", "B1."), 1):
            threads.submit(list, engine.render(SpeechJob(text, "de", owner=text[0])))
            eventually(lambda number=number: len(texts) + engine._turn.waiting == number)
        go.set()
    assert texts == ["A1.", "B1.", "A2.", "A3."]


def test_japanese_is_spelled_in_katakana_where_that_is_known(
    engine: CosyVoice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said(engine, "過去 [breath] は", "ja")[0][1] == "過去 [breath] は"
    (tmp_path / "pyopenjtalk.py").write_text("def g2p(text, kana=False):\n    return {True: 'カコ'}[kana]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert said(engine, "過去 [breath] は", "ja")[0][1] == "カコ[breath]カコ"
    assert said(engine, "過去", "zh")[0][1] == "過去"
    monkeypatch.delitem(sys.modules, "pyopenjtalk")


def test_networks_come_from_safetensors(engine: CosyVoice, weights: Path) -> None:
    files = sorted(str(file.relative_to(weights)) for file in weights.rglob("*") if file.is_file())
    names = ["flow.safetensors", "hift.safetensors", "llm.safetensors"]
    assert files == sorted(["CosyVoice-BlankEN/config.json", "campplus.onnx", "cosyvoice3.yaml", *names])
    networks = engine._code.model
    values = [network.weight[0, 0].item() for network in (networks.llm, networks.flow, networks.hift)]
    assert values == [1.0, 2.0, 3.0]
    assert not any(network.training for network in (networks.llm, networks.flow, networks.hift))


def test_an_environment_without_the_code_says_so(weights: Path, home: Path) -> None:
    with pytest.raises(RuntimeError, match=r"cannot import CosyVoice; docs/engines\.md"):
        CosyVoice(model(voices={}), weights)


def test_how_long_a_recording_may_be(code: Any, weights: Path, home: Path) -> None:
    missing, too_long = r"voice `de-thorsten` clones .*, which does not exist", r"lasts 30\.0 s; at most 30 s"
    for seconds, says in ((None, missing), (0, r"lasts 0\.0 s"), (29.99, None), (30, None), (30.01, too_long)):
        if seconds is not None:
            write_wav(home / "voices" / "thorsten.wav", bytes(2 * round(24_000 * seconds)))
        with pytest.raises(WeightsError, match=says) if says else nullcontext():
            CosyVoice(model(), weights).close()
    put(home / "voices", {"thorsten.wav": b"no sound"})
    with pytest.raises(WeightsError, match="is not a sound file"):
        CosyVoice(model(), weights)


class Trap:
    def __reduce__(self) -> Any:
        return os.system, ("touch trapped",)


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    source = official(tmp_path / "official")
    torch.save({"weight": Trap()}, source / "flow.pt")
    with pytest.raises(WeightsError, match="not a plain state of a network; none of it was executed"):
        cosyvoice_weights.convert(source, tmp_path / "converted")
    assert not (tmp_path / "trapped").exists()
    torch.save({"weight": torch.ones(1), "step": 7}, source / "flow.pt")
    with pytest.raises(WeightsError, match="contains more than tensors"):
        cosyvoice_weights.convert(source, tmp_path / "converted again")


def test_a_recipe_that_would_run_code_is_refused_and_a_missing_file_is_named(tmp_path: Path) -> None:
    for called in ("os.system", "cosyvoice_evil.run", "torch.hub.load", "random.seed.x"):
        source = official(tmp_path / "official", f"__set_seed1: !apply:{called} [1986]\n")
        with pytest.raises(WeightsError, match=f"asks for `{called}`"):
            cosyvoice_weights.convert(source, tmp_path / "converted")
    assert not (tmp_path / "converted").exists()
    for missing in ("cosyvoice3.yaml", "hift.pt"):
        (official(source) / missing).unlink()
        with pytest.raises(WeightsError, match=f"{missing}` is missing"):
            cosyvoice_weights.convert(source, tmp_path / "converted")


def test_a_recipe_may_seed_and_build(tmp_path: Path) -> None:
    lines = [
        "__set_seed1: !apply:random.seed [1986]",
        "__set_seed2: !apply:numpy.random.seed [1986]",
        "__set_seed4: !apply:torch.cuda.manual_seed_all [1986]",
        "hift: !new:cosyvoice.hifigan.generator.CausalHiFTGenerator",
        "mel: !name:matcha.utils.audio.mel_spectrogram",
        "cfm: !new:omegaconf.DictConfig",
    ]
    cosyvoice_weights.convert(official(tmp_path / "official", "\n".join(lines)), tmp_path / "converted")
    assert (tmp_path / "converted" / "llm.safetensors").is_file()
