"""A dashboard for Grafana, made of the table of metrics.

The form is that of ``kinds/dashboard/dashboard_kind.cue`` in Grafana's repository, schema version 36 (Grafana 9 and
10); newer versions of Grafana take it and raise it to theirs.
"""

from __future__ import annotations

from typing import Any

from opforge.monitor._metrics import METRICS, Metric

__all__ = ["dashboard"]

_SCHEMA = 36
_WIDTH, _HEIGHT = 12, 8
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard(title: str = "opforge") -> dict[str, Any]:
    """Make the JSON model of a dashboard: a panel per metric, the data source and the models to choose from."""
    shown = [metric for metric in METRICS.values() if metric.title]
    return {
        "title": title,
        "uid": "opforge-monitor",
        "tags": ["opforge"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "annotations": {"list": []},
        "templating": {"list": [_source_variable(), _model_variable()]},
        "panels": [_panel(number, metric) for number, metric in enumerate(shown)],
    }


def _panel(number: int, metric: Metric) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": metric.title,
        "description": metric.help,
        "datasource": _SOURCE,
        "gridPos": {"x": number % 2 * _WIDTH, "y": number // 2 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": metric.unit, "custom": {"fillOpacity": 10}}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + k), "expr": expression, "legendFormat": legend, "datasource": _SOURCE}
            for k, (expression, legend) in enumerate(metric.queries)
        ],
    }


def _source_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}


def _model_variable() -> dict[str, Any]:
    return {
        "name": "model",
        "label": "Model",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": "label_values(opforge_model_info, model)", "refId": "models"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }
