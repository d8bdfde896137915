"""What is told of a single request: the spans of its trace, by one table, and the header that names the trace.

Names that begin with `gen_ai.`, `http.` and `error.` are OpenTelemetry's; they stand on the span of the operation only.
No span holds what a client wrote: ids of the catalogue, codes of the table of errors, counts and times.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

from contract.access import Scope

CONVENTIONS = "semantic-conventions-genai v0.1.0"
"""What the names of attributes and operations follow. Its status is `Development`: names may still change."""

OPERATIONS: Mapping[Scope, str] = {Scope.SPEECH: "text_to_speech", Scope.TRANSCRIBE: "speech_to_text"}
"""`gen_ai.operation.name` of what needs a scope, where that is not the scope's own name, such as `chat`. The convention
allows names beside its own."""

ROUTE_OPERATIONS: Mapping[str, str] = {"/completions": "text_completion"}
"""The same for routes, without `/v1`, that are another operation than their scope says."""


class Stage(StrEnum):
    """The children of an operation. Each ends where the next begins, so together they are its time."""

    ADMISSION = "admission"
    QUEUE = "queue"
    LOAD = "load"
    ENGINE = "engine"
    SETTLE = "settle"


LOAD_START, LOAD_MODEL, INFERENCE = "load.start", "load.model", "inference"

SPANS: Mapping[str, str] = {
    Stage.ADMISSION: "Until an engine is asked: key, rate, body, hold on the budget. All of a request that asks none.",
    Stage.QUEUE: "The wait for a slot of an engine, its router included.",
    Stage.LOAD: "The wait for the first replica of a cold engine.",
    LOAD_START: "Below `load`: until the process of the replica is there.",
    LOAD_MODEL: "Below `load`: imports and weights, as the replica has measured it.",
    Stage.ENGINE: "From the call of a replica to its last item, with the time that a slow reader of a stream takes.",
    INFERENCE: "Below `engine`, told by the process of the engine: from the call to the last item.",
    Stage.SETTLE: "The rest: the bill, and what is left of the reply to be written.",
}
"""Every span beside that of the operation, which is called `OPERATION MODEL`, as `chat qwen2.5-coder-0.5b-instruct`."""

ATTRIBUTES: Mapping[str, str] = {
    "gen_ai.operation.name": "What was wanted.",
    "gen_ai.provider.name": "`parlance`.",
    "gen_ai.request.model": "Id of the model that the request picked.",
    "gen_ai.response.model": "Id of the model that ran, where something was billed.",
    "gen_ai.usage.input_tokens": "Tokens of the prompt that were billed, cached ones included.",
    "gen_ai.usage.output_tokens": "Tokens of the answer that were billed.",
    "gen_ai.usage.cache_read.input_tokens": "Those of the prompt that had the price of cached ones.",
    "error.type": "`error.code` of the reply, also where its status had gone out; `cancelled` where the client left.",
    "http.request.method": "The method.",
    "http.route": "The route, never the path.",
    "http.response.status_code": "The status.",
    "parlance.request_id": "`x-request-id` of the reply.",
    "parlance.outcome": "ok, refused, failed or left, as in the metrics.",
    "parlance.engine": "Name of the engine's deployment, on the spans below the operation's.",
    "parlance.method": "The method of the engine, on `inference`.",
    "parlance.error": "Of a call that failed, on `inference`: its code, or the name of a class.",
}
"""Every attribute. Units that were billed and are no tokens are `parlance.usage.UNIT`."""

USAGE_PREFIX = "parlance.usage."
CANCELLED = "cancelled"

TRACE_HEADERS = frozenset({b"traceparent", b"tracestate"})
MAX_TRACEPARENT = 128
"""Bytes. The version that is known has 55; those to come may be longer, and begin in the same way."""
MAX_TRACESTATE = 512

_PARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")
_MEMBER = re.compile(r"[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~]", re.ASCII)

SAMPLED, RANDOM = 1, 2
"""The flags of W3C Trace Context: the spans of this trace are recorded; its id is random."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span as other processes know it.

    Attributes:
        trace_id: 32 hexadecimal digits.
        span_id: 16 hexadecimal digits.
        flags: SAMPLED, RANDOM.
        state: the members of `tracestate`, which are handed on as they came.
    """

    trace_id: str
    span_id: str
    flags: int = 0
    state: str = ""

    @property
    def is_sampled(self) -> bool:
        """Whether spans of this trace are recorded."""
        return bool(self.flags & SAMPLED)

    @property
    def traceparent(self) -> str:
        """The header."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"

    def headers(self) -> dict[str, str]:
        """What names this span to others."""
        return {"traceparent": self.traceparent} | ({"tracestate": self.state} if self.state else {})

    def child(self, span_id: str | None = None) -> TraceContext:
        """Another span of the same trace, with a new id where none is chosen."""
        return TraceContext(self.trace_id, span_id or new_span_id(), self.flags, self.state)


