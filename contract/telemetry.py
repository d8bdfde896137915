"""Every metric about requests and engines, one row each.

`docs/observability.md`, the dashboards and the alerts are generated from these rows. Ray exports them, and adds the
prefix `ray_` to each name. Labels are ids of the catalogue, names of deployments (`engine`), codes of the table of
errors and words of this file, never text from clients, so requests cannot create new series.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

NO_MODEL = "none"
"""Label of requests that reach no model, or need no scope."""

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets of a duration."""
SHORT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)

METRICS: dict[str, Metric] = {}
"""All rows by name, filled by the three functions below."""


class EngineState(StrEnum):
    """State of an engine, in the view of one ingress process."""

    COLD = "cold"
    STARTING = "starting"
    READY = "ready"
    BUSY = "busy"
    FAILED = "failed"


class Outcome(StrEnum):
    """Outcome of a request."""

    OK = "ok"
    REFUSED = "refused"
    """Refused with a status below 500: invalid, or beyond a limit."""
    FAILED = "failed"
    LEFT = "left"
    """Abandoned by its client."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A row. Values are in the unit at the end of the name.

    Attributes:
        help: one sentence, for people.
        labels: names of labels, in the order of their values.
        buckets: upper bounds of a histogram.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def exported(self) -> str:
        """Name in Prometheus."""
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
    "First byte of a request to last byte of its reply. `outcome`: ok, refused (status below 500), failed, left (by "
    "its client).",
)
REQUEST_TIME = _counter(
    "parlance_request_time_seconds",
    ("model", "part"),
    "The same time by `part`: gateway, queue (for a slot), load (of the model), engine.",
)
FIRST_OUTPUT = _histogram(
    "parlance_time_to_first_output_seconds",
    ("engine",),
    "Call of an engine to its first token, sound or segment, waiting included. Streams only.",
)
OUTPUT_TOKEN = _histogram(
    "parlance_time_per_output_token_seconds",
    ("model",),
    "Mean time between two tokens of a chat stream.",
    SHORT_SECONDS,
)
QUEUE = _histogram("parlance_queue_seconds", ("engine",), "Wait for a slot.")
LOAD = _histogram("parlance_load_seconds", ("engine",), "Wait for a cold engine to start. Its count is cold hits.")
REFUSALS = _counter("parlance_refusals", ("model", "code"), "Requests answered with an error, by `error.code`.")
UNITS = _counter("parlance_units", ("model", "unit"), "Billed tokens, characters, seconds of audio, questions.")
CACHED_TOKENS = _counter(
    "parlance_cached_tokens",
    ("model",),
    "Prompt tokens found in the cache, whether they have a price of their own or not.",
)
COST = _counter("parlance_cost_micro_eur", ("model",), "Billed millionths of a euro.")
WAITING = _gauge("parlance_waiting", ("engine",), "Calls that wait for a slot or a start.")
WAITING_ORGANISATIONS = _gauge(
    "parlance_waiting_organisations",
    ("engine",),
    "Organisations of those calls. One: its own queue; many: a full engine.",
)
SLOTS = _gauge("parlance_slots", ("engine", "state"), "`used` by this ingress process; `all` of the running replicas.")
ENGINE_STATE = _gauge(
    "parlance_engine_state",
    ("engine", "state"),
    "1 for the present `state` (cold, starting, ready, busy, failed), else 0. Exported at zero replicas, too.",
)
REQUESTS = _gauge("parlance_requests", (), "Running requests of an ingress process.")
STREAMS = _gauge("parlance_open_streams", (), "Open streams of an ingress process.")
BODY_BYTES = _gauge("parlance_held_body_bytes", (), "Bodies and long replies that an ingress process holds.")
LOOP_DELAY = _histogram(
    "parlance_loop_delay_seconds",
    (),
    "Delay of the event loop of an ingress process, measured once a second.",
    SHORT_SECONDS,
)
LEDGER_BACKLOG = _gauge(
    "parlance_ledger_backlog", (), "Bills that the database has not recorded yet. They are retried."
)
ENGINE_STALLS = _counter(
    "parlance_engine_stalls",
    ("engine",),
    "Times that a replica had work and finished none of it for longer than allowed. It is replaced unless it continues "
    "within seconds.",
)
ENGINE_START = _histogram(
    "parlance_engine_start_seconds",
    ("engine", "way"),
    "Time to load a model in a replica. `way`: fork (of the fork server), or import (in a new process).",
)
SCALING_REPLICAS = _gauge(
    "parlance_scaling_replicas", ("engine",), "Replicas that the scaling policy wants, also in a dry run."
)
SCALING_FAILURES = _counter(
    "parlance_scaling_failures", ("engine",), "Failures of the scaling policy, after which Serve's default decided."
)
FORK_SERVER = _gauge(
    "parlance_fork_server_bytes",
    (),
    "Memory of the fork servers on the node of an ingress process, which their forks share; 0 if none runs.",
)
VERDICTS = _counter(
    "parlance_speech_verdicts", ("model", "verdict"), "Verified speech: faithful, differs, not_verifiable."
)
LIVE_SESSIONS = _gauge("parlance_live_sessions", (), "Open live sessions of an ingress process.")
LIVE_SECONDS = _counter(
    "parlance_live_seconds",
    ("kind",),
    "Audio of ended live sessions: heard (transcribed), unheard (speech without a transcript), silence.",
)
LIVE_TURNS = _counter(
    "parlance_live_turns", ("model", "outcome"), "Turns of live sessions: text delivered (ok), or lost (failed)."
)
SPANS_LOST = _counter("parlance_spans_lost", (), "Spans that no collector took.")
