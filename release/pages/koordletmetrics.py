"""docs/koordlet-metrics.md: every metric of koordlet, what it is made of here, or why it is not exported."""

from __future__ import annotations

from collections.abc import Sequence

from qosd.koordlet.table import KOORDLET, PREFIX, KoordletMetric
from qosd.sense.table import METRICS
from release.pages.markdown import NONE, code, table

NAME = "koordlet-metrics.md"
_HEAD = ("Metric", "Type", "Labels", "What it is", "Here", "Difference, or why not")
_TEXT = """\
# koordlet's metrics

Dashboards and alerts for Koordinator's node agent go on working: koord-qosd also exports its figures under koordlet's
names, types and labels on `/metrics`. `make docs` makes this page from the table that `/metrics` is rendered from.

* {exported} of koordlet's {all} metrics are exported; the others are in the table with the reason.
* The prefix is `koordlet_`. All metrics but those marked † have the label `node` (`--node-name`, else `$NODE_NAME` or
  the host's name).
* *Here* names koord-qosd's own metric of the same figure ([what it measures](metrics.md#what-koord-qosd-measures),
  [what it does](metrics.md#koord-qosd-itself)); {none}: none.
* A metric is exported while it has a sample, and never as 0 for a missing figure. Series of a pod go with the pod,
  `pod_eviction_detail` five minutes after its last eviction. They have no gaps between two rounds, unlike koordlet's
  gauges of PSI, CPI and requests.
* They cost nothing between two scrapes.

```
{example}```

{table}
"""
_MOST_COLUMNS = 4
_EXAMPLE = """\
$ curl -s http://127.0.0.1:9316/metrics | grep '^koordlet_'
koordlet_start_time{node="node-1"} 1795615079.8
koordlet_node_used_memory_bytes{node="node-1"} 4294967296.0
koordlet_cpuset_share_pool_cpu_cores{node="node-1"} 4.0
koordlet_cpuset_be_share_pool_cpu_cores{node="node-1"} 4.0
koordlet_resource_update_duration_milliseconds_bucket{type="cgroup",status="success",le="0.16"} 4.0
koordlet_resource_update_duration_milliseconds_bucket{type="cgroup",status="success",le="0.64"} 8.0
koordlet_container_resource_requests{node="node-1",resource="kubernetes.io/batch-cpu",unit="integer",pod_uid="8b6b…",pod_namespace="default",pod_name="job",container_id="containerd://6a6f…",container_name="main"} 500.0
koordlet_container_resource_limits{node="node-1",resource="kubernetes.io/batch-memory",unit="byte",pod_uid="8b6b…",pod_namespace="default",pod_name="job",container_id="containerd://6a6f…",container_name="main"} 67108864.0
…
"""  # noqa: E501 - what a terminal shows


def text() -> str:
    exported = [metric for metric in KOORDLET if metric.source is not None]
    return _TEXT.format(
        exported=len(exported),
        all=len(KOORDLET),
        none=NONE,
        example=_EXAMPLE,
        table=table(_HEAD, [_line(metric) for metric in KOORDLET]),
    )


def _line(metric: KoordletMetric) -> Sequence[str]:
    is_exported = metric.source is not None
    return [
        f"`{PREFIX}{metric.name}`{'' if metric.by_node else ' †'}",
        metric.kind,
        code(metric.labels),
        metric.meaning,
        _own(metric),
        metric.remark if is_exported else f"**not exported**: {metric.remark}",
    ]


def _own(metric: KoordletMetric) -> str:
    """Returns our names of the same figure; of many columns the first and the last."""
    columns = [each.name for each in METRICS if each.koordlet is not None and each.koordlet.name == metric.name]
    if len(columns) > _MOST_COLUMNS:
        return f"{code(columns[:1])} … {code(columns[-1:])}"
    return code((*columns, *metric.own)) or NONE
