"""cluster/observability/kubernetes.yaml: the rules of alerts.yaml as an object of Prometheus' operator.

Beside it stands an object that finds the pods of KubeRay. Neither is a part of cluster/kubernetes: a cluster may not
have that operator.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import yaml

HEAD = "# Made by `make docs` of cluster/observability/alerts.yaml.\n"
RULES = Path(__file__).parents[2] / "cluster/observability/alerts.yaml"
GROUPS: dict[str, Any] = yaml.safe_load(RULES.read_text("utf-8"))


class Alert(NamedTuple):
    """A rule. `action` says what to do."""

    name: str
    expression: str
    lasts: str
    severity: str
    summary: str
    action: str


ALERTS = tuple(
    Alert(rule["alert"], rule["expr"], rule["for"], rule["labels"]["severity"], **rule["annotations"])
    for group in GROUPS["groups"]
    for rule in group["rules"]
)


def kubernetes() -> str:
    """Returns both objects as YAML."""
    ours = {"app.kubernetes.io/part-of": "parlance"}
    about = {"name": "parlance", "namespace": "parlance"}  # operators read objects with the labels that they are given
    monitor = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": about,
        "spec": {"selector": {"matchLabels": ours}, "podMetricsEndpoints": [{"port": "metrics", "interval": "15s"}]},
    }
    rule = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": about, "spec": GROUPS}
    text: str = yaml.safe_dump_all([monitor, rule], sort_keys=False, width=118, allow_unicode=True)
    return HEAD + text
