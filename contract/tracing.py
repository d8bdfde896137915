"""Traces of single requests: the names of their spans, and the header that names a trace.

docs/tracing-and-logs.md lists every span and attribute. Names that begin with `gen_ai.`, `http.` and `error.` follow
OpenTelemetry's `semantic-conventions-genai v0.1.0`, which is in development; only the span of the operation has them.
No span holds text from clients, only ids of the catalogue, codes of the table of errors, counts and times.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

from contract.access import Scope

OPERATIONS: Mapping[Scope, str] = {Scope.SPEECH: "text_to_speech", Scope.TRANSCRIBE: "speech_to_text"}
"""`gen_ai.operation.name` by scope, where it is not the name of the scope, such as `chat`. The convention allows
additional names."""

ROUTE_OPERATIONS: Mapping[str, str] = {"/completions": "text_completion"}
"""`gen_ai.operation.name` by route, without `/v1`, where it differs from that of the scope."""


class Stage(StrEnum):
    """Child of an operation. Each stage ends where the next begins, so their times add up to that of the operation."""

    ADMISSION = "admission"
    QUEUE = "queue"
    LOAD = "load"
    ENGINE = "engine"
    SETTLE = "settle"


LOAD_PHASES = ("load.place", "load.process", "load.import", "load.weights")
_, LOAD_PROCESS, LOAD_IMPORT, LOAD_WEIGHTS = LOAD_PHASES
INFERENCE = "inference"

USAGE_PREFIX = "parlance.usage."
"""Prefix of the attributes for billed units that are not tokens."""
CANCELLED = "cancelled"

TRACE_HEADERS = frozenset({b"traceparent", b"tracestate"})
MAX_TRACEPARENT = 128
"""Bytes. The current version has 55; later ones may be longer, with the same beginning."""
MAX_TRACESTATE = 512

_PARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")
_MEMBER = re.compile(r"[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~]", re.ASCII)

SAMPLED, RANDOM = 1, 2
"""Flags of W3C Trace Context: the spans of this trace are recorded; its id is random."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Identity of a span across processes.

    Attributes:
        trace_id: 32 hexadecimal digits.
        span_id: 16 hexadecimal digits.
        flags: SAMPLED, RANDOM.
        state: members of `tracestate`, which are passed on unchanged.
    """

    trace_id: str
    span_id: str
    flags: int = 0
    state: str = ""

    @property
    def is_sampled(self) -> bool:
        """True if spans of this trace are recorded."""
        return bool(self.flags & SAMPLED)

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"

    def headers(self) -> dict[str, str]:
        """Returns the headers that name this span to other services."""
        return {"traceparent": self.traceparent} | ({"tracestate": self.state} if self.state else {})

    def child(self, span_id: str | None = None) -> TraceContext:
        """Returns another span of the same trace, with a new id if none is given."""
        return TraceContext(self.trace_id, span_id or new_span_id(), self.flags, self.state)


def new_span_id() -> str:
    """Returns 16 random hexadecimal digits."""
    return secrets.token_hex(8)


def incoming(headers: Collection[tuple[bytes, bytes]]) -> TraceContext | None:
    """Returns the span that a request names as its parent; None if it names none, several, or an invalid one.

    A malformed `tracestate` is dropped, and the trace continues without it. Names of `headers` are in lower case.
    """
    parents = [value for name, value in headers if name == b"traceparent"]
    if len(parents) != 1 or len(parents[0]) > MAX_TRACEPARENT:
        return None
    match = _PARENT.fullmatch(parents[0].strip(b" \t"))
    if not match or (match[1] == b"00" and match[5] is not None):
        return None
    flags = int(match[4], 16) & (SAMPLED | RANDOM)
    state = _state(b",".join([value for name, value in headers if name == b"tracestate"]))
    return TraceContext(match[2].decode(), match[3].decode(), flags, state)


def _state(value: bytes) -> str:
    # Member by member: one pattern for all would backtrack over every split of the spaces between commas.
    text = value.decode("latin-1") if len(value) <= MAX_TRACESTATE else ""
    members = [member for part in text.split(",") if (member := part.strip(" \t"))]
    return ",".join(members) if all(_MEMBER.fullmatch(member) for member in members) else ""


@dataclass(frozen=True, slots=True)
class RequestNames:
    """Names of a request in logs and traces. They go with calls of engines if single requests are logged or traced."""

    request_id: str
    span: TraceContext | None = None


NAMES: ContextVar[RequestNames | None] = ContextVar("names", default=None)
"""Names of the request of the current task. Set only if logs or traces cover single requests."""


@dataclass(frozen=True, slots=True)
class Loading:
    """Start of a replica, as the replica reports it.

    Attributes:
        process_s: seconds from the start of the process until it began to load.
        model_s: seconds of loading.
        import_s: seconds of loading that were imports of modules.
        way: fork, or import.
    """

    process_s: float
    model_s: float
    import_s: float
    way: str

    def phases(self, began_s: float, ended_s: float) -> list[tuple[str, float, float]]:
        """Returns name, begin and end of each phase of a load that this start ended, in order and without gaps."""
        spent_s = (self.process_s, self.import_s, self.model_s - self.import_s)
        ends_s = [max(began_s, ended_s - sum(spent_s[part:])) for part in range(len(spent_s))] + [ended_s]
        return list(zip(LOAD_PHASES, [began_s, *ends_s], ends_s, strict=False))


@dataclass(slots=True)
class StageEntry:
    """A stage that a request has entered.

    Attributes:
        began_s: `time.perf_counter()` at the start of the stage.
        engine: name of the deployment; empty for a stage without an engine.
        loading: report of the replica on its start, for a load; None if there is none.
    """

    stage: Stage
    began_s: float
    engine: str = ""
    loading: Loading | None = None


class StageSpans:
    """Recorded spans of a request: one of the operation, and one of each of its stages.

    Attributes:
        operation: parent of the other spans.
        parent: span that a proxy names as the parent of the operation.
        link: span that a client names.
    """

    def __init__(
        self, operation: TraceContext, parent: TraceContext | None = None, link: TraceContext | None = None
    ) -> None:
        self.operation, self.parent, self.link = operation, parent, link
        self._ids: dict[int, str] = {}

    def of_stage(self, number: int) -> TraceContext:
        """Returns the span of a stage by its number, even before it begins: the call that begins it needs the span."""
        return self.operation.child(self._ids.setdefault(number, new_span_id()))
