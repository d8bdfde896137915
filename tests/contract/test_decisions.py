"""Bodies of POST /decisions, every bound at n - 1, n and n + 1, and the answers to them."""

import base64
import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from contract.body import validated
from contract.decisions.answers import Distribution, answer, to_answers
from contract.decisions.decision import check_body
from contract.decisions.engine import Reading, Readings
from contract.decisions.native import DecisionRequest, timing_ms, usage
from contract.decisions.openai import DecisionBody
from contract.decisions.questions import Policy, Question
from contract.errors import REQUEST_TOO_LARGE, UPSTREAM_ERROR
from tests.contract.bodies import Row, check_refused, read, refusal

CHOICE = {"type": "choice", "instructions": "Which?", "options": [{"id": "a"}, {"id": "b"}]}
SCORE = {"type": "score", "instructions": "How much?", "levels": ["low", "high"]}
BINARY = {"type": "binary", "instructions": "Is it?", "true_description": "it is", "false_description": "it is not"}
PNG = "data:image/png;base64,"


def body(**fields: Any) -> dict[str, Any]:
    """A valid body, changed by `fields`; None takes a field away."""
    whole = {"state": "a text", "questions": {"q": CHOICE}} | fields
    return {name: value for name, value in whole.items() if value is not None}


def decision(**fields: Any) -> DecisionRequest:
    return read(DecisionRequest, body(**fields))


def options(count: int) -> dict[str, Any]:
    return {"q": CHOICE | {"options": [{"id": f"o{index}"} for index in range(count)]}}


def levels(count: int) -> dict[str, Any]:
    return {"q": SCORE | {"levels": [f"l{index}" for index in range(count)]}}


def binaries(count: int) -> dict[str, Any]:
    return {f"q{index}": BINARY for index in reversed(range(count))}


def test_options_levels_and_questions_are_counted_and_keep_their_order() -> None:
    for questions, low, high in ((options, 2, 26), (levels, 2, 10), (binaries, 1, 16)):
        for count in (low, low + 1, high - 1, high):
            assert decision(questions=questions(count)).questions
        for count in (0, low - 1, high + 1):
            refusal(decision, questions=questions(count))
    assert list(decision(questions=binaries(16)).questions or ()) == [f"q{index}" for index in range(15, -1, -1)]
    assert (decision(questions=options(26)).questions or {})["q"].labels == tuple(f"o{index}" for index in range(26))


WRONG: list[Row] = [
    ({"state": 7}, "state", "a number was sent; send a string, an object or an array"),
    ({"questions": {"my q": CHOICE | {"options": [{"id": 1}]}}}, "questions.my q.options[0].id", "send a string"),
    ({"questions": {"choice": CHOICE | {"options": []}}}, "questions.choice.options", "0 items were sent"),
    ({"questions": {"q": {"type": "x"}}}, "questions.q.type", "`x` was sent; send `choice`, `score`, `binary`"),
    ({"questions": {"q": {"type": [1]}}}, "questions.q.type", "an array was sent; send `choice`, `score`, `binary`"),
    ({"questions": {"q": {}}}, "questions.q.type", "is missing"),
    ({"questions": {"q": True}}, "questions.q", "a boolean was sent; send an object"),
    ({"messages": [7]}, "messages[0]", "a number was sent; send an object"),
    ({"messages": ()}, "messages", "`tuple` was sent; send an array"),
    ({"input": "x", "questions": [{"type": "predicate", "instructions": ""}]}, "questions[0].instructions", "empty"),
]


def test_a_fault_names_its_path_in_the_body_and_all_that_is_allowed_there() -> None:
    check_refused(lambda **fields: validated(DecisionBody, body(**fields)), WRONG)


USER_OF_5 = {"role": "assistant", "content": "yes ?"}
LONG: list[tuple[Callable[[int], dict[str, Any]], int]] = [
    (lambda n: {"state": "x" * n}, 16_000),
    (lambda n: {"state": "ä" * n}, 16_000),
    (lambda n: {"state": {"k": "x" * (n - len('{"k": ""}'))}}, 16_000),
    (lambda n: {"state": None, "messages": [{"role": "user", "content": "x" * (n - 5)}, USER_OF_5]}, 16_000),
    (lambda n: {"questions": {"q": CHOICE | {"instructions": "x" * n}}}, 1000),
    (lambda n: {"questions": {"q": CHOICE | {"options": [{"id": "a", "description": "x" * n}, {"id": "b"}]}}}, 512),
    (lambda n: {"questions": {"q": SCORE | {"levels": ["x" * n, "y"]}}}, 512),
    (lambda n: {"questions": {"q": BINARY | {"true_description": "x" * n}}}, 512),
    # Two of them where they fit.
    (lambda n: {"images": [{"data_url": PNG + base64.b64encode(bytes(n)).decode()}] * (2 - (n > 4e6))}, 4_000_000),
]


