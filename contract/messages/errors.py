"""An error as Anthropic's clients read it. Statuses, codes and sentences are those of `contract.errors`."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from contract.errors import ApiError

TYPE_BY_STATUS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    501: "api_error",
    502: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Status to `type`; every other status is `invalid_request_error`."""


class MessagesErrorDetails(TypedDict):
    """Where the clients look for a code."""

    error_code: str


class MessagesErrorObject(TypedDict):
    """What went wrong. `code` and `param` are those of our other routes; Anthropic's schema has neither."""

    type: str
    message: str
    code: str
    param: str | None
    details: MessagesErrorDetails


class MessagesErrorReply(TypedDict):
    """Every error of these routes, in Anthropic's shape."""

    type: Literal["error"]
    error: MessagesErrorObject
    request_id: str


def error_body(error: ApiError, request_id: str) -> dict[str, Any]:
    """The JSON body of `error`."""
    fault = error.fault
    told: MessagesErrorObject = {
        "type": TYPE_BY_STATUS.get(fault.status, "invalid_request_error"),
        "message": error.message,
        "code": fault.code,
        "param": error.param,
        "details": {"error_code": fault.code},
    }
    return {"type": "error", "error": told | error.extra, "request_id": request_id}
