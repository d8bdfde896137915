"""Decisions read by similarity, with the embedded weights."""

import math
import tomllib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import configs
from contract.decisions.answers import distribution
from contract.decisions.decision import FAILS, HOLDS
from contract.decisions.engine import DecisionJob
from contract.decisions.native import DecisionWire, usage
from contract.decisions.openai import OpenAIDecisionRequest
from contract.decisions.questions import BinaryQuestion, ChoiceQuestion, Option, Question, ScoreQuestion
from contract.decisions.systemone import SystemOneRequest
from models.decisions import SimilarityScorer
from models.decisions.phrases import Phrase, Statement, content, worded
from models.decisions.token_vectors import TokenVectorCache, TokenVectors, expected_max_sim
from models.weights import store as weights
from tests.models.refusals import refused

CATALOG = configs.load("embedded")
PRESETS = list(CATALOG.presets.values())
TICKET = CATALOG.presets["ticket-routing-v1"]


def choice(*ids: str) -> ChoiceQuestion:
    return ChoiceQuestion(type="choice", instructions="What is it about?", options=[Option(id=id) for id in ids])


def predicate(text: str, holds: str = HOLDS, fails: str = FAILS) -> BinaryQuestion:
    return BinaryQuestion(type="binary", instructions=text, true_description=holds, false_description=fails)


TOPIC = choice("cooking", "trains", "football")
PRAISE = BinaryQuestion(
    type="binary", instructions="Is this praise?", true_description="praise", false_description="a threat"
)
HEAT = ScoreQuestion(type="score", instructions="How hot is it?", levels=["freezing cold", "mild", "boiling hot"])


@pytest.fixture(scope="module")
async def scorer(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SimilarityScorer]:
    path = weights.ensure("all-minilm-l6-v2")
    with pytest.MonkeyPatch.context() as patch:
        # Measurements of the tests stay apart from those of the house.
        patch.setenv("PARLANCE_HOME", str(tmp_path_factory.mktemp("home")))
        engine = SimilarityScorer(CATALOG.decisions["decision-v1"], path)
        with refused("runtime_unavailable"):
            await engine.decide(DecisionJob("x", (TOPIC,)))
        measured = await engine.measure(PRESETS)
        assert (measured.temperature, measured.label_mass) == (1, pytest.approx(1))
        assert await engine.measure(PRESETS) == measured, "the second start reads what the first one kept"
        yield engine
        await engine.check_health()
        engine.close()


async def best(scorer: SimilarityScorer, state: str, *questions: Question) -> list[int]:
    found = await scorer.decide(DecisionJob(state, questions))
    return [distribution(reading, found.temperature).best for reading in found.reads]


async def test_questions_of_every_type_are_read_together_and_alike_alone(scorer: SimilarityScorer) -> None:
    found = await scorer.decide(DecisionJob("The kettle is boiling hot.", (TOPIC, PRAISE, HEAT)))
    assert [len(reading.logprobs) for reading in found.reads] == [3, 2, 3]
    assert distribution(found.reads[2], 1.0).best == 2
    for reading in found.reads:
        assert distribution(reading, 1.0).label_mass == pytest.approx(1)
        assert not any(logprob is None or math.isnan(logprob) for logprob in reading.logprobs)
        assert reading.inference_s > 0
    alone = await scorer.decide(DecisionJob("The kettle is boiling hot.", (HEAT,)))
    apart = zip(alone.reads[0].logprobs, found.reads[2].logprobs, strict=True)
    assert max(abs(math.exp(one or 0) - math.exp(other or 0)) for one, other in apart) < 0.01


async def test_the_order_of_options_changes_nothing(scorer: SimilarityScorer) -> None:
    turned = choice(*TOPIC.labels[::-1])
    found = await scorer.decide(DecisionJob("The express to Cologne is late.", (TOPIC, turned)))
    assert found.reads[0].logprobs == pytest.approx(found.reads[1].logprobs[::-1])
    assert found.windows == 4, "equal texts are read once"


