"""Dashboards, rules and their page: whole, and by names and labels that the table of metrics has."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from contract.telemetry import (
    ENGINE_STATE,
    LEDGER_BACKLOG,
    LOAD,
    LOOP_DELAY,
    METRICS,
    QUEUE,
    REFUSALS,
    REQUEST_DURATION,
    REQUESTS,
    Metric,
)
from docs.made.alerts import ALERTS, GROUPS, Alert
from docs.made.panels import BOARDS
from tests.cluster_config.test_kubernetes import CONTAINERS, TEMPLATES, named
from tests.docs.pages import ROOT
from tests.prometheus import program

FOLDER = ROOT / "cluster/observability"
PANELS = [panel for board in BOARDS.values() for panel in board["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]


def series(metric: Metric, suffix: str = "", **labels: str) -> str:
    narrowed = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric.exported}{suffix}" + (f"{{{narrowed}}}" if narrowed else "")


def histogram(metric: Metric, below: float, above: float, pace: int, **labels: str) -> dict[str, str]:
    """Observations that lie between two bounds, so many a minute."""
    steady, narrowed = f"0+{pace}x400", series(metric, "_bucket", **labels)
    opened = narrowed[:-1] + ", " if labels else narrowed + "{"
    return {f'{opened}le="{bound}"}}': gains for bound, gains in ((below, "0x400"), (above, steady), ("+Inf", steady))}


def requests(failed: int, ok: int) -> dict[str, str]:
    """Requests that end so, so many of each a minute."""
    of = {"capability": "chat", "model": "m"}
    return {
        series(REQUEST_DURATION, "_count", **of, outcome="failed"): f"0+{failed}x400",
        series(REQUEST_DURATION, "_count", **of, outcome="ok"): f"0+{ok}x400",
    }


def refused(code: str, times: int) -> dict[str, str]:
    """Of a hundred requests a minute for one model."""
    return requests(0, 100) | {series(REFUSALS, model="m", code=code): f"0+{times}x400"}


ENGINE = {"engine": "chat-m"}
UP = {series(REQUESTS): "0x400"}
CASES: dict[str, tuple[dict[str, str], dict[str, str], dict[str, str]]] = {
    "ParlanceNoMetrics": ({"up": "0x400"}, UP, {}),
    "ParlanceEngineFails": (
        {series(ENGINE_STATE, **ENGINE, state="failed"): "1x400"},
        {
            series(ENGINE_STATE, **ENGINE, state="failed"): "0x400",
            series(ENGINE_STATE, **ENGINE, state="cold"): "1x400",
        },
        ENGINE,
    ),
    "ParlanceErrorsFast": (requests(16, 84), requests(12, 88), {}),
    "ParlanceErrorsSlow": (requests(7, 93), requests(5, 95), {}),
    "ParlanceWaitsForSlots": (histogram(QUEUE, 30, 60, 9, **ENGINE), histogram(QUEUE, 10, 30, 9, **ENGINE), ENGINE),
    "ParlanceWaitsForStarts": (histogram(LOAD, 60, 300, 1, **ENGINE), histogram(LOAD, 30, 60, 1, **ENGINE), ENGINE),
    "ParlanceRefuses": (refused("busy", 11), refused("rate_limit_exceeded", 90), {"model": "m"}),
    "ParlanceBillsWait": ({series(LEDGER_BACKLOG): "1x400"}, {series(LEDGER_BACKLOG): "0x400"}, {}),
    "ParlanceLoopLate": (histogram(LOOP_DELAY, 0.25, 1.0, 60), histogram(LOOP_DELAY, 0.1, 0.25, 60), {}),
}
"""For each alert: series by which it fires, series by which it does not, and the labels that it has."""


def test_prometheus_takes_the_rules_and_its_configuration() -> None:
    for check in (["rules", "alerts.yaml"], ["config", "prometheus.yml"]):
        run = [program("promtool"), "check", *check]
        done = subprocess.run(run, cwd=FOLDER, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_fires_when_it_should_and_at_no_other_time(alert: Alert, tmp_path: Path) -> None:
    wrong, right, labels = CASES[alert.name]
    firing = [{"exp_labels": labels | {"severity": alert.severity}}]
    tests = [
        _unit_test(alert.name, values, at, expected)
        for values, at, expected in ((wrong, "390m", firing), (wrong, "0m", []), (right, "390m", []))
    ]
    file = tmp_path / "alerts.test.yaml"
    document = {"rule_files": [str(_bare_rules(tmp_path))], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(document))
    run = [program("promtool"), "test", "rules", str(file)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _unit_test(name: str, values: dict[str, str], at: str, alerts: list[Any]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": one, "values": numbers} for one, numbers in values.items()],
        "alert_rule_test": [{"alertname": name, "eval_time": at, "exp_alerts": alerts}],
    }


def _bare_rules(folder: Path) -> Path:
    """The rules without their sentences, which a test would have to repeat."""
    (group,) = GROUPS["groups"]
    rules = [{key: value for key, value in rule.items() if key != "annotations"} for rule in group["rules"]]
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{**group, "rules": rules}]}))
    return file


def test_an_alert_says_what_to_do_and_names_the_labels_that_it_has() -> None:
    for alert in ALERTS:
        assert alert.action.endswith((".", "?")), alert.name
        _, _, labels = CASES[alert.name]
        assert set(re.findall(r"\$labels\.(\w+)", alert.summary)) == labels.keys(), alert.name


def test_every_metric_is_on_a_dashboard() -> None:
    assert [name for name, metric in METRICS.items() if not any(metric.exported in one for one in EXPRESSIONS)] == []


def test_queries_name_metrics_and_labels_that_are_there() -> None:
    by_name = {metric.exported: metric for metric in METRICS.values()}
    for expression in (*EXPRESSIONS, *(alert.expression for alert in ALERTS)):
        named = [
            (by_name[name.removesuffix("_bucket").removesuffix("_count")], labels)
            for name, labels in re.findall(r"(ray_parlance_\w+)(?:\{([^}]*)\})?", expression)
        ]
        for metric, labels in named:
            assert set(re.findall(r"(\w+)=~?\"", labels)) <= set(metric.labels), expression
        for names in re.findall(r"by \(([^)]+)\)", expression) if named else ():
            grouped = set(names.split(", ")) - {"le"}
            assert any(grouped <= set(metric.labels) for metric, _ in named), expression


def test_legends_name_labels_that_their_series_have() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                grouped = re.findall(r"by \(([^)]+)\)", target["expr"])
                assert any(label in names.split(", ") for names in grouped), (panel["title"], label)


def test_the_operator_of_kubernetes_finds_the_pods_and_their_port() -> None:
    monitor, rule = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text("utf-8"))
    assert (monitor["kind"], rule["kind"], rule["spec"]) == ("PodMonitor", "PrometheusRule", GROUPS)
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    for id, container in CONTAINERS.items():
        assert wanted <= TEMPLATES[id]["metadata"]["labels"].items()
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports[endpoint["port"]] == 8080
    (policy,) = [found for found in named("NetworkPolicy") if found["metadata"]["name"] == "parlance-metrics"]
    assert policy["metadata"]["namespace"] == monitor["metadata"]["namespace"]
    assert policy["spec"]["ingress"][0]["ports"] == [{"port": 8080, "protocol": "TCP"}]
