"""docs/observability.md: every metric, how it is scraped, what the dashboards show, and what to do at each alert."""

from __future__ import annotations

import re

from contract.telemetry import METRICS, EngineState, Outcome
from docs.made.alerts import ALERTS, Alert
from docs.made.panels import DASHBOARDS, Row

HEAD = """# Observability

<!-- Made by `make docs` of contract/telemetry.py and docs/made. -->

Every request and every engine is told of in metrics for Prometheus. Dashboards for Grafana and rules of alerts are
files in `cluster/observability`, made of the same table as this page. A test scrapes a real graph, and has every query
of them answered.

<picture>
  <source media="(prefers-color-scheme: dark)" srcset="images/observability-dark.svg">
  <img alt="Panels of the overview: where the time of a request goes, how requests end, engines over time, who waits"
       src="images/observability-light.svg">
</picture>

Four minutes of a graph of the tests, by the queries of the overview: engines wake and sleep, one is full, one is
killed, and one never starts. Grafana itself was not at hand where this was made; its published types take the files.

## Scrape

| where | address | how |
|---|---|---|
"""

SCRAPES = (
    (
        "`make serve`",
        "`http://127.0.0.1:8001/metrics`",
        "`prometheus --config.file cluster/observability/prometheus.yml`. `METRICS_PORT=...` chooses another port; the "
        "start says which it is",
    ),
    (
        "nodes by hand",
        "the port of `ray start --metrics-export-port 8080`",
        "the head writes the addresses of all to `/tmp/ray/prom_metrics_service_discovery.json`, for `file_sd_configs`",
    ),
    (
        "Kubernetes",
        "port `metrics` (8080) of each pod",
        "`kubectl apply -f cluster/observability/kubernetes.yaml` where Prometheus' operator runs; "
        "`cluster/kubernetes/network.yaml` says from which namespace the port can be reached",
    ),
)

AFTER_SCRAPES = """
The port knows no token: on one machine it is open on loopback only, on a cluster a firewall or the network policy
closes it. What it tells is up to ten seconds old. The graph never reads it back, and decides by what it knows itself.

In Grafana, import the files `cluster/observability/*.json` and choose the Prometheus that scrapes.

## Metrics

`model` is an id of the catalogue, and `none` where a request reaches no model. `engine` is the name of a deployment,
`capability` the scope that the route demands of a key, `code` one of [errors](errors.md). Labels hold nothing that a
client has sent, so clients make no series. Ray adds labels of its own, such as the node and the process. It keeps
histograms by their buckets, so counts and quantiles are right, but their `_sum` is an approximation. A series begins
with the first thing that it counts, and `rate` sees what comes after that.

| metric | kind | labels | what it is |
|---|---|---|---|
"""

AFTER_METRICS = f"""
`state` of an engine is one of {", ".join(f"`{state}`" for state in EngineState)};
`outcome` is one of {", ".join(f"`{outcome}`" for outcome in Outcome)}. Each ingress process tells what it sees:
add up what processes have (`sum`), and take the largest of what they see (`max`).

**vLLM's own** go out as `ray_vllm_...` from engines whose core has processes of its own (`engine_process` in the
stanza), as those on GPUs in `production` and `gpu` have. `disable_log_stats = true` among the engine arguments of a
stanza turns them off. Those that `gpus.json` shows were read from a small model on a CPU; no GPU has run them.

**Ray's and HAProxy's** are there, too. The useful ones:

| metric | labels | tells |
|---|---|---|
| `ray_serve_deployment_replica_healthy` | deployment, replica | replicas that run |
| `ray_serve_replica_processing_queries` | deployment, replica | slots in use |
| `ray_serve_deployment_processing_latency_ms` | deployment | how long engines take |
| `ray_serve_replica_startup_latency_ms` | deployment | how long starts take, with their process |
| `ray_serve_health_check_failures_total` | deployment | engines that make no progress |

## Dashboards

| file | row | panels |
|---|---|---|
"""

ON_ALERTS = """
## Alerts

The rules are in `cluster/observability/alerts.yaml`, and for Prometheus' operator in `kubernetes.yaml` beside it.
`page` calls somebody now, `ticket` waits for the working day. The bounds are in `docs/made/alerts.py`; change them
there, and run `make docs`.
"""


def page() -> str:
    """The whole page."""
    metrics = (_cells(f"`{row.exported}`", row.kind, ", ".join(row.labels), row.help) for row in METRICS.values())
    dashboards = (
        _cells(f"`{name}.json`", _heading(row), ", ".join(panel.title for panel in row.panels))
        for name, (_, rows) in DASHBOARDS.items()
        for row in rows
    )
    parts = [HEAD, *(_cells(*row) for row in SCRAPES), AFTER_SCRAPES, *metrics, AFTER_METRICS, *dashboards, ON_ALERTS]
    return "".join([*parts, *map(_alert, ALERTS)])


def _cells(*cells: str) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|\n"


def _heading(row: Row) -> str:
    return f"one for each {row.repeat}" if row.repeat else row.title


def _alert(alert: Alert) -> str:
    summary = re.sub(r" \{\{ \$labels\.\w+ \}\}", "", alert.summary).replace("{{ $value }} bills", "Bills")
    return (
        f"\n### {alert.name}\n\n**{alert.severity}**, after {_words(alert.lasts)}. {summary} {alert.action}\n\n"
        f"```promql\n{alert.expression}\n```\n"
    )


def _words(duration: str) -> str:
    minutes = int(duration.removesuffix("m"))
    return "a minute" if minutes == 1 else f"{minutes} minutes"
