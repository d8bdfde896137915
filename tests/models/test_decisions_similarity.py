"""Decisions read by similarity, with the embedded weights."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import configs
from contract.decisions.answers import distribution
from contract.decisions.engine import DecisionJob
from contract.decisions.questions import BinaryQuestion, ChoiceQuestion, Option, Question, ScoreQuestion
from contract.errors import ApiError
from models.decisions import SimilarityScorer
from models.decisions.kept import Kept, Text
from models.weights import store as weights

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]

CATALOG = configs.load("embedded")
PRESETS = list(CATALOG.presets.values())
TICKET = CATALOG.presets["ticket-routing-v1"]


def choice(*ids: str) -> ChoiceQuestion:
    return ChoiceQuestion(type="choice", instructions="What is it about?", options=[Option(id=id) for id in ids])


TOPIC = choice("cooking", "trains", "football")
PRAISE = BinaryQuestion(
    type="binary", instructions="Is this praise?", true_description="praise", false_description="a threat"
)
HEAT = ScoreQuestion(type="score", instructions="How hot is it?", levels=["freezing cold", "mild", "boiling hot"])


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def scorer(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SimilarityScorer]:
    path = weights.ensure("all-minilm-l6-v2")
    with pytest.MonkeyPatch.context() as patch:
        # Measurements of the tests stay apart from those of the house.
        patch.setenv("PARLANCE_HOME", str(tmp_path_factory.mktemp("home")))
        engine = SimilarityScorer(CATALOG.decisions["decision-v1"], path)
        with pytest.raises(ApiError) as caught:
            await engine.decide(DecisionJob("x", (TOPIC,)))
        assert caught.value.fault.code == "runtime_unavailable"
        measured = await engine.measure(PRESETS)
        assert (measured.temperature, measured.label_mass) == (1, pytest.approx(1))
        assert await engine.measure(PRESETS) == measured, "the second start reads what the first one kept"
        yield engine
        await engine.check_health()
        engine.close()


async def best(scorer: SimilarityScorer, state: str, *questions: Question) -> list[int]:
    found = await scorer.decide(DecisionJob(state, questions))
    return [distribution(reading, found.temperature).best for reading in found.reads]


@pytest.mark.parametrize(
    ("state", "expected"),
    [("The soup needs more salt.", 0), ("The express to Cologne is late.", 1), ("They scored in the last minute.", 2)],
)
async def test_what_a_text_is_about_is_found(scorer: SimilarityScorer, state: str, expected: int) -> None:
    assert await best(scorer, state, TOPIC) == [expected]


async def test_questions_of_every_type_are_read_together(scorer: SimilarityScorer) -> None:
    found = await scorer.decide(DecisionJob("The kettle is boiling hot.", (TOPIC, PRAISE, HEAT)))
    assert [len(reading.logprobs) for reading in found.reads] == [3, 2, 3]
    assert distribution(found.reads[2], 1.0).best == 2
    for reading in found.reads:
        assert distribution(reading, 1.0).label_mass == pytest.approx(1)
        assert not any(logprob is None or math.isnan(logprob) for logprob in reading.logprobs)
        assert reading.inference_s > 0


async def test_one_question_is_answered_alike_alone_and_among_others(scorer: SimilarityScorer) -> None:
    state = "The kettle is boiling hot."
    alone = await scorer.decide(DecisionJob(state, (HEAT,)))
    among = await scorer.decide(DecisionJob(state, (TOPIC, PRAISE, HEAT)))
    apart = zip(alone.reads[0].logprobs, among.reads[2].logprobs, strict=True)
    assert max(abs(math.exp(one or 0) - math.exp(other or 0)) for one, other in apart) < 0.01


async def test_the_order_of_options_changes_nothing(scorer: SimilarityScorer) -> None:
    turned = choice(*TOPIC.labels[::-1])
    found = await scorer.decide(DecisionJob("The express to Cologne is late.", (TOPIC, turned)))
    assert found.reads[0].logprobs == pytest.approx(found.reads[1].logprobs[::-1])
    assert found.passes == 4, "equal texts are read once"


async def test_what_is_read_is_counted(scorer: SimilarityScorer) -> None:
    one = await scorer.decide(DecisionJob("late", (choice("trains", "soup"),)))
    assert (one.forward_passes, one.input_tokens) == (3, 3)
    more = await scorer.decide(DecisionJob("late", (choice("trains", "soup"), choice("trains", "rain"))))
    assert (more.forward_passes, more.input_tokens) == (4, 4)


async def test_options_are_read_once_for_each_owner_and_billed_every_time(
    scorer: SimilarityScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[str]] = []
    windows = scorer._encoder.windows

    async def noted(texts: Sequence[str]) -> Any:
        read.append(list(texts))
        return await windows(texts)

    monkeypatch.setattr(scorer._encoder, "windows", noted)
    question = choice("ripe pears", "rusty nails")
    jobs = [DecisionJob("late", (question,), (), owner) for owner in ("org-1", "org-1", "org-2")]
    found = [await scorer.decide(job) for job in jobs]
    assert read == [["late", "ripe pears", "rusty nails"], ["late"], ["late", "ripe pears", "rusty nails"]]
    assert len({(one.forward_passes, one.input_tokens) for one in found}) == 1
    assert found[0].reads[0].logprobs == pytest.approx(found[1].reads[0].logprobs, abs=0.05)


@pytest.mark.parametrize(("room", "left"), [(3, {"a", "b"}), (2, {"b"}), (0, set())])
def test_what_was_asked_for_longest_ago_makes_room(room: int, left: set[str]) -> None:
    kept = Kept(room)
    kept.keep("me", {"a": Text([1], 1, 1), "b": Text([1, 2], 2, 1)})
    assert kept.known("me", "abc").keys() == left
    assert kept.known("you", "abc") == {}


async def test_an_end_far_behind_the_window_still_counts(scorer: SimilarityScorer) -> None:
    filler = "The minutes of the meeting were read and accepted. " * 120
    question = choice("cooking", "a volcano erupts")
    assert await best(scorer, filler + "Then the volcano erupted and lava ran down.", question) == [1]
    found = await scorer.decide(DecisionJob(filler, (question,)))
    assert found.forward_passes > 3


@pytest.mark.parametrize("state", ["🙂", "\u200b", "\u0301", "[SEP]", "[CLS] [SEP] [PAD]", "漢" * 600, "x" * 3000])
async def test_an_odd_state_gets_probabilities(scorer: SimilarityScorer, state: str) -> None:
    found = await scorer.decide(DecisionJob(state, (TOPIC, choice("\u200b", "🙂"))))
    assert len(found.reads) == 2
    for reading in found.reads:
        assert math.fsum(math.exp(logprob or 0) for logprob in reading.logprobs) == pytest.approx(1)


async def test_examples_of_a_preset_help_and_do_not_answer_for_themselves(scorer: SimilarityScorer) -> None:
    question = TICKET.questions["urgency"]
    assert question == type(question).model_validate(question.model_dump())
    renamed = question.model_copy(update={"instructions": "How soon?"})
    example = TICKET.examples[0]
    state = str(example.state)
    with_examples, without = (await scorer.decide(DecisionJob(state + " Thanks.", (question, renamed)))).reads
    assert with_examples.logprobs != pytest.approx(without.logprobs)
    near = await scorer.compare(DecisionJob(state, (question,)))
    like = await scorer.compare(DecisionJob(state + " Thanks.", (question,)))
    label = TICKET.expected_index("urgency", example.expected["urgency"])
    assert near[0][0].examples[label] < like[0][0].examples[label]


async def test_images_are_refused(scorer: SimilarityScorer) -> None:
    with pytest.raises(ApiError) as caught:
        await scorer.decide(DecisionJob("x", (TOPIC,), images=("data:image/png;base64,AAAA",)))
    assert caught.value.fault.code == "images_unsupported"


def test_weights_are_wanted(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="names no `weights`"):
        SimilarityScorer(CATALOG.decisions["decision-v1"], None)
