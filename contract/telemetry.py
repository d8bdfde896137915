"""What is told about requests and engines from outside: every metric, one row each.

`docs/observability.md`, the dashboards and the alerts are made of these rows. Ray exports them, and writes `ray_` in
front of each name. Labels are ids of the catalogue, names of deployments (`engine`), codes of the table of errors and
words of this file, never a client's: whatever clients send, there are no more series.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

NO_MODEL = "none"
"""Label of requests that reach no model, and of those that no scope is for."""

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets of a time."""
SHORT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)

METRICS: dict[str, Metric] = {}
"""All rows by name. Filled by the three functions below."""


class EngineState(StrEnum):
    """What an engine does, as one ingress process sees it."""

    COLD = "cold"
    STARTING = "starting"
    READY = "ready"
    BUSY = "busy"
    FAILED = "failed"


class Outcome(StrEnum):
    """How a request ended."""

    OK = "ok"
    REFUSED = "refused"
    """With a status below 500: it was not as the contract wants it, or too much."""
    FAILED = "failed"
    LEFT = "left"
    """Its client went away."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A row. What is observed is in the unit that the name ends with.

    Attributes:
        help: one sentence, for people.
        labels: in the order in which their values are given.
        buckets: upper bounds of a histogram.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def exported(self) -> str:
        """The name that Prometheus sees."""
        return f"ray_{self.name}" + ("_total" if self.kind == "counter" else "")


def _counter(name: str, labels: tuple[str, ...], help: str) -> Metric:
    return METRICS.setdefault(name, Metric(name, "counter", help, labels))


def _gauge(name: str, labels: tuple[str, ...], help: str) -> Metric:
    return METRICS.setdefault(name, Metric(name, "gauge", help, labels))


def _histogram(name: str, labels: tuple[str, ...], help: str, buckets: tuple[float, ...] = SECONDS) -> Metric:
    return METRICS.setdefault(name, Metric(name, "histogram", help, labels, buckets))


REQUEST_DURATION = _histogram(
    "parlance_request_duration_seconds",
    ("capability", "model", "outcome"),
    "From the first byte of a request to the last of its reply. `outcome` is ok, refused (status below 500), failed, "
    "or left (by its client).",
)
REQUEST_TIME = _counter(
    "parlance_request_time_seconds",
    ("model", "part"),
    "The same time, split: `gateway`, `queue` (for a slot), `load` (of the model), `engine`.",
)
FIRST_OUTPUT = _histogram(
    "parlance_time_to_first_output_seconds",
    ("engine",),
    "From asking an engine to its first token, sound or segment, with all waiting. Streams only.",
)
OUTPUT_TOKEN = _histogram(
    "parlance_time_per_output_token_seconds",
    ("model",),
    "Between two tokens of a chat stream, as a mean over the stream.",
    SHORT_SECONDS,
)
QUEUE = _histogram("parlance_queue_seconds", ("engine",), "How long a call waited for a slot of its engine.")
LOAD = _histogram(
    "parlance_load_seconds", ("engine",), "How long a call waited for a cold engine to start. Its count is cold hits."
)
REFUSALS = _counter(
    "parlance_refusals",
    ("model", "code"),
    "Requests that were answered with an error, by `error.code`.",
)
UNITS = _counter(
    "parlance_units",
    ("model", "unit"),
    "What was billed, in units that have prices: tokens, characters, seconds of audio, questions.",
)
CACHED_TOKENS = _counter(
    "parlance_cached_tokens",
    ("model",),
    "Tokens of prompts that an earlier request had left in the cache, whether they have a price of their own or not.",
)
COST = _counter("parlance_cost_micro_eur", ("model",), "What was billed, in millionths of a euro.")
WAITING = _gauge("parlance_waiting", ("engine",), "Calls that wait for a slot, or for their engine to start.")
WAITING_ORGANISATIONS = _gauge(
    "parlance_waiting_organisations",
    ("engine",),
    "Organisations that those calls are of. Many calls of one are its own queue; calls of many are a full engine.",
)
SLOTS = _gauge(
    "parlance_slots",
    ("engine", "state"),
    "`used` by calls of this ingress process; `all` that the running replicas have.",
)
ENGINE_STATE = _gauge(
    "parlance_engine_state",
    ("engine", "state"),
    "1 for the state that an engine is in, else 0: cold, starting, ready, busy, failed. It is there at zero, too.",
)
REQUESTS = _gauge("parlance_requests", (), "Requests that run in an ingress process.")
STREAMS = _gauge("parlance_open_streams", (), "Streams that keys hold open in an ingress process.")
BODY_BYTES = _gauge("parlance_held_body_bytes", (), "Bytes of bodies and long replies that an ingress process holds.")
LOOP_DELAY = _histogram(
    "parlance_loop_delay_seconds",
    (),
    "How late the event loop of an ingress process runs what is due, looked at once a second.",
    SHORT_SECONDS,
)
LEDGER_BACKLOG = _gauge(
    "parlance_ledger_backlog", (), "Bills that the database has not recorded yet. They are retried until it has."
)
ENGINE_STALLS = _counter(
    "parlance_engine_stalls",
    ("engine",),
    "How often a replica had work and finished nothing for longer than it may. It is replaced unless it goes on within "
    "seconds. Told by the replica itself.",
)
ENGINE_START = _histogram(
    "parlance_engine_start_seconds",
    ("engine", "way"),
    "How long a replica took to load its model, told by the replica itself. `way` is fork (of the fork server), or "
    "import (by a process of its own).",
)
SCALING_REPLICAS = _gauge(
    "parlance_scaling_replicas",
    ("engine",),
    "Replicas that the scaling policy wants. Where it runs dry, Serve's default decides, and this is what it would do.",
)
SCALING_FAILURES = _counter(
    "parlance_scaling_failures",
    ("engine",),
    "Looks at an engine in which its scaling policy failed, so that Serve's default decided.",
)
FORK_SERVER = _gauge(
    "parlance_fork_server_bytes",
    (),
    "Memory of the fork servers on the node of an ingress process, which their forks share; 0 where none runs.",
)
VERDICTS = _counter(
    "parlance_speech_verdicts",
    ("model", "verdict"),
    "Speech that was heard back: faithful, differs, or not_verifiable.",
)
LIVE_SESSIONS = _gauge("parlance_live_sessions", (), "Live sessions that an ingress process holds open.")
LIVE_SECONDS = _counter(
    "parlance_live_seconds",
    ("kind",),
    "Sound of live sessions that have ended: heard, unheard (speech whose text nobody knows), or silence.",
)
LIVE_TURNS = _counter(
    "parlance_live_turns", ("model", "outcome"), "Turns of live sessions whose text was told (ok), or is lost (failed)."
)
SPANS_LOST = _counter(
    "parlance_spans_lost", (), "Spans that no collector took: it was away, slow or failing, or too many came at once."
)
