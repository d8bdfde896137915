"""Kokoro's network, cut in two: as near to float32 as what is published, as long, and the same on every thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from models.kokoro import network
from models.kokoro.converter import convert
from models.kokoro.network import CutNetwork, PublishedNetwork, load_network
from models.kokoro.speaker import SAMPLE_RATE, Kokoro
from models.kokoro.styles import KokoroVoice, Styles
from models.weights.files import WeightsError
from tests.models.conftest import Fetched
from tests.models.hearing import Samples

Network = CutNetwork | PublishedNetwork

PUBLISHED, REFERENCE, CUT = "8 bits", "float32", "bfloat16"
WINDOW, HOP, BANDS, AUDIBLE_DB = 1024, 256, 80, 45

SENTENCES = (
    ("Please hold the line.", "en", {"af_kore": 0.7, "af_heart": 0.3}),
    ("Where did you put the keys of the old house?", "en", {"bm_george": 0.5, "bm_lewis": 0.5}),
    ("Le train part à sept heures.", "fr", {"am_onyx": 0.5, "ff_siwis": 0.5}),
)


@pytest.fixture(scope="module")
def folder(fetched: Fetched) -> Path:
    return fetched("kokoro-82m")


@pytest.fixture(scope="module")
def networks(folder: Path) -> dict[str, Network]:
    return {
        PUBLISHED: PublishedNetwork(folder, 2),
        REFERENCE: CutNetwork(folder, 2, "float32"),
        CUT: CutNetwork(folder, 2, "bfloat16"),
    }


def said_by_all(
    kokoro: Kokoro, networks: dict[str, Network], text: str, language: str, voice: KokoroVoice
) -> dict[str, Samples]:
    """The sound of each network, by its name."""
    sounds = {}
    for name, way in networks.items():
        kokoro.network = way
        sounds[name] = kokoro.speak(text, language, voice)
    return sounds


def distance_db(sound: Samples, other: Samples) -> float:
    """The mean difference of the audible spectra of two sounds that are as long, but for some edge."""
    length = min(len(sound), len(other))
    first, second = mel_db(sound[:length]), mel_db(other[:length])
    audible = first.max(1) > first.max() - AUDIBLE_DB
    return float(np.abs(first - second)[audible].mean())


def mel_db(sound: Samples) -> Samples:
    """The power in decibels, float32 [windows, BANDS]."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(sound, WINDOW // 2), WINDOW)[::HOP] * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(windows)) ** 2
    mels = 2595 * np.log10(1 + np.fft.rfftfreq(WINDOW, 1 / SAMPLE_RATE) / 700)
    edges = np.linspace(2595 * np.log10(1 + 50 / 700), 2595 * np.log10(1 + 11_000 / 700), BANDS + 2)[:, None]
    rising = (mels - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - mels) / (edges[2:] - edges[1:-1])
    bands = power @ np.clip(np.minimum(rising, falling), 0, None).T
    return np.asarray(10 * np.log10(np.maximum(bands, bands.max() * 1e-7)), np.float32)


def inputs(folder: Path, phonemes: int) -> dict[str, np.ndarray]:
    return {
        "tokens": np.array([[0, *range(50, 50 + phonemes), 0]], np.int64),
        "style": Styles(folder / "styles").row({"af_heart": 1.0}, phonemes),
        "speed": np.array([1.0], np.float32),
    }


def test_the_sound_is_as_near_to_float32_as_what_is_published(folder: Path, networks: dict[str, Network]) -> None:
    kokoro = Kokoro(folder, 2)
    distances = []
    for text, language, styles in SENTENCES:
        sounds = said_by_all(kokoro, networks, text, language, KokoroVoice(styles=styles))
        distances.append(distance_db(sounds[REFERENCE], sounds[CUT]))
        assert len(sounds[CUT]) == pytest.approx(len(sounds[PUBLISHED]), abs=480)  # silence is cut off by loudness
        assert sounds[CUT].std() == pytest.approx(sounds[REFERENCE].std(), rel=0.03)
        assert distance_db(sounds[PUBLISHED], sounds[CUT]) < 1.7
    assert np.mean(distances) <= 1.0
    assert max(distances) <= 1.7


def test_the_network_makes_as_many_samples_as_the_published_one(folder: Path, networks: dict[str, Network]) -> None:
    for phonemes in (1, 7, 30):
        lengths = {name: len(way.sound(inputs(folder, phonemes))) for name, way in networks.items()}
        assert len(set(lengths.values())) == 1, lengths


def test_two_at_once_sound_as_one_after_the_other(folder: Path, networks: dict[str, Network]) -> None:
    jobs = [inputs(folder, phonemes) for phonemes in (12, 20)]
    alone = [networks[CUT].sound(job) for job in jobs]
    with ThreadPoolExecutor(2) as threads:
        together = list(threads.map(networks[CUT].sound, jobs))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("dtype", "kind"), [("bfloat16", CutNetwork), ("float32", PublishedNetwork)])
def test_a_processor_without_bfloat16_runs_what_is_published(
    folder: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, kind: type[CutNetwork | PublishedNetwork]
) -> None:
    monkeypatch.setattr(network, "fitting_dtype", lambda name, device: dtype)
    assert isinstance(load_network(folder, 2), kind)


def test_another_network_is_not_cut(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    value = helper.make_tensor_value_info("tokens", TensorProto.FLOAT, [1])
    output = helper.make_tensor_value_info("audio", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Sin", ["tokens"], ["audio"])], "another", [value], [output])
    onnx.save(helper.make_model(graph), source / "model.onnx")
    with pytest.raises(WeightsError, match="not the network that is known as Kokoro"):
        convert(source, tmp_path / "out")
