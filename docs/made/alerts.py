"""cluster/observability/alerts.yaml and kubernetes.yaml: when somebody is called, and what they do then.

The second holds the same rules as an object of Prometheus' operator, with one that finds the pods of KubeRay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import yaml

from contract import telemetry as t
from contract.telemetry import EngineState
from docs.made.queries import now, quantile, rate

HEAD = "# Made by `make docs` of docs/made/alerts.py and contract/telemetry.py.\n"

WAIT_S = 30
"""As long as most people wait for a slot before they go away. Alerts look at the slowest twentieth."""
COLD_WAIT_S = 60
LATE_S = 0.25
"""A loop that is as late delays every token of every stream by that much."""
REFUSED_SHARE = 0.1
"""Of all requests, refused for want of slots or of a warm engine."""
FAILED_SHARE = 0.01
"""The budget of errors: one request in a hundred may fail by our fault, over 30 days."""
FAST, SLOW = 14.4, 6
"""So many times too fast: a fiftieth of the budget of 30 days within an hour, a twentieth within six."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule.

    Attributes:
        expression: has a series for each thing that is wrong.
        lasts: how long it must be so.
        summary: a sentence for whoever is called; it may name labels.
        action: what to do.
    """

    name: str
    expression: str
    lasts: str
    severity: Literal["page", "ticket"]
    summary: str
    action: str


def _burns(times: float, long: str, short: str) -> str:
    """Both windows agree: it has been so for long, and it is so still."""
    return " and ".join(f"{_failed(window)} > {round(times * FAILED_SHARE, 4)}" for window in (long, short))


def _failed(window: str) -> str:
    failed = rate(t.REQUEST_DURATION, window=window, outcome=t.Outcome.FAILED)
    return f"{failed} / {rate(t.REQUEST_DURATION, window=window)}"


WANTED = {"code": "~busy|warming_up"}

ALERTS = (
    Alert(
        "ParlanceNoMetrics",
        f"absent({t.REQUESTS.exported})",
        "2m",
        "page",
        "No ingress process tells anything.",
        "Is the graph up (`GET /healthz`), and does Prometheus reach its port? Its page of targets says why not.",
    ),
    Alert(
        "ParlanceEngineFails",
        f"{now(t.ENGINE_STATE, 'engine', how='max', state=EngineState.FAILED)} == 1",
        "1m",
        "page",
        "The engine {{ $labels.engine }} does not start.",
        "Its requests get 503 `engine_failed`. The log of its replica says why, in Ray's folder of logs; "
        "`python -m launch check PROFILE` knows most reasons. It starts again at the next request after a remedy.",
    ),
    Alert(
        "ParlanceErrorsFast",
        _burns(FAST, "1h", "5m"),
        "2m",
        "page",
        "Requests fail so often that the errors of a month are spent in two days.",
        "Look at refusals by reason, for the codes whose status is 500 or more, and in the log for what lies behind.",
    ),
    Alert(
        "ParlanceErrorsSlow",
        _burns(SLOW, "6h", "30m"),
        "15m",
        "ticket",
        "Requests fail so often that the errors of a month are spent in five days.",
        "As for ParlanceErrorsFast, within the working day.",
    ),
    Alert(
        "ParlanceWaitsForSlots",
        f"{quantile(0.95, t.QUEUE, 'engine', window='5m')} > {WAIT_S}",
        "5m",
        "ticket",
        "One call in twenty waits over " + str(WAIT_S) + " s for a slot of the engine {{ $labels.engine }}.",
        "Where many organisations wait, the engine is full: more `max_replicas`, or more `max_ongoing_requests` if it "
        "has memory for them. Where one waits, it is its own queue, and others pass it by.",
    ),
    Alert(
        "ParlanceWaitsForStarts",
        f"{quantile(0.95, t.LOAD, 'engine', window='30m')} > {COLD_WAIT_S}",
        "5m",
        "ticket",
        "One cold hit in twenty waits a minute or more for the engine {{ $labels.engine }}.",
        "Does a start wait for a processor, a GPU or a node? Let it sleep later (`idle_s`), or not at all "
        "(`min_replicas = 1`); is the fork server there, and do weights come from a disk of the node?",
    ),
    Alert(
        "ParlanceRefuses",
        f"{rate(t.REFUSALS, 'model', window='10m', **WANTED)} / on (model) "
        f"{rate(t.REQUEST_DURATION, 'model', window='10m')} > {REFUSED_SHARE}",
        "10m",
        "ticket",
        "One request in ten for the model {{ $labels.model }} is refused, because it is busy or asleep.",
        "429 `busy`: more slots, replicas or `max_queued`. 503 `warming_up`: let it wait (`when_cold`) or not sleep.",
    ),
    Alert(
        "ParlanceBillsWait",
        f"{now(t.LEDGER_BACKLOG)} > 0",
        "5m",
        "page",
        "{{ $value }} bills are not in the database. They are lost if their processes end.",
        "Is the database reachable, full, or locked? Bills are retried by themselves. Do not restart the ingress.",
    ),
    Alert(
        "ParlanceLoopLate",
        f"{quantile(0.99, t.LOOP_DELAY, window='5m')} > {LATE_S}",
        "5m",
        "ticket",
        "Event loops of the ingress run late, so every stream stutters.",
        "The processors are taken: give the ingress a node of its own, or `replicas` of it; engines on its node "
        "should have fewer `threads`.",
    ),
)


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasts,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "action": alert.action},
    }


GROUPS = {"groups": [{"name": "parlance", "rules": [_rule(alert) for alert in ALERTS]}]}


def rules() -> str:
    """The file of rules that Prometheus reads."""
    return HEAD + _yaml(GROUPS)


def kubernetes() -> str:
    """What Prometheus' operator reads. It is no part of cluster/kubernetes: a cluster may not have that operator."""
    ours = {"app.kubernetes.io/part-of": "parlance"}
    about = {"name": "parlance", "namespace": "parlance"}  # operators read objects with the labels that they are told
    monitor = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": about,
        "spec": {"selector": {"matchLabels": ours}, "podMetricsEndpoints": [{"port": "metrics", "interval": "15s"}]},
    }
    rule = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": about, "spec": GROUPS}
    return HEAD + _yaml(monitor) + "---\n" + _yaml(rule)


def _yaml(document: Any) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False, width=118, allow_unicode=True)
    return text
