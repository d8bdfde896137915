"""Ways to read a model: names, what fits what, and vLLM's own reading of tiny models through the same scorer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from contract.catalog import DecisionModel
from contract.errors import ApiError
from models import options
from models.decisions import LabelScorer, strategies
from models.decisions.options import Options
from models.decisions.strategies import OF_VLLM, StrategyError
from models.llm.plain_text import PlainText
from models.options import OptionsError
from models.weights import store as weights
from tests.models import tiny_models, tiny_scorers
from tests.models.test_decisions_images import BLUE, HOSTILE, RED
from tests.models.test_decisions_prompts import injections
from tests.models.tiny_scorers import QUESTIONS, STATE, WINDOW, job, stanza

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(300),
    # What vLLM and torch say about themselves while they are imported.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


def test_an_unknown_strategy_is_refused_before_weights_are_read(tmp_path: Path) -> None:
    with pytest.raises(OptionsError) as caught:
        LabelScorer(stanza(strategy="divination"), tmp_path / "missing")
    assert str(caught.value) == (
        "decisions.toml [tiny.serving] `options.strategy`: there is no strategy `divination`; there are "
        "`labels`, `next-token`, `liquid`, `joint-schema`, `diffusion-canvas`"
    )


def chosen(model: DecisionModel) -> str:
    return options.read(model, Options).strategy


def test_names() -> None:
    assert chosen(stanza()) == "labels"
    assert [chosen(stanza(strategy=name)) for name in OF_VLLM] == list(OF_VLLM)
    assert chosen(stanza(strategy="liquid", images=True)) == "liquid"
    with pytest.raises(OptionsError, match="reads none"):
        chosen(stanza(strategy="next-token", images=True))


def test_every_strategy_of_vllm_has_a_name() -> None:
    theirs = pytest.importorskip("vllm.entrypoints.generate.structured_decisions.strategies")
    assert {one.__name__ for one in theirs.READ_STRATEGIES.values()} == set(OF_VLLM.values())


def test_text_is_left_alone_where_it_spells_no_control_token() -> None:
    plain = PlainText(_tokenizer())
    for text in ("", "a text", "naïve 漢字 🙂\n\t", "<|im_", "< | im_end | >"):
        assert plain.spoken(text) == text


def test_300_injections_bring_no_control_token() -> None:
    tokenizer = _tokenizer()
    plain = PlainText(tokenizer)
    for text in injections(tokenizer, 300):
        said = plain.spoken(text)
        assert plain.control_ids.isdisjoint(tokenizer.encode(said, add_special_tokens=False)), text
        assert said.replace("\u2060", "") == text


def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(weights.ensure(tiny_models.DONOR))


# --- through a model -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.qwen3(tmp_path_factory.mktemp("qwen3"))


@pytest.fixture(scope="module")
async def scorer(anyio_backend: str, qwen3: Path) -> AsyncIterator[LabelScorer]:
    engine = tiny_scorers.start(qwen3, strategy="next-token")
    yield engine
    engine.close()


async def test_vllm_reads_through_the_same_scorer(scorer: LabelScorer) -> None:
    found = await scorer.decide(job(STATE, QUESTIONS, (), "org"))
    assert [len(read.logprobs) for read in found.reads] == [3, 3, 2]
    for read in found.reads:
        assert 0 < math.fsum(math.exp(value or 0) for value in read.logprobs) <= 1
    other = await scorer.decide(job("Thank you for everything.", QUESTIONS, (), "org"))
    assert found.reads[0].logprobs != other.reads[0].logprobs
    ours = strategies.LabelReads(scorer._engine, stanza()).book
    assert found.input_tokens == ours.batch(STATE, QUESTIONS).input_tokens


async def test_vllm_gets_our_questions_in_its_words(scorer: LabelScorer) -> None:
    reads = scorer._strategy
    assert isinstance(reads, strategies.VllmReads)
    choice, score, binary = (reads._question(index, question) for index, question in enumerate(QUESTIONS))
    assert choice.type.prompt(choice).splitlines()[:3] == ["Question: Which team?", "A: billing - money", "B: sales"]
    assert score.type.prompt(score).splitlines()[:3] == ["Question: How urgent?", "0: low", "1: middle"]
    assert binary.type.prompt(binary).splitlines()[:3] == ["Question: Angry?", "yes: angry", "no: calm"]


async def test_what_vllm_refuses_is_the_clients_fault(scorer: LabelScorer) -> None:
    assert (await scorer.decide(job("word " * (WINDOW - 200), QUESTIONS))).reads
    with pytest.raises(ApiError) as caught:
        await scorer.decide(job("word " * WINDOW, QUESTIONS))
    assert caught.value.fault.code == "request_too_large"
    with pytest.raises(ApiError) as caught:
        await scorer.decide(job(STATE, QUESTIONS, ["data:image/png;base64,AAAA"]))
    assert caught.value.fault.code == "images_unsupported"
    await scorer.check_health()


async def test_a_strategy_that_does_not_fit_is_refused(scorer: LabelScorer) -> None:
    with pytest.raises(StrategyError) as caught:
        strategies.start("liquid", scorer._engine, stanza(strategy="liquid"))
    assert str(caught.value) == "the strategy `liquid` cannot read `Qwen3ForCausalLM`; `next-token` can"


SEEING = {"liquid": tiny_models.lfm2_vl, "joint-schema": tiny_models.clef_omni}


@pytest.fixture(params=list(SEEING))
async def seeing(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LabelScorer]:
    """A model that was made to be read so. vLLM's code for it needs torchvision, which CPU environments do not have."""
    pytest.importorskip("torchvision")
    path = SEEING[request.param](tmp_path_factory.mktemp("weights"))
    engine = tiny_scorers.start(path, strategy=request.param, images=True)
    yield engine
    engine.close()


async def test_models_made_for_decisions(seeing: LabelScorer) -> None:
    assert [len(read.logprobs) for read in (await seeing.decide(job(STATE, QUESTIONS, [RED]))).reads] == [3, 3, 2]

    async def first(images: list[str]) -> tuple[float | None, ...]:
        # One question alone: weights that are far from zero make much of the rounding of a batch.
        return (await seeing.decide(job(STATE, QUESTIONS[:1], images, "org"))).reads[0].logprobs

    for images in ([], [RED], [BLUE]):
        await first(images)
    assert len({await first(images) for images in ([], [RED], [BLUE])}) == 3
    assert await first([RED]) == await first([RED])
    for hostile in HOSTILE.values():
        with pytest.raises(ApiError) as caught:
            await seeing.decide(job(STATE, QUESTIONS, [RED, hostile]))
        assert caught.value.fault.status == 400
    with pytest.raises(ApiError) as caught:
        await seeing.decide(job("word " * WINDOW, QUESTIONS, [RED]))
    assert caught.value.fault.code == "request_too_large"
    together = await asyncio.gather(*(seeing.decide(job(STATE, QUESTIONS, [RED], f"{index}")) for index in range(8)))
    assert all(len(found.reads) == len(QUESTIONS) for found in together)
    await seeing.check_health()
