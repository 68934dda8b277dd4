"""Host applications: process groups outside Kubernetes that NodeSLO names (``hostApplications``), by their cgroup.

    cpuset.cpus       LS only: all LS pools

``groupIdentity`` sets their group identity. The operator makes and fills the cgroup; a write to a missing cgroup is
left out. Invariants: an application that the spec no longer names is released, because it has no opinion any more; a
path that would leave the cgroup tree, or that is a tier of kubelet's or its root, is refused and reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import ClassVar

from koord.host.files import Target
from koord.model import cpuset
from koord.model.formulas import FORMULA
from koord.model.qos import KubeQoS, QoSClass
from koord.model.slo import CgroupBase, HostApplication
from qosd.decide.decision import Decision, Opinion, Stage, Strategy
from qosd.model.policy import EffectivePolicy, join
from qosd.model.snapshot import PODS_MAX_AGE_S, NodeSnapshot
from qosd.sense.targets import app_directories
from qosd.strategies.memo import Memo, decide_anew

CPUS = "cpuset_cpus"
_TIERS = {
    CgroupBase.KUBEPODS: KubeQoS.GUARANTEED,
    CgroupBase.KUBEPODS_BURSTABLE: KubeQoS.BURSTABLE,
    CgroupBase.KUBEPODS_BESTEFFORT: KubeQoS.BEST_EFFORT,
}


class BadPath(ValueError):
    """The cgroup of a host application may not be written."""


class HostApplicationStrategy(Strategy[Memo]):
    """The strategy ``hostApplications``."""

    name: ClassVar[str] = "hostApplications"
    stage: ClassVar[Stage] = Stage.SPEC
    rows: ClassVar[frozenset[str]] = frozenset({CPUS})
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({"pods": PODS_MAX_AGE_S})  # which make the pools

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        """Always: without applications there are no opinions, so earlier values are released."""
        return True

    def decide(self, snapshot: NodeSnapshot, last: Memo | None) -> tuple[Decision, Memo]:
        """Decides from the policy, pools included, and the cgroups of kubelet's tiers."""
        inputs = (snapshot.policy, snapshot.tiers)
        return decide_anew(last, inputs, partial(_decision, *inputs))


def _decision(policy: EffectivePolicy, tiers: Mapping[KubeQoS, str]) -> Decision:
    opinions: dict[Target, Opinion] = {}
    refused = []
    applications = policy.slo.host_applications or ()
    for application in applications:
        try:
            cgroup = cgroup_of(application, tiers)
        except BadPath as error:
            refused.append(f"host application {application.name}: {error}")
            continue
        opinions.update(_opinions(application, cgroup, policy))
    return Decision("; ".join((f"{len(applications)} host applications", *refused)), opinions)


def cgroup_of(application: HostApplication, tiers: Mapping[KubeQoS, str]) -> str:
    """Returns the application's cgroup, as a path below the cgroup root. Raises BadPath."""
    place, names = application.cgroup_path, app_directories(application)
    base = "" if place is None else _base(place.base, tiers)
    if not names:
        raise BadPath(f"names no cgroup of its own below {base or '/'}")
    if any(name in (".", "..") or "\0" in name for name in names):
        raise BadPath(f"{'/'.join(names)!r} is no path below {base or '/'}")
    cgroup = "/".join((base, *names))
    if cgroup in tiers.values():
        raise BadPath(f"{cgroup} is kubelet's")
    return cgroup


def _base(base: CgroupBase | None, tiers: Mapping[KubeQoS, str]) -> str:
    if base is None or base is CgroupBase.CGROUP_ROOT:
        return ""
    tier = tiers.get(_TIERS[base])
    if tier is None:
        raise BadPath(f"its base {base.value} was not found on this node")
    return tier.rstrip("/")


def _opinions(application: HostApplication, cgroup: str, policy: EffectivePolicy) -> dict[Target, Opinion]:
    pool = join(policy.node.ls_pools)
    if application.qos_class is not QoSClass.LS or not pool or not policy.enabled("cpuset"):
        return {}
    cpus, why = str(cpuset.parse(pool)), "LS host applications use the LS pool"
    given = {FORMULA: "given", "value": cpus}
    return {Target(cgroup, CPUS): Opinion.set(cpus, f"host application {application.name}: {why}", given)}
