"""The decision engine with real weights: one engine for all tests of this file."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import torch

import configs
from benchmarks.quality.examples import load
from benchmarks.quality.injections import TEMPLATES, injections, outcome, table
from contract.decisions.answers import distribution
from contract.decisions.engine import Readings
from contract.decisions.questions import BinaryQuestion
from models.decisions import LabelScorer, calibration
from models.weights import store as weights
from tests.models.decisions.tiny_scorers import job
from tests.models.refusals import refused
from tests.waiting import until

CATALOG = configs.load("embedded")
PRESETS = list(CATALOG.presets.values())
TICKET = CATALOG.presets["ticket-routing-v1"]
QUESTIONS = tuple(TICKET.questions.values())
STATE = "My invoice is wrong and I was charged twice. Please refund the second payment."
DRIFT = 0.03 if torch.cpu._is_amx_tile_supported() else 1e-3  # type: ignore[attr-defined]
"""How far probabilities of the same request may be apart, whatever else the engine reads at the time.

A processor with matrix units (AMX) reads few rows by other instructions than many, in bfloat16.
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


async def first_read_of(engine: LabelScorer) -> Readings:
    """The first request of an engine, on a loop that turns only when the engine is through with it."""
    first = asyncio.create_task(engine.read_job(job(STATE, QUESTIONS[:1]), 1.0))
    await asyncio.sleep(0)
    while not engine.engine.engine_core.busy:  # noqa: ASYNC110
        await asyncio.sleep(0)
    while engine.engine.engine_core.busy:
        pass
    async with asyncio.timeout(30):
        return await first


