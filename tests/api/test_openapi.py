"""The OpenAPI document tells the truth: its schemas hold for the replies that the app gives, on every route."""

import json
import re
import subprocess
import sys
import tomllib
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import jsonschema

from deployments.ingress.wire.openapi import FIELDS
from docs.made.reference import replies
from tests.api.bodies import ADOPTION, BODIES, SAMPLES, TRANSCRIPTION
from tests.api.bodies import ORDER as ORDERS
from tests.api.conftest import Api, refused
from tests.api.test_request_bodies import let_models_see
from tests.docs.pages import ROOT
from tests.waiting import until


@dataclass(frozen=True)
class Call:
    """One request. `values` fill the path; `name` tells calls of one path apart."""

    method: str
    path: str
    body: Any = None
    values: tuple[tuple[str, str], ...] = ()
    name: str = ""

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.name}".rstrip()

    @property
    def filled(self) -> str:
        return self.path.format(**dict(self.values))


JSON_CALLS = (
    Call("GET", "/v1/models"),
    Call("GET", "/v1/models/{model_id}", values=(("model_id", "obedient"),)),
    Call("GET", "/v1/models/{model_id}", values=(("model_id", "supertonic-3"),), name="of speech"),
    Call("GET", "/v1/me"),
    Call("GET", "/v1/me/usage"),
    Call("GET", "/v1/audio/voices"),
    Call("GET", "/v1/console/requests"),
    Call("GET", "/v1/console/keys"),
    Call("GET", "/healthz"),
    Call("GET", "/v1/decisions/models"),
    Call("GET", "/v1/decisions/presets"),
    Call("GET", "/v1/audio/voices/design-options"),
    Call("POST", "/v1/mcp/mcp", BODIES["/mcp/mcp"] | {"method": "none"}, name="with an error"),
    *(
        Call("POST", path, body, name=str(number))
        for path, bodies in SAMPLES.items()
        if path not in (ORDERS, "/v1/audio/speech")
        for number, body in enumerate(bodies)
    ),
)
DRAFT = (("design_id", "x"),)
ORDER, LIST, GET, ADOPT, DISCARD = DESIGNS = (
    Call("POST", ORDERS, BODIES["/audio/voices/designs"]),
    Call("GET", ORDERS),
    Call("GET", f"{ORDERS}/{{design_id}}", values=DRAFT),
    Call("POST", ADOPTION, BODIES["/audio/voices/designs/x/adopt"], DRAFT),
    Call("DELETE", f"{ORDERS}/{{design_id}}", values=DRAFT),
)
TRANSCRIPTIONS = tuple(
    Call("POST", TRANSCRIPTION, {"response_format": format, **fields}, name=f"{format} {name}")
    for name, format, fields in (
        ("plain", "json", {}),
        ("structured", "json", {"format_text": "true"}),
        ("with segments", "verbose_json", {"timestamp_granularities": "segment"}),
        ("of Whisper", "verbose_json", {"model": "whisper-large-v3", "timestamp_granularities": ["word", "segment"]}),
    )
)
SOUNDS = (
    Call("POST", "/v1/audio/speech", BODIES["/audio/speech"]),
    Call("GET", "/v1/audio/voices/{slug}/samples/{language}.mp3", values=(("slug", "F1"), ("language", "en"))),
)
ERRORS_ONLY = (
    Call("POST", "/v1/images/generations", {"prompt": "a cat"}),
    Call("GET", "/files/{name}", values=(("name", "x"),)),
    Call("PUT", "/files/{name}", values=(("name", "x"),)),
)
RECORD = Call("GET", "/v1/console/requests/{request_id}", values=(("request_id", "x"),))
FEED = Call("GET", "/v1/console/events")
VERDICT = Call("GET", "/v1/audio/speech/{request_id}/verdict", values=(("request_id", "x"),))
EVERY = (RECORD, FEED, VERDICT, *JSON_CALLS, *DESIGNS, *TRANSCRIPTIONS, *SOUNDS, *ERRORS_ONLY)
ROUTES = {(call.method, call.path): call for call in EVERY}
"""A call of each."""


def operation_of(document: dict[str, Any], call: Call) -> dict[str, Any]:
    operation: dict[str, Any] = document["paths"][call.path][call.method.lower()]
    return operation


def check(document: dict[str, Any], operation: dict[str, Any], status: str, body: Any) -> None:
    schema = operation["responses"][status]["content"]["application/json"]["schema"]
    jsonschema.validate(body, closed({**schema, "components": document["components"]}))


def closed(node: Any) -> Any:
    """The same schema, in which an object may have no member that the document does not name."""
    if isinstance(node, dict):
        inner = {key: closed(value) for key, value in node.items()}
        if "properties" in node and node.get("type") == "object" and "additionalProperties" not in node:
            inner["additionalProperties"] = False
        return inner
    return [closed(child) for child in node] if isinstance(node, list) else node


async def test_every_route_is_called_here(document: dict[str, Any]) -> None:
    documented = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert documented == ROUTES.keys()