async def test_what_is_read_is_counted(scorer: SimilarityScorer) -> None:
    """The state, the question and each different option once; `What is it about?` has five tokens."""
    one = await scorer.decide(DecisionJob("late", (choice("trains", "soup"),)))
    assert usage(one, 1) == {
        "input_tokens": 8, "output_tokens": 0, "evaluated_questions": 1, "forward_passes": 1, "encoder_windows": 3
    }  # fmt: skip
    more = await scorer.decide(DecisionJob("late", (choice("trains", "soup"), choice("trains", "rain"))))
    assert usage(more, 2) == {
        "input_tokens": 9, "output_tokens": 0, "evaluated_questions": 2, "forward_passes": 2, "encoder_windows": 4
    }  # fmt: skip
    stated = await scorer.decide(DecisionJob("late", (predicate("It is about trains."),)))
    assert (usage(stated, 1)["forward_passes"], stated.windows, stated.input_tokens) == (1, 2, 2)


async def test_options_are_read_once_for_each_owner_and_billed_every_time(
    scorer: SimilarityScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[str]] = []
    windows = scorer.encoder.windows

    async def noted(texts: Sequence[str], owner: str) -> Any:
        read.append(list(texts))
        return await windows(texts, owner)

    monkeypatch.setattr(scorer.encoder, "windows", noted)
    question = choice("ripe pears", "rusty nails")
    jobs = [DecisionJob("late", (question,), (), owner) for owner in ("org-1", "org-1", "org-2")]
    found = [await scorer.decide(job) for job in jobs]
    asked = [f"What is it about? {option}" for option in ("ripe pears", "rusty nails")]
    assert [one for one in read if "late" in one] == [["late", *asked], ["late"], ["late", *asked]]
    assert len({(one.windows, one.input_tokens) for one in found}) == 1
    assert found[0].reads[0].logprobs == pytest.approx(found[1].reads[0].logprobs, abs=0.05)


def test_what_was_asked_for_longest_ago_makes_room() -> None:
    for room, left in ((3, {"a", "b"}), (2, {"b"}), (0, set())):
        cache = TokenVectorCache(room)
        asked = [Phrase("", text) for text in "abc"]
        cache.put("me", {asked[0]: TokenVectors([1], 1, 1), asked[1]: TokenVectors([1, 2], 2, 1)})
        assert {phrase.text for phrase in cache.get("me", asked)} == left
        assert cache.get("you", asked) == {}
        assert cache.get("me", [Phrase("after a lead", text) for text in "abc"]) == {}


async def test_an_end_far_behind_the_window_still_counts(scorer: SimilarityScorer) -> None:
    filler = "The minutes of the meeting were read and accepted. " * 120
    question = choice("cooking", "a volcano erupts")
    assert await best(scorer, filler + "Then the volcano erupted and lava ran down.", question) == [1]
    found = await scorer.decide(DecisionJob(filler, (question,)))
    assert found.windows is not None
    assert found.windows > 3
    assert usage(found, 1)["forward_passes"] == 1


APART = 0.2
"""So much more likely a plainly true statement is than a plainly false one."""


async def likely(scorer: SimilarityScorer, state: str, *questions: Question) -> list[float]:
    """Of each question the probability of its first option."""
    found = await scorer.decide(DecisionJob(state, questions))
    return [distribution(reading, found.temperature).probabilities[0] for reading in found.reads]


PLAIN = [
    ("I was charged twice for March. Please refund it.", "It is about a payment.", "It is about football."),
    ("I was charged twice for March. Please refund it.", "Does it concern a refund?", "Does it concern the weather?"),
    ("This is an outrage, I am furious!", "Is the customer angry?", "Is the customer in love?"),
    ("Buy now and save 50 percent in our shop!", "Is it an advert?", "Is it a recipe?"),
    ("Chop the onions and fry them in butter.", "This text is about cooking.", "This text is about politics."),
    ("Der Zug nach Berlin hat Verspätung.", "Es geht um einen Zug.", "Es geht um ein Kochrezept."),
]


