"""What the console is told by `/console/events`, `/console/requests` and `/console/keys`: never contents."""

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

SNAPSHOT, CHANGE = "snapshot", "change"
"""Names of the events."""

_ID = re.compile(r"req_[0-9a-f]{32}", re.ASCII)


class Traffic(TypedDict):
    """What requests do.

    Attributes:
        requests_per_minute: that ended in the last minute.
        errors_per_minute: those among them that failed by the server's fault.
        waiting: calls of engines that wait.
    """

    requests_per_minute: int
    errors_per_minute: int
    waiting: int


class EngineFields(TypedDict):
    """An engine as all ingress processes together see it. A `change` has `name`, and what is new.

    Attributes:
        name: of its deployment.
        models: ids of those that it runs.
        state: cold, starting, ready, busy or failed.
        used, slots: slots that calls hold, and all there are.
        waiting: calls that wait for a slot or a start; of `organisations` organisations.
        last_load_s: how long its last start took; null before the first.
        expected_load_s: how long a start takes, as likely less as more.
        bands: its states in the last hour, each with the time at which it began, in milliseconds since 1970; in a
            `change`, only those that are new.
    """

    name: str
    capability: NotRequired[str]
    models: NotRequired[list[str]]
    state: NotRequired[str]
    used: NotRequired[int]
    slots: NotRequired[int]
    waiting: NotRequired[int]
    organisations: NotRequired[int]
    last_load_s: NotRequired[float | None]
    expected_load_s: NotRequired[float]
    requests_per_minute: NotRequired[int]
    errors_per_minute: NotRequired[int]
    bands: NotRequired[list[tuple[int, str]]]


class GraphEvent(TypedDict):
    """The data of an event of the console."""

    engines: list[EngineFields]
    organisation: Traffic
    everybody: Traffic | None
    processes: int
    time_ms: int


class Phase(TypedDict):
    """A part of a load, in milliseconds since the request came."""

    name: str
    from_ms: float
    to_ms: float


class RequestSpan(TypedDict):
    """A stage of a request, in milliseconds since it came. A load has phases where its replica has told them."""

    name: str
    engine: str | None
    from_ms: float
    to_ms: float
    phases: list[Phase]


class TimeParts(TypedDict):
    """Where the time of a request went, in milliseconds. Together they are its duration.

    Attributes:
        admission: until an engine was asked; all of a request that asks none.
        queue: waiting for a slot.
        load: waiting for a cold engine.
        engine: at work for it, a slow reader's time included.
        gateway: the rest.
    """

    admission: float
    queue: float
    load: float
    engine: float
    gateway: float


class RequestRecord(TypedDict):
    """What is remembered of a request of the organisation."""

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
    """Requests of the organisation, or of the key's user where it has one, the one that ended last first."""

    data: list[RequestRecord]
    has_more: bool
    next_cursor: str | None


class KeyObject(TypedDict):
    """A key that was not revoked."""

    key_id: str
    label: str | None
    user: str | None
    scopes: list[str]
    created_at: str
    expires_at: str | None
    last_used_at: str | None


class KeyList(TypedDict):
    """The keys of the organisation, or of the key's user where it has one."""

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
    """Which requests a page shows: so many, that ended before the one of this id, of a model, with an outcome."""

    limit: int = CONSOLE_DEFAULT_ROWS
    before: str | None = None
    model: str | None = None
    outcome: str | None = None

    @classmethod
    def read(cls, parameters: Mapping[str, str]) -> RecordQuery:
        """The query of the parameters of an address; others than PARAMETERS are ignored. Raises INVALID_REQUEST."""
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
