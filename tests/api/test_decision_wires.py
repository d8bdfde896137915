"""The same engine over the two de-facto wires, spoken by their own published clients."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import openai
import pytest
import typesafe_sdk

from tests.api.conftest import Api, refused

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


@pytest.mark.parametrize(
    ("question", "status"),
    [
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
    ],
)
async def test_bounds_of_system_one(api: Api, question: dict[str, Any], status: int) -> None:
    reply = await api.send("POST", "/systemone", json={"state": "x", "questions": {"q": question}})
    assert reply.status_code == status


async def test_bad_bodies(api: Api) -> None:
    cases = [
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
        assert reply.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/decisions", "/v1/systemone"])
@pytest.mark.parametrize(
    "policy",
    [{"mode": "review_only"}, {"mode": "threshold", "threshold": 0.5}, {"mode": "always"}, {}, "review_only", 0, []],
    ids=str,
)
async def test_a_policy_that_a_reply_could_not_express_is_refused(api: Api, path: str, policy: object) -> None:
    body = LISTED if path == "/v1/decisions" else SYSTEM_ONE
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


@asynccontextmanager
async def system_one_client(api: Api) -> AsyncIterator[typesafe_sdk.AsyncTypeSafeClient]:
    transport = httpx2.ASGITransport(api.app)
    async with (
        httpx2.AsyncClient(transport=transport) as http,
        typesafe_sdk.AsyncTypeSafeClient(api_key=api.everything, base_url="http://test", http_client=http) as client,
    ):
        yield client


async def test_the_system_one_client(api: Api) -> None:
    async with system_one_client(api) as client:
        found = await client.system_one(
            state=SYSTEM_ONE["state"], questions=SYSTEM_ONE["questions"], model="decision-v2"
        )
        with pytest.raises(typesafe_sdk.TypeSafeNotFoundError):
            await client.system_one(state="x", questions=SYSTEM_ONE["questions"], model="jev-latest")
    assert found.model == "decision-v2"
    assert found.choices["team"].choice == "billing"
    assert found.nouls["spam"].noul == pytest.approx(2 / 3)
    assert found.scores["urgent"].legend == {0: "later", 1: "today", 2: "now"}
    assert sum(found.scores["urgent"].probabilities.values()) == pytest.approx(1)


async def test_the_system_one_client_with_questions_of_its_own_types(api: Api) -> None:
    questions = {
        "team": typesafe_sdk.Choice(instructions="Which?", criteria={"billing": "money", "other": {"is": "none"}}),
        "spam": typesafe_sdk.Noul(instructions={"task": "find spam"}, criteria={"true": "an advert"}),
        "urgent": typesafe_sdk.Score(instructions=None, criteria=["later", "today"]),
    }
    async with system_one_client(api) as client:
        found = await client.system_one(state=["a", {"b": 1}], questions=questions, model="decision-v1")
        with pytest.raises(typesafe_sdk.TypeSafeBadRequestError, match=r"questions\.q\.type"):
            await client.system_one(
                state="x", questions={"q": typesafe_sdk.Box(instructions="the dog")}, model="decision-v1"
            )
    assert (list(found.choices), list(found.nouls), list(found.scores)) == (["team"], ["spam"], ["urgent"])


async def test_the_system_one_clients_images_are_not_left_out_in_silence(api: Api) -> None:
    """The client sends images as a form; the same wire also knows them inside the JSON body."""
    image = typesafe_sdk.Image(base64.b64decode(PIXEL))
    async with system_one_client(api) as client:
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
