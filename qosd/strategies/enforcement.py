"""Enforces contested files one level up: bounds the pod's file where the container's file cannot be held.

    cpu_quota, memory_limit_in_bytes    at most the total of the containers' limits (koord.model.podtotal)
    cpuset_cpus                         at most the union of the containers' sets, on cgroup v2 only

cgroup v1 gives no cgroup fewer CPUs than one of its children has, and no smaller quota either, unless the child's is
unlimited: there a pod can be bounded where the other writer lifts a container's quota, not where it raises it.

A file is contested when another writer changes it again and again (``koord.host.reconcile.step``). The pod's spec tells
the limit of a container that is not there now (it restarts, or its turn has not come): under a pod's quota without room
for it, it could not start on v1. Invariants: pure; no other container of the pod gets less than it may have; a file
that cannot be enforced is named with the reason. kubelet's tiers are not bounded, so a contested file of a pod's own
cgroup stays as the other writer has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from types import MappingProxyType
from typing import ClassVar

import msgspec

from koord.host.files import Target, Value
from koord.model import cfs, podtotal
from koord.model.cfs import UNLIMITED
from koord.model.formulas import FORMULA
from koord.model.lattice import CPUSets
from koord.model.podtotal import Role
from koord.model.readable import shorten_list
from qosd.decide.decision import Decision, Opinion, Stage, Strategy
from qosd.model.pod import OVERHEAD, SpecContainer
from qosd.model.snapshot import PODS_MAX_AGE_S, ContainerView, NodeSnapshot, PodView, has_cgroup
from qosd.strategies.memo import Memo, decide_anew

QUOTA, CPUS, MEMORY = "cpu_quota", "cpuset_cpus", "memory_limit_in_bytes"
_NAMED = 5
"""How many files that are not enforced the strategy's sentence names; ``explain`` says it of each."""
_Part = tuple[str, Role, Value]
"""A container's name, when it runs, and its limit; "" and -1 are no limit."""


class NotEnforced(Exception):
    """Why a contested file has no bound one level up."""


class Bound(msgspec.Struct, frozen=True):
    """``target``, one level above a contested file, may hold at most ``value``."""

    target: Target
    value: Value
    why: str
    pod: str


class Enforcement(Strategy[Memo]):
    """The strategy ``enforcement``."""

    name: ClassVar[str] = "enforcement"
    stage: ClassVar[Stage] = Stage.ENFORCEMENT
    rows: ClassVar[frozenset[str]] = frozenset({QUOTA, CPUS, MEMORY})
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({"pods": PODS_MAX_AGE_S})

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return True

    def decide(self, snapshot: NodeSnapshot, last: Memo | None) -> tuple[Decision, Memo]:
        """Decides from the files' states, the pods and the policy alone."""
        return decide_anew(last, (snapshot.files, snapshot.pods, snapshot.policy), partial(_decision, snapshot))


def _decision(snapshot: NodeSnapshot) -> Decision:
    opinions: dict[Target, Opinion] = {}
    problems = []
    contested = [target for target, state in snapshot.files.items() if state.is_contested]
    for target in contested:
        try:
            bound = bound_above(snapshot, target)
        except NotEnforced as error:
            problems.append(f"{target.cgroup}/{target.name} is not enforced one level up: {error}")
        else:
            inputs = {FORMULA: "given", "value": bound.value}
            opinions[bound.target] = Opinion.at_most(bound.value, bound.why, inputs, bound.pod)
    counts = f"{len(contested)} contested, {len(contested) - len(problems)} enforced one level up"
    return Decision("; ".join((counts, *shorten_list(problems, _NAMED))), opinions)


