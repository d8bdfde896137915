"""POST /decisions and POST /systemone over a predictable scorer; the two de-facto wires by their own clients."""

import asyncio
import base64
import json
import random
from typing import Any

import httpx2
import openai
import pytest
import typesafe_sdk

from autoscaling.engine import CallContext
from contract.access import Scope
from contract.errors import ENGINE_FAILED, WARMING_UP, ApiError
from tests.api.conftest import Api, refused

BINARY = {"type": "binary", "instructions": "Is it?", "true_description": "yes", "false_description": "no"}
QUESTIONS = {
    "zeta": {"type": "choice", "instructions": "Which?", "options": [{"id": "b", "description": "x"}, {"id": "a"}]},
    "alpha": {"type": "score", "instructions": "How?", "levels": ["low", "middle", "high"]},
    "mid": BINARY,
}
BODY = {"state": "a text", "questions": QUESTIONS}


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
    assert "request_id" not in result, "it is not invented"
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
    prices = [model["price_micro_eur"] for model in listed["data"]]
    assert prices == [{"input_tokens": 1_000_000, "questions": 100_000_000}] * 2


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
    for path, body in (("/systemone", SYSTEM_ONE), ("/decisions", LISTED | {"model": None})):
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


async def test_bytes_of_the_body(api: Api) -> None:
    """Characters: tests/contract/test_decisions.py."""
    plain = json.dumps(BODY | {"request_id": ""})
    for size, status in ((65_535, 200), (65_536, 200), (65_537, 413)):
        raw = json.dumps(BODY | {"request_id": "x" * (size - len(plain))})
        reply = await api.send("POST", "/v1/decisions", content=raw.encode())
        assert reply.status_code == status
    refused(reply, 413, "request_too_large")


async def test_an_image_of_any_size_may_have_its_slashes_escaped(api: Api) -> None:
    image = b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(3_900_000)
    body = json.dumps(BODY | {"images": [{"data_url": f"data:image/png;base64,{base64.b64encode(image).decode()}"}]})
    for content in (body, body.replace("/", "\\/")):
        refused(await api.send("POST", "/v1/decisions", content=content), 400, "images_unsupported")


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


async def test_parallel_requests_keep_their_own_answers(api: Api) -> None:
    async def one(count: int) -> bool:
        options = [{"id": f"{count}-{index}"} for index in range(count)]
        question = {"type": "choice", "instructions": "?", "options": options}
        result = (await decide(api, questions={f"q{count}": question})).json()
        return list(result["answers"][f"q{count}"]["probabilities"]) == [option["id"] for option in options]

    assert all(await asyncio.gather(*(one(count) for count in range(2, 27))))


SYSTEM_ONE = {
    "state": {"subject": "Charged twice", "text": "Please help."},
    "questions": {
        "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "money", "other": None}},
        "spam": {"type": "noul", "instructions": "Is it spam?"},
        "urgent": {"type": "score", "criteria": ["later", "today", "now"]},
    },
    "temperature": 0,
}
LISTED = {
    "model": "decision-v1",
    "input": "I was charged twice.",
    "questions": [
        {"type": "predicate", "name": "angry", "instructions": "The writer is angry."},
        {"type": "choice", "instructions": "Pay?", "choices": [{"value": True}, {"value": "no", "description": "x"}]},
        {"type": "score", "name": "mood", "instructions": "Mood?", "levels": [{"label": "bad"}, {"label": "good"}]},
    ],
}  # fmt: skip
PNG = "data:image/png;base64," + base64.b64encode(b"x").decode()
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = {"type": "input_image", "image_url": PNG}


async def test_system_one(api: Api) -> None:
    reply = await api.send("POST", "/v1/systemone", json=SYSTEM_ONE)
    body = reply.json()
    assert (reply.status_code, body["model"], list(body["answers"])) == (200, "decision-v1", ["team", "spam", "urgent"])
    team, spam, urgent = body["answers"].values()
    assert (team["choice"], list(team["probabilities"])) == ("billing", ["billing", "other"])
    assert spam["noul"] == pytest.approx(2 / 3)
    assert urgent["score"] == pytest.approx(4 / 7)
    assert urgent["legend"] == {"0": "later", "1": "today", "2": "now"}
    assert team["confidence"] == pytest.approx(2 / 3)
    (line,) = await api.usage()
    assert line.line == "decisions:decision-v1"


