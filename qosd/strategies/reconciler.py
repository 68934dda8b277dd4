"""Applies the hooks' edits to everything that runs: older containers, a changed policy, moved CPU pools.

The engine of hook service and NRI decides here, too, so a running container gets what it would have got at its start.
It is asked about three kinds of cgroup: containers (as at their creation), sandboxes (the CPU set only) and the pods'
own cgroups, whose values no CRI call carries: the CFS quota, -1 where CPUs are bound; shares, quota and memory of
batch and mid pods; idle scheduling and memory protection. A hook that is part of a larger feature is left to the
strategy that its row names.

Invariants: without an edit there is no opinion, so a value that rule or annotation no longer ask for is released; an
empty CPU set ("the parent's") is no opinion, because the kernel refuses it for a cgroup with tasks. A value that the
kernel would refuse is left out alone, and reported. The actuator orders the writes (shrink, then grow).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import ClassVar

from msgspec.structs import replace

from koord.host.files import ROWS, KernelFile, Target, Value
from koord.model.crifields import Field
from koord.model.formulas import FORMULA
from koord.model.qos import KubeQoS
from qosd.decide.decision import Decision, Opinion, Stage, Strategy
from qosd.hooks import engine
from qosd.hooks.edits import Abstention, Edit
from qosd.hooks.table import RECONCILER, hooks_of, rows_of
from qosd.model.besteffort import BestEffortLimits
from qosd.model.pod import HookStage, PodContext
from qosd.model.policy import EffectivePolicy, NodeSettings
from qosd.model.snapshot import PODS_MAX_AGE_S, ContainerView, NodeSnapshot, PodView, has_cgroup, is_kata, live, runs
from qosd.strategies.perpod import PodMemo, PodOpinions, decide_each

_OWN = hooks_of(RECONCILER)


class HookReconciler(Strategy[PodMemo]):
    """The strategy ``hooks``."""

    name: ClassVar[str] = RECONCILER
    stage: ClassVar[Stage] = Stage.SPEC
    rows: ClassVar[frozenset[str]] = rows_of(_OWN)
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({"pods": PODS_MAX_AGE_S})

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        """Always: ``node.hooks`` of the rules file switches hooks one by one."""
        return True

    def decide(self, snapshot: NodeSnapshot, last: PodMemo | None) -> tuple[Decision, PodMemo]:
        limits = snapshot.limits
        return decide_each(snapshot, last, partial(of_pod, policy=snapshot.policy, limits=limits), limits)


def of_pod(pod: PodView, policy: EffectivePolicy, limits: BestEffortLimits) -> PodOpinions:
    """Returns the opinions on all cgroups of one pod."""
    opinions: dict[Target, Opinion] = {}
    refused: list[str] = []
    for cgroup, requested_of in cgroups_of(pod, policy.node):
        edits = engine.decide(requested_of, policy, limits, _OWN)
        for edit in edits.items:
            row = _row(edit, policy.host.cgroup_version)
            if row is None:
                continue
            try:
                value = _value(edit, row, policy.host.cgroup_version)
            except ValueError as error:
                refused.append(f"{requested_of}: {error}")
                continue
            why = f"{edit.hook}: {edit.why}"
            target, inputs = Target(cgroup, row.name), edit.computed or {FORMULA: "given", "value": value}
            opinions[target] = (
                Opinion.set(value, why, inputs, pod.key)
                if edit.factor is None
                else Opinion.scale(edit.factor, why, inputs, pod.key)
            )
        opinions.update(_of_abstentions(pod, cgroup, edits.abstentions))
    return PodOpinions(opinions, tuple(refused))


def _of_abstentions(pod: PodView, cgroup: str, abstentions: tuple[Abstention, ...]) -> dict[Target, Opinion]:
    """Returns opinions for the fields that hooks leave alone in ``cgroup``, each with the reason."""
    found: dict[Target, Opinion] = {}
    for one in abstentions:
        why = f"{one.hook}: {one.why}"
        found[Target(cgroup, one.field.value)] = Opinion.keep(why) if one.stays else Opinion.release(why, pod.key)
    return found


def pod_cgroup(pod: PodView) -> PodContext:
    """Returns the context in which hooks decide for the pod's own cgroup.

    Its quota is of the period of its containers, whatever its cgroup has; of a BestEffort pod, of the kernel's period.
    """
    requested = replace(pod.context.requested, memory_request_bytes=pod.memory_request_bytes)
    if pod.kube_qos is KubeQoS.BEST_EFFORT:
        requested = replace(requested, cpu_period_us=None)
    else:
        requested = requested.at_period(pod.cfs_period_us)
    seen = tuple(sorted({one.name for one in pod.containers if not one.is_sandbox}))
    at_pod = pod.context.at(HookStage.POD_CGROUP, requested)
    return replace(at_pod, spec_containers=pod.spec_containers, seen_containers=seen)


def cgroups_of(pod: PodView, node: NodeSettings) -> Iterator[tuple[str, PodContext]]:
    """Yields every cgroup of the pod that is in use and has a known path, with the context for the hooks."""
    if not live(pod):
        return
    if pod.cgroup and _is_made(pod):
        yield pod.cgroup, pod_cgroup(pod)
    for container in pod.containers:
        if container.cgroup and (container.is_sandbox or runs(container.state)):
            yield container.cgroup, container_cgroup(pod, container, node)


def _is_made(pod: PodView) -> bool:
    """Has the runtime created anything of the pod? Before, kubelet may not have written the pod's own cgroup yet."""
    return bool(pod.sandbox_id) or any(has_cgroup(one.state) for one in pod.containers)


def container_cgroup(pod: PodView, container: ContainerView, node: NodeSettings) -> PodContext:
    """Returns the context in which hooks decide for the cgroup of a container, or of the sandbox.

    Only kubelet's pod list has a container's memory request.
    """
    if container.is_sandbox:
        return pod.context.at(HookStage.SANDBOX_CGROUP, container.requested)
    native = next((each.native for each in pod.spec_containers or () if each.name == container.name), None)
    request_bytes = None if native is None else native.memory_request or 0
    requested = replace(container.requested, memory_request_bytes=request_bytes)
    stage = HookStage.GUEST_CGROUP if is_kata(pod, node) else HookStage.CONTAINER_CGROUP
    return pod.context.at(stage, requested, container.name, container.annotations)


def _row(edit: Edit, version: int) -> KernelFile | None:
    """Returns the row of the edited value; None if this node has no such file, or the edit is no opinion on one."""
    if edit.field is Field.ANNOTATION or (edit.field.is_cpuset and not edit.value):
        return None
    row = ROWS.get(edit.key if edit.field is Field.UNIFIED else edit.field.value)
    return row if row is not None and row.file_name(version, for_write=True) is not None else None


def _value(edit: Edit, row: KernelFile, version: int) -> Value:
    """Returns the edit's value as ``row`` keeps values. Raises ValueError, which names the file, if the value cannot be
    read or the kernel would refuse it.
    """
    value = edit.value
    if edit.field is Field.UNIFIED or edit.field.is_cpuset:
        value = row.parse(str(value), 2)  # both are what is written to a v2 file
    row.check(value, version)
    return value
