"""Lists the cgroups of pods, containers, tiers and host applications that a tick measures, anew only after a change.

``SampleTargets.of`` is called again only when pods, tiers or applications are other objects than before; collectors
compare by identity. Invariant: a subject occurs once per scope, and an object without a cgroup path (or with one that
leaves the tree) is in no list. Sandboxes are not measured: they wait, and their usage is in their pod's figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from koord.model.qos import KubeQoS, QoSClass
from koord.model.slo import CgroupBase, HostApplication
from qosd.model.metric import CGROUP_SCOPES, Scope
from qosd.model.snapshot import ContainerView, PodView

_LATENCY_SENSITIVE = (QoSClass.LSE, QoSClass.LSR, QoSClass.LS)
_APPS_BY_QOS = {QoSClass.BE: "host-best-effort"} | dict.fromkeys(_LATENCY_SENSITIVE, "host-latency-sensitive")


@dataclass(frozen=True, slots=True)
class Tiers:
    """Cgroup paths of kubelet's root (where Guaranteed pods are) and of the two tiers below it; "" = not there."""

    root: str = ""
    burstable: str = ""
    besteffort: str = ""

    @classmethod
    def of(cls, tiers: Mapping[KubeQoS, str]) -> Tiers:
        """Returns the tiers that are known."""
        return cls(*(tiers.get(qos, "") for qos in (KubeQoS.GUARANTEED, KubeQoS.BURSTABLE, KubeQoS.BEST_EFFORT)))


@dataclass(frozen=True, slots=True)
class SampledCgroup:
    """One cgroup to measure. ``subject`` is its name in the store: the path, or a host application's name."""

    scope: Scope
    subject: str
    path: str
    pod: PodView | None = None
    container: ContainerView | None = None

    @property
    def latency_sensitive(self) -> bool:
        """Is it a container of an LSE, LSR or LS pod?"""
        return self.container is not None and self.pod is not None and self.pod.qos in _LATENCY_SENSITIVE


@dataclass(frozen=True, eq=False)
class SampleTargets:
    """All cgroups to measure, by scope. Compared by identity."""

    pods: Sequence[PodView] = ()
    tiers: Tiers = Tiers()
    host_apps: Sequence[HostApplication] = ()
    cgroups: Mapping[Scope, Sequence[SampledCgroup]] = field(default_factory=lambda: dict.fromkeys(CGROUP_SCOPES, ()))

    @classmethod
    def of(cls, pods: Sequence[PodView], tiers: Tiers, host_apps: Sequence[HostApplication]) -> SampleTargets:
        cgroups = {
            Scope.TIER: [
                SampledCgroup(Scope.TIER, path, path) for path in (tiers.root, tiers.burstable, tiers.besteffort)
            ],
            Scope.POD: [SampledCgroup(Scope.POD, pod.cgroup, pod.cgroup, pod) for pod in pods],
            Scope.CONTAINER: [
                SampledCgroup(Scope.CONTAINER, one.cgroup, one.cgroup, pod, one)
                for pod in pods
                for one in pod.containers
                if not one.is_sandbox
            ],
            Scope.HOST_APP: [SampledCgroup(Scope.HOST_APP, app.name, app_cgroup(app, tiers)) for app in host_apps],
        }
        return cls(pods, tiers, host_apps, {scope: _distinct(found) for scope, found in cgroups.items()})

    def made_of(self, pods: Sequence[PodView], tiers: Tiers, host_apps: Sequence[HostApplication]) -> bool:
        """Would ``of`` make the same targets?"""
        return self.pods is pods and self.host_apps is host_apps and self.tiers == tiers

    def below(self, path: str) -> Sequence[SampledCgroup]:
        """Returns the containers whose cgroup is below ``path``."""
        start = path.rstrip("/") + "/"
        return [cgroup for cgroup in self.cgroups[Scope.CONTAINER] if path and cgroup.path.startswith(start)]

    def gone_since(self, before: SampleTargets) -> Mapping[Scope, frozenset[str]]:
        """Returns the subjects of ``before`` that are gone, by scope; scopes without any are left out."""
        gone = {
            scope: frozenset(cgroup.subject for cgroup in cgroups).difference(
                cgroup.subject for cgroup in self.cgroups[scope]
            )
            for scope, cgroups in before.cgroups.items()
        }
        return {scope: subjects for scope, subjects in gone.items() if subjects}


def _distinct(cgroups: Sequence[SampledCgroup]) -> Sequence[SampledCgroup]:
    usable = (cgroup for cgroup in cgroups if cgroup.path and cgroup.subject and ".." not in cgroup.path.split("/"))
    return tuple({cgroup.subject: cgroup for cgroup in usable}.values())


def app_cgroup(app: HostApplication, tiers: Tiers) -> str:
    """Returns the cgroup of a host application: its directories below the base; "" if the base is a missing tier."""
    bases = {
        CgroupBase.KUBEPODS: tiers.root,
        CgroupBase.KUBEPODS_BURSTABLE: tiers.burstable,
        CgroupBase.KUBEPODS_BESTEFFORT: tiers.besteffort,
    }
    base = bases.get(app.cgroup_path.base or CgroupBase.CGROUP_ROOT, "/") if app.cgroup_path else "/"
    return "/" + "/".join([*base.strip("/").split("/"), *app_directories(app)]).strip("/") if base else ""


def app_directories(app: HostApplication) -> list[str]:
    """Returns the directories from the base of a host application's cgroup down to it, as Koordinator names them.

    Without ``cgroupPath``: ``host-latency-sensitive/<name>`` for LSE, LSR and LS, ``host-best-effort/<name>`` for BE,
    else ``<name>``; with it: parentDir / relativePath.
    """
    path = app.cgroup_path
    if path is None:
        parts = (_APPS_BY_QOS.get(app.qos_class, "") if app.qos_class else "", app.name)
    else:
        parts = (path.parent_dir, path.relative_path)
    return [name for part in parts for name in part.split("/") if name]