@pytest.mark.parametrize(("fields", "limit"), LONG)
def test_characters_and_bytes_of_an_image_are_counted(fields: Callable[[int], dict[str, Any]], limit: int) -> None:
    assert decision(**fields(limit - 1))
    assert decision(**fields(limit))
    refusal(decision, fault=REQUEST_TOO_LARGE, **fields(limit + 1))


def test_body_bytes_are_counted_without_the_data_of_images() -> None:
    check_body(65_536, [])
    refusal(check_body, 65_537, [], fault=REQUEST_TOO_LARGE)
    data = base64.b64encode(b"x" * 90_000).decode()
    addresses = decision(images=[{"data_url": PNG + data}]).addresses
    check_body(len(data) + 65_536, addresses)
    refusal(check_body, len(data) + 65_537, addresses, fault=REQUEST_TOO_LARGE)


TEXT_PART = [{"type": "text", "text": "x"}]
BAD: list[dict[str, Any]] = [
    {"state": None},
    {"messages": [{"role": "user", "content": "hi"}]},
    {"questions": None},
    {"preset": "ticket-routing-v1"},
    {"surprise": 1},
    {"State": "x"},
    {"state": ""},
    {"state": " \n"},
    {"state": 3},
    {"state": True},
    {"state": None, "messages": []},
    {"state": None, "messages": [{"role": "robot", "content": "x"}]},
    *({"state": None, "messages": [{"role": "user", "content": wrong}]} for wrong in ("", TEXT_PART)),
    {"state": None, "messages": [{"role": "user", "content": "x", "name": "y"}]},
    {"questions": {"": CHOICE}},
    {"questions": [CHOICE]},
    *({"questions": {"q": CHOICE | wrong}} for wrong in ({"type": "rank"}, {"levels": ["a", "b"]})),
    *({"questions": {"q": CHOICE | {"options": wrong}}} for wrong in (["a", "b"], [{"id": "a"}, {"id": "a"}])),
    {"questions": {"q": CHOICE | {"options": [{"id": ""}, {"id": "a"}]}}},
    {"questions": {"q": CHOICE | {"options": [{"id": "a", "weight": 1}, {"id": "b"}]}}},
    {"questions": {"q": SCORE | {"levels": ["a", "a"]}}},
    *({"questions": {"q": wrong}} for wrong in ({"type": "choice"}, {"type": "binary", "instructions": "Is it?"})),
    {"questions": {"q": CHOICE | {"instructions": " "}}},
    {"policy": {"mode": "threshold"}},
    {"policy": {"mode": "review_only", "threshold": 0.5}},
    {"policy": {"mode": "threshold", "threshold": 1.0001}},
    {"policy": {"mode": "threshold", "threshold": -0.0001}},
    {"policy": {"mode": "threshold", "threshold": "0.5"}},
    {"policy": {"mode": "always"}},
    {"policy": "review_only"},
    {"request_id": 7},
    {"model": 7},
    {"images": [{"data_url": PNG + "AAAA"}] * 3},
    *({"images": [{"data_url": url}]} for url in ("https://example.org/cat.png", "file:///etc/passwd")),
    *({"images": [{"data_url": url}]} for url in ("data:text/html;base64,AAAA", PNG + "A", PNG + "AA AA")),
    {"images": [{"url": PNG + "AAAA"}]},
]


def test_bad_fields_are_refused() -> None:
    for fields in BAD:
        assert refusal(decision, **fields), fields


def test_a_threshold_is_any_number_up_to_one() -> None:
    for threshold in (0, 0.0, 0.5, 1, 1.0):
        assert decision(policy={"mode": "threshold", "threshold": threshold}).policy.threshold == threshold


