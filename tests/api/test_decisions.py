"""POST /decisions and what is listed beside it, over the real app and a scorer that is predictable."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from typing import Any

import pytest

from autoscaling.engine import CallContext
from contract.access import Scope
from contract.errors import ENGINE_FAILED, WARMING_UP, ApiError
from tests.api.conftest import Api, refused
from tests.api.records import everything_logged, rows

BINARY = {"type": "binary", "instructions": "Is it?", "true_description": "yes", "false_description": "no"}
QUESTIONS = {
    "zeta": {"type": "choice", "instructions": "Which?", "options": [{"id": "b", "description": "x"}, {"id": "a"}]},
    "alpha": {"type": "score", "instructions": "How?", "levels": ["low", "middle", "high"]},
    "mid": BINARY,
}
BODY = {"state": "a text", "questions": QUESTIONS}
SYSTEM_ONE = {"state": "a text", "questions": {"q": {"type": "noul", "instructions": "Is it?"}}}
LISTED = {"input": "a text", "questions": [{"type": "predicate", "instructions": "It is."}]}


async def decide(api: Api, key: str | None = None, **fields: Any) -> Any:
    whole = {name: value for name, value in (BODY | fields).items() if value is not None}
    return await api.send("POST", "/v1/decisions", key, json=whole)


async def test_result(api: Api) -> None:
    reply = await decide(api, request_id="mine 7")
    result = reply.json()
    assert reply.status_code == 200
    assert (result["object"], result["status"], result["request_id"]) == ("decision", "completed", "mine 7")
    assert result["id"].startswith("dec_")
    assert result["model"] == {
        "id": "decision-v1", "runtime": "steady", "operator": "tests", "country": "DE", "via": "nothing",
    }  # fmt: skip
    assert list(result["answers"]) == ["zeta", "alpha", "mid"]
    assert list(result["answers"]["zeta"]["probabilities"]) == ["b", "a"]
    assert result["answers"]["zeta"]["value"] == "b"
    assert result["answers"]["alpha"]["expected_index"] == pytest.approx(4 / 7)
    assert result["answers"]["mid"]["probability_true"] == pytest.approx(2 / 3)
    assert result["policy"] == {"mode": "review_only", "threshold": None}
    assert result["usage"] == {"input_tokens": 9, "output_tokens": 0, "evaluated_questions": 3, "forward_passes": 3}
    assert result["timing_ms"]["inference_max"] == 1.0
    assert "preset" not in result


async def test_request_id_is_not_invented(api: Api) -> None:
    assert "request_id" not in (await decide(api)).json()


async def test_conversation(api: Api) -> None:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    assert (await decide(api, state=None, messages=turns)).status_code == 200


async def test_threshold_releases(api: Api) -> None:
    policy = {"mode": "threshold", "threshold": 0.6}
    result = (await decide(api, policy=policy)).json()
    assert {name: answer["abstain"] for name, answer in result["answers"].items()} == {
        "zeta": False, "alpha": True, "mid": False,
    }  # fmt: skip
    assert result["policy"] == policy
    low = (await decide(api, policy=policy, state="mass 0.49")).json()["answers"]["zeta"]
    assert (low["abstain"], low["diagnostics"]["low_label_mass"]) == (True, True)
    assert "low_label_mass" in low["abstain_reasons"]


async def test_both_orders(api: Api) -> None:
    result = (await decide(api, order="both")).json()
    choice = result["answers"]["zeta"]
    # The scorer favours the first option wherever it stands: 2/3 and 1/3 in one order, 1/3 and 2/3 in the other.
    assert choice["probabilities"] == pytest.approx({"b": 0.5, "a": 0.5})
    assert choice["order"] == {"max_difference": pytest.approx(1 / 3), "same_value": False}
    assert "order" not in result["answers"]["mid"]
    assert (result["usage"]["evaluated_questions"], result["usage"]["forward_passes"]) == (3, 4)
    (line,) = await api.usage()
    assert line.cost_micro_eur == result["usage"]["input_tokens"] + 4 * 100
    assert "order" not in (await decide(api)).json()["answers"]["zeta"]
    assert (await decide(api, order="random")).status_code == 400


async def test_preset(api: Api) -> None:
    result = (await decide(api, questions=None, preset="colour-v1")).json()
    assert result["preset"] == {"id": "colour-v1", "version": "1.2.0"}
    assert list(result["answers"]) == ["colour"]
    unknown = await decide(api, questions=None, preset="colour-v9")
    refused(unknown, 404, "unknown_preset")
    assert "colour-v1" in unknown.json()["error"]["message"]


async def test_presets_are_listed_with_their_examples(api: Api) -> None:
    (preset,) = (await api.send("GET", "/decisions/presets")).json()["data"]
    assert (preset["id"], preset["version"]) == ("colour-v1", "1.2.0")
    assert preset["examples"] == [{"state": "The sky.", "expected": {"colour": "blue"}}]
    assert preset["questions"]["colour"]["options"] == [{"id": "red"}, {"id": "blue"}]
    again = await decide(api, state=preset["examples"][0]["state"], questions=preset["questions"])
    assert again.status_code == 200


async def test_models_are_listed_with_measurements_and_limits(api: Api) -> None:
    listed = (await api.send("GET", "/v1/decisions/models")).json()
    assert [(model["id"], model["default"]) for model in listed["data"]] == [
        ("decision-v1", True),
        ("decision-v2", False),
    ]
    first = listed["data"][0]
    assert (first["operator"], first["country"], first["via"], first["runtime"]) == ("tests", "DE", "nothing", "steady")
    assert (first["status"], first["measurements"]["accuracy"]) == ("measured", 0.5)
    assert (listed["default"], listed["limits"]["questions"]) == ("decision-v1", 16)


async def test_a_cold_scorer_tells_what_it_said_last(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    engines: Any = api.service.engines
    engine = engines["decisions-decision-v1"]
    monkeypatch.setattr(engine, "running", lambda: 0)
    cold = (await api.send("GET", "/v1/decisions/models")).json()["data"][0]
    assert (cold["status"], cold["measurements"]) == ("not_measured", None)
    monkeypatch.setattr(engine, "running", lambda: 1)
    await api.send("GET", "/v1/decisions/models")
    monkeypatch.setattr(engine, "running", lambda: 0)
    assert (await api.send("GET", "/v1/decisions/models")).json()["data"][0]["status"] == "measured"


async def test_model(api: Api) -> None:
    assert (await decide(api, model="decision-v2")).json()["model"]["id"] == "decision-v2"
    refused(await decide(api, model="decision-v3"), 404, "model_not_found")


async def test_the_organisation_chooses_its_default(api: Api) -> None:
    await api.organisation("late")
    await api.change("late", decision_model="decision-v2")
    key = await api.key(*Scope, org="late")
    assert (await decide(api, key)).json()["model"]["id"] == "decision-v2"
    assert (await decide(api, key, model="decision-v1")).json()["model"]["id"] == "decision-v1"
    assert (await api.send("GET", "/decisions/models", key)).json()["default"] == "decision-v2"


@pytest.mark.parametrize(
    ("chosen", "missing", "may_use"),
    [(None, "decision-v1", "decision-v2"), ("decision-v2", "decision-v2", "decision-v1")],
)
async def test_where_the_default_may_not_be_used_a_model_has_to_be_named(
    api: Api, chosen: str | None, missing: str, may_use: str
) -> None:
    await api.organisation("half")
    await api.change("half", decision_model=chosen, models=frozenset({may_use}))
    key = await api.key(*Scope, org="half")
    refused = await decide(api, key)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert f"`model` is missing, and you cannot use the default, `{missing}`, here" in error["message"]
    assert error["message"].endswith(f"your organisation can use: `{may_use}`")
    for path, body in (("/systemone", SYSTEM_ONE), ("/decisions", LISTED)):
        other = await api.send("POST", path, key, json=body)
        assert (other.status_code, other.json()["error"]["code"]) == (404, "model_not_found")
    assert (await decide(api, key, model=may_use)).json()["model"]["id"] == may_use
    listed = (await api.send("GET", "/decisions/models", key)).json()
    assert (listed["default"], [model["default"] for model in listed["data"]]) == (None, [False])
    assert len(await api.usage()) == 1


@pytest.mark.parametrize("fault", [WARMING_UP(retry_after_s=9), ENGINE_FAILED()])
async def test_no_other_model_steps_in(api: Api, monkeypatch: pytest.MonkeyPatch, fault: ApiError) -> None:
    async def refuse(method: str, *args: Any, context: CallContext) -> Any:
        raise fault

    engines: Any = api.service.engines
    monkeypatch.setattr(engines["decisions-decision-v1"], "call", refuse)
    reply = await decide(api)
    refused(reply, 503, "runtime_unavailable")
    assert reply.headers.get("retry-after") == (str(fault.retry_after_s) if fault.retry_after_s else None)
    assert await api.usage() == []


@pytest.mark.parametrize(
    ("judged", "status", "code"), [("fail", 502, "upstream_error"), ("unmeasured", 503, "runtime_unavailable")]
)
async def test_faults_of_the_runtime_bill_nothing(api: Api, judged: str, status: int, code: str) -> None:
    refused(await decide(api, state=judged), status, code)
    assert await api.usage() == []


async def test_billed_by_tokens_and_questions(api: Api) -> None:
    await decide(api)
    (line,) = await api.usage()
    assert (line.line, line.quantity, line.cost_micro_eur) == ("decisions:decision-v1", 9 + 3, 9 + 3 * 100)


@pytest.mark.parametrize(("size", "status"), [(65_535, 200), (65_536, 200), (65_537, 413)])
async def test_bytes_of_the_body(api: Api, size: int, status: int) -> None:
    plain = json.dumps(BODY | {"request_id": ""})
    raw = json.dumps(BODY | {"request_id": "x" * (size - len(plain))})
    reply = await api.send("POST", "/v1/decisions", content=raw.encode())
    assert reply.status_code == status
    assert status == 200 or reply.json()["error"]["code"] == "request_too_large"


async def test_characters_and_unknown_fields(api: Api) -> None:
    refused(await decide(api, state="x" * 16_001), 413, "request_too_large")
    surprise = await decide(api, temperature=0)
    assert (surprise.status_code, surprise.json()["error"]["param"]) == (400, "temperature")


async def test_images_are_refused_where_the_runtime_does_not_see(api: Api) -> None:
    image = {"data_url": "data:image/png;base64," + base64.b64encode(b"x" * 100_000).decode()}
    refused(await decide(api, images=[image, image]), 400, "images_unsupported")
    assert (await decide(api, images=[])).status_code == 200
    refused(await decide(api, images=[{"data_url": "https://example.org/x.png"}]), 400, "invalid_request_error")
    huge = {"data_url": "data:image/png;base64," + base64.b64encode(bytes(4_000_001)).decode()}
    assert (await decide(api, images=[huge])).status_code == 413


async def test_answers_are_not_kept_for_repetitions(api: Api) -> None:
    headers = {"idempotency-key": "k1"}
    first = await api.send("POST", "/v1/decisions", json=BODY, headers=headers)
    second = await api.send("POST", "/decisions", json=BODY, headers=headers)
    assert (first.status_code, second.status_code) == (200, 409)
    assert second.json()["error"]["code"] == "idempotency_finished"
    assert len(await api.usage()) == 1


def _with_canaries(canaries: list[str]) -> list[dict[str, Any]]:
    """Bodies with a canary in every place that a client fills, whole and broken."""
    bodies: list[dict[str, Any]] = []
    for a, b, c, d in zip(*[iter(canaries)] * 4, strict=True):
        option = {"id": b, "description": c}
        question = {"type": "choice", "instructions": a, "options": [option, {"id": "x"}]}
        bodies += [
            BODY | {"state": a},
            BODY | {"state": {b: c}, "request_id": d},
            BODY | {"questions": {d: question}},
            BODY | {"questions": {d: BINARY | {"instructions": a, "true_description": c}}},
            BODY | {"state": None, "messages": [{"role": "user", "content": d}]},
            BODY | {"state": "fail", "questions": {d: question}},
            BODY | {a: b},
            BODY | {"questions": {d: question | {c: 1}}},
            {"state": a, "preset": b},
            BODY | {"model": c},
        ]
    return bodies


async def test_nothing_of_200_canaries_is_written_down(api: Api) -> None:
    canaries = [f"canary{secrets.token_hex(8)}" for _ in range(200)]
    statuses = set()
    with everything_logged() as logged:
        for index, body in enumerate(_with_canaries(canaries)):
            whole = {name: value for name, value in body.items() if value is not None}
            reply = await api.send("POST", "/v1/decisions", json=whole, headers={"idempotency-key": f"k{index}"})
            statuses.add(reply.status_code)
    assert {200, 400, 404, 502} <= statuses
    assert logged.getvalue(), "the test must see what is logged"
    written = logged.getvalue() + await rows(api.state)
    assert [canary for canary in canaries if canary in written] == []


async def test_parallel_requests_keep_their_own_answers(api: Api) -> None:
    async def one(count: int) -> bool:
        options = [{"id": f"{count}-{index}"} for index in range(count)]
        question = {"type": "choice", "instructions": "?", "options": options}
        result = (await decide(api, questions={f"q{count}": question})).json()
        return list(result["answers"][f"q{count}"]["probabilities"]) == [option["id"] for option in options]

    assert all(await asyncio.gather(*(one(count) for count in range(2, 27))))
