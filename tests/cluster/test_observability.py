"""A scripted minute of a real graph under a real Prometheus: every panel has data, every rule is read.

An engine is cold, one is killed, one never starts, one is full. What happens first begins a series, and what happens
again is its rate: so everything happens twice.
"""

import math
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import yaml

from contract.access import OPERATORS, Scope
from contract.telemetry import EngineState
from docs.made.alerts import ALERTS, GROUPS, Alert
from docs.made.panels import DASHBOARDS, INTERVAL, STATES, Panel, Row
from tests.cluster.conftest import ROOT, Server, free_ports
from tests.prometheus import Prometheus, program, running
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

WINDOW = "30s"
"""Three times as long as Ray takes to hand on what is counted."""
WITHIN_S = 60
CAPABILITIES = sorted(frozenset(Scope) - OPERATORS)
"""What requests need a scope for."""
PANELS = [
    (name, row, panel) for name in ("overview", "capabilities") for row in DASHBOARDS[name] for panel in row.panels
]
"""Without those of GPUs: tests/models/llm/test_engine.py has what they ask for."""


def asked(row: Row, expression: str) -> Iterator[str]:
    """As Grafana asks it: once for each row that a variable makes."""
    for value in CAPABILITIES if row.repeat else [""]:
        yield expression.replace(INTERVAL, WINDOW).replace("$capability", value)


SELECTORS = {
    selector
    for _, row, panel in PANELS
    for query in panel.queries
    for expression in asked(row, query.expression)
    if "vector(0)" not in expression  # what may never happen
    for selector in re.findall(r"ray_\w+(?:\{[^}]*\})?", expression)
}
"""What the panels ask for, without its rates and sums."""