async def test_replies_are_as_documented(api: Api, document: dict[str, Any]) -> None:
    let_models_see(api)
    wrong = {}
    for call in JSON_CALLS:
        reply = await api.send(call.method, call.filled, json=call.body)
        try:
            check(document, operation_of(document, call), str(reply.status_code), reply.json())
        except (KeyError, jsonschema.ValidationError) as error:
            wrong[str(call)] = error
        if reply.status_code != 200:
            wrong[str(call)] = reply.text
    assert wrong == {}


async def test_a_verdict_is_as_documented(api: Api, document: dict[str, Any]) -> None:
    spoken = await api.send("POST", "/v1/audio/speech", json=BODIES["/audio/speech"] | {"verify": "report"})

    async def is_there() -> bool:
        reply = await api.send("GET", VERDICT.path.format(request_id=spoken.headers["x-request-id"]))
        check(document, operation_of(document, VERDICT), str(reply.status_code), reply.json())
        return reply.status_code == 200

    await until(is_there)


async def test_a_draft_is_as_documented_in_all_its_states(api: Api, document: dict[str, Any]) -> None:
    async def call(which: Call, status: int = 200, **values: str) -> Any:
        reply = await api.send(which.method, which.path.format(**values), json=which.body)
        assert reply.status_code == status, reply.text
        check(document, operation_of(document, which), str(status), reply.json())
        return reply.json()

    draft_id = (await call(ORDER, 202))["id"]

    async def is_ready() -> bool:
        return bool((await call(GET, design_id=draft_id))["status"] == "ready")

    await until(is_ready)
    await call(ADOPT, design_id=draft_id)
    assert (await call(GET, design_id=draft_id))["voice"]
    assert (await call(LIST))["data"]
    await call(DISCARD, design_id=draft_id)


async def test_requests_and_events_of_the_console_are_as_documented(api: Api, document: dict[str, Any]) -> None:
    request_id = (await api.chat()).headers["x-request-id"]
    reply = await api.send(RECORD.method, RECORD.path.format(request_id=request_id))
    check(document, operation_of(document, RECORD), "200", reply.json())
    page = (await api.send("GET", "/v1/console/requests")).json()
    check(document, document["paths"]["/v1/console/requests"]["get"], "200", page)
    assert api.service.console
    schema = operation_of(document, FEED)["responses"]["200"]["content"]["text/event-stream"]["x-event"]
    async with aclosing(api.service.console.feed.watch(await api.caller(), api.state.accounts.current)) as events:
        for _ in range(2):
            data = json.loads((await anext(events)).partition(b"data: ")[2])
            jsonschema.validate(data, closed({**schema, "components": document["components"]}))
            await api.chat()


async def test_transcripts_are_as_documented_in_every_media_type(api: Api, document: dict[str, Any]) -> None:
    operation, file = operation_of(document, TRANSCRIPTIONS[0]), {"file": ("memo.mp3", b"good morning")}
    for call in TRANSCRIPTIONS:
        reply = await api.send(call.method, call.filled, data=call.body, files=file)
        assert reply.status_code == 200, reply.text
        check(document, operation, "200", reply.json())
    for format in ("json", "verbose_json", "text", "srt", "vtt", "events"):
        asked = {"stream": "true"} if format == "events" else {"response_format": format}
        reply = await api.send("POST", TRANSCRIPTION, data={"model": "whisper-large-v3", **asked}, files=file)
        assert reply.status_code == 200, reply.text
        assert reply.headers["content-type"].partition(";")[0] in operation["responses"]["200"]["content"], format


async def test_a_form_is_documented_with_its_file(document: dict[str, Any]) -> None:
    content = operation_of(document, TRANSCRIPTIONS[0])["requestBody"]["content"]
    assert set(content) == {"multipart/form-data", "application/json"}
    fields, file = content["multipart/form-data"]["schema"]["allOf"]
    assert file["properties"] == {"file": {"type": "string", "format": "binary"}}
    assert fields == content["application/json"]["schema"]


async def test_sound_is_documented_as_sound(api: Api, document: dict[str, Any]) -> None:
    for call in SOUNDS:
        reply = await api.send(call.method, call.filled, json=call.body)
        assert (reply.status_code, reply.headers["content-type"][:6]) == (200, "audio/")
        assert "audio/*" in operation_of(document, call)["responses"]["200"]["content"]


async def test_errors_are_as_documented(api: Api, document: dict[str, Any]) -> None:
    wrong = {}
    for call in ROUTES.values():
        operation = operation_of(document, call)
        replies = [(await api.send("PATCH", call.filled), range(405, 406))]
        if "security" in operation:
            replies.append((await api.client.request(call.method, call.filled), range(401, 402)))
        if call.body:
            replies.append((await api.send(call.method, call.filled, json={}), range(400, 600)))
        for reply, statuses in replies:
            try:
                check(document, operation, "default", reply.json())
            except jsonschema.ValidationError as error:
                wrong[str(call)] = error
            if reply.status_code not in statuses:
                wrong[str(call)] = reply.text
    assert wrong == {}


