"""A board as Grafana's dashboard JSON, schema version 39 (Grafana 11; newer ones migrate it when they load it)."""

from __future__ import annotations

import json
from typing import Any

from .boards import BOARDS
from .panels import Board, Panel

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24
_SCHEMA_VERSION = 39
# Which series have the values of a variable; a series without the label matches ".*", too.
_VARIABLES = (
    ("cluster", "Cluster", "label_values(cluster)"),
    ("team", "Team", "label_values(skuwise_workload_info, team)"),
    ("node", "Node", "query_result(count by (node) (skuwise_node_info or label_replace("
     'DCGM_FI_DEV_GPU_UTIL, "node", "$1", "Hostname", "(.*)")))'),
)  # fmt: skip


def board_text(board: Board) -> str:
    """The JSON of a board, as it is kept in a file."""
    return json.dumps(board_json(board), indent=2) + "\n"


def board_json(board: Board) -> dict[str, Any]:
    """A board with panels laid out in rows from left to right."""
    panels, x, y, row = [], 0, 0, 0
    for number, panel in enumerate(board.panels, 1):
        if x + panel.width > _COLUMNS:
            x, y, row = 0, y + row, 0
        panels.append(_panel(panel, number, {"h": panel.height, "w": panel.width, "x": x, "y": y}))
        x, row = x + panel.width, max(row, panel.height)
    return {
        "uid": board.uid, "title": board.title, "schemaVersion": _SCHEMA_VERSION, "version": 1, "editable": True,
        "tags": ["skuwise"], "time": {"from": "now-24h", "to": "now"}, "refresh": "5m", "graphTooltip": 1,
        "timezone": "browser", "templating": {"list": _variables()}, "annotations": {"list": []},
        "links": [_link(other) for other in BOARDS if other.uid != board.uid], "panels": panels,
    }  # fmt: skip


def _link(board: Board) -> dict[str, Any]:
    return {
        "type": "link", "title": board.title, "url": f"/d/{board.uid}", "icon": "dashboard", "tooltip": "", "tags": [],
        "asDropdown": False, "targetBlank": False, "includeVars": True, "keepTime": True,
    }  # fmt: skip


def _variables() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}
    ]
    for name, label, query in _VARIABLES:
        regex = '/node="([^"]+)"/' if query.startswith("query_result") else ""
        made.append({
            "name": name, "type": "query", "label": label, "datasource": _SOURCE, "query": query, "regex": regex,
            "refresh": 2, "sort": 1, "multi": True, "includeAll": True, "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
        })  # fmt: skip
    return made


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    instant = panel.shape != "timeseries"
    options: dict[str, Any] = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    if instant:
        options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
        if panel.shape == "bargauge":
            options |= {"orientation": "horizontal", "displayMode": "basic"}
    targets = [
        {
            "refId": chr(ord("A") + at), "expr": query.expr, "legendFormat": query.legend or "__auto",
            "datasource": _SOURCE, "range": not instant, "instant": instant,
        }
        for at, query in enumerate(panel.queries)
    ]  # fmt: skip
    return {
        "id": number, "type": panel.shape, "title": panel.title, "description": panel.description,
        "datasource": _SOURCE, "gridPos": place, "targets": targets, "options": options,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
    }  # fmt: skip
