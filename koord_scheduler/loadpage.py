"""What the scheduler knows of a node's load, as a page: by which source, and how a profile's settings judge it."""

from __future__ import annotations

from typing import Any

from koord.model.core import api_time
from koord.scheduling.loadcolumns import UNBOUNDED, LoadColumns
from koord.scheduling.nodeusage import NodeUsage
from koord.scheduling.state import ClusterState


def node_load(state: ClusterState, name: str, row: int) -> dict[str, Any]:
    """``source``: what ``usage`` is by; "" and null: nobody measures the node. Amounts: CPU in thousandths, bytes."""
    found = state.loads.measurements(name)
    return {
        "node": name,
        "source": "" if found.newest is None else found.newest.source,
        "usage": None if found.newest is None else _usage(found.newest, state.loads.now_s),
        "nodeMetric": None if found.metric is None else _usage(found.metric, state.loads.now_s),
        "anomaly": found.anomaly,
        "settings": [_judged(columns, row) for columns in state.loads.columns],
    }


def _usage(usage: NodeUsage, now_s: float) -> dict[str, Any]:
    is_timed = usage.measured_s > 0
    return {
        "measuredAt": api_time(usage.measured_s) if is_timed else "",
        "ageSeconds": round(now_s - usage.measured_s, 1) if is_timed else None,
        "node": usage.node,
        "measuredPods": len(usage.pods),
    }


def _judged(columns: LoadColumns, row: int) -> dict[str, Any]:
    """``most``: what may be used with a pod; null: any amount."""
    load = columns.rows[row]
    views = {}
    for view, is_prod in (("others", False), ("prod", True)):
        figures = columns.at(row, is_prod)
        views[view] = {
            "used": dict(zip(columns.resources, figures.used, strict=True)),
            "most": {
                name: None if limit >= UNBOUNDED else limit
                for name, limit in zip(columns.resources, figures.limit, strict=True)
            },
            "isExpired": figures.is_expired,
        }
    return {
        "thresholds": dict(load.thresholds.usage),
        "prodThresholds": dict(load.thresholds.prod),
        "window": "" if load.thresholds.window is None else load.thresholds.window.aggregation,
        "capacity": dict(zip(columns.resources, columns.at(row, False).capacity, strict=True)),
        "estimatedPods": len(load.parts),
        **views,
    }
