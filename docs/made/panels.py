"""What the dashboards show: rows of panels, each with its queries, made of the rows of `contract.telemetry`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from contract import telemetry as t
from contract.telemetry import EngineState, Metric, Outcome
from docs.made.queries import INTERVAL, now, quantile, rate, series, total

WIDTH = 24
"""A whole page, in Grafana's columns."""

STATES = {
    EngineState.COLD: "#8e8e8e",
    EngineState.STARTING: "#f2cc0c",
    EngineState.READY: "#73bf69",
    EngineState.BUSY: "#ff9830",
    EngineState.FAILED: "#e02f44",
}
"""Colours of bands. Where ingress processes disagree about an engine, the state that comes last here is shown."""

OUTCOMES = {Outcome.OK: "#73bf69", Outcome.REFUSED: "#ff9830", Outcome.FAILED: "#e02f44", Outcome.LEFT: "#8e8e8e"}
PARTS = {"gateway": "#5794f2", "queue": "#ff9830", "load": "#f2cc0c", "engine": "#73bf69"}


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of Prometheus. `legend` names its series by their labels, as `{{engine}}`."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture.

    Attributes:
        unit: of its values, by Grafana's name.
        about: a sentence for people.
        kind: `state-timeline` shows numbers as bands, `timeseries` as lines.
        stacked: lines that add up.
        colours: by legend.
        width: in columns of the page.
    """

    title: str
    unit: str
    queries: tuple[Query, ...]
    about: str
    kind: Literal["timeseries", "state-timeline"] = "timeseries"
    stacked: bool = False
    colours: tuple[tuple[str, str], ...] = ()
    width: int = 8


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading; one such row for each value of the variable `repeat`, if there is one."""

    title: str
    panels: tuple[Panel, ...]
    repeat: str | None = None


def _each(metric: Metric, label: str) -> Query:
    return Query(rate(metric, label), f"{{{{{label}}}}}")


def _usual_and_slow(metric: Metric, label: str, **labels: str) -> tuple[Query, Query]:
    middle, slow = (quantile(share, metric, label, **labels) for share in (0.5, 0.95))
    return Query(middle, f"{{{{{label}}}}}, half"), Query(slow, f"{{{{{label}}}}}, 95 %")


REQUESTS = Row(
    "Requests",
    (
        Panel(
            "Requests by outcome",
            "reqps",
            (_each(t.REQUEST_DURATION, "outcome"),),
            "How requests end.",
            stacked=True,
            colours=tuple(OUTCOMES.items()),
        ),
        Panel(
            "Where the time of a request goes",
            "s",
            (Query(f"{rate(t.REQUEST_TIME, 'part')} / on () group_left () {rate(t.REQUEST_DURATION)}", "{{part}}"),),
            "Seconds of a mean request, by part. They add up to its time.",
            stacked=True,
            colours=tuple(PARTS.items()),
        ),
        Panel(
            "Refusals by reason", "reqps", (_each(t.REFUSALS, "code"),), "Codes of the page of errors.", stacked=True
        ),
        Panel(
            "Time by capability",
            "s",
            _usual_and_slow(t.REQUEST_DURATION, "capability"),
            "From the first byte to the last.",
        ),
        Panel("Time to first output", "s", _usual_and_slow(t.FIRST_OUTPUT, "engine"), "Of streams, with all waiting."),
        Panel("Time per output token", "s", _usual_and_slow(t.OUTPUT_TOKEN, "model"), "Of chat streams."),
        Panel(
            "Speech that was heard back",
            "none",
            (Query(rate(t.VERDICTS, "verdict"), "{{verdict}} a second"),),
            "Whether our ears heard the text that was to be said.",
            stacked=True,
        ),
    ),
)

BANDS = " or ".join(f"{number} * {series(t.ENGINE_STATE, state=state)}" for number, state in enumerate(STATES))

