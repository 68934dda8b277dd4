"""docs/metrics.md: every metric of every process, from the declarations that their pages are rendered from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from koord.model.locations import PROXY_STATUS_SOCKET
from koord.service.metrics import Family, MetricType, families
from koord_manager.metrics import PREFIX as MANAGER
from koord_manager.metrics import Metrics as ManagerMetrics
from koord_scheduler.metrics import PREFIX as SCHEDULER
from koord_scheduler.metrics import UPSTREAMS_PREFIX, SchedulingMetrics
from koord_scheduler.metrics import Metrics as SchedulerMetrics
from qosd import gauges
from qosd.metrics import PREFIX as QOSD
from qosd.metrics import Metrics as QosdMetrics
from qosd.model.metric import Kind as MeasuredKind
from qosd.model.metric import Metric
from qosd.sense.exposition import LABELS
from qosd.sense.table import METRICS
from release.pages.markdown import code, table
from runtimeproxy.metrics import PREFIX as PROXY
from runtimeproxy.metrics import Metrics as ProxyMetrics

NAME = "metrics.md"
_HEAD = ("Metric", "Type", "Labels", "What it is")
_TEXT = """\
# All metrics

These are the Prometheus metrics of Koord's processes. Load the [alerts and the dashboard](../manifests/monitoring) that
use them. `make docs` makes this page from the declarations that `/metrics` is rendered from.

| Process | `/metrics` on | More on it |
|---|---|---|
| koord-runtime-proxy | `{proxy_socket}`, or `--metrics-endpoint` | \
[runtime proxy](runtime-proxy.md#metrics-and-pages) |
| koord-qosd | `127.0.0.1:9316` of the node in the chart, or `--metrics-endpoint` | \
[node daemon](node-daemon.md#health) |
| koord-manager | port 8080 of its pods | [koord-manager](koord-manager.md) |
| koord-scheduler | `127.0.0.1:10251`, or `--metrics-addr` | [its pages](koordctl.md#ask-the-scheduler) |

Counters end in `_total`; a histogram has `_bucket`, `_sum` and `_count`. A metric is exported while it has a sample,
and never as 0 for a missing figure.

* [koord-runtime-proxy](#koord-runtime-proxy)
* [koord-qosd itself](#koord-qosd-itself)
* [What koord-qosd measures](#what-koord-qosd-measures)
* [koord-manager](#koord-manager)
* [koord-scheduler](#koord-scheduler)

[koordlet's metrics](koordlet-metrics.md) has the names of Koordinator's node agent.

## koord-runtime-proxy

{proxy}

## koord-qosd itself

{qosd}

## What koord-qosd measures

`koordctl metrics` shows the newest samples, by these names without `koord_qosd_`. *Every* is the interval of the
measurement, *Kept* how long the daemon keeps it, and the last column the [koordlet metric](koordlet-metrics.md) that is
made of it. More: [what koord-qosd measures](measuring.md).

{measured}

## koord-manager

{manager}

## koord-scheduler

What it counts of pods has the names, types, labels and buckets of kube-scheduler and of Koordinator's scheduler, so
their dashboards and alerts go on working:

{upstream}

Not exported are `framework_extension_point_duration_seconds`, `plugin_execution_duration_seconds` and
`plugin_evaluation_total` (a plugin looks at all nodes at once and is not timed alone), `permit_wait_duration_seconds`
and `goroutines`. Of itself it says:

{scheduler}
"""


def text() -> str:
    return _TEXT.format(
        proxy_socket=PROXY_STATUS_SOCKET,
        proxy=table(_HEAD, _counted(PROXY, families(ProxyMetrics))),
        qosd=table(_HEAD, _counted(QOSD, (*families(QosdMetrics), *gauges.FAMILIES))),
        measured=table((*_HEAD, "Unit", "Every", "Kept", "koordlet's name"), map(_measured, METRICS)),
        manager=table(_HEAD, _counted(MANAGER, families(ManagerMetrics))),
        scheduler=table(_HEAD, _counted(SCHEDULER, families(SchedulerMetrics))),
        upstream=table(_HEAD, _counted(UPSTREAMS_PREFIX, families(SchedulingMetrics))),
    )


def name_of(prefix: str, family: Family) -> str:
    """The metric's name on the process's page; of a histogram, without its suffixes."""
    return f"{prefix}{family.name}{'_total' if family.kind is MetricType.COUNTER else ''}"


def measured_name(metric: Metric) -> str:
    return f"{QOSD}{metric.name}"


def _counted(prefix: str, found: Iterable[Family]) -> list[Sequence[str]]:
    return [[f"`{name_of(prefix, each)}`", each.kind.value, code(each.labels), each.help] for each in found]


def _measured(metric: Metric) -> Sequence[str]:
    kind = "counter" if metric.kind is MeasuredKind.COUNTER else "gauge"
    name, labels = f"`{measured_name(metric)}`", code(LABELS[metric.scope])
    kept = f"{metric.retention_s / 60:g} min" if metric.retention_s else "newest"
    upstream = f"`{metric.koordlet.name}`" if metric.koordlet else ""
    return [name, kind, labels, metric.help, metric.unit, f"{metric.period_s:g} s", kept, upstream]
