"""The cgroups of pods, containers, QoS tiers and host applications that a tick measures, worked out once per change.

``SampleTargets.of`` is called again only when pods, tiers or applications are other objects than before; collectors
compare by identity. Invariant: a subject occurs once per scope, and an object without a cgroup path (or with one that
leaves the tree) is in no list. Sandboxes are not measured: they wait, and what they use is in their pod's figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from koord.model.qos import KubeQoS, QoSClass
from koord.model.slo import CgroupBase, HostApplication
from qosd.metric import GROUP_SCOPES, Scope
from qosd.snapshot import ContainerView, PodView

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
        """As far as they are known."""
        return cls(*(tiers.get(qos, "") for qos in (KubeQoS.GUARANTEED, KubeQoS.BURSTABLE, KubeQoS.BEST_EFFORT)))


@dataclass(frozen=True, slots=True)
class Group:
    """One cgroup to measure. ``subject`` is its name in the store: the path, or a host application's name."""

    scope: Scope
    subject: str
    path: str
    pod: PodView | None = None
    container: ContainerView | None = None

    @property
    def latency_sensitive(self) -> bool:
        """A container of an LSE, LSR or LS pod."""
        return self.container is not None and self.pod is not None and self.pod.qos in _LATENCY_SENSITIVE


@dataclass(frozen=True, eq=False)
class SampleTargets:
    """All groups, by scope. Two rosters are the same only if identical."""

    pods: Sequence[PodView] = ()
    tiers: Tiers = Tiers()
    host_apps: Sequence[HostApplication] = ()
    groups: Mapping[Scope, Sequence[Group]] = field(default_factory=lambda: dict.fromkeys(GROUP_SCOPES, ()))

    @classmethod
    def of(cls, pods: Sequence[PodView], tiers: Tiers, host_apps: Sequence[HostApplication]) -> SampleTargets:
        groups = {
            Scope.TIER: [Group(Scope.TIER, path, path) for path in (tiers.root, tiers.burstable, tiers.besteffort)],
            Scope.POD: [Group(Scope.POD, pod.group, pod.group, pod) for pod in pods],
            Scope.CONTAINER: [
                Group(Scope.CONTAINER, one.group, one.group, pod, one)
                for pod in pods
                for one in pod.containers
                if not one.is_sandbox
            ],
            Scope.HOST_APP: [Group(Scope.HOST_APP, app.name, app_group(app, tiers)) for app in host_apps],
        }
        return cls(pods, tiers, host_apps, {scope: _distinct(found) for scope, found in groups.items()})

    def made_of(self, pods: Sequence[PodView], tiers: Tiers, host_apps: Sequence[HostApplication]) -> bool:
        """Would ``of`` make the same?"""
        return self.pods is pods and self.host_apps is host_apps and self.tiers == tiers

    def below(self, path: str) -> Sequence[Group]:
        """The containers whose cgroup is below ``path``."""
        start = path.rstrip("/") + "/"
        return [group for group in self.groups[Scope.CONTAINER] if path and group.path.startswith(start)]

    def gone_since(self, before: SampleTargets) -> Mapping[Scope, frozenset[str]]:
        """The subjects of ``before`` that are not here any more, by scope; scopes without any are left out."""
        gone = {
            scope: frozenset(group.subject for group in groups).difference(
                group.subject for group in self.groups[scope]
            )
            for scope, groups in before.groups.items()
        }
        return {scope: subjects for scope, subjects in gone.items() if subjects}


def _distinct(groups: Sequence[Group]) -> Sequence[Group]:
    usable = (group for group in groups if group.path and group.subject and ".." not in group.path.split("/"))
    return tuple({group.subject: group for group in usable}.values())


def app_group(app: HostApplication, tiers: Tiers) -> str:
    """The cgroup path of a host application (node-profiling §11.1).

    Without ``cgroupPath``: ``host-latency-sensitive/<name>`` for LSE, LSR and LS, ``host-best-effort/<name>`` for BE,
    else ``<name>``; with it: base / parentDir / relativePath. "" if the base is a tier that does not exist.
    """
    path = app.cgroup_path
    if path is None:
        parts = [_APPS_BY_QOS.get(app.qos_class, "") if app.qos_class else "", app.name]
    else:
        base = _bases(tiers)[path.base or CgroupBase.CGROUP_ROOT]
        if base is None:
            return ""
        parts = [base, path.parent_dir, path.relative_path]
    return "/" + "/".join(part.strip("/") for part in parts if part.strip("/"))


def _bases(tiers: Tiers) -> Mapping[CgroupBase, str | None]:
    return {
        CgroupBase.CGROUP_ROOT: "",
        CgroupBase.KUBEPODS: tiers.root or None,
        CgroupBase.KUBEPODS_BURSTABLE: tiers.burstable or None,
        CgroupBase.KUBEPODS_BESTEFFORT: tiers.besteffort or None,
    }
