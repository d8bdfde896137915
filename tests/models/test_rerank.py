"""Rerankers over tiny checkpoints through the true loaders, held against the plain library."""

from pathlib import Path

import pytest

from contract.catalog import RerankModel, Serving
from contract.limits import CHARS_PER_TOKEN
from contract.rerank import RerankJob
from models.rerank import CosineReranker, CrossEncoderReranker
from models.weights.store import WeightsError
from tests.models.tiny_bert import Counted, write_tiny_bert

QUERY = "the old house"
DOCUMENTS = ["old house", "time river bread", "the young house not old", "a b c " * 9, ""]


def stanza(adapter: str) -> RerankModel:
    serving = Serving(adapter=f"models.rerank:{adapter}", runtime="test", threads=1)
    return RerankModel(id="test", owned_by="o", context_window=64, serving=serving)


def job(query: str, documents: list[str]) -> RerankJob:
    return RerankJob(query, tuple(documents))


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bert(tmp_path_factory.mktemp("cross"), "BertForSequenceClassification", num_labels=1)


@pytest.fixture(scope="module")
def cross(classifier: Path):
    made = CrossEncoderReranker(stanza("CrossEncoderReranker"), classifier)
    yield made
    made.close()


@pytest.fixture(scope="module")
def cosine(tmp_path_factory: pytest.TempPathFactory):
    folder = write_tiny_bert(tmp_path_factory.mktemp("bi"), "BertModel", pooling="mean", normalise=False)
    made = CosineReranker(stanza("CosineReranker"), folder)
    yield made
    made.close()


async def test_a_cross_encoder_scores_pairs_as_the_plain_library_does(
    cross: CrossEncoderReranker, classifier: Path
) -> None:
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(classifier)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(classifier).eval()
    ranking = await cross.rerank(job(QUERY, DOCUMENTS))
    tokens = 0
    for score, document in zip(ranking.scores, DOCUMENTS, strict=True):
        pair = tokenizer([(QUERY, document)], return_tensors="pt")
        tokens += pair["input_ids"].shape[1]
        with torch.no_grad():
            assert score == pytest.approx(network(**pair).logits[0, 0].sigmoid().item(), abs=1e-5)
    assert ranking.prompt_tokens == tokens
    assert len(set(ranking.scores)) == len(DOCUMENTS)


async def test_a_pair_longer_than_the_window_keeps_its_query(cross: CrossEncoderReranker) -> None:
    long = "bread " * 200
    ranking = await cross.rerank(job(QUERY, [long, long + "time", "time " + long]))
    assert ranking.prompt_tokens == 3 * 64
    assert ranking.scores[0] == pytest.approx(ranking.scores[1], abs=1e-6)
    assert ranking.scores[0] != pytest.approx(ranking.scores[2], abs=1e-6)
    other = await cross.rerank(job("river", [long]))
    assert other.scores[0] != pytest.approx(ranking.scores[0], abs=1e-6)


async def test_pairs_are_what_the_tokenizer_makes_of_them(cross: CrossEncoderReranker) -> None:
    """61 words fit beside the marks; where both are longer than half of that, each has its half."""
    documents = ["time " * length for length in (0, 1, 29, 30, 31, 32, 60, 61, 62, 200)]
    encoder = cross.encoder
    for words in (1, 29, 30, 31, 32, 60, 61, 200):
        pairs = await encoder.pairs("river " * words, documents)
        wanted = [encoder.tokenizer.encode("river " * words, document) for document in documents]
        assert [(pair.ids, pair.segments) for pair in pairs] == [(one.ids, one.type_ids) for one in wanted], words


async def test_a_query_is_made_tokens_once_and_a_huge_one_is_cut_before(
    cross: CrossEncoderReranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(cross.encoder.tokenizer)
    monkeypatch.setattr(cross.encoder, "tokenizer", counted)
    ranking = await cross.rerank(job("a " * 100_000, ["b"] * 1000))
    assert sum(counted.calls) == 64 * CHARS_PER_TOKEN + 1000
    assert ranking.prompt_tokens == 64 * 1000
    assert ranking.scores[0] == pytest.approx((await cross.rerank(job("a " * 100, ["b"]))).scores[0], abs=1e-5)


def test_a_classifier_with_several_labels_and_a_stanza_without_weights_are_refused(tmp_path: Path) -> None:
    write_tiny_bert(tmp_path, "BertForSequenceClassification", num_labels=3)
    with pytest.raises(WeightsError, match="labels"):
        CrossEncoderReranker(stanza("CrossEncoderReranker"), tmp_path)
    with pytest.raises(WeightsError, match="weights"):
        CosineReranker(stanza("CosineReranker"), None)


async def test_cosine_finds_the_same_text_and_reads_the_query_once(cosine: CosineReranker) -> None:
    ranking = await cosine.rerank(job(QUERY, [*DOCUMENTS, QUERY]))
    assert ranking.scores[-1] == pytest.approx(1, abs=1e-5)
    assert max(ranking.scores) == ranking.scores[-1]
    assert all(-1 <= score <= 1 for score in ranking.scores)
    assert (await cosine.rerank(job("time", ["river"]))).prompt_tokens == 6
    assert (await cosine.rerank(job("time", ["river", "bread"]))).prompt_tokens == 9