def new_span_id() -> str:
    """16 hexadecimal digits."""
    return secrets.token_hex(8)


def incoming(headers: Iterable[tuple[bytes, bytes]]) -> TraceContext | None:
    """The span that a request names as its parent; None where it names none, several, or one that cannot be.

    A malformed `tracestate` is dropped: the trace goes on without it. Names of `headers` are in lower case.
    """
    parents, states = [], []
    for name, value in headers:
        if name == b"traceparent":
            parents.append(value)
        elif name == b"tracestate":
            states.append(value)
    if len(parents) != 1 or len(parents[0]) > MAX_TRACEPARENT:
        return None
    match = _PARENT.fullmatch(parents[0].strip(b" \t"))
    if not match or (match[1] == b"00" and match[5] is not None):
        return None
    flags = int(match[4], 16) & (SAMPLED | RANDOM)
    return TraceContext(match[2].decode(), match[3].decode(), flags, _state(b",".join(states)))


def _state(value: bytes) -> str:
    # Member by member: one pattern for all of them would try in how many ways spaces can lie between commas.
    text = value.decode("latin-1") if len(value) <= MAX_TRACESTATE else ""
    members = [member for part in text.split(",") if (member := part.strip(" \t"))]
    return ",".join(members) if all(_MEMBER.fullmatch(member) for member in members) else ""


@dataclass(frozen=True, slots=True)
class RequestNames:
    """By what a request is known in logs and traces. It goes with calls of engines, where something is told of it."""

    request_id: str
    span: TraceContext | None = None


NAMES: ContextVar[RequestNames | None] = ContextVar("names", default=None)
"""Of the request that this task works for. Set only where logs or traces tell of single requests."""


@dataclass(slots=True)
class StageEntry:
    """A stage that a request has entered.

    Attributes:
        began_s: `time.perf_counter()`.
        engine: name of its deployment; empty where the stage is of none.
        model_s: of a load, what the replica says that its model took; 0 where that is not known.
    """

    stage: Stage
    began_s: float
    engine: str = ""
    model_s: float = 0.0


class StageSpans:
    """The spans of a request that are recorded: one of the operation, and one of each of its stages.

    Attributes:
        operation: the span that the others are children of.
        parent: the span that the client names as the operation's parent.
    """

    def __init__(self, operation: TraceContext, parent: TraceContext | None) -> None:
        self.operation, self.parent = operation, parent
        self._ids: dict[int, str] = {}

    def of_stage(self, number: int) -> TraceContext:
        """The span of the stage of this number, also before that has begun: for a call that begins it."""
        return self.operation.child(self._ids.setdefault(number, new_span_id()))


def load_phases(stage: str, began_s: float, end_s: float, model_s: float) -> Iterator[tuple[str, float, float]]:
    """The parts of a load whose replica has said how long its model took: name, begin and end."""
    if stage == Stage.LOAD and model_s:
        begin_s = max(began_s, end_s - model_s)
        yield LOAD_START, began_s, begin_s
        yield LOAD_MODEL, begin_s, end_s
