"""Renders the newest samples as Prometheus text.

It renders straight from metric table and store: a series exists as long as its object has a sample; nothing has to be
registered or removed. ``qosd.koordlet`` renders the same under koordlet's names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from qosd.model.metric import Kind, Metric, Scope
from qosd.sense.store import SampleStore
from qosd.sense.table import METRICS
from qosd.sense.targets import SampledCgroup, SampleTargets

PREFIX = "koord_qosd_"
Labels = Mapping[str, str]
LABELS: Mapping[Scope, Sequence[str]] = {
    Scope.NODE: (),
    Scope.NUMA: ("numa_node",),
    Scope.TIER: ("tier",),
    Scope.POD: ("namespace", "pod", "uid"),
    Scope.CONTAINER: ("namespace", "pod", "uid", "container", "container_id"),
    Scope.HOST_APP: ("host_app",),
    Scope.DISK: ("device",),
    Scope.NETWORK: ("device",),
    Scope.CACHE: ("group", "cache_id"),
    Scope.COLLECTOR: ("collector",),
}
"""The labels of the series of each kind of object."""


class SampleExposition:
    """Renders ``store``."""

    def __init__(self, store: SampleStore) -> None:
        self._store = store
        self._targets: SampleTargets | None = None
        self._own: dict[tuple[Scope, str], str] = {}

    def render(self, targets: SampleTargets) -> bytes:
        """Returns Prometheus text (0.0.4) of all samples of the objects in ``targets``, and of node and devices."""
        if targets is not self._targets:
            cgroups = [cgroup for found in targets.cgroups.values() for cgroup in found]
            self._own = {(cgroup.scope, cgroup.subject): label_text(_own(cgroup)) for cgroup in cgroups}
            self._targets = targets
        newest = self._store.newest()
        lines: list[str] = []
        for metric in METRICS:
            samples = newest.get(metric)
            if samples:
                lines += self._family(metric, samples)
        return ("\n".join(lines) + "\n").encode() if lines else b""

    def _family(self, metric: Metric, samples: Mapping[str, float]) -> Iterable[str]:
        name, scope, known = PREFIX + metric.name, metric.scope, self._own
        yield from head(name, metric.help, "counter" if metric.kind is Kind.COUNTER else "gauge")
        for subject, value in samples.items():
            labels = known.get((scope, subject))
            if labels is None:
                if scope in (Scope.POD, Scope.CONTAINER):
                    continue  # it went while we were rendering
                labels = label_text(dict(zip(LABELS[scope], split(scope, subject), strict=True)))
            yield f"{name}{{{labels}}} {value!r}" if labels else f"{name} {value!r}"


def _own(cgroup: SampledCgroup) -> Labels:
    pod, container = cgroup.pod, cgroup.container
    if pod is None:
        return {LABELS[cgroup.scope][0]: cgroup.subject}
    values = (pod.namespace, pod.name, pod.uid, *(() if container is None else (container.name, container.id)))
    return dict(zip(LABELS[cgroup.scope], values, strict=True))


def split(scope: Scope, subject: str) -> Sequence[str]:
    """Returns the values of a subject's labels."""
    if scope is Scope.NODE:
        return ()
    return subject.rsplit("/", 1) if scope is Scope.CACHE else (subject,)


def head(name: str, text: str, kind: str) -> list[str]:
    """Returns the two lines before a family's samples; ``kind`` is Prometheus'."""
    return [f"# HELP {name} {text.replace(chr(92), chr(92) * 2)}", f"# TYPE {name} {kind}"]


def label_text(labels: Labels) -> str:
    """Returns the text between the braces."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
