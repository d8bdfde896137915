"""A scorer that reads through a chat model: the same probabilities as with an engine of its own, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import configs
from contract.catalog import ChatModel, DecisionModel, Serving
from contract.chat.engine import ChatJob
from contract.chat.reads import MOST_PROMPTS, LabelPrompt, ReadJob, ReadReply
from contract.chat.request import ChatRequest
from contract.decisions.engine import Reading, Readings
from contract.errors import BUSY, ENGINE_FAILED, UPSTREAM_TIMEOUT, WARMING_UP, ApiError
from models.chat import VllmChat
from models.decisions import LabelScorer, ThroughScorer, through
from tests.models import tiny_models
from tests.models.tiny_scorers import QUESTIONS, STATE, WINDOW, job

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(300),
    # What vLLM and torch say about themselves while they are imported.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]

PRESETS = [configs.load("embedded").presets["sentiment-v1"]]
ENGINE: dict[str, Any] = {
    "dtype": "bfloat16",
    "enforce_eager": True,
    "max_num_seqs": 32,
    "kv_cache_memory_bytes": 1 << 27,
    "hf_overrides": {"head_dtype": "float32"},
}
LONG = "word " * 1500
STATES = (STATE, "Thank you for everything.", "<|im_start|>system")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this file's measurements are kept."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def kept_apart(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLANCE_HOME", str(home))
    monkeypatch.setattr(through, "AGAIN_S", 0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.qwen3(tmp_path_factory.mktemp("qwen3"))


def serving(**fields: Any) -> Serving:
    return Serving(runtime="tiny", weights="tiny", **{"adapter": "models.chat:VllmChat", **fields})


def decision(**fields: Any) -> DecisionModel:
    return DecisionModel(id="tiny", owned_by="tests", via="t", context_window=WINDOW, serving=serving(**fields))


@pytest.fixture(scope="module")
async def own(anyio_backend: str, folder: Path) -> list[Readings]:
    """What a scorer with an engine of its own reads. It ends before another one starts: vLLM has one in a process."""
    stanza = decision(adapter="models.decisions:LabelScorer", options={"engine": ENGINE}, threads=1)
    engine = LabelScorer(stanza, folder)
    try:
        return [await engine.read_job(job(state), 1.0) for state in STATES]
    finally:
        engine.close()


@pytest.fixture(scope="module")
async def chat(anyio_backend: str, own: list[Readings], folder: Path) -> AsyncIterator[VllmChat]:
    options = {"options": {"engine": ENGINE}, "threads": 1}
    model = ChatModel(
        id="tiny",
        owned_by="tests",
        tier="default",
        context_window=WINDOW,
        tool_parser="hermes",
        serving=serving(**options),
    )
    engine = VllmChat(model, folder)
    yield engine
    engine.close()


class Way:
    """The way to the chat model. `faults` come first, one a call; replies name `runtime` where it is set."""

    def __init__(self, chat: VllmChat) -> None:
        self.chat = chat
        self.faults: list[ApiError] = []
        self.runtime: str | None = None
        self.jobs: list[ReadJob] = []

    async def read(self, job: ReadJob) -> ReadReply:
        self.jobs.append(job)
        if self.faults:
            raise self.faults.pop(0)
        reply = await self.chat.read(job)
        return replace(reply, runtime=self.runtime) if self.runtime else reply


@pytest.fixture
def way(chat: VllmChat) -> Way:
    return Way(chat)


@pytest.fixture
async def scorer(folder: Path, way: Way) -> AsyncIterator[ThroughScorer]:
    engine = ThroughScorer(decision(reads_through="tiny"), folder)
    engine.read_with(way.read)
    await engine.measure(PRESETS)
    yield engine
    engine.close()


async def test_the_probabilities_are_those_of_an_engine_of_its_own(scorer: ThroughScorer, own: list[Readings]) -> None:
    for state, there in zip(STATES, own, strict=True):
        here = await scorer.read_job(job(state), 1.0)
        for one, other in zip(here.reads, there.reads, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=0.01)
        assert here.input_tokens == there.input_tokens


async def test_chats_beside_it_move_a_probability_by_rounding_only(chat: VllmChat, scorer: ThroughScorer) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 64}
    asked = ChatJob(ChatRequest.model_validate(body))
    alone = await scorer.decide(job())
    beside, *_ = await asyncio.gather(scorer.decide(job()), *(chat.complete(asked) for _ in range(4)))
    for one, other in zip(alone.reads, beside.reads, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=0.05)


async def test_one_job_is_one_call_with_its_salt(scorer: ThroughScorer, way: Way) -> None:
    way.jobs.clear()
    assert len((await scorer.decide(job(owner="acme"))).reads) == len(QUESTIONS)
    (sent,) = way.jobs
    assert (len(sent.prompts), sent.owner) == (len(QUESTIONS), "acme")


async def test_a_state_beyond_the_window_is_too_large_and_goes_nowhere(scorer: ThroughScorer, way: Way) -> None:
    way.jobs.clear()
    with pytest.raises(ApiError) as caught:
        await scorer.decide(job("word " * WINDOW))
    assert caught.value.fault.code == "request_too_large"
    assert way.jobs == []


@pytest.mark.parametrize(
    "fault", [BUSY("all are taken"), WARMING_UP(retry_after_s=7), ENGINE_FAILED(), UPSTREAM_TIMEOUT()]
)
async def test_what_the_chat_model_refuses_is_refused_with_the_same_row(
    scorer: ThroughScorer, way: Way, fault: ApiError
) -> None:
    way.faults = [fault]
    with pytest.raises(ApiError) as caught:
        await scorer.decide(job())
    assert caught.value is fault
    assert (await scorer.decide(job())).reads, "it stays measured"


async def test_a_measurement_waits_for_a_chat_model_that_is_cold_or_busy(folder: Path, way: Way, home: Path) -> None:
    engine = ThroughScorer(decision(reads_through="tiny", options={"calibrated": True}), folder)
    way.faults = [WARMING_UP(retry_after_s=1), BUSY("all are taken"), WARMING_UP(retry_after_s=1)]
    engine.read_with(way.read)
    assert (await engine.measure(PRESETS)).temperature != 1
    assert way.faults == []
    way.faults = [ENGINE_FAILED()]
    with pytest.raises(ApiError) as caught:
        await engine.measure(PRESETS)
    assert caught.value.fault is ENGINE_FAILED


async def test_a_reply_of_a_runtime_that_was_not_measured_is_not_used(scorer: ThroughScorer, way: Way) -> None:
    first = await scorer.measured()
    way.runtime = "another"
    with pytest.raises(ApiError) as caught:
        await scorer.decide(job())
    assert (caught.value.fault.code, caught.value.retry_after_s) == ("runtime_unavailable", through.RETRY_AFTER_S)
    assert await scorer.measured() is None
    assert scorer._measuring is not None
    with pytest.raises(ApiError):
        await scorer.decide(job())
    await scorer._measuring
    second = await scorer.measured()
    assert first
    assert second
    assert first.fingerprint != second.fingerprint
    assert (await scorer.decide(job())).reads
    way.runtime = None
    with pytest.raises(ApiError):
        await scorer.decide(job())
    await scorer._measuring
    assert await scorer.measured() == first, "what was measured before is remembered"


async def test_a_measurement_that_fails_is_tried_again_by_the_next_request(scorer: ThroughScorer, way: Way) -> None:
    way.runtime = "dead"
    with pytest.raises(ApiError):
        await scorer.decide(job())
    way.faults = [UPSTREAM_TIMEOUT()]
    assert scorer._measuring is not None
    await scorer._measuring
    assert await scorer.measured() is None
    way.runtime = None
    with pytest.raises(ApiError):
        await scorer.decide(job())
    await scorer._measuring
    assert (await scorer.decide(job())).reads


async def test_a_chat_model_that_is_replaced_while_it_is_measured(folder: Path, way: Way) -> None:
    engine = ThroughScorer(decision(reads_through="tiny"), folder)

    async def replaced(sent: ReadJob) -> ReadReply:
        way.runtime = "old" if len(way.jobs) < 3 else "new"
        return await way.read(sent)

    engine.read_with(replaced)
    found = await engine.measure(PRESETS)
    way.runtime = "new"
    engine.read_with(way.read)
    assert await engine.measure(PRESETS) == found


async def test_a_cancelled_decision_frees_the_chat_engine(chat: VllmChat, scorer: ThroughScorer) -> None:
    task = asyncio.create_task(scorer.decide(job(LONG, owner="leaves")))
    async with asyncio.timeout(30):
        while not chat.unfinished:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while chat.unfinished:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_images_are_refused(scorer: ThroughScorer) -> None:
    with pytest.raises(ApiError) as caught:
        await scorer.decide(job(images=["data:image/png;base64,AAAA"]))
    assert caught.value.fault.code == "images_unsupported"


# --- what the chat model takes ---------------------------------------------------------------------------------------

GOOD = LabelPrompt([5, 6], [1, 2])
SIZE = 49_152
"""Of the embedded model's vocabulary, which the tiny one has."""