def test_the_text_that_is_judged() -> None:
    assert decision(state="as it is\n").text == "as it is\n"
    assert decision(state={"b": 1, "a": "ä"}).text == '{"b": 1, "a": "ä"}'
    assert decision(state=[]).text == "[]"
    turns = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello!"}]
    assert decision(state=None, messages=turns).text == "user: Hi.\n\nassistant: Hello!"
    for state, messages, count in ((None, None, "none came"), ("x", turns, "2 came")):
        assert count in refusal(decision, state=state, messages=messages).message


QUESTION: TypeAdapter[Question] = TypeAdapter(Question)
REVIEW = Policy()


def choice(*ids: str) -> Question:
    options = [{"id": id} for id in ids]
    return QUESTION.validate_python({"type": "choice", "instructions": "?", "options": options})


def score(count: int) -> Question:
    return QUESTION.validate_python(levels(count)["q"])


TRUTH: Question = QUESTION.validate_python(BINARY)


def reading(*probabilities: float) -> Reading:
    return Reading(tuple(math.log(p) if p else -math.inf for p in probabilities), 0.01)


def at(threshold: float) -> Policy:
    return Policy(mode="threshold", threshold=threshold)


def test_a_choice_a_score_and_a_statement_are_answered() -> None:
    found = answer(choice("a", "b", "c"), reading(0.1, 0.6, 0.2), 1.0, REVIEW)
    assert list(found["probabilities"]) == ["a", "b", "c"]
    assert (found["value"], found["max_probability"]) == ("b", pytest.approx(6 / 9))
    assert found["probabilities"] == pytest.approx({"a": 1 / 9, "b": 6 / 9, "c": 2 / 9})
    diagnostics = found["diagnostics"]
    assert diagnostics["label_mass"] == pytest.approx(0.9)
    assert (diagnostics["low_label_mass"], diagnostics["missing_labels"]) == (False, [])
    assert found["calibration"] == {"status": "uncalibrated"}
    found = answer(score(3), reading(0.25, 0.25, 0.5), 1.0, REVIEW)
    assert (found["value"], found["expected_index"], found["normalized_score"]) == (2, 1.25, 0.625)
    assert list(found["probabilities"]) == ["0", "1", "2"]
    found = answer(TRUTH, reading(0.75, 0.25), 1.0, REVIEW)
    assert (found["value"], found["probability_true"]) == (True, pytest.approx(0.75))
    assert answer(TRUTH, reading(0.2, 0.8), 1.0, REVIEW)["value"] is False


def test_equals_fall_to_the_first_in_source_order() -> None:
    assert answer(choice("x", "a"), reading(0.5, 0.5), 1.0, REVIEW)["value"] == "x"
    assert answer(TRUTH, reading(0.5, 0.5), 1.0, REVIEW)["value"] is True


def test_what_cannot_be_normalised_is_a_fault_of_the_runtime() -> None:
    for logprobs in ((None, None), (math.nan, -1.0), (math.inf, -1.0), (-math.inf, -math.inf)):
        refusal(answer, TRUTH, Reading(logprobs, 0.01), 1.0, REVIEW, fault=UPSTREAM_ERROR)


POLICIES: list[tuple[Policy, tuple[float, ...], bool, list[str]]] = [
    (REVIEW, (0.9, 0.1), True, ["review_only_policy"]),
    (REVIEW, (0.3, 0.1), True, ["review_only_policy", "low_label_mass"]),
    (at(0.5), (0.5, 0.5), False, []),
    (at(0.5 + 1e-9), (0.5, 0.5), True, ["below_threshold"]),
    (at(0), (0.25, 0.25), False, []),
    (at(0.5), (0.25, 0.2499), True, ["low_label_mass"]),
    (at(0.9), (0.2, 0.2), True, ["below_threshold", "low_label_mass"]),
]


def test_a_policy_withholds_and_so_does_an_option_that_is_undecided() -> None:
    for policy, masses, abstain, reasons in POLICIES:
        for question in (choice("a", "b"), TRUTH, score(2)):
            found = answer(question, reading(*masses), 1.0, policy)
            assert (found["abstain"], found["abstain_reasons"]) == (abstain, [*reasons, "calibration_unavailable"])
    for id in ("unclear", "other", "unknown", "Other", " UNKNOWN "):
        found = answer(choice(id, "a"), reading(0.9, 0.1), 1.0, at(0.5))
        assert (found["abstain"], found["abstain_reasons"]) == (True, ["undecided_option", "calibration_unavailable"])
        assert answer(choice(id, "a"), reading(0.1, 0.9), 1.0, at(0.5))["abstain"] is False


