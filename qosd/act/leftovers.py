"""Finds values that another agent left in kernel files, so that they are given back and never taken for a base.

Koordinator's koordlet, for one, stops without a record of what it wrote. A leftover is a value that differs from the
one that kubelet writes (``koord.host.kubeletvalues``): every file of the tiers, of pods and of their containers that
such an agent writes is looked at once, in the first ``LOOK_FOR_S`` after the start. So are pods that come meanwhile: on
cgroup v1 kubelet copies the tier's CPU set to a pod. Kubelet's configuration counts whenever it becomes known, for the
cgroups of that time. The reconciler notes kubelet's value in the undo record as the file's base, and puts it back
unless a strategy wants another value there.

Invariants: a file whose value by kubelet is not certain stays as it is, and ``kept`` says so; it is looked at again
when the value is known. A tick without changes costs a few comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from koord.host import kubeletvalues
from koord.host.cgroup import ReadError, effective_value
from koord.host.files import ROWS, ParseError, Probe, Target, Value
from koord.host.kubeletvalues import FILES, NOT_CERTAIN, OF_BEST_EFFORT, Asked, KubeletInputs, Place
from koord.host.order import CPUS, IDLE, QUOTA, SHARES
from koord.host.reconcile.state import backoff_ns
from koord.host.undo import UndoRecord
from koord.host.writer import Writer
from koord.model import cfs
from koord.model.cfs import UNLIMITED
from koord.model.crifields import Field
from koord.model.qos import KubeQoS
from koord.model.quantity import MilliCPU
from koord.model.readable import shorten_list
from qosd.model.pod import Resources
from qosd.model.policy import CPUManagerPolicy, EffectivePolicy
from qosd.model.snapshot import ContainerView, PodView, is_kata, live, running_containers

LOOK_FOR_S = 120
_AT_ONCE = 1000
"""The most files that one tick looks at, at 15 µs each."""
_NAMED = 3
_NOTHING_TOLD = Resources()
_S = 1_000_000_000


class KubeletSays(msgspec.Struct, frozen=True):
    """``default_cpus``: of containers without exclusive CPUs, by the state file of the CPU manager; "" = unknown.

    ``has_memory_qos``: is kubelet's feature MemoryQoS on? None: its configuration is unknown.
    """

    default_cpus: str = ""
    has_memory_qos: bool | None = None


NOTHING_SAID = KubeletSays()


class _Cgroup(msgspec.Struct, frozen=True):
    place: Place
    qos: KubeQoS
    asked: Asked = NOT_CERTAIN
    cpus: str | None = ""
    """The CPU set that the runtime was asked for; "" = none, None = unknown."""

    def may_have(self, cpus: Value) -> bool:
        """May the container have ``cpus``: did kubelet ask for that set, or for none?"""
        return self.cpus == "" or (self.cpus is not None and Field.CPUSET_CPUS.same(self.cpus, cpus))


class Leftovers:
    """The leftovers in the tree of ``writer`` that ``undo`` does not record. One thread at a time.

    ``kept``: a sentence on each value that another agent may have left, and that stays.
    """

    def __init__(self, writer: Writer, undo: UndoRecord) -> None:
        self._writer, self._undo = writer, undo
        self._inputs: tuple[object, ...] = ()
        self._says = NOTHING_SAID
        self._until_ns: int | None = None
        self._cgroups: dict[str, _Cgroup] = {}
        self._bases: dict[Target, Value] = {}
        self._done: set[Target] = set()
        self._failed: dict[Target, tuple[int, int]] = {}  # how often, and when it is tried again
        self._now_ns = 0
        self._all_cpus: Value | None = None
        self.kept: tuple[str, ...] = ()

    @property
    def due(self) -> tuple[Target, ...]:
        """The files to look at now."""
        return tuple(islice((target for target in self._bases if not self._waits(target)), _AT_ONCE))

    def base(self, target: Target, found: Value) -> Value | None:
        """Returns kubelet's value; None: not certain, ``found`` is as good, or the file was looked at already.

        A missing quota need not be another agent's work: a runtime leaves it out by an annotation.
        """
        is_as_good = self._has_all(found) if target.name == CPUS else target.name == QUOTA and found == UNLIMITED
        return None if is_as_good or self._waits(target) else self._bases.get(target)

    def done(self, targets: Iterable[Target]) -> None:
        """Notes that these files were looked at."""
        for target in targets if self._bases else ():
            if not self._waits(target) and self._bases.pop(target, None) is not None:
                self._done.add(target)
                self._failed.pop(target, None)

    def failed(self, targets: Iterable[Target], now_ns: int) -> None:
        """Notes that a leftover could not be noted: it is tried again, with back-off."""
        for target in targets:
            failures = self._failed.get(target, (0, 0))[0] + 1
            self._failed[target] = failures, now_ns + backoff_ns(failures)

    def _waits(self, target: Target) -> bool:
        return target in self._failed and self._now_ns < self._failed[target][1]

    def follow(
        self,
        pods: tuple[PodView, ...],
        tiers: Mapping[KubeQoS, str],
        policy: EffectivePolicy,
        says: KubeletSays,
        now_ns: int,
    ) -> None:
        """Follows the cgroups that are there, and kubelet's settings. ``now_ns`` of the monotonic clock."""
        self._now_ns = now_ns
        if self._until_ns is None:
            self._until_ns = now_ns + LOOK_FOR_S * _S
        node = policy.node
        inputs = (pods, tiers, node.cpu_manager_policy, node.cpus_unknown, policy.host.files, says)
        if self._inputs and all(map(_is_same, inputs, self._inputs)):
            return
        if now_ns > self._until_ns and says == self._says:
            return
        self._inputs, self._says = inputs, says
        kubelet = self._kubelet(tiers, policy, says)
        root = tiers.get(KubeQoS.GUARANTEED)
        self._all_cpus = effective_value(self._writer.tree, Target(root, CPUS)) if root else None
        known, is_late = self._cgroups, now_ns > self._until_ns
        self._cgroups = {at: what for at, what in _cgroups(pods, tiers, policy) if not is_late or at in known}
        self._done = {target for target in self._done if target.cgroup in self._cgroups}
        self._bases = {}
        for cgroup, what in self._cgroups.items():
            self._bases.update(self._expected(cgroup, what, kubelet, policy))
        self._failed = {target: when for target, when in self._failed.items() if target in self._bases}
        self.kept = tuple(self._kept(kubelet, policy))

    def _kubelet(self, tiers: Mapping[KubeQoS, str], policy: EffectivePolicy, says: KubeletSays) -> KubeletInputs:
        version, root = self._writer.version, tiers.get(KubeQoS.GUARANTEED, "")
        found = self._holds(Target(root, CPUS)) if version == 1 and root else None if version == 1 else ""
        cpus = None if found is None or policy.node.cpus_unknown else str(found)
        is_static = policy.node.cpu_manager_policy is CPUManagerPolicy.STATIC
        shared = (says.default_cpus or None) if is_static else cpus
        return KubeletInputs(version, cpus, shared, says.has_memory_qos)

    def _expected(
        self, cgroup: str, what: _Cgroup, kubelet: KubeletInputs, policy: EffectivePolicy
    ) -> Iterator[tuple[Target, Value]]:
        for row in _rows(what.place, policy):
            target = Target(cgroup, row)
            if target in self._done or self._writer.path(target) is None:
                continue
            value = kubeletvalues.value(row, what.place, what.qos, what.asked, kubelet)
            if value is None or (row == CPUS and not what.may_have(value)):
                continue
            yield target, value
            if row == IDLE and SHARES not in FILES[what.place] and self._holds(target) == 1:
                shares = kubeletvalues.value(SHARES, what.place, what.qos, what.asked, kubelet)
                if shares is not None:
                    yield Target(cgroup, SHARES), shares

    def _has_all(self, found: Value) -> bool:
        """Does the v2 CPU set ``found`` allow all CPUs, so that it may stay?"""
        return self._writer.version == 2 and found in ("", self._all_cpus)

    def _kept(self, kubelet: KubeletInputs, policy: EffectivePolicy) -> Iterator[str]:
        """Yields a sentence on protected memory that stays: only such a value shows that another agent wrote it."""
        found = [
            f"{target.cgroup}/{target.name} holds {value}"
            for cgroup, what in self._cgroups.items()
            if kubelet.has_memory_qos is None
            for row in _rows(what.place, policy)
            if row in kubeletvalues.MEMORY_QOS and (target := Target(cgroup, row)) not in self._bases
            if target not in self._done and (value := self._foreign(target)) not in (None, ROWS[row].default)
        ]
        if found:
            why = "kubelet has not told whether its feature MemoryQoS writes it"
            named = "; ".join(shorten_list(found, _NAMED))
            yield f"another agent may have left what stays as it is, since {why}: {named}"

    def _holds(self, target: Target) -> Value | None:
        try:
            return self._writer.read(target)
        except (ReadError, ParseError):
            return None

    def _foreign(self, target: Target) -> Value | None:
        """Returns the file's value, if it is not ours."""
        try:
            reading = self._writer.look(target)
        except (ReadError, ParseError):
            return None
        if reading is None:
            return None
        entry = self._undo.entry_for(target, reading)
        return None if entry is not None and self._undo.is_ours(entry, reading.value) else reading.value