async def test_a_true_statement_and_a_false_one_are_told_apart(scorer: SimilarityScorer) -> None:
    wrong = {}
    for state, true, false in PLAIN:
        for holds, fails in ((HOLDS, FAILS), ("yes", "no"), ("True.", "False.")):
            high, low = await likely(scorer, state, predicate(true, holds, fails), predicate(false, holds, fails))
            if high - low <= APART or low >= 0.5:
                wrong[true, holds] = high, low
    assert not wrong


EASY: dict[str, Any] = tomllib.loads((Path(__file__).parent / "easy.toml").read_text("utf-8"))


def wires(state: str, group: dict[str, Any], form: str) -> tuple[DecisionWire, DecisionWire]:
    """A choice of the options of a group, then each of them as a statement or a question, as two APIs write them."""
    subject, options = group["subject"], group["options"].items()
    sentences = {"statement": f"{subject.capitalize()} is {{}}.", "question": f"Is {subject} {{}}?"}
    said = {name: sentences[form].format(being) for name, (_, being) in options}
    choices = [{"value": name, "description": description} for name, (description, _) in options]
    asked = [{"type": "choice", "instructions": group["instructions"], "choices": choices}]
    asked += [{"type": "predicate", "instructions": sentence} for sentence in said.values()]
    criteria = {name: description for name, (description, _) in options}
    nouls = {name: {"type": "noul", "instructions": sentence} for name, sentence in said.items()}
    choice = {"type": "choice", "instructions": group["instructions"], "criteria": criteria}
    return (
        OpenAIDecisionRequest.model_validate({"input": state, "questions": asked}),
        SystemOneRequest.model_validate({"state": state, "questions": {"choice": choice} | nouls}),
    )


@pytest.mark.parametrize("form", ["statement", "question"])
async def test_plain_questions_about_easy_texts_are_answered_alike_over_both_wires(
    scorer: SimilarityScorer, form: str
) -> None:
    chosen, pairs = [], []
    for group in EASY.values():
        for state, expected in group["texts"].items():
            one, other = (list((wire.native().questions or {}).values()) for wire in wires(state, group, form))
            assert one == other
            found = await scorer.decide(DecisionJob(state, tuple(one)))
            answers = [distribution(reading, found.temperature) for reading in found.reads]
            right = list(group["options"]).index(expected)
            chosen.append(answers[0].best == right)
            true, *false = (answers[1:][right], *answers[1 : right + 1], *answers[right + 2 :])
            pairs += [(true.probabilities[0], each.probabilities[0]) for each in false]
    assert (len(chosen), len(pairs)) == (34, 77)
    assert sum(chosen) >= 33
    assert all(true > false for true, false in pairs)
    assert sum(true - false > APART for true, false in pairs) >= 67


async def test_yes_and_no_of_any_kind_of_question_leave_what_is_asked(scorer: SimilarityScorer) -> None:
    state = "I was charged twice for March. Please refund it."
    asked = "Is it about a refund?"
    (wanted,) = await likely(scorer, state, predicate(asked))
    yes_no = ChoiceQuestion(type="choice", instructions=asked, options=[Option(id="true"), Option(id="false")])
    turned = ChoiceQuestion(type="choice", instructions=asked, options=[Option(id="no"), Option(id="yes")])
    levels = ScoreQuestion(type="score", instructions=asked, levels=["no", "yes"])
    found = await likely(scorer, state, yes_no, turned, levels)
    assert found == pytest.approx([wanted, 1 - wanted, 1 - wanted], abs=0.01)


async def test_one_description_is_the_statement_where_the_other_says_nothing(scorer: SimilarityScorer) -> None:
    state = "Buy now and save 50 percent in our shop!"
    described = predicate("Is it spam?", "an advert of a shop", FAILS)
    other_way = predicate("Is it spam?", HOLDS, "an advert of a shop")
    one, other = await likely(scorer, state, described, other_way)
    assert one > 0.5 + APART / 2
    assert other == pytest.approx(1 - one, abs=0.01)


