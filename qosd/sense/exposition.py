"""The metric table and the newest samples as Prometheus text, and the table as documentation.

Rendered straight from table and store: a series exists as long as its object has a sample, nothing is registered and
nothing can be forgotten. Upstream's names (``koordlet_…``) come with upstream's labels, so that its dashboards go on
working, and are all gauges, as there; one such name may be fed by several of our metrics, told apart by a fixed label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from qosd.model.metric import Kind, Metric, Scope
from qosd.sense.pressure import PRESSURE
from qosd.sense.store import Store
from qosd.sense.table import METRICS
from qosd.sense.targets import Cgroup, SampleTargets

PREFIX, UPSTREAM_PREFIX = "koord_qosd_", "koordlet_"
Labels = Mapping[str, str]
_UPSTREAM_HELP = "What koordlet exports under this name."
_OWN_NAMES: Mapping[Scope, Sequence[str]] = {
    Scope.NODE: (),
    Scope.NUMA: ("numa_node",),
    Scope.TIER: ("tier",),
    Scope.HOST_APP: ("host_app",),
    Scope.DISK: ("device",),
    Scope.NETWORK: ("device",),
    Scope.CACHE: ("group", "cache_id"),
    Scope.COLLECTOR: ("collector",),
}


class Exposition:
    """Renders ``store``. ``node``: the node's name; ``runtime()``: the scheme of container ids (``containerd``)."""

    def __init__(self, store: Store, node: str, runtime: Callable[[], str]) -> None:
        self._store, self._node, self._runtime = store, node, runtime
        self._targets: SampleTargets | None = None
        self._own: dict[tuple[Scope, str], str] = {}
        self._upstream: dict[tuple[Scope, str], str] = {}

    def render(self, targets: SampleTargets) -> bytes:
        """Prometheus text (version 0.0.4) of all samples of the objects in ``targets``, and of node and devices."""
        if targets is not self._targets:
            self._follow(targets)
        newest = self._store.newest()
        lines: list[str] = []
        upstream: dict[str, list[str]] = {}
        for metric in METRICS:
            samples = newest.get(metric)
            if samples:
                lines += self._family(metric, samples)
                if metric.koordlet is not None:
                    name = UPSTREAM_PREFIX + metric.koordlet.name
                    family = upstream.setdefault(name, _head(name, _UPSTREAM_HELP, Kind.GAUGE))
                    family += self._upstream_lines(name, metric, samples, newest)
        for family in upstream.values():
            lines += family
        return ("\n".join(lines) + "\n").encode() if lines else b""

    def _follow(self, targets: SampleTargets) -> None:
        cgroups = [cgroup for found in targets.cgroups.values() for cgroup in found]
        self._own = {(cgroup.scope, cgroup.subject): _text(_own(cgroup)) for cgroup in cgroups}
        self._upstream = {
            (cgroup.scope, cgroup.subject): _text(self._upstream_of(cgroup, targets)) for cgroup in cgroups
        }
        self._targets = targets

    def _family(self, metric: Metric, samples: Mapping[str, float]) -> Iterable[str]:
        name, scope, known = PREFIX + metric.name, metric.scope, self._own
        yield from _head(name, metric.help, metric.kind)
        for subject, value in samples.items():
            labels = known.get((scope, subject))
            if labels is None:
                if scope in (Scope.POD, Scope.CONTAINER):
                    continue  # it went while we were rendering
                labels = _text(dict(zip(_OWN_NAMES[scope], _split(scope, subject), strict=True)))
            yield f"{name}{{{labels}}} {value!r}" if labels else f"{name} {value!r}"

    def _upstream_lines(
        self, name: str, metric: Metric, samples: Mapping[str, float], newest: Mapping[Metric, Mapping[str, float]]
    ) -> Iterable[str]:
        assert metric.koordlet is not None
        scope, fixed = metric.scope, dict(metric.koordlet.labels)
        psi = newest.get(PRESSURE[scope].cpu_pressure_full_avg10_percent, {}) if "psi_degree" in fixed else None
        for subject, value in samples.items():
            labels = self._upstream.get((scope, subject))
            if labels is None:
                if scope in (Scope.POD, Scope.CONTAINER, Scope.HOST_APP):
                    continue
                labels = _text({"node": self._node, **_device(scope, subject)})
            if psi is not None:
                fixed["cpu_full_supported"] = "true" if subject in psi else "false"
            yield f"{name}{{{','.join(filter(None, (labels, _text(fixed))))}}} {value!r}"

    def _upstream_of(self, cgroup: Cgroup, targets: SampleTargets) -> Labels:
        labels = {"node": self._node}
        if cgroup.pod is not None:
            labels |= {"pod_uid": cgroup.pod.uid, "pod_name": cgroup.pod.name, "pod_namespace": cgroup.pod.namespace}
        if cgroup.container is not None:
            labels["container_id"] = f"{self._runtime()}://{cgroup.container.id}"
            labels["container_name"] = cgroup.container.name
        if cgroup.scope is Scope.HOST_APP:
            app = next(app for app in targets.host_apps if app.name == cgroup.subject)
            labels |= {"host_application_name": app.name, "priority_class": app.priority, "qos": app.qos}
        return labels


