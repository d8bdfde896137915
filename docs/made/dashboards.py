"""cluster/observability/*.json: the dashboards as Grafana imports them.

overview.json       one page for whoever is on duty: requests, engines, waits, money, processes
capabilities.json   a row for each capability
gpus.json           what vLLM tells of its engines on GPUs
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from contract.telemetry import REQUEST_DURATION
from docs.made.panels import DASHBOARDS, STATES, WIDTH, Panel, Row

HEIGHT = 8
"""Of a panel, in Grafana's lines."""

SOURCE = {"type": "prometheus", "uid": "${source}"}
SCHEMA = 41


def dashboard(name: str) -> str:
    """The file of a dashboard."""
    title, rows = DASHBOARDS[name]
    variables = [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
    variables += [_variable(row.repeat) for row in rows if row.repeat]
    model = {
        "title": title,
        "uid": f"parlance-{name}",
        "tags": ["parlance"],
        "schemaVersion": SCHEMA,
        "editable": False,
        "graphTooltip": 1,  # one cursor for all panels
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "links": [{"type": "dashboards", "title": "Parlance", "tags": ["parlance"], "keepTime": True}],
        "panels": [_numbered(index, panel) for index, panel in enumerate(_placed(rows), start=1)],
    }
    return json.dumps(model, indent=1, ensure_ascii=False) + "\n"


def _numbered(index: int, panel: dict[str, Any]) -> dict[str, Any]:
    return {"id": index} | panel


def _variable(label: str) -> dict[str, Any]:
    query = f"label_values({REQUEST_DURATION.exported}_count, {label})"
    everything = {"text": "All", "value": "$__all"}
    choice = {"multi": True, "includeAll": True, "current": everything, "refresh": 2}
    return {"name": label, "label": label, "type": "query", "datasource": SOURCE, "query": query, "sort": 1} | choice


def _placed(rows: tuple[Row, ...]) -> Iterator[dict[str, Any]]:
    """Headings and panels, from the left to the right and from the top to the bottom."""
    top = 0
    for row in rows:
        repeat = {"repeat": row.repeat} if row.repeat else {}
        yield {"type": "row", "title": row.title, "collapsed": False, "panels": []} | repeat | _at(0, top, WIDTH, 1)
        left, top = 0, top + 1
        for panel in row.panels:
            if left + panel.width > WIDTH:
                left, top = 0, top + HEIGHT
            yield _panel(panel) | _at(left, top, panel.width, HEIGHT)
            left += panel.width
        top += HEIGHT


def _at(left: int, top: int, width: int, height: int) -> dict[str, Any]:
    return {"gridPos": {"x": left, "y": top, "w": width, "h": height}}


def _panel(panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query.expression, "legendFormat": query.legend}
        for index, query in enumerate(panel.queries)
    ]
    style = _bands() if panel.kind == "state-timeline" else _lines(panel)
    head = {"type": panel.kind, "title": panel.title, "description": panel.about, "datasource": SOURCE}
    return head | {"targets": targets} | style


def _bands() -> dict[str, Any]:
    shown = {str(number): {"text": state, "color": colour} for number, (state, colour) in enumerate(STATES.items())}
    defaults = {
        "color": {"mode": "thresholds"},
        "mappings": [{"type": "value", "options": shown}],
        "custom": {"fillOpacity": 80},
    }
    options = {"mergeValues": True, "showValue": "never", "rowHeight": 0.8, "legend": {"displayMode": "list"}}
    return {"fieldConfig": {"defaults": defaults, "overrides": []}, "options": options}


def _lines(panel: Panel) -> dict[str, Any]:
    fill = 30 if panel.stacked else 0
    custom = {"fillOpacity": fill, "stacking": {"mode": "normal" if panel.stacked else "none"}, "showPoints": "auto"}
    overrides = [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
        }
        for name, colour in panel.colours
    ]
    defaults = {"unit": panel.unit, "min": 0, "custom": custom}
    options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    return {"fieldConfig": {"defaults": defaults, "overrides": overrides}, "options": options}
