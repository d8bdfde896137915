"""The true loader over tiny checkpoints made here, and over the weights of the embedded profile where they are."""

import asyncio
import re
from pathlib import Path

import numpy as np
import pytest

import models
from contract.catalog import EmbeddingModel, Serving
from contract.embeddings import Embeddings, EmbeddingsJob
from contract.errors import ApiError
from contract.limits import CHARS_PER_TOKEN
from models.embeddings import TransformerEmbedder
from models.encoders import TextEncoder, read_head
from models.tokenizer import INLINE_CHARS, SLICE_CHARS
from models.weights.store import WeightsError
from tests.models.conftest import Fetched
from tests.models.refusals import refused
from tests.models.tiny_bert import Counted, Gated, write_tiny_bert
from tests.twins.encoders import write_head

MINILM = "all-minilm-l6-v2"
TEXTS = [
    "The capital of France is Paris.",
    "Ein Hund läuft über die Straße.",
    "short",
    "A longer sentence that talks of several things at once, among them rivers, bridges, and the price of bread. " * 2,
    "123 + 456 = 579",
]
CLS, SEP, TIME, RIVER = 2, 3, 5, 6
"""Ids of the tiny tokenizer."""


def matrix(embeddings: Embeddings) -> np.ndarray:
    return np.frombuffer(embeddings.vectors, "<f4").reshape(-1, embeddings.dimensions)


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def job(texts: list[str]) -> EmbeddingsJob:
    return EmbeddingsJob(tuple(texts))


def stanza(dimensions: int = 32, window: int = 64, **options: object) -> EmbeddingModel:
    adapter = "models.embeddings:TransformerEmbedder"
    serving = Serving(adapter=adapter, runtime="test", threads=2, options=options, weights=MINILM)
    return EmbeddingModel(id="test", owned_by="o", dimensions=dimensions, context_window=window, serving=serving)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bert(tmp_path_factory.mktemp("tiny"), "BertModel", pooling="mean")


@pytest.fixture(scope="module")
def embedder(checkpoint: Path):
    made = TransformerEmbedder(stanza(), checkpoint)
    yield made
    made.close()


async def test_vectors_have_length_one_and_stand_in_order_in_a_batch_and_of_concurrent_callers(
    embedder: TransformerEmbedder,
) -> None:
    texts = [*TEXTS, *(f"{word} " * (1 + n % 9) for n, word in enumerate(["time", "river", "bread"] * 20))]
    together = await embedder.embed(job(texts))
    assert (together.dimensions, len(together.rows())) == (32, len(texts))
    assert np.allclose(np.linalg.norm(matrix(together), axis=1), 1, atol=1e-5)
    alone = [matrix(await embedder.embed(job([text])))[0] for text in TEXTS]
    assert cosines(matrix(together)[: len(TEXTS)], np.stack(alone)).min() > 0.99999
    apart = await asyncio.gather(*[embedder.embed(job([text])) for text in texts])
    assert cosines(matrix(together), np.concatenate([matrix(one) for one in apart])).min() > 0.99999


async def test_tokens_are_counted_up_to_the_window(embedder: TransformerEmbedder) -> None:
    for words, tokens in ((1, 3), (61, 63), (62, 64), (63, 64), (500, 64)):
        assert (await embedder.embed(job(["time " * words]))).prompt_tokens == tokens
    for count in (61, 62, 63, 500):
        of_ids = await embedder.embed(EmbeddingsJob(((CLS, *(TIME,) * count, SEP),)))
        assert of_ids.prompt_tokens == min(count + 2, 64)


async def test_what_is_beyond_the_window_is_cut_at_the_end(embedder: TransformerEmbedder) -> None:
    same_start = await embedder.embed(
        job(["time " * 62 + "river", "time " * 62 + "bread bread", "river " + "time " * 62])
    )
    first, second, other = matrix(same_start)
    assert np.allclose(first, second, atol=1e-6)
    assert not np.allclose(first, other, atol=1e-4)