def test_answers_keep_the_order_of_the_questions() -> None:
    questions = {"z": TRUTH, "a": choice("x", "y"), "m": score(2)}
    readings = Readings((reading(0.9, 0.1), reading(0.1, 0.9), reading(0.5, 0.5)), 7)
    found = to_answers(questions, readings, REVIEW, "source")
    assert [(name, one["type"], one["value"]) for name, one in found.items()] == [
        ("z", "binary", True),
        ("a", "choice", "y"),
        ("m", "score", 0),
    ]
    counts = {"input_tokens": 7, "output_tokens": 0, "evaluated_questions": 3, "forward_passes": 3}
    assert usage(readings, 3) == counts
    assert usage(replace(readings, windows=8), 3) == counts | {"encoder_windows": 8}
    timed = Readings((Reading((0.0,), 0.010), Reading((0.0,), 0.030)), 0)
    assert timing_ms(timed, 0.035) == {"total": 35.0, "inference_max": 30.0, "inference_sum": 40.0}


LOGPROBS = st.lists(
    st.one_of(st.floats(-60, -0.001), st.none(), st.sampled_from([-0.5, -1.0, -700.0])), min_size=2, max_size=26
).filter(lambda values: any(value is not None for value in values))


def _independent(question: Question, logprobs: list[float | None], temperature: float) -> dict[str, Any]:
    """The same figures in 40-digit decimals, from the definitions: no shift by the maximum, no shared code."""
    with localcontext() as context:
        context.prec = 40
        given = [None if value is None else Decimal(value) for value in logprobs]
        weights = [Decimal(0) if value is None else (value / Decimal(temperature)).exp() for value in given]
        total = sum(weights)
        p = [weight / total for weight in weights]
        entropy = -sum((x * x.ln() for x in p if x > 0), Decimal(0))
        found: dict[str, Any] = {
            "probabilities": [float(x) for x in p],
            "max_probability": float(max(p)),
            "normalized_entropy": float(entropy / Decimal(len(p)).ln()),
            "label_mass": float(min(Decimal(1), sum((x.exp() for x in given if x is not None), Decimal(0)))),
            "missing": [i for i, value in enumerate(given) if value is None],
        }
        if question.type == "score":
            found["expected_index"] = float(sum((i * x for i, x in enumerate(p)), Decimal(0)))
            found["normalized_score"] = found["expected_index"] / (len(p) - 1)
        return found


@settings(max_examples=400)
@given(LOGPROBS, st.sampled_from([0.25, 0.5, 1.0, 1.7, 8.0]), st.floats(0, 1), st.integers(0, 2))
def test_the_mathematics_agree(logprobs: list[float | None], temperature: float, threshold: float, kind: int) -> None:
    kinds = [choice(*(f"o{i}" for i in range(len(logprobs))))]
    kinds += [score(len(logprobs))] if len(logprobs) <= 10 else []
    kinds += [TRUTH] if len(logprobs) == 2 else []
    question = kinds[kind % len(kinds)]
    found = answer(question, Reading(tuple(logprobs), 0.01), temperature, at(threshold))
    wanted = _independent(question, logprobs, temperature)
    assert list(found["probabilities"].values()) == pytest.approx(wanted["probabilities"], abs=1e-9)
    assert math.fsum(found["probabilities"].values()) == pytest.approx(1, abs=1e-9)
    scored = ("expected_index", "normalized_score") if question.type == "score" else ()
    for name in ("max_probability", "normalized_entropy", *scored):
        assert found[name] == pytest.approx(wanted[name], abs=1e-9)
    diagnostics = found["diagnostics"]
    assert diagnostics["label_mass"] == pytest.approx(wanted["label_mass"], abs=1e-9)
    assert diagnostics["missing_labels"] == [list(question.labels)[i] for i in wanted["missing"]]
    sound = found["max_probability"] >= threshold and diagnostics["label_mass"] >= 0.5
    assert found["abstain"] is not sound


def test_rounding_makes_no_entropy_of_more_than_one() -> None:
    assert max(Distribution((1 / n,) * n, 1.0, ()).normalized_entropy for n in range(2, 60)) == 1.0
