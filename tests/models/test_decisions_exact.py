"""The exact mode: to the last bit the same, alone and among 31 others. Real weights are too slow for it here."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from contract.decisions.engine import Reading
from models.decisions import LabelScorer
from models.llm.exact import exactly
from tests.models import tiny_models, tiny_scorers
from tests.models.tiny_scorers import QUESTIONS, STATE, stanza

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(300),
    # What vLLM and torch say about themselves while they are imported.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


def test_a_gpu_gets_the_kernels_of_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "0")
    serving = stanza().serving
    assert serving
    on_gpu = serving.model_copy(update={"gpus": 1.0})
    assert exactly(on_gpu) == on_gpu
    assert os.environ["VLLM_BATCH_INVARIANT"] == "1"


def test_a_cpu_reads_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "0")
    serving = stanza(max_num_seqs=32).serving
    assert serving
    found = exactly(serving.model_copy(update={"threads": 2}))
    assert (found.options["max_num_seqs"], found.options["enable_prefix_caching"], found.threads) == (1, False, 1)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def scorer(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LabelScorer]:
    engine = tiny_scorers.start(tiny_models.qwen3(tmp_path_factory.mktemp("weights")), exact=True)
    yield engine
    engine.close()


async def test_nothing_moves_an_exact_read(scorer: LabelScorer) -> None:
    async def read(state: str, salt: str) -> list[tuple[float | None, ...]]:
        found = await scorer.decide(state, QUESTIONS, (), salt)
        return [_said(one) for one in found.reads]

    alone = await read(STATE, "a")
    others = [read(f"{index} " * index + STATE, f"{index}") for index in range(31)]
    together = await asyncio.gather(*others[:15], read(STATE, "b"), *others[15:])
    assert together[15] == alone
    assert [_said((await scorer.decide(STATE, [question])).reads[0]) for question in QUESTIONS] == alone


def _said(reading: Reading) -> tuple[float | None, ...]:
    return reading.logprobs