async def test_languages_that_would_do_are_documented(api: Api, document: dict[str, Any]) -> None:
    spoken = [BODIES["/audio/speech"] | {"provider": provider} for provider in ("supertonic", "qwen")]
    for call, body in (*((SOUNDS[0], each) for each in spoken), (ORDER, BODIES["/audio/voices/designs"])):
        reply = await api.send(call.method, call.filled, json=body | {"language": "xx"})
        assert "de" in reply.json()["error"]["supported"]
        check(document, operation_of(document, call), "default", reply.json())


async def test_a_style_is_documented_under_each_of_its_names(document: dict[str, Any]) -> None:
    fields = document["components"]["schemas"]["SpeechRequest"]["properties"]
    assert {"emotion", "instruction", "instructions"} <= set(fields)


async def test_what_is_not_available_is_documented_as_that(api: Api, document: dict[str, Any]) -> None:
    call = ERRORS_ONLY[0]
    reply = await api.send(call.method, call.filled, json=call.body)
    refused(reply, 501, "not_implemented")
    assert reply.headers["x-should-retry"] == "false"
    assert "200" not in operation_of(document, call)["responses"]
    check(document, operation_of(document, call), "501", reply.json())


async def test_bodies_that_are_taken_are_as_documented(document: dict[str, Any]) -> None:
    wrong = []
    for call in (*JSON_CALLS, *DESIGNS, *SOUNDS):
        operation = operation_of(document, call)
        wrong += [str(call)] * (("requestBody" in operation) != (call.body is not None))
        if call.body:
            schema = operation["requestBody"]["content"]["application/json"]["schema"] | {
                "components": document["components"]
            }
            wrong += [f"{call}: {error}" for error in jsonschema.Draft202012Validator(schema).iter_errors(call.body)]
    assert wrong == []
    assert operation_of(document, ADOPT)["requestBody"]["required"] is False


async def test_the_header_of_a_key_is_documented_where_it_opens(api: Api, document: dict[str, Any]) -> None:
    wrong = {}
    for call in ROUTES.values():
        ways = operation_of(document, call).get("security", [])
        reply = await api.client.request(call.method, call.filled, headers={"x-api-key": "unknown"})
        if {"key": []} in ways:
            code = "invalid_api_key" if {"x-api-key": []} in ways else "missing_api_key"
            is_right = reply.status_code == 401 and reply.json()["error"]["code"] == code
        else:
            is_right = ways == [] and reply.status_code != 401
        if not is_right:
            wrong[str(call)] = reply.status_code, ways
    assert wrong == {}


async def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(node: Any) -> set[str]:
        if isinstance(node, dict):
            here = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
            return here.union(*(references(child) for child in node.values()))
        return set().union(*(references(child) for child in node)) if isinstance(node, list) else set()

    schemas = document["components"]["schemas"]
    assert {name.rsplit("/", 1)[1] for name in references(document)} <= set(schemas)


async def test_only_paths_with_the_version_are_documented(document: dict[str, Any]) -> None:
    others = {path for path in document["paths"] if not path.startswith("/v1/")}
    assert others == {"/healthz", "/files/{name}", "/v2/rerank"}


def test_what_others_have_written_before_does_not_turn_our_alternatives_around() -> None:
    program = (
        "import typing; typing.NotRequired[str | int]\n"
        "from pydantic import TypeAdapter; from contract.mcp import RpcMessage\n"
        "print([each['type'] for each in TypeAdapter(RpcMessage).json_schema()['properties']['id']['anyOf']])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['integer', 'string']"


async def test_every_field_parameter_and_reply_says_what_it_means(document: dict[str, Any]) -> None:
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    meant = [parameter for operation in operations for parameter in operation.get("parameters", ())]
    meant += [reply for operation in operations for reply in operation["responses"].values()]
    types = document["components"]["schemas"]
    meant += [field for kind in types.values() for field in kind.get("properties", {}).values()]
    assert len(meant) > 900
    assert [each for each in meant if not each.get("description")] == []
    inside = re.compile(r"\bspec\b|contract\.|\b[A-Z]{2,}_[A-Z_]+\b|Attributes:")
    assert [text for each in meant if inside.search(text := each["description"])] == []


async def test_nothing_is_described_that_is_not_there(document: dict[str, Any]) -> None:
    types, written = document["components"]["schemas"], tomllib.loads(FIELDS.read_text("utf-8"))
    everywhere, path = written.pop("any"), written.pop("path")
    assert written.keys() <= types.keys()
    assert [
        f"{name}.{field}" for name in written for field in written[name] if field not in types[name]["properties"]
    ] == []
    assert everywhere.keys() <= {field for kind in types.values() for field in kind.get("properties", {})}
    parameters = [p["name"] for ms in document["paths"].values() for o in ms.values() for p in o.get("parameters", ())]
    assert path.keys() <= {*parameters}


async def test_replies_of_the_reference_are_as_documented(document: dict[str, Any]) -> None:
    wrong = {}
    for route, reply in replies().items():
        method, path = route.split(" ")
        operation = document["paths"][path][method.lower()]
        status = next(status for status in ("200", "202", "501") if status in operation["responses"])
        try:
            check(document, operation, status if status != "501" else "default", reply)
        except jsonschema.ValidationError as error:
            wrong[route] = error
    assert wrong == {}