async def test_the_same_levels_under_another_question_are_read_otherwise(scorer: SimilarityScorer) -> None:
    state = "The soup was boiling hot, and the waiter was calm and slow."
    heat, speed = (
        ScoreQuestion(type="score", instructions=asked, levels=["low", "medium", "high"])
        for asked in ("How hot was the soup?", "How fast was the waiter?")
    )
    found = await scorer.decide(DecisionJob(state, (heat, speed)))
    assert found.reads[0].logprobs != pytest.approx(found.reads[1].logprobs, abs=0.01)


async def test_a_long_state_makes_a_false_statement_no_more_likely(scorer: SimilarityScorer) -> None:
    false = predicate("It is about football.")
    sentence = "The minutes of the meeting were read and accepted. The treasurer spoke about the rent of the hall. "
    short, *longer = [(await likely(scorer, sentence * times, false))[0] for times in (1, 10, 100)]
    assert short < 0.5
    assert all(one < short + 0.1 for one in longer)


def test_ordinary_texts_count_as_long_as_the_state_is() -> None:
    """Three of four ordinary tokens are the one of the statement, which has one."""
    same, other = [1.0, 0.0], [0.0, 1.0]
    five = 1 + 0.065 * math.log2(5 / 4)
    for tokens, expected in ((1, 0.75), (2, 1.0), (3, 1.0), (4, 1.0), (5, five), (8, 1.065)):
        found = expected_max_sim(np.array([same]), np.array([same, same, other, same]), tokens)
        assert found == pytest.approx(expected), tokens


BARE = {
    ("yes", "no"): Statement("asked", 0),
    ("No.", "YES!"): Statement("asked", 1),
    ("an advert", "no"): Statement("an advert", 0),
    ("yes", "an advert"): Statement("an advert", 1),
    ("ja", "nein"): Statement("asked", 0),
    ("yes", "true"): None,
    ("an advert", "a letter"): None,
    ("yes", "no", "unclear"): None,
    ("yes: it pays", "no"): Statement("yes: it pays", 0),
}
CONTENTS = {
    "Is the customer angry?": "customer angry",
    "Ist es eine „Rechnung“?": "Rechnung",
    "The text isn't about C++.": "text isn't C",
} | {text: text for text in ("Is it?", "?", "它是发票吗？")}


def test_what_is_left_of_bare_options_and_of_words_that_any_text_has() -> None:
    questions = {
        options: ChoiceQuestion(type="choice", instructions="asked", options=[Option(id=option) for option in options])
        for options in BARE
    }
    assert {options: worded(question).statement for options, question in questions.items()} == BARE
    assert {text: content(text) for text in CONTENTS} == CONTENTS


def test_a_question_is_read_before_its_options_as_far_as_it_is_short() -> None:
    options = [Option(id="a_b", description="c"), Option(id="d")]
    for chars in (119, 120, 121, 1000):
        question, lead = ChoiceQuestion(type="choice", instructions="x" * chars, options=options), "x" * min(chars, 120)
        assert worded(question).phrases == [Phrase(lead, "a b: c"), Phrase(lead, "d")]


async def test_an_odd_state_gets_probabilities(scorer: SimilarityScorer) -> None:
    odd = [predicate(text) for text in ("🙂", "\u200b", "漢" * 600)]
    for state in ("🙂", "\u200b", "\u0301", "[SEP]", "[CLS] [SEP] [PAD]", "漢" * 600, "x" * 3000):
        found = await scorer.decide(DecisionJob(state, (TOPIC, choice("\u200b", "🙂"), *odd)))
        assert len(found.reads) == 2 + len(odd), state
        for reading in found.reads:
            assert math.fsum(math.exp(logprob or 0) for logprob in reading.logprobs) == pytest.approx(1), state


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
    with refused("images_unsupported"):
        await scorer.decide(DecisionJob("x", (TOPIC,), images=("data:image/png;base64,AAAA",)))
