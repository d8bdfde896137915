"""Refusals of vLLM and of the check of grammars as errors of the API. Their texts reach no client. Needs vLLM."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from vllm.entrypoints.serve import create_error_response
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.v1.structured_output.backend_xgrammar import has_xgrammar_unsupported_json_features

from contract.chat import schemas
from contract.chat.engine import ChatJob
from contract.chat.request import ChatRequest
from contract.completions import CompletionRequest
from contract.errors import INVALID_REQUEST, UPSTREAM_ERROR, ApiError
from contract.limits import SCHEMA_COMPILE_S
from models.llm.grammars import Grammars, Kind, Refused, Syntax

T = TypeVar("T")


def error_of(failure: Exception | ErrorResponse, request: ChatRequest | CompletionRequest) -> ApiError:
    """The API error for what vLLM raised or returned: its 4xx are the client's faults, all others the server's."""
    if isinstance(failure, ApiError):
        return failure
    error = (failure if isinstance(failure, ErrorResponse) else create_error_response(failure)).error
    if not 400 <= error.code < 500:
        return UPSTREAM_ERROR()
    param = error.param or ("prompt" if isinstance(request, CompletionRequest) else "messages")
    return INVALID_REQUEST(f"the engine of `{request.model}` does not accept this `{param}`", param=param)


PLACE_CHARS = 2_000_000
"""Characters of schemas that are checked to find the place of a refused keyword: each is written in the event loop."""

FORMS = {"structured_outputs.regex": "the regular expression", "structured_outputs.choice": "the list of answers"}
"""Kind of a field that holds no JSON schema."""


async def schema_refused(refusal: Refused, job: ChatJob, grammars: Grammars) -> ApiError:
    """The 400 for a schema or another form of `job` that is not compiled."""
    param = await refused_field(refusal, job, grammars)
    match refusal.reason:
        case "invalid" | "keyword":
            schema = job.request.compiled_schemas().get(param)
            place = await refused_place(refusal, schemas.resolvable(schema), job.owner, grammars) if schema else ""
            why = "is not supported" + (f" at `{place[:200]}`" if place else "")
            why += f": {refusal.detail}" if refusal.detail else ""
        case "empty":
            why = "allows no answer"
            if refusal.detail:
                why = f"has a part that no answer can match: nothing can follow after `{refusal.detail}`"
        case "slow":
            why = f"is too slow to apply: {refusal.detail}. Give it fewer branches that match the same text"
        case "time":
            why = f"takes longer than {SCHEMA_COMPILE_S} s to compile; give it fewer and smaller bounds"
        case _:
            why = "takes too much memory to compile; give it fewer and smaller bounds"
    return INVALID_REQUEST(f"{FORMS.get(param, 'the JSON schema')} in `{param}` {why}", param=param)


async def refused_field(refusal: Refused, job: ChatJob, grammars: Grammars) -> str:
    """The field with the schema that was refused; of several the first that is refused alone, or the most expensive."""
    fields = job.request.compiled_schemas()
    if refusal.reason == "keyword":
        return "response_format"
    kind: Kind | Syntax = "PARSE" if refusal.reason == "invalid" else "JSON"
    if refusal.reason in ("invalid", "empty", "slow") and len(fields) > 1:
        specs = [json.dumps(schemas.resolvable(schema)) for schema in fields.values()]
        index = await grammars.first_refused(kind, specs, job.owner)
        if index is not None:
            return list(fields)[index]
    if job.request.structured_outputs:
        return f"structured_outputs.{'regex' if job.request.structured_outputs.regex else 'choice'}"
    return max(fields, key=lambda param: schemas.cost(fields[param]), default="tools")


async def refused_place(refusal: Refused, schema: dict[str, Any], owner: str, grammars: Grammars) -> str:
    """The place in `schema` of the keyword for which it was refused, as far as it is found within PLACE_CHARS."""
    definitions = {group: schema[group] for group in schemas.DEFINITIONS if group in schema}
    left = PLACE_CHARS

    async def is_refused(part: dict[str, Any]) -> bool:
        nonlocal left
        # Alone, a part has no whole to refer to.
        spec = json.dumps(definitions | part).replace('"$ref": "#"', '"$comment": "#"')
        left -= len(spec)
        if left < 0:
            raise TimeoutError
        if refusal.reason == "keyword":
            await asyncio.sleep(0)
            return bool(has_xgrammar_unsupported_json_features(part))
        return await grammars.first_refused("PARSE", [spec], owner) is not None

    async def first_refused(items: list[T], joined: Callable[[list[T], int, int], dict[str, Any]]) -> T | None:
        """The first of `items` for which they are refused; None where they are accepted.

        `joined` makes a schema of those between two indices, before which all are accepted.
        """
        accepted, refused = 0, len(items)
        if not items or not await is_refused(joined(items, accepted, refused)):
            return None
        while refused - accepted > 1:
            middle = (accepted + refused) // 2
            if await is_refused(joined(items, accepted, middle)):
                refused = middle
            else:
                accepted = middle
        return items[refused - 1]

    place = keyword = ""
    with suppress(TimeoutError):
        async with asyncio.timeout(SCHEMA_COMPILE_S):
            while True:
                parts = [part for part in schemas.parts(schema, place) if isinstance(part[1], dict)]
                # Definitions first: what refers to a bad one is refused as well.
                parts.sort(key=lambda part: not part[0].startswith(schemas.DEFINITIONS))
                part = await first_refused(parts, lambda some, *of: {"anyOf": [part for _, part in some[slice(*of)]]})
                if part is None:
                    break
                place, schema = part
            names = sorted(schema, key="type".__ne__)  # other keywords count for some types only
            keyword = await first_refused(names, lambda some, _, end: {name: schema[name] for name in some[:end]}) or ""
    return ".".join(filter(None, (place, keyword)))
