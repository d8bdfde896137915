"""The exact mode: to the last bit the same, alone and among 31 others. Real weights are too slow for it here."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contract.decisions.engine import Reading
from models.decisions import LabelScorer
from models.llm.engine import EngineSpec
from models.llm.exact import exactly
from tests.models import tiny_models, tiny_scorers
from tests.models.tiny_scorers import QUESTIONS, STATE, job

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(300),
    # What vLLM and torch say about themselves while they are imported.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


def test_a_gpu_gets_the_kernels_of_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "0")
    spec = EngineSpec(Path("weights"), 2048, {"max_num_seqs": 32}, threads=2)
    assert exactly(spec, on_gpu=True) == spec
    assert os.environ["VLLM_BATCH_INVARIANT"] == "1"


def test_a_cpu_reads_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "0")
    found = exactly(
        EngineSpec(Path("weights"), 2048, {"max_num_seqs": 32, "dtype": "bfloat16"}, threads=2), on_gpu=False
    )
    assert found.arguments == {"max_num_seqs": 1, "enable_prefix_caching": False, "dtype": "bfloat16"}
    assert found.threads == 1
    assert os.environ["VLLM_BATCH_INVARIANT"] == "0"


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
        found = await scorer.decide(job(state, QUESTIONS, (), salt))
        return [_said(one) for one in found.reads]

    alone = await read(STATE, "a")
    others = [read(f"{index} " * index + STATE, f"{index}") for index in range(31)]
    together = await asyncio.gather(*others[:15], read(STATE, "b"), *others[15:])
    assert together[15] == alone
    assert [_said((await scorer.decide(job(STATE, [question]))).reads[0]) for question in QUESTIONS] == alone


def _said(reading: Reading) -> tuple[float | None, ...]:
    return reading.logprobs