ENGINES = Row(
    "Engines",
    (
        Panel(
            "Engines over time",
            "none",
            (Query(f"max by (engine) ({BANDS})", "{{engine}}"),),
            "What each engine does, also while it is at zero.",
            kind="state-timeline",
            width=WIDTH,
        ),
        Panel(
            "Cold hits",
            "none",
            (Query(f"sum by (engine) (increase({series(t.LOAD, '_count')}[{INTERVAL}]))", "{{engine}}"),),
            "Calls that met an engine without a replica and waited for it.",
        ),
        Panel("Wait for a cold engine", "s", _usual_and_slow(t.LOAD, "engine"), "How long those calls waited."),
        Panel(
            "Loading a model",
            "s",
            (Query(quantile(0.5, t.ENGINE_START, "engine", "way", window=None), "{{engine}} by {{way}}"),),
            "Half of all starts so far took no longer. A fork of the fork server has its imports already.",
        ),
        Panel(
            "Starts so far",
            "none",
            (Query(total(t.ENGINE_START, "way"), "{{way}}"),),
            "Replicas that have loaded their model: forks, and processes with imports of their own.",
            stacked=True,
        ),
        Panel(
            "Replicas that the policy wants",
            "none",
            (Query(now(t.SCALING_REPLICAS, "engine", how="max"), "{{engine}}"),),
            "Where it runs dry, Serve's default decides, and this is what the policy would do.",
        ),
        Panel(
            "Looks of a policy that failed",
            "none",
            (Query(f"{total(t.SCALING_FAILURES, 'engine')} or on () vector(0)", "{{engine}}"),),
            "Serve's default decided in these, with `idle_s` as its delay; the log of its controller says why.",
        ),
        Panel(
            "Slots",
            "none",
            (
                Query(now(t.SLOTS, "engine", state="used"), "{{engine}}, used"),
                Query(now(t.SLOTS, "engine", how="max", state="all"), "{{engine}}, all"),
            ),
            "Calls at work, and how many the running replicas could work on.",
        ),
        Panel(
            "Stalls so far",
            "none",
            (Query(f"{total(t.ENGINE_STALLS, 'engine')} or on () vector(0)", "{{engine}}"),),
            "Replicas that had work and finished nothing. They are replaced.",
        ),
        Panel(
            "Fork servers",
            "bytes",
            (Query(now(t.FORK_SERVER, how="max"), "memory"),),
            "Memory of the node with the largest; 0 where none runs.",
        ),
    ),
)

WAITS = Row(
    "Waits and turns",
    (
        Panel(
            "Calls that wait", "none", (Query(now(t.WAITING, "engine"), "{{engine}}"),), "For a slot, or for a start."
        ),
        Panel(
            "Organisations that wait",
            "none",
            (Query(now(t.WAITING_ORGANISATIONS, "engine", how="max"), "{{engine}}"),),
            "Whose calls these are. Many calls of one are its own queue, and hold up nobody else.",
        ),
        Panel("Wait for a slot", "s", _usual_and_slow(t.QUEUE, "engine"), "Also of calls that waited for nothing."),
    ),
)

MONEY = Row(
    "What is billed",
    (
        Panel(
            "Cost an hour",
            "currencyEUR",
            (Query(f"{rate(t.COST, 'model')} * 3600 / 1e6", "{{model}}"),),
            "By model.",
            stacked=True,
        ),
        Panel("Units", "none", (Query(rate(t.UNITS, "unit"), "{{unit}} a second"),), "As prices count them."),
        Panel(
            "Cached tokens",
            "none",
            (_each(t.CACHED_TOKENS, "model"),),
            "Tokens of prompts that need not be read again.",
        ),
    ),
)

