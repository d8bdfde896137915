"""The table of errors."""

from __future__ import annotations

import pickle

import pytest

from contract.errors import FAULTS, ApiError, Fault

ROWS = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
SERVICE_FAULTS = [fault for fault in FAULTS.values() if fault.status >= 500 and fault.status != 501]

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    406: "invalid_request_error",
    408: "invalid_request_error",
    409: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    501: "not_implemented",
    502: "upstream_error",
    503: "server_error",
    504: "upstream_error",
}


@ROWS
def test_status_decides_the_type(fault: Fault) -> None:
    assert fault.type == TYPES[fault.status]


@ROWS
def test_error_survives_the_way_between_replicas(fault: Fault) -> None:
    error = fault("came x, allowed y", param="p", retry_after_s=7, extra={"supported": ["de"]})
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is ApiError
    assert (copy.body(), copy.headers()) == (error.body(), error.headers())


@pytest.mark.parametrize("fault", SERVICE_FAULTS, ids=lambda fault: fault.name)
def test_service_fault_tells_no_detail(fault: Fault) -> None:
    assert fault.text
    assert fault("what really happened").message == fault.text


@ROWS
def test_body_has_the_shape_of_the_spec(fault: Fault) -> None:
    error = fault("text", extra={"supported": []}).body()["error"]
    assert set(error) == {"message", "type", "param", "code", "supported"}


def test_sdks_are_told_not_to_repeat_what_cannot_succeed() -> None:
    assert FAULTS["NOT_IMPLEMENTED"]("x").headers()["x-should-retry"] == "false"
    assert FAULTS["IDEMPOTENCY_IN_PROGRESS"]("x").headers()["x-should-retry"] == "true"
