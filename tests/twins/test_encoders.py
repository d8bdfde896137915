"""The embedding and rerank models of production over their twins: true adapter, true arguments, true pooling."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import configs
import models
from benchmarks.speed import asks
from benchmarks.speed.asks import ASKS
from contract.catalog import EmbeddingModel, Model
from contract.embeddings import Embeddings, EmbeddingsJob
from contract.rerank import RerankJob
from models.embeddings import TransformerEmbedder
from models.options import adapter_of, check
from models.rerank import CrossEncoderReranker
from tests.twins import supertonic, whisper
from tests.twins.encoders import make
from tests.twins.on_cpu import on_cpu

CATALOG = configs.load("production")
EMBEDDINGS = [model for model in CATALOG.embeddings.values() if model.serving]
RERANKERS = [model for model in CATALOG.rerank.values() if model.serving]
TEXTS = ["def add(a, b): return a + b", "a", "Where are two numbers added?"]


def start(model: Model, folder: Path) -> Any:
    check(model)
    assert model.serving
    return adapter_of(model)(on_cpu(model), make(folder / model.id, str(model.serving.weights)))


@pytest.fixture(scope="module")
def libraries() -> None:
    """torch and the heavy half of transformers, imported once. To look for garbage meanwhile takes some seconds."""
    gc.disable()
    try:
        import torch  # noqa: F401
        from transformers import AutoModel, GenerationMixin  # noqa: F401
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory, libraries: None) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("twins")
    started = {model.id: start(model, folder) for model in (*EMBEDDINGS, *RERANKERS)}
    yield started
    for engine in started.values():
        engine.close()


def matrix(found: Embeddings) -> np.ndarray:
    return np.frombuffer(found.vectors, "<f4").reshape(-1, found.dimensions)


@pytest.mark.parametrize("model", EMBEDDINGS, ids=lambda model: model.id)
async def test_vectors_are_as_the_catalogue_says_and_a_text_beyond_the_window_is_cut(
    engines: dict[str, Any], model: EmbeddingModel
) -> None:
    engine = engines[model.id]
    assert isinstance(engine, TransformerEmbedder)
    found = matrix(await engine.embed(EmbeddingsJob(tuple(TEXTS))))
    assert found.shape == (len(TEXTS), model.dimensions)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-3)
    assert engine.sentences.encoder.window == model.context_window
    alone = np.concatenate([matrix(await engine.embed(EmbeddingsJob((text,)))) for text in TEXTS])
    assert (found * alone).sum(1).min() > 0.999, "a neighbour's padding moves no vector"
    assert (found[0] * found[2]).sum() < 0.999
    (item,) = await engine.sentences.encoder.encode(["a1" * model.context_window])
    assert len(item) == model.context_window
    assert item.cut > 0


async def test_the_prompt_of_a_query_is_read(engines: dict[str, Any]) -> None:
    prompt = CATALOG.embeddings["nomic-embed-code"].prompts["query"]
    engine = engines["nomic-embed-code"]
    with_prompt, spelled, without = [
        matrix(await engine.embed(EmbeddingsJob((text,), prompt=given)))
        for text, given in ((TEXTS[2], prompt), (prompt + TEXTS[2], ""), (TEXTS[2], ""))
    ]
    assert (with_prompt * spelled).sum() > 0.9999
    assert (with_prompt * without).sum() < 0.999


async def test_a_reranker_reads_query_and_document_together(engines: dict[str, Any]) -> None:
    engine = engines["bge-reranker-base"]
    assert isinstance(engine, CrossEncoderReranker)
    documents = ("a river", "bread", "a river " * 400)
    ranking = await engine.rerank(RerankJob("Where is the river?", documents))
    other = await engine.rerank(RerankJob("What is bread made of?", documents))
    assert all(0 < score < 1 for score in (*ranking.scores, *other.scores))
    assert ranking.scores != other.scores
    assert engine.encoder.window == CATALOG.rerank["bge-reranker-base"].context_window


async def test_what_is_asked_on_a_gpu_can_be_asked(engines: dict[str, Any]) -> None:
    for model in (*EMBEDDINGS, *RERANKERS):
        kinds = ["documents"] if model in RERANKERS else ["passages", "query"]
        assert [one.what for one in await ASKS[model.noun](engines[model.id], model, None)] == kinds, model.id


@pytest.mark.usefixtures("libraries")
async def test_twins_of_speech_and_transcription_answer_what_is_asked_on_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARLANCE_HOME", str(tmp_path))
    supertonic.make(tmp_path / "twins" / "supertonic-3")
    whisper.make(tmp_path / "twins" / "whisper-large-v3")
    file, twins = tmp_path / "tone.wav", configs.load("twins")
    file.write_bytes(asks.tone())
    for model, recordings in (
        (twins.speech["supertonic-3"], (None,)),
        (twins.transcription["whisper-large-v3"], (None, file)),
    ):
        engine = models.load(model)
        for recording in recordings:
            (asked,) = await ASKS[model.noun](engine, model, recording)
            length = "" if model.noun == "speech" else f"{asks.TONE_S}.0 "
            assert f"{length}s of sound" in asked.result
        engine.close()