PROCESSES = Row(
    "Ingress processes",
    (
        Panel(
            "Delay of the event loop",
            "s",
            (Query(quantile(0.99, t.LOOP_DELAY), "99 %"),),
            "Everybody waits for it.",
            width=6,
        ),
        Panel(
            "Open requests and streams",
            "none",
            (Query(now(t.REQUESTS), "requests"), Query(now(t.STREAMS), "streams")),
            "Of all processes.",
            width=6,
        ),
        Panel(
            "Held bodies", "bytes", (Query(now(t.BODY_BYTES), "bytes"),), "Bodies and long replies in memory.", width=6
        ),
        Panel("Live sessions", "none", (Query(now(t.LIVE_SESSIONS), "sessions"),), "Of all processes.", width=6),
        Panel(
            "Live sound",
            "none",
            (Query(rate(t.LIVE_SECONDS, "kind"), "{{kind}}"),),
            "Seconds of sound a second, told as sessions end. Unheard is speech whose text nobody knows.",
            stacked=True,
            width=6,
        ),
        Panel(
            "Live turns",
            "ops",
            (Query(rate(t.LIVE_TURNS, "outcome"), "{{outcome}}"),),
            "Turns that were written down, or failed.",
            stacked=True,
            colours=tuple(OUTCOMES.items()),
            width=6,
        ),
        Panel(
            "Bills that wait",
            "none",
            (Query(now(t.LEDGER_BACKLOG), "bills"),),
            "The database has not recorded them yet.",
            width=6,
        ),
        Panel(
            "Spans lost so far",
            "none",
            (Query(f"{total(t.SPANS_LOST)} or on () vector(0)", "spans"),),
            "The collector was away, slow or refused them.",
            width=6,
        ),
    ),
)

CAPABILITY = {"capability": "$capability"}

CAPABILITIES = Row(
    "$capability",
    (
        Panel(
            "Requests by outcome",
            "reqps",
            (Query(rate(t.REQUEST_DURATION, "outcome", **CAPABILITY), "{{outcome}}"),),
            "How requests end.",
            stacked=True,
            colours=tuple(OUTCOMES.items()),
        ),
        Panel(
            "Requests by model",
            "reqps",
            (Query(rate(t.REQUEST_DURATION, "model", **CAPABILITY), "{{model}}"),),
            "`none` are those that reach no model.",
            stacked=True,
        ),
        Panel(
            "Time by model",
            "s",
            _usual_and_slow(t.REQUEST_DURATION, "model", **CAPABILITY),
            "From the first byte to the last.",
        ),
    ),
    repeat="capability",
)

VLLM = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "generation_tokens", "prompt_tokens")
"""Names of vLLM, after the `ray_vllm_` that Ray exports. `tests/models/llm/test_process_engine.py` has them told."""


def _of_vllm(name: str, how: str = "{}") -> tuple[Query, ...]:
    assert name in VLLM
    counter = "_total" if name.endswith("tokens") else ""
    return (Query(f"sum by (model_name) ({how.format(f'ray_vllm_{name}{counter}')})", "{{model_name}}"),)


A_SECOND = f"rate({{}}[{INTERVAL}])"

GPUS = Row(
    "vLLM on GPUs",
    (
        Panel("Requests in a step", "none", _of_vllm("num_requests_running"), "That the engine computes together."),
        Panel("Requests that wait in the engine", "none", _of_vllm("num_requests_waiting"), "For room in the cache."),
        Panel(
            "Cache in use",
            "percentunit",
            _of_vllm("kv_cache_usage_perc"),
            "At 1, requests begin to displace each other.",
        ),
        Panel("Tokens written", "none", _of_vllm("generation_tokens", A_SECOND), "A second."),
        Panel("Tokens read", "none", _of_vllm("prompt_tokens", A_SECOND), "A second, of prompts."),
    ),
)

DASHBOARDS: dict[str, tuple[str, tuple[Row, ...]]] = {
    "overview": ("Parlance", (REQUESTS, ENGINES, WAITS, MONEY, PROCESSES)),
    "capabilities": ("Parlance: capabilities", (CAPABILITIES,)),
    "gpus": ("Parlance: vLLM on GPUs", (GPUS,)),
}
"""Titles and rows by the name of the file."""