def _own(cgroup: Cgroup) -> Labels:
    if cgroup.pod is None:
        return {_OWN_NAMES[cgroup.scope][0]: cgroup.subject}
    labels = {"namespace": cgroup.pod.namespace, "pod": cgroup.pod.name, "uid": cgroup.pod.uid}
    if cgroup.container is not None:
        labels |= {"container": cgroup.container.name, "container_id": cgroup.container.id}
    return labels


def _device(scope: Scope, subject: str) -> Labels:
    return dict(zip(("qos", "cache_id"), _split(scope, subject), strict=True)) if scope is Scope.CACHE else {}


def _split(scope: Scope, subject: str) -> Sequence[str]:
    """The values of a subject's labels."""
    if scope is Scope.NODE:
        return ()
    return subject.rsplit("/", 1) if scope is Scope.CACHE else (subject,)


def _head(name: str, text: str, kind: Kind) -> list[str]:
    kind_name = "counter" if kind is Kind.COUNTER else "gauge"
    return [f"# HELP {name} {text.replace(chr(92), chr(92) * 2)}", f"# TYPE {name} {kind_name}"]


def _text(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def docs_table() -> str:
    """The metric table as Markdown, one line for metrics that differ in their object only."""
    alike: dict[tuple[str, ...], list[Metric]] = {}
    for metric in METRICS:
        stem = metric.name.removeprefix(f"{metric.scope}_")
        key = (metric.source, stem, metric.unit, metric.kind, metric.help, f"{metric.period_s:g}")
        alike.setdefault(key, []).append(metric)
    head = "| metric | unit | kind | every | kept | meaning | koordlet's name |\n|---|---|---|---|---|---|---|\n"
    return head + "".join(_docs_line(stem, metrics) for (_, stem, *_), metrics in alike.items())


def _docs_line(stem: str, metrics: Sequence[Metric]) -> str:
    first = metrics[0]
    scopes = "/".join(metric.scope for metric in metrics)
    kept = "/".join(dict.fromkeys(_kept(metric) for metric in metrics))
    upstream = ", ".join(dict.fromkeys(f"`{metric.koordlet.name}`" for metric in metrics if metric.koordlet))
    name = f"`{first.name}`" if len(metrics) == 1 else f"({scopes})`_{stem}`"
    return f"| {name} | {first.unit} | {first.kind} | {first.period_s:g} s | {kept} | {first.help} | {upstream} |\n"


def _kept(metric: Metric) -> str:
    return f"{metric.retention_s / 60:g} min" if metric.retention_s else "newest"