@pytest.fixture
def counted(embedder: TransformerEmbedder, monkeypatch: pytest.MonkeyPatch) -> Counted:
    encoder = embedder.sentences.encoder
    monkeypatch.setattr(encoder, "tokenizer", Counted(encoder.tokenizer))
    return encoder.tokenizer


async def test_a_huge_text_is_cut_before_it_is_made_tokens(embedder: TransformerEmbedder, counted: Counted) -> None:
    """Each token takes 134 bytes while it is made: 8 MiB of text would be half a gigabyte."""
    huge = await embedder.embed(job(["a " * (4 << 20)]))
    assert sum(counted.calls) == 64 * CHARS_PER_TOKEN
    assert huge.prompt_tokens == 64
    assert np.array_equal(matrix(huge), matrix(await embedder.embed(job(["a " * 100]))))


async def test_many_texts_are_made_tokens_a_few_at_a_time(embedder: TransformerEmbedder, counted: Counted) -> None:
    texts = [f"{'a b' if number % 2 else 'c the'} " * 200 for number in range(2048)]
    made = await embedder.embed(job(texts))
    assert max(counted.calls) <= SLICE_CHARS + 64 * CHARS_PER_TOKEN
    assert matrix(made).shape == (2048, 32)
    assert cosines(matrix(made), np.tile(matrix(await embedder.embed(job(texts[:2]))), (1024, 1))).min() > 0.9999


async def test_without_truncation_what_would_be_cut_unread_is_refused(
    embedder: TransformerEmbedder, counted: Counted
) -> None:
    """White space has no tokens here, so only the characters count."""
    for chars in (1023, 1024):
        fits = EmbeddingsJob(("time", "time".ljust(chars)), truncate=False)
        assert (await embedder.embed(fits)).prompt_tokens == 6
    counted.calls.clear()
    for chars in (1025, 8 << 20):
        says = rf"`input\[1\]` has {chars} characters; .* 64 tokens .* 1024"
        with refused("CONTEXT_LENGTH_EXCEEDED", says, param="input"):
            await embedder.embed(EmbeddingsJob(("time", "time".ljust(chars)), truncate=False))
    assert not counted.calls


