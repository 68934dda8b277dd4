"""The CPU that other pods and the system leave to best-effort pods: the formula of Koordinator's CPU suppression.

    reserved  = what kubelet or the policy reserves of the capacity
    system    = max(node - pods - host applications, 0, reserved)
    allowance = capacity * percent / 100 - others' pods - others' host applications - system
    allowance = at least capacity * least percent / 100, if that is set

in thousandths of a CPU, whole numbers; the allowance may be negative. "Others" are all pods but best-effort pods, by
their class and not, as in upstream, by kubelet's tier; of host applications only those of class BE below the BestEffort
tier are best-effort. The use of best-effort pods counts only in that it is not the system's. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from koord.model.qos import QoSClass
from koord.model.slo import CgroupBase, HostApplication, ResourceThresholds
from qosd.model.metric import Scope
from qosd.model.snapshot import NodeSnapshot
from qosd.policy.scheduling import is_covered
from qosd.sense.node import NodeRow
from qosd.sense.usage import USAGE

NODE = NodeRow.cpu_usage_cores
_PODS, _APPS = USAGE[Scope.POD].cpu_usage_cores, USAGE[Scope.HOST_APP].cpu_usage_cores


class Uses(msgspec.Struct, frozen=True):
    """The use of the node's CPUs, in thousandths of one. ``pods_milli``, ``apps_milli``: by all of them."""

    capacity_milli: int
    node_milli: int
    pods_milli: int
    apps_milli: int
    others_milli: int
    other_apps_milli: int
    reserved_milli: int

    @property
    def system_milli(self) -> int:
        return max(self.node_milli - self.pods_milli - self.apps_milli, 0, self.reserved_milli)

    @property
    def best_effort_milli(self) -> int:
        return self.pods_milli + self.apps_milli - self.others_milli - self.other_apps_milli


def uses_of(snapshot: NodeSnapshot) -> Uses | None:
    """Returns the uses by the newest samples; None while the node itself has no sample."""
    node = _milli(snapshot.value(NODE))
    if node is None:
        return None
    node_rules = snapshot.policy.node
    by_pod = [(is_covered(pod, node_rules), _milli(snapshot.value(_PODS, pod.cgroup)) or 0) for pod in snapshot.pods]
    applications = snapshot.policy.slo.host_applications or ()
    by_app = [(is_best_effort(app), _milli(snapshot.value(_APPS, app.name)) or 0) for app in applications]
    return Uses(
        capacity_milli=snapshot.capacity_cpu_milli,
        node_milli=node,
        pods_milli=sum(milli for _, milli in by_pod),
        apps_milli=sum(milli for _, milli in by_app),
        others_milli=_others(by_pod),
        other_apps_milli=_others(by_app),
        reserved_milli=snapshot.capacity_cpu_milli - snapshot.allocatable_cpu_milli,
    )


def is_best_effort(app: HostApplication) -> bool:
    """Does the host application share the CPU of best-effort pods?"""
    path = app.cgroup_path
    return app.qos_class is QoSClass.BE and path is not None and path.base is CgroupBase.KUBEPODS_BESTEFFORT


def allowance_milli(uses: Uses, percent: int, least_percent: int | None = None) -> int:
    """Returns what ``uses`` leave to best-effort pods; negative if others use more than ``percent``."""
    taken = uses.others_milli + uses.other_apps_milli + uses.system_milli
    left = uses.capacity_milli * percent // 100 - taken
    return left if least_percent is None else max(left, uses.capacity_milli * least_percent // 100)


def percents(thresholds: ResourceThresholds) -> tuple[int, int | None]:
    """Returns the percentage of the capacity that may be used, and the least that best-effort pods get."""
    return thresholds.cpu_suppress_threshold_percent or 0, thresholds.cpu_suppress_min_percent


def sentence(uses: Uses, percent: int, allowance: int) -> str:
    """Returns the formula in figures, for people."""
    return (
        f"{percent} % of {uses.capacity_milli}m, less {uses.others_milli}m of pods, {uses.other_apps_milli}m of host "
        f"applications and {uses.system_milli}m of the system, leave {allowance}m"
    )


def _others(parts: Iterable[tuple[bool, int]]) -> int:
    return sum(milli for is_best_effort_part, milli in parts if not is_best_effort_part)


def _milli(cores: float | None) -> int | None:
    return None if cores is None or not math.isfinite(cores) else round(cores * 1000)