@pytest.mark.parametrize(
    ("prompts", "says"),
    [
        ([GOOD] * (MOST_PROMPTS + 1), "33 prompts were sent; one job has at most 32"),
        ([LabelPrompt([], [1, 2])], "a prompt has 0 tokens; it may have 1 to 2047"),
        ([GOOD, LabelPrompt([5] * WINDOW, [1, 2])], "a prompt has 2048 tokens"),
        ([LabelPrompt([5], [1])], "a prompt has 1 labels; it may have 2 to 26"),
        ([LabelPrompt([5], list(range(27)))], "a prompt has 27 labels"),
        ([LabelPrompt([-1], [1, 2])], "is not in the vocabulary"),
        ([LabelPrompt([5], [1, 10**6])], "is not in the vocabulary"),
        ([LabelPrompt([5.0], [1, 2])], "is not in the vocabulary"),  # type: ignore[list-item]
    ],
)
async def test_a_job_that_no_scorer_sends_is_refused(chat: VllmChat, prompts: list[LabelPrompt], says: str) -> None:
    with pytest.raises(ApiError) as caught:
        await chat.read(ReadJob(tuple(prompts)))
    assert caught.value.fault.code == "invalid_request_error"
    assert says in caught.value.message
    assert await chat.check_health() is None


async def test_a_job_at_its_bounds_is_read(chat: VllmChat) -> None:
    size = chat._tokens.size
    whole = [LabelPrompt([0] * (WINDOW - 1), [0, size - 1]), LabelPrompt([size - 1], list(range(26)))]
    reply = await chat.read(ReadJob((*whole, *[GOOD] * (MOST_PROMPTS - 2))))
    assert [len(read.logprobs) for read in reply.reads] == [2, 26] + [2] * (MOST_PROMPTS - 2)
    with pytest.raises(ApiError):
        await chat.read(ReadJob((LabelPrompt([size], [1, 2]),)))


async def test_a_job_without_prompts_says_what_runs(chat: VllmChat) -> None:
    reply, again = await chat.read(ReadJob()), await chat.read(ReadJob((GOOD,)))
    assert (reply.reads, reply.block_tokens) == ((), 32)
    assert reply.runtime == again.runtime
    assert isinstance(again.reads[0], Reading)


async def test_other_arguments_are_another_runtime(chat: VllmChat) -> None:
    reads = chat._reads
    truly, changed = reads._fingerprint(), {"arguments": reads._arguments | {"max_num_seqs": 31}}
    other = type(reads)(reads._engine, reads._model, reads._path, changed["arguments"], reads._vocabulary)
    assert other._fingerprint() != truly
