"""What vLLM and the check of grammars refuse, as errors of the API. Needs vLLM."""

from __future__ import annotations

import json

from vllm.entrypoints.serve import create_error_response
from vllm.entrypoints.serve.engine.protocol import ErrorResponse

from contract.chat import schemas
from contract.chat.engine import ChatJob
from contract.chat.request import ChatRequest
from contract.completions import CompletionRequest
from contract.errors import INVALID_REQUEST, UPSTREAM_ERROR, ApiError
from contract.limits import SCHEMA_COMPILE_S
from models.llm.grammars import Grammars, Kind, Refused, Syntax

GRAMMAR_ERRORS = ("Invalid grammar specification", "Grammar error")
"""First words of vLLM's errors for a JSON schema."""


def error_of(failure: Exception | ErrorResponse, request: ChatRequest | CompletionRequest) -> ApiError:
    """The API error for what vLLM raised or returned: its 4xx are the client's faults, all others the server's."""
    if isinstance(failure, ApiError):
        return failure
    error = (failure if isinstance(failure, ErrorResponse) else create_error_response(failure)).error
    if not 400 <= error.code < 500:
        return UPSTREAM_ERROR()
    if isinstance(request, CompletionRequest):
        return INVALID_REQUEST(error.message, param=error.param or "prompt")
    if error.message.startswith(GRAMMAR_ERRORS):
        return schema_refused(Refused("invalid", error.message), next(iter(request.compiled_schemas()), "tools"))
    return INVALID_REQUEST(error.message, param=error.param or "messages")


FORMS = {
    "structured_outputs.regex": "the regular expression",
    "structured_outputs.choice": "the list of answers",
}
"""What a field holds that has no JSON schema."""


def schema_refused(refusal: Refused, param: str) -> ApiError:
    """The 400 for a schema or another form in the field `param` that is not compiled."""
    match refusal.reason:
        case "invalid":
            why = f"is not supported: {refusal.detail}"
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
    """The field whose schema was refused; of several the first that is refused alone, or the dearest."""
    fields = job.request.compiled_schemas()
    kind: Kind | Syntax = "PARSE" if refusal.reason == "invalid" else "JSON"
    if refusal.reason in ("invalid", "empty", "slow") and len(fields) > 1:
        specs = [json.dumps(schema) for schema in fields.values()]
        index = await grammars.first_refused(kind, specs, job.owner)
        if index is not None:
            return list(fields)[index]
    if job.request.structured_outputs:
        return f"structured_outputs.{'regex' if job.request.structured_outputs.regex else 'choice'}"
    return schemas.dearest(fields) if fields else "tools"