async def test_confidence_counts_what_was_not_on_the_labels(api: Api) -> None:
    body = (await api.send("POST", "/systemone", json=SYSTEM_ONE | {"state": "mass 0.5"})).json()
    assert body["answers"]["team"]["confidence"] == pytest.approx(1 / 3)
    assert body["diagnostics"]["team"]["label_mass"] == pytest.approx(0.5)


BY_QUESTION: list[tuple[dict[str, Any], int]] = [
    ({"type": "choice", "criteria": {"a": None}}, 400),
    ({"type": "choice", "criteria": {f"o{index}": None for index in range(26)}}, 200),
    ({"type": "choice", "criteria": {f"o{index}": None for index in range(27)}}, 400),
    ({"type": "choice"}, 400),
    ({"type": "choice", "criteria": ["a", "b"]}, 400),
    ({"type": "score", "criteria": {"a": "b"}}, 400),
    ({"type": "score", "criteria": ["a", {"level": 2}]}, 200),
    ({"type": "noul", "criteria": {"true": "x", "maybe": "y"}}, 400),
    ({"type": "noul", "criteria": {"false": None}}, 200),
    ({"type": "noul", "instructions": "x" * 1001}, 413),
    ({"type": "box"}, 400),
]


async def test_bounds_of_bodies(api: Api) -> None:
    cases: list[Any] = [
        *(("/systemone", {"state": "x", "questions": {"q": question}}, status) for question, status in BY_QUESTION),
        ("/systemone", SYSTEM_ONE | {"state": None}, 400),
        ("/systemone", SYSTEM_ONE | {"state": "x" * 16_001}, 413),
        ("/systemone", SYSTEM_ONE | {"questions": {}}, 400),
        ("/systemone", SYSTEM_ONE | {"model": "jev-latest"}, 404),
        ("/systemone", SYSTEM_ONE | {"images": [PNG]}, 400),
        ("/systemone", SYSTEM_ONE | {"images": [PNG] * 3}, 400),
        ("/decisions", LISTED | {"questions": []}, 400),
        ("/decisions", LISTED | {"input": []}, 400),
        ("/decisions", LISTED | {"input": "x" * 16_001}, 413),
        ("/decisions", LISTED | {"model": "gpt-6-luna"}, 404),
        ("/decisions", LISTED | {"input": [{"role": "user", "content": [IMAGE]}]}, 400),
        ("/decisions", LISTED | {"questions": LISTED["questions"] * 6}, 400),  # type: ignore[operator]
    ]  # fmt: skip
    for path, body, status in cases:
        reply = await api.send("POST", path, json=body)
        assert reply.status_code == status, body
        assert status == 200 or reply.json()["error"]["message"]
    for part, field, says in (
        (IMAGE | {"image_url": "https://example.org/a.png"}, "input[0].content[0]", "the server fetches none"),
        ({"type": "picture"}, "input[0].content[0].type", "`input_image`"),
        ({"type": "input_text"}, "input[0].content[0]", "empty"),
    ):
        body = LISTED | {"input": [{"role": "user", "content": [part]}]}
        refused(await api.send("POST", "/decisions", json=body), 400, "invalid_request_error", field, says)


POLICIES: list[Any] = [{"mode": "review_only"}, {"mode": "threshold", "threshold": 0.5}, {"mode": "always"}, {}]
POLICIES += ["review_only", 0, []]


