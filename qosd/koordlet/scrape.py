"""The inputs of one scrape. They are taken in the event loop, at once, and rendered in a thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from koord.service.metrics import Histogram, Values
from qosd.model.metric import Metric, Scope
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import ContainerView, PodView
from qosd.report import TickReport
from qosd.sense.exposition import Labels, label_text, split
from qosd.sense.targets import SampledCgroup, SampleTargets

Sample = tuple[str, float | Histogram]
"""The text of the labels, without the node's, and the value."""


class ObjectLabels:
    """koordlet's labels of all measured objects, as text. ``runtime``: the scheme of container ids."""

    def __init__(self, targets: SampleTargets, runtime: str) -> None:
        self.targets, self.runtime = targets, runtime
        cgroups = [cgroup for found in targets.cgroups.values() for cgroup in found]
        self._by_object = {(each.scope, each.subject): label_text(self._of_cgroup(each)) for each in cgroups}

    def of(self, scope: Scope, subject: str) -> str | None:
        """Returns the object's labels; None for a pod, a container or an application that is not there any more."""
        known = self._by_object.get((scope, subject))
        if known is not None or scope in (Scope.POD, Scope.CONTAINER, Scope.HOST_APP):
            return known
        names = ("qos", "cache_id") if scope is Scope.CACHE else ()
        return label_text(dict(zip(names, split(scope, subject), strict=True))) if names else ""

    def of_container(self, pod: PodView, container: ContainerView) -> Labels:
        return {
            "pod_namespace": pod.namespace,
            "pod_name": pod.name,
            "container_id": f"{self.runtime}://{container.id}",
            "container_name": container.name,
        }

    def _of_cgroup(self, cgroup: SampledCgroup) -> Labels:
        pod, container = cgroup.pod, cgroup.container
        if cgroup.scope is Scope.HOST_APP:
            app = next(app for app in self.targets.host_apps if app.name == cgroup.subject)
            return {"host_application_name": app.name, "priority_class": app.priority, "qos": app.qos}
        if pod is None:
            return {}
        if container is None:
            return {"pod_uid": pod.uid, "pod_name": pod.name, "pod_namespace": pod.namespace}
        return {"pod_uid": pod.uid, **self.of_container(pod, container)}


@dataclass(frozen=True, slots=True, eq=False)
class Scrape:
    """``report``: the newest tick's. ``newest``: samples by metric and object. ``counted``: the daemon's own figures,
    by metric."""

    report: TickReport
    labels: ObjectLabels
    newest: Mapping[Metric, Mapping[str, float]]
    counted: Mapping[str, Values]
    started_unix_s: float

    @property
    def pods(self) -> tuple[PodView, ...]:
        """Returns the pods of the newest tick; () before the first."""
        return () if self.report.snapshot is None else self.report.snapshot.pods

    @property
    def policy(self) -> EffectivePolicy | None:
        """Returns the policy of the newest tick; None before the first."""
        return None if self.report.snapshot is None else self.report.snapshot.policy

    def value(self, metric: Metric) -> float | None:
        """Returns the newest sample of a metric of the node."""
        return self.newest.get(metric, {}).get("")