@pytest.fixture(scope="module")
async def scorer(anyio_backend: str, home: Path) -> AsyncIterator[LabelScorer]:
    engine = LabelScorer(CATALOG.decisions["decision-v2"], weights.ensure("smollm2-135m-instruct"))
    assert (await first_read_of(engine)).reads
    with refused("runtime_unavailable"):
        await engine.decide(job(STATE, QUESTIONS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARLANCE_HOME", str(home))
        await engine.measure(PRESETS)
    yield engine
    engine.close()


def probabilities(readings: Readings) -> list[tuple[float, ...]]:
    """As the model says them: a fitted temperature would make drift look smaller."""
    return [distribution(read, 1.0).probabilities for read in readings.reads]


def drift(some: Readings, others: Readings) -> float:
    pairs = zip(probabilities(some), probabilities(others), strict=True)
    return max(abs(p - q) for one, other in pairs for p, q in zip(one, other, strict=True))


async def test_a_runtime_is_measured_before_it_answers(scorer: LabelScorer) -> None:
    found = await scorer.measured()
    assert found is not None
    assert found.questions == sum(len(preset.examples) * len(preset.questions) for preset in PRESETS)
    assert 0 < found.accuracy <= 1
    assert 0.5 < found.label_mass <= 1, "the model answers in the form that it is asked for"
    assert 0 <= found.calibration_error <= 1
    assert 0.25 <= found.temperature <= 4
    assert found.temperature != 1


async def test_the_second_start_remembers(scorer: LabelScorer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await scorer.measured()
    monkeypatch.setenv("PARLANCE_HOME", str(home))

    async def never(presets: Any) -> Any:
        raise AssertionError("measured again")

    monkeypatch.setattr(scorer, "_labelled", never)
    assert await scorer.measure(PRESETS) == first
    with pytest.raises(AssertionError):
        await scorer.measure(PRESETS[:1])
    assert await scorer.measured() == first
    assert len(list((home / "measurements").iterdir())) == 1
    assert isinstance(calibration.load(home / "measurements", str(first and first.fingerprint)), type(first))


async def test_reads_have_one_logprob_per_label(scorer: LabelScorer) -> None:
    found = await scorer.decide(job(STATE, QUESTIONS))
    assert [len(read.logprobs) for read in found.reads] == [5, 4, 2]
    for read in found.reads:
        assert all(value is not None and -100 < value <= 0 for value in read.logprobs)
        assert math.fsum(math.exp(value or 0) for value in read.logprobs) <= 1 + 1e-6
    assert found.input_tokens < 250


TEXTS = {
    "I love this place, the food was great.": "I hate this place, the food was disgusting.",
    "What a wonderful day, I am so happy!": "What a terrible day, I am so sad.",
    "Excellent phone, works perfectly.": "Awful phone, it broke after a day.",
    "The best concert of my life.": "The worst concert of my life.",
    "Our stay was delightful and the staff were kind.": "Our stay was horrible and the staff were rude.",
    "I passed my exam, amazing!": "I failed my exam, how dreadful.",
}
"""Glad texts and sad ones."""
POSITIVE = BinaryQuestion(
    type="binary",
    instructions="Is this text positive?",
    true_description="the text is happy or satisfied",
    false_description="the text is sad or angry",
)


async def test_the_state_decides(scorer: LabelScorer) -> None:
    """The model is too small to be right, but glad texts must move it the right way."""
    found = await asyncio.gather(*(scorer.decide(job(text, [POSITIVE])) for text in (*TEXTS, *TEXTS.values())))
    true = [probabilities(one)[0][0] for one in found]
    glad, sad = true[: len(TEXTS)], true[len(TEXTS) :]
    ordered = sum(one > other for one in glad for other in sad)
    assert ordered > 0.6 * len(glad) * len(sad)


async def test_the_same_request_gives_the_same_probabilities(scorer: LabelScorer) -> None:
    alone = await scorer.decide(job(STATE, QUESTIONS))
    assert drift(alone, await scorer.decide(job(STATE, QUESTIONS))) <= DRIFT
    other_cache = await scorer.decide(job(STATE, QUESTIONS, (), "another organisation"))
    assert drift(alone, other_cache) <= DRIFT
    one_by_one = [await scorer.decide(job(STATE, [question], (), "a third")) for question in QUESTIONS]
    for index, found in enumerate(one_by_one):
        single = Readings((alone.reads[index],), 0, alone.temperature)
        assert drift(single, found) <= DRIFT


async def test_a_batch_of_32_changes_nothing(scorer: LabelScorer) -> None:
    alone = await scorer.decide(job(STATE, QUESTIONS))
    states = [f"{index} " * (index % 4 + 1) + STATE for index in range(31)]
    others = [scorer.decide(job(state, QUESTIONS[:1], (), state)) for state in states]
    together = await asyncio.gather(scorer.decide(job(STATE, QUESTIONS, (), "fresh")), *others)
    assert drift(alone, together[0]) <= DRIFT


async def test_parallel_requests_do_not_mix(scorer: LabelScorer) -> None:
    states = [f"Ticket {index}: {'refund' if index % 2 else 'crash'}" for index in range(8)]
    alone = [await scorer.decide(job(state, QUESTIONS)) for state in states]
    together = await asyncio.gather(*(scorer.decide(job(state, QUESTIONS)) for state in states))
    assert max(map(drift, alone, together)) <= DRIFT
    for index, found in enumerate(together):
        assert drift(found, alone[index]) < drift(found, alone[index - 1])


async def test_the_questions_of_a_request_are_read_in_one_step(
    scorer: LabelScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, steps = scorer.engine.engine_core, []
    step = core.get_output
    monkeypatch.setattr(core, "get_output", lambda: steps.append(step()) or steps[-1])
    await scorer.decide(job(STATE, QUESTIONS, (), "one who asks three questions"))
    assert [len(outputs.outputs) for outputs in steps if outputs.outputs] == [len(QUESTIONS)]


async def test_images_and_a_state_beyond_the_window_are_refused(scorer: LabelScorer) -> None:
    with refused("images_unsupported"):
        await scorer.decide(job(STATE, QUESTIONS, ["data:image/png;base64,AAAA"]))
    assert len((await scorer.decide(job("word " * 3200, QUESTIONS[:1]))).reads) == 1
    with refused("request_too_large"):
        await scorer.decide(job("漢字仮名" * 4000, QUESTIONS[:1]))


async def test_a_cancelled_request_frees_the_engine(scorer: LabelScorer) -> None:
    task = asyncio.create_task(scorer.decide(job("word " * 3000, QUESTIONS, (), "leaves")))
    await until(scorer.engine.output_processor.has_unfinished_requests)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not scorer.engine.output_processor.has_unfinished_requests())
    await until(lambda: not scorer.engine.engine_core.busy)


INJECTIONS = injections(load(CATALOG.presets), 300)


@pytest.mark.parametrize("count", [pytest.param(27, id="a share"), pytest.param(300, id="all", marks=pytest.mark.slow)])
async def test_injections_do_not_stop_the_engine(scorer: LabelScorer, count: int) -> None:
    """How often they change the answer is measured, and no promise: `benchmarks/quality/results/injections.md`."""
    outcomes = [await outcome(scorer, one) for one in INJECTIONS[:count]]
    assert len(table(outcomes).splitlines()) == 2 + len(TEMPLATES) + 1
    assert not all(one.obeyed for one in outcomes)
    assert await scorer.check_health() is None
    assert (await scorer.decide(job(STATE, QUESTIONS))).reads