def bound_above(snapshot: NodeSnapshot, target: Target) -> Bound:
    """Returns the bound that enforces a contested file. Raises NotEnforced."""
    if target.name not in Enforcement.rows:
        raise NotEnforced(f"{target.name} has no sum over a pod")
    pod = _pod_of(snapshot, target.cgroup)
    if target.name == CPUS and snapshot.policy.host.cgroup_version == 1:
        raise NotEnforced("cgroup v1 gives no cgroup fewer CPUs than one of its children has")
    parts = list(_parts(snapshot, pod, target.name))
    unlimited = next((name for name, _, value in parts if value in (UNLIMITED, "")), None)
    if unlimited is not None:
        raise NotEnforced(f"container {unlimited} has no limit")
    total = _together(parts)
    if target.name == QUOTA and snapshot.policy.host.cgroup_version == 1:
        _check_children(snapshot, pod, total)
    shares = ", ".join(f"{name} {value}" for name, _, value in parts)
    why = f"{target.name} of {target.cgroup} is contested: the pod gets what its containers may have ({shares})"
    return Bound(Target(pod.cgroup, target.name), total, why, pod.key)


def _check_children(snapshot: NodeSnapshot, pod: PodView, total: Value) -> None:
    """Raises NotEnforced if a child has a larger quota: v1 refuses the pod's then, unless the child's is unlimited."""
    for container in pod.containers:
        state = snapshot.files.get(Target(container.cgroup, QUOTA))
        if state is not None and state.is_contested and int(state.base) > int(total):
            raise NotEnforced(
                f"cgroup v1 takes no quota of {total} above one of {state.base}, as {container.name} has it"
            )


def _pod_of(snapshot: NodeSnapshot, cgroup: str) -> PodView:
    for pod in snapshot.pods:
        container = next((each for each in pod.containers if each.cgroup == cgroup and not each.is_sandbox), None)
        if container is None:
            continue
        if not has_cgroup(container.state):
            raise NotEnforced("its container has ended")
        if not pod.cgroup:
            raise NotEnforced("nobody tells the pod's own cgroup")
        return pod
    raise NotEnforced("it is no container's file, and what is above a pod is kubelet's")


def _parts(snapshot: NodeSnapshot, pod: PodView, name: str) -> Iterator[_Part]:
    """Yields the containers that the pod has, in the order of its spec; for amounts also those to come."""
    present = {
        each.name: each for each in pod.containers if not each.is_sandbox and each.cgroup and has_cgroup(each.state)
    }
    if pod.spec_containers is None and name != CPUS:
        raise NotEnforced("only the runtime tells of the pod, and it does not know containers that are not there yet")
    period_us = next((us for each in present.values() if (us := each.requested.cpu_period_us)), cfs.PERIOD_US)
    for each in pod.spec_containers or ():
        container = present.pop(each.name, None)
        if container is not None:
            yield each.name, each.role, _of_container(snapshot, container, name)
        elif name != CPUS:  # one that comes later gets the CPUs of its class, within its pod's
            yield each.name, each.role, _of_spec(each, name, period_us)
    yield from ((each.name, Role.MAIN, _of_container(snapshot, each, name)) for each in present.values())


def _of_container(snapshot: NodeSnapshot, container: ContainerView, name: str) -> Value:
    """Returns the value that Koord wants in the container's file, else the one that kubelet requested."""
    state = snapshot.files.get(Target(container.cgroup, name))
    if state is not None and (state.is_held or state.is_contested):
        return state.written
    if name == CPUS:
        return ""
    requested = container.requested
    return _limit(requested.cpu_quota_us if name == QUOTA else requested.memory_limit_bytes)


def _of_spec(container: SpecContainer, name: str, period_us: int) -> Value:
    native = container.native
    amount = native.cpu_limit if name == QUOTA else native.memory_limit
    if container.name == OVERHEAD and not amount:
        return 0
    return cfs.quota_us(native.cpu_limit, period_us) if name == QUOTA else _limit(native.memory_limit)


def _limit(amount: int | None) -> int:
    return amount if amount is not None and amount > 0 else UNLIMITED


def _together(parts: Sequence[_Part]) -> Value:
    """Returns what the pod needs for all parts: the sum of amounts that run at a time, the union of CPUs."""
    amounts = [(role, value) for _, role, value in parts if isinstance(value, int)]
    if len(amounts) == len(parts):
        return podtotal.total(amounts)
    return reduce(CPUSets().join, (value for *_, value in parts))