@pytest.fixture(scope="module")
def prometheus(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """It scrapes every two seconds, and waits with no alert."""
    program("promtool")
    folder = tmp_path_factory.mktemp("prometheus")
    config = yaml.safe_load((ROOT / "cluster/observability/prometheus.yml").read_text("utf-8"))
    config["global"] = {"scrape_interval": "2s", "evaluation_interval": "2s"}
    (job,) = config["scrape_configs"]
    job["static_configs"] = [{"targets": [server.metrics]}]
    rules = [{**rule, "for": "0s"} for rule in GROUPS["groups"][0]["rules"]]
    (folder / "alerts.yaml").write_text(yaml.safe_dump({"groups": [{"name": "parlance", "rules": rules}]}))
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    with running(folder / "prometheus.yml", folder / "data", port) as running_one:
        yield running_one


@pytest.fixture(scope="module")
def minute(server: Server, prometheus: Prometheus) -> float:
    """When the script began, by the clock; it is over."""
    began_s = time.time()
    happen(server)
    eventually(lambda: has_seen(prometheus), WITHIN_S, "Prometheus did not see what happened")
    happen(server)
    return began_s


def happen(server: Server) -> None:
    """The script. Engines that wake do so at the same time."""
    acts = [chat, cold, broken, others, mortal, full]
    with ThreadPoolExecutor(len(acts)) as pool:
        for act in [pool.submit(act, server) for act in acts]:
            act.result()


def post(server: Server, path: str, expected: int = 200, **request: Any) -> None:
    with server.http() as client:
        reply = client.post(path, **request)
    assert reply.status_code == expected, reply.text


def chat(server: Server) -> None:
    server.chat("obedient", "cached 4")
    server.chat("obedient", "stream 6 0.05", stream=True)
    server.chat("obedient", "fail")


def cold(server: Server) -> None:
    """An engine that sleeps after two seconds."""
    eventually(lambda: server.replicas("chat-sleepy") == 0, WITHIN_S, "the engine never slept")
    assert server.chat("sleepy", "say hi").status_code == 200


def full(server: Server) -> None:
    """One slot, and two places to wait: of four at a time, one is refused."""
    with ThreadPoolExecutor(4) as pool:
        statuses = pool.map(lambda _: server.chat("queued", "hold 2").status_code, range(4))
    assert sorted(statuses) == [200, 200, 200, 429]


def mortal(server: Server) -> None:
    eventually(lambda: server.chat("mortal", "say hi").status_code == 200, WITHIN_S, "it does not come back")
    assert server.chat("mortal", "die").status_code == 502


def broken(server: Server) -> None:
    assert server.chat("broken", "say hi").status_code == 503


def others(server: Server) -> None:
    """The capabilities beside chat, as far as they cost little."""
    post(server, "/embeddings", json={"model": "all-minilm-l6-v2", "input": "a cat"})
    post(server, "/rerank", json={"query": "a cat", "documents": ["a kitten", "a bill"]})
    post(server, "/decisions", json={"model": "decision-v1", "state": "It broke.", "preset": "sentiment-v1"})
    post(
        server,
        "/audio/speech",
        json={"input": "one two", "provider": "qwen", "language": "en", "response_format": "wav", "verify": "report"},
    )
    post(server, "/audio/transcriptions", 400, json={})  # no engine hears that
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    post(server, "/mcp/mcp", json=message, headers={"accept": "application/json"})


def has_seen(prometheus: Prometheus) -> bool:
    """Whether each series has begun that a panel asks for: one that begins with both scripts in it has no rate."""
    return all(prometheus.ask(selector) for selector in SELECTORS)


def shown(prometheus: Prometheus, expression: str, since_s: float) -> list[float]:
    """The numbers that a panel has for an expression."""
    return numbers(prometheus.over(expression, since_s, time.time(), 1))


def numbers(found: list[dict[str, Any]]) -> list[float]:
    return [value for series in found for _, text in series["values"] if math.isfinite(value := float(text))]


@pytest.mark.parametrize(("name", "row", "panel"), PANELS, ids=[f"{name}: {panel.title}" for name, _, panel in PANELS])
def test_a_panel_shows_something(prometheus: Prometheus, minute: float, name: str, row: Row, panel: Panel) -> None:
    for query in panel.queries:
        for expression in asked(row, query.expression):
            eventually(partial(shown, prometheus, expression, minute), WITHIN_S, f"no data: {expression}")


def test_bands_show_what_became_of_each_engine(server: Server, prometheus: Prometheus, minute: float) -> None:
    (query,) = next(panel.queries for _, _, panel in PANELS if panel.kind == "state-timeline")

    def band(engine: str) -> set[EngineState]:
        found = prometheus.over(query.expression, minute, time.time(), 1)
        bands = [series["values"] for series in found if series["metric"]["engine"] == engine]
        return {STATES[int(text)] for values in bands for _, text in values}

    def is_shown_ready(model: str) -> bool:
        """A state is handed on every few seconds, and one that was shorter is not seen: so the engine stays awake."""
        return server.chat(model, "say hi").status_code == 200 and EngineState.READY in band(f"chat-{model}")

    for model in ("sleepy", "mortal"):
        eventually(partial(is_shown_ready, model), WITHIN_S, f"{model} is never shown as ready")
    eventually(lambda: EngineState.COLD in band("chat-sleepy"), WITHIN_S, "sleepy is never shown as cold")
    assert EngineState.FAILED in band("chat-broken")
    assert band("transcription-whisper-large-v3") == {EngineState.COLD}, "it is there though nobody has asked for it"


def test_what_went_wrong_is_told_with_its_code(prometheus: Prometheus, minute: float) -> None:
    refused = prometheus.over("ray_parlance_refusals_total", minute, time.time(), 1)
    codes = {(series["metric"]["model"], series["metric"]["code"]) for series in refused}
    assert {
        ("obedient", "upstream_error"),
        ("mortal", "upstream_error"),
        ("broken", "engine_failed"),
        ("queued", "busy"),
        ("none", "invalid_request_error"),
    } <= codes


def test_rules_are_read_and_the_engine_that_never_starts_calls_somebody(prometheus: Prometheus, minute: float) -> None:
    assert {rule["name"]: rule["health"] for rule in prometheus.rules()} == {alert.name: "ok" for alert in ALERTS}

    def failing() -> list[str]:
        (rule,) = [rule for rule in prometheus.rules() if rule["name"] == "ParlanceEngineFails"]
        return [alert["labels"]["engine"] for alert in rule["alerts"] if alert["state"] == "firing"]

    eventually(lambda: failing() == ["chat-broken"], WITHIN_S, "nobody is called")


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_looks_at_series_that_are_there(prometheus: Prometheus, minute: float, alert: Alert) -> None:
    names = set(re.findall(r"ray_parlance_\w+", alert.expression))
    assert names
    for name in names:
        assert shown(prometheus, name, minute), name