SLICE = ["river " * 170] * (SLICE_CHARS // 1020 + 1)
"""Texts that are made tokens together."""
SMALL = ["bread " * (INLINE_CHARS // 6 + 1)]
"""A text that takes a turn."""


@pytest.fixture
def gated(embedder: TransformerEmbedder, monkeypatch: pytest.MonkeyPatch) -> Gated:
    encoder = embedder.sentences.encoder
    monkeypatch.setattr(encoder, "tokenizer", Gated(encoder.tokenizer))
    return encoder.tokenizer


def sent(encoder: TextEncoder, texts: list[str], owner: str) -> asyncio.Task[list]:
    return asyncio.ensure_future(encoder.encode(texts, owner))


async def test_owners_take_turns_at_making_tokens(embedder: TransformerEmbedder, gated: Gated) -> None:
    encoder = embedder.sentences.encoder
    much = [sent(encoder, SLICE * 3, "org-1") for _ in range(15)]
    await gated.called()
    small = sent(encoder, SMALL, "org-2")
    await gated.called()
    assert gated.first == ["river", "bread"]
    for _ in range(3):
        gated.gate.release()
    await small
    assert not any(map(asyncio.Task.done, much))
    for _ in range(50):
        gated.gate.release()
    assert {len(items) for items in await asyncio.gather(*much)} == {3 * len(SLICE)}
    assert len(gated.first) == 46


async def test_a_third_owner_waits_for_one_slice_and_not_for_calls(embedder: TransformerEmbedder, gated: Gated) -> None:
    encoder = embedder.sentences.encoder
    much = [sent(encoder, SLICE * 9, owner) for owner in ("org-1", "org-2") for _ in range(3)]
    await gated.called()
    await gated.called()
    small = sent(encoder, SMALL, "org-3")
    await asyncio.sleep(0)
    gated.gate.release()
    await gated.called()
    assert gated.first[2] == "bread"
    for _ in range(60):
        gated.gate.release()
    await asyncio.gather(small, *much)


async def test_a_cancelled_call_makes_no_further_slice(embedder: TransformerEmbedder, gated: Gated) -> None:
    """Its place is free only when its thread is: who comes and goes has no more threads than who stays."""
    encoder = embedder.sentences.encoder
    call = sent(encoder, SLICE * 5, "org-1")
    await gated.called()
    call.cancel()
    after = sent(encoder, SMALL, "org-1")
    for _ in range(5):
        await asyncio.sleep(0)
    assert encoder._slots.waiting == 1
    gated.gate.release()
    gated.gate.release()
    await after
    assert gated.first == ["river", "bread"]
    assert call.cancelled()


async def test_a_forbidden_cut_is_found_in_the_first_slice(embedder: TransformerEmbedder, counted: Counted) -> None:
    fits = ["river".ljust(1020)] * len(SLICE) * 4
    for at, slices in ((0, 1), (len(SLICE) - 1, 1), (len(SLICE), 2)):
        counted.calls.clear()
        texts = [*fits[:at], SLICE[0], *fits[at + 1 :]]
        with refused("CONTEXT_LENGTH_EXCEEDED", rf"`input\[{at}\]` has 172 tokens"):
            await embedder.embed(EmbeddingsJob(tuple(texts), truncate=False))
        assert len(counted.calls) == slices, at


async def test_ids_of_the_own_tokenizer_give_the_vector_of_their_text_also_behind_a_prompt(
    embedder: TransformerEmbedder,
) -> None:
    of_text = await embedder.embed(job(["time river"]))
    of_ids = await embedder.embed(EmbeddingsJob(((CLS, TIME, RIVER, SEP),)))
    assert np.array_equal(matrix(of_ids), matrix(of_text))
    assert of_ids.prompt_tokens == of_text.prompt_tokens == 4
    of_text = await embedder.embed(job(["the river"]))
    for item in ((CLS, RIVER, SEP), "river"):
        assert np.array_equal(matrix(await embedder.embed(EmbeddingsJob((item,), prompt="the "))), matrix(of_text))


async def test_ids_of_another_tokenizer_are_refused_with_what_to_send(embedder: TransformerEmbedder) -> None:
    vocabulary = 17
    of_no_text = ((CLS, SEP), (TIME, RIVER), (CLS, TIME), (TIME, SEP), (SEP, TIME, CLS), (CLS,))
    assert (await embedder.embed(EmbeddingsJob(((CLS, vocabulary - 1, SEP),)))).prompt_tokens == 3
    for ids, says in (
        ((vocabulary,), "token id 17 of `input[1]` is beyond the 17"),
        ((2**31 - 1,), "token id 2147483647"),
        *((ids, "`input[1]` are not those of a text") for ids in of_no_text),
    ):
        with refused("INVALID_REQUEST", re.escape(says), param="input") as caught:
            await embedder.embed(EmbeddingsJob(((CLS, TIME, SEP), ids)))
        assert "check_embedding_ctx_length=False" in caught.value.message


async def test_a_forbidden_cut_names_the_text_and_its_tokens(embedder: TransformerEmbedder) -> None:
    for words in (61, 62):
        fits = EmbeddingsJob(("time " * words,), truncate=False)
        assert (await embedder.embed(fits)).prompt_tokens == words + 2
    for words in (63, 200):
        with refused("CONTEXT_LENGTH_EXCEEDED", rf"`input\[1\]` has {words + 2} tokens; `test` reads 64"):
            await embedder.embed(EmbeddingsJob(("time", "time " * words), truncate=False))


async def test_health_follows_the_worker(checkpoint: Path) -> None:
    made = TransformerEmbedder(stanza(), checkpoint)
    await made.check_health()
    made.close()
    with pytest.raises(RuntimeError):
        await made.check_health()


def test_a_stanza_that_promises_other_dimensions_or_is_not_set_up_is_refused(checkpoint: Path) -> None:
    with pytest.raises(WeightsError, match="32 dimensions"):
        TransformerEmbedder(stanza(dimensions=33), checkpoint)
    with pytest.raises(ValueError, match="not set up"):
        models.load(stanza().model_copy(update={"serving": None}))


@pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken"])
async def test_pooling_is_read_from_the_checkpoint(tmp_path: Path, pooling: str) -> None:
    import torch
    import transformers

    write_tiny_bert(tmp_path, "BertModel", pooling=pooling, normalise=False)
    made = TransformerEmbedder(stanza(), tmp_path)
    got = matrix(await made.embed(job(["time river", "bread"])))
    alone = matrix(await made.embed(job(["bread"])))  # without padding
    made.close()
    assert np.allclose(alone[0], got[1], atol=1e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    network = transformers.AutoModel.from_pretrained(tmp_path).eval()
    for row, text in zip(got, ["time river", "bread"], strict=True):
        with torch.no_grad():
            hidden = network(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].numpy()
        want = {"mean": hidden.mean(0), "cls": hidden[0], "lasttoken": hidden[-1]}[pooling]
        assert np.allclose(row, want, atol=1e-5)


def test_both_forms_of_the_pooling_file_are_read_and_what_is_not_known_is_refused(tmp_path: Path) -> None:
    for said, pooling in (
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode_lasttoken": True, "include_prompt": True}, "lasttoken"),
    ):
        write_head(tmp_path, said)
        assert read_head(tmp_path).pooling == pooling
    for said in ({"pooling_mode": "max"}, {"pooling_mode_mean_sqrt_len_tokens": True}, {}):
        write_head(tmp_path, said)
        with pytest.raises(WeightsError, match="mean, cls, lasttoken"):
            read_head(tmp_path)
    write_head(tmp_path, {"pooling_mode": "mean"}, "Dense")
    with pytest.raises(WeightsError, match="Dense"):
        read_head(tmp_path)


@pytest.fixture
def minilm(fetched: Fetched) -> Path:
    return fetched(MINILM)


async def test_minilm_knows_what_is_alike_and_in_bfloat16_stays_close_to_float32(minilm: Path) -> None:
    texts = [*TEXTS, *(f"{text} {number}" for number in range(20) for text in TEXTS)]
    vectors = []
    for dtype in ("float32", "bfloat16"):
        made = models.load(stanza(384, 256, dtype=dtype))
        vectors.append(matrix(await made.embed(job(texts))))
        query, near, far = matrix(await made.embed(job(["How old are you?", "What is your age?", "The train leaves."])))
        made.close()
        assert query @ near > 0.7 > 0.3 > query @ far
    assert cosines(*vectors).min() > 0.999


async def test_minilm_takes_its_own_ids_of_real_text_and_refuses_those_of_others(
    minilm: Path, fetched: Fetched
) -> None:
    import transformers

    own = transformers.AutoTokenizer.from_pretrained(minilm)
    other = transformers.AutoTokenizer.from_pretrained(fetched("smollm2-135m-instruct"))
    texts = [
        "Don't panic: e-mail a.b@c.org, it's 12.5 % (of 3,000).",
        "Ünïcödé, straße and 中文 \U0001f600 [MASK] ##ing",
        "def f(x):\n    return {'a': x ** 2}",
    ]
    made = models.load(stanza(384, 256, dtype="float32"))
    of_texts = matrix(await made.embed(job(texts)))
    of_ids = matrix(await made.embed(EmbeddingsJob(tuple(tuple(own(text).input_ids) for text in texts))))
    hello_world_of_tiktoken = (15339, 1917)
    for ids in (tuple(other(texts[0]).input_ids), hello_world_of_tiktoken):
        with pytest.raises(ApiError, match=r"not those of a text|beyond"):
            await made.embed(EmbeddingsJob((ids,)))
    made.close()
    assert np.allclose(of_ids, of_texts, atol=1e-6)
