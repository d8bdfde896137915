"""Data of `/console/events`, `/console/requests` and `/console/keys`, without contents of requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NotRequired

from typing_extensions import TypedDict

from contract.base import query_parameter, rows_of_page
from contract.errors import INVALID_REQUEST
from contract.limits import CONSOLE_DEFAULT_ROWS, CONSOLE_ROWS
from contract.telemetry import Outcome

_ID = re.compile(r"req_[0-9a-f]{32}", re.ASCII)


class Traffic(TypedDict):
    """Traffic of requests.

    Attributes:
        requests_per_minute: requests that ended in the last minute.
        errors_per_minute: requests among them that failed by the fault of the server.
        waiting: calls of engines that wait.
    """

    requests_per_minute: int
    errors_per_minute: int
    waiting: int


class EngineFields(TypedDict):
    """An engine, in the view of all ingress processes together.

    Only keys with `console:operate` get counts of calls: `used`, `waiting`, `organisations` and those of a minute.

    Attributes:
        name: name of the deployment.
        models: ids of the models that the engine runs.
        state: cold, starting, ready, busy or failed.
        used, slots: slots that calls hold, and all slots.
        waiting: calls that wait for a slot or a start; of `organisations` organisations.
        last_load_s: seconds of the last start; null before the first.
        expected_load_s: median seconds of a start.
        bands: states in the last hour, each with the time at which it began, in milliseconds since 1970.
    """

    name: str
    capability: str
    models: list[str]
    state: str
    used: NotRequired[int]
    slots: int
    waiting: NotRequired[int]
    organisations: NotRequired[int]
    last_load_s: float | None
    expected_load_s: float
    requests_per_minute: NotRequired[int]
    errors_per_minute: NotRequired[int]
    bands: list[tuple[int, str]]


class GraphEvent(TypedDict):
    """Data of an event of the console."""

    engines: list[EngineFields]
    organisation: Traffic
    everybody: Traffic | None
    processes: int
    time_ms: int


class Phase(TypedDict):
    """A phase of a load, in milliseconds since the request arrived."""

    name: str
    from_ms: float
    to_ms: float


class RequestSpan(TypedDict):
    """A stage of a request, in milliseconds since it arrived. A load has phases if its replica has reported them."""

    name: str
    engine: str | None
    from_ms: float
    to_ms: float
    phases: list[Phase]


class TimeParts(TypedDict):
    """Parts of the duration of a request, in milliseconds.

    Attributes:
        admission: time until the call of an engine; the whole time of a request without one.
        queue: wait for a slot.
        load: wait for a cold engine.
        engine: work of the engine, including the time that a slow reader takes.
        gateway: the rest.
    """

    admission: float
    queue: float
    load: float
    engine: float
    gateway: float


class RequestRecord(TypedDict):
    """Record of a request of the organisation."""

    request_id: str
    time_ms: int
    method: str
    route: str
    model: str | None
    engine: str | None
    status: int
    outcome: str
    code: str | None
    duration_ms: float
    waited_behind: int
    parts: TimeParts
    spans: list[RequestSpan]
    cost_micro_eur: int | None
    user: str | None
    key_id: str


class RequestPage(TypedDict):
    """Requests of the organisation, or of the user of the key if it has one, the latest to end first."""

    data: list[RequestRecord]
    has_more: bool
    next_cursor: str | None


class KeyObject(TypedDict):
    """A key that is not revoked."""

    key_id: str
    label: str | None
    user: str | None
    scopes: list[str]
    created_at: str
    expires_at: str | None
    last_used_at: str | None


class KeyList(TypedDict):
    """Keys of the organisation, or of the user of the key if it has one."""

    data: list[KeyObject]


PARAMETERS = [
    query_parameter(
        "limit", "Rows of a page.", type="integer", minimum=1, maximum=CONSOLE_ROWS, default=CONSOLE_DEFAULT_ROWS
    ),
    query_parameter("before", "`next_cursor` of the page before.", type="string"),
    query_parameter("model", "Only those of this model.", type="string"),
    query_parameter("outcome", "Only those that ended so.", type="string", enum=[*Outcome]),
]


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """Filter of a page: `limit` requests at most that ended before the request `before`, by model and outcome."""

    limit: int = CONSOLE_DEFAULT_ROWS
    before: str | None = None
    model: str | None = None
    outcome: str | None = None

    @classmethod
    def read(cls, parameters: Mapping[str, str]) -> RecordQuery:
        """Reads PARAMETERS from an address and ignores all others. Raises INVALID_REQUEST."""
        before, outcome = parameters.get("before"), parameters.get("outcome")
        if before is not None and not _ID.fullmatch(before):
            raise INVALID_REQUEST(
                f"`before` is {before[:64]!r}, which no page gave; send its `next_cursor`", param="before"
            )
        if outcome is not None and outcome not in tuple(Outcome):
            raise INVALID_REQUEST(
                f"`outcome` is {outcome[:64]!r}; allowed are {', '.join(f'`{name}`' for name in Outcome)}",
                param="outcome",
            )
        limit = rows_of_page(parameters.get("limit"), CONSOLE_DEFAULT_ROWS, CONSOLE_ROWS)
        return cls(limit, before, parameters.get("model"), outcome)