def _is_same(one: object, other: object) -> bool:
    return one is other or (not isinstance(one, tuple) and one == other)


def _rows(place: Place, policy: EffectivePolicy) -> Iterator[str]:
    """Yields the rows of a place that this kernel has."""
    there = policy.host.files
    return (row for row in FILES[place] if ROWS[row].probe is not Probe.KUBEPODS or there is None or row in there)


def _cgroups(
    pods: tuple[PodView, ...], tiers: Mapping[KubeQoS, str], policy: EffectivePolicy
) -> Iterator[tuple[str, _Cgroup]]:
    for qos, cgroup in tiers.items():
        yield cgroup, _Cgroup(Place.ROOT if qos is KubeQoS.GUARANTEED else Place.TIER, qos)
    for pod in pods:
        if not live(pod) or is_kata(pod, policy.node):
            continue
        asked = [(each, _of_container(pod, each)) for each in running_containers(pod)]
        if pod.cgroup:
            yield (
                pod.cgroup,
                _Cgroup(Place.POD, pod.kube_qos, _of_pod(pod, [of_container for _, of_container in asked])),
            )
        for each, of_container in asked:
            yield each.cgroup, _Cgroup(Place.CONTAINER, pod.kube_qos, of_container, _cpus(pod, each))


def _of_container(pod: PodView, container: ContainerView) -> Asked:
    """Returns what the runtime was asked for, if that agrees with the pod's spec, as far as the spec is known.

    The two differ while a pod is resized, and if another agent edited the request.
    """
    if pod.kube_qos is KubeQoS.BEST_EFFORT:
        return OF_BEST_EFFORT
    told = container.requested
    if told == _NOTHING_TOLD or not pod.sandbox_id:
        return NOT_CERTAIN
    asked = Asked(told.cpu_quota_us or UNLIMITED, told.cpu_shares, told.memory_limit_bytes or UNLIMITED)
    native = next((each.native for each in pod.spec_containers or () if each.name == container.name), None)
    if native is None:
        return asked if pod.spec_containers is None and pod.phase == "" else NOT_CERTAIN
    by_spec = Asked(
        cfs.quota_us(native.cpu_limit, told.quota_period_us),
        cfs.shares(native.cpu_request or MilliCPU(0)),
        native.memory_limit or UNLIMITED,
    )
    return asked if asked == by_spec else NOT_CERTAIN


def _cpus(pod: PodView, container: ContainerView) -> str | None:
    """Returns the CPU set asked for; none for a best-effort container, whose request other agents may have edited."""
    if pod.kube_qos is KubeQoS.BEST_EFFORT:
        return ""
    return None if container.requested == _NOTHING_TOLD or not pod.sandbox_id else container.requested_cpus


def _of_pod(pod: PodView, containers: list[Asked]) -> Asked:
    """Returns kubelet's sums for the pod, if they are known and every container agrees with its spec."""
    if pod.kube_qos is KubeQoS.BEST_EFFORT:
        return NOT_CERTAIN if pod.runtime_handler else OF_BEST_EFFORT  # whose overhead may count
    if pod.cpu_request_milli is None or not containers or NOT_CERTAIN in containers:
        return NOT_CERTAIN
    limits = pod.context.requested.at_period(pod.cfs_period_us)
    quota_us = UNLIMITED if limits.cpu_quota_us is None else limits.cpu_quota_us
    return Asked(quota_us, cfs.shares(MilliCPU(pod.cpu_request_milli)), limits.memory_limit_bytes or UNLIMITED)