@pytest.mark.parametrize(("path", "body"), [("/v1/decisions", LISTED), ("/v1/systemone", SYSTEM_ONE)])
async def test_a_policy_that_a_reply_could_not_express_is_refused(api: Api, path: str, body: dict[str, Any]) -> None:
    for policy in POLICIES:
        refused(await api.send("POST", path, json=body | {"policy": policy}), 400, "invalid_request_error", "policy")
    assert await api.usage() == []
    assert (await api.send("POST", path, json=body | {"policy": None})).status_code == 200


async def test_listed_questions(api: Api) -> None:
    body = (await api.send("POST", "/v1/decisions", json=LISTED)).json()
    angry, pay, mood = body["answers"]
    assert (angry["type"], angry["name"], angry["probability"]) == ("predicate", "angry", pytest.approx(2 / 3))
    assert (pay["choice"], pay["name"]) == (True, None)
    assert [one["value"] for one in pay["probabilities"]] == [True, "no"]
    assert (mood["score"], mood["probabilities"][1]["label"]) == (pytest.approx(1 / 3), "good")


async def test_messages_and_tools_are_judged_as_text(api: Api) -> None:
    items = [
        {"type": "message", "role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "nothing"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Bye"}]},
    ]
    reply = await api.send("POST", "/v1/decisions", json=LISTED | {"input": items})
    text = "developer: Be brief.\n\nuser: Hi\n\ncall of look: {}\n\ntool: nothing\n\nassistant: Bye"
    assert reply.json()["usage"]["input_tokens"] == len(text) + 3


async def test_the_third_partys_client(api: Api) -> None:
    transport = httpx2.ASGITransport(api.app)
    async with httpx2.AsyncClient(transport=transport) as http:
        client = openai.AsyncOpenAI(api_key=api.everything, base_url="http://test/v1", http_client=http)
        decision = await client.decisions.create(**LISTED)  # type: ignore[arg-type]
        with pytest.raises(openai.BadRequestError):
            await client.decisions.create(**LISTED | {"questions": []})  # type: ignore[arg-type]
    angry, pay, mood = decision.answers
    assert (angry.type, angry.probability) == ("predicate", pytest.approx(2 / 3))
    assert (pay.type, pay.choice) == ("choice", True)
    assert (mood.type, [one.label for one in mood.probabilities]) == ("score", ["bad", "good"])
    assert decision.usage.total_tokens == decision.usage.input_tokens


async def test_the_system_one_clients_images_are_not_left_out_in_silence(api: Api) -> None:
    """The client sends images as a form; the same wire also knows them inside the JSON body."""
    image = typesafe_sdk.Image(base64.b64decode(PIXEL))
    async with (
        httpx2.AsyncClient(transport=httpx2.ASGITransport(api.app)) as http,
        typesafe_sdk.AsyncTypeSafeClient(api_key=api.everything, base_url="http://test", http_client=http) as client,
    ):
        with pytest.raises(typesafe_sdk.TypeSafeAPIError, match="multipart") as caught:
            await client.system_one(
                state="x", questions=SYSTEM_ONE["questions"], model="decision-v1", assets={"photo": image}
            )
    assert caught.value.status == 415
    for asset, code in [
        ({"type": "image", "format": "png", "data_base64": PIXEL}, "images_unsupported"),
        ({"type": "image", "format": "jpg", "data_base64": PIXEL}, "images_unsupported"),
        ({"type": "image", "format": "png", "data_base64": "!"}, "invalid_request_error"),
        ({"type": "image", "part": "asset-0"}, "invalid_request_error"),
    ]:
        refused(await api.send("POST", "/systemone", json=SYSTEM_ONE | {"assets": {"photo": asset}}), 400, code)


async def test_a_compressed_body_is_named_as_such(api: Api) -> None:
    """The client compresses bodies of 1 KiB and more where its environment can."""
    reply = await api.send("POST", "/systemone", content=b"\x28\xb5\x2f\xfd", headers={"content-encoding": "zstd"})
    refused(reply, 415, "unsupported_media_type")
    assert "zstd" in reply.json()["error"]["message"]
    reply = await api.send("POST", "/systemone", json=SYSTEM_ONE, headers={"content-encoding": "identity"})
    assert reply.status_code == 200
