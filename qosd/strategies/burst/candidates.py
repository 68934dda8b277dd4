"""Finds which containers may burst, from which quota and how, from pod views, policy and best-effort limits alone.

Eligible are pods that are not labelled LSE, LSR or BE, nor treated as BE (free pods, unlabelled ones of kubelet's
BestEffort tier), and no kata pods. Of these, the containers that run and have a CFS quota: under bound CPUs there is
none, so there is nothing to burst. A pod of the BestEffort tier does not burst while strategies bound the tier's CPU.

The *base* is the quota without a burst: what the hooks give the container (a normalized one, one of mid resources), or
kubelet's own. Bursts, tokens and buffers are all relative to it, so on a CPU model that is 1.2 times as fast they are
those of the scaled quota: a container that uses 1/1.2 CPU of a limit of 1 uses all that it may.

The kernel's burst buffer is a percentage of the base, and at most the base, also of a smaller one that kubelet wants
next: the kernel refuses a quota below the buffer, and so kubelet's own writes would fail. (Vendor kernels would take
more; that cannot be known without trying.) For the same reason no quota of a pod is raised on cgroup v1 while one of
its containers is made smaller: v1 refuses a pod's quota below that of a container.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from koord.host.files import Target
from koord.host.order import BURST, QUOTA
from koord.model import cfs, schema, slo_defaults
from koord.model.crifields import Field
from koord.model.formulas import FORMULA, Inputs
from koord.model.qos import KubeQoS, QoSClass
from koord.model.qos_settings import CPUBurstPolicy
from koord.model.slo import CPUBurstStrategy
from qosd.decide.decision import NO_OPINIONS, Opinion, Opinions
from qosd.hooks import engine, normalization
from qosd.model.besteffort import NO_LIMITS, BestEffortLimits
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import ContainerView, NodeSnapshot, PodView, is_kata, live, running_containers
from qosd.strategies.burst import steps
from qosd.strategies.reconciler import container_cgroup

_NEVER = (QoSClass.LSE, QoSClass.LSR, QoSClass.BE)
_BUFFERING = (CPUBurstPolicy.CPU_BURST_ONLY, CPUBurstPolicy.AUTO)
_RAISING = (CPUBurstPolicy.CFS_QUOTA_BURST_ONLY, CPUBurstPolicy.AUTO)
_DEFAULTS = slo_defaults.defaults().cpu_burst or CPUBurstStrategy()


@dataclass(frozen=True, slots=True)
class BurstSettings:
    """The settings of a pod: the node's, overlaid by the annotation ``koordinator.sh/cpuBurst``."""

    policy: CPUBurstPolicy
    buffer_percent: int
    quota_percent: int
    period_s: int
    """Below 0: bursts of any length."""

    @property
    def raises(self) -> bool:
        return self.policy in _RAISING

    @property
    def buffers(self) -> bool:
        return self.policy in _BUFFERING

    @property
    def has_bucket(self) -> bool:
        """Do tokens limit how long a burst lasts?"""
        return self.period_s >= 0


@dataclass(frozen=True, slots=True)
class BurstCandidate:
    """A container that may burst.

    ``base_us``: its quota without a burst, of each ``period_us``; ``next_us``: a smaller quota that kubelet wants by
    now, else the same. ``is_set``: the hooks set the base, so it does not follow the file.
    """

    id: str
    name: str
    quota: Target
    base_us: int
    period_us: int
    is_set: bool
    next_us: int


@dataclass(frozen=True, slots=True)
class PodCandidates:
    """A pod with its containers that may burst; ``buffers``: the opinions on their burst buffers and on the pod's.

    ``raises``: may their quotas grow?
    """

    key: str
    quota: Target | None
    """The pod's own quota file; None while its cgroup is unknown."""
    settings: BurstSettings
    raises: bool
    containers: tuple[BurstCandidate, ...]
    buffers: Opinions


@dataclass(frozen=True, slots=True)
class BurstPlan:
    """``eligible``: the pods with containers that may burst, by UID. ``by_uid``: the finding on every pod."""

    policy: EffectivePolicy
    limits: BestEffortLimits
    pods: tuple[PodView, ...]
    by_uid: Mapping[str, tuple[PodView, PodCandidates | None]]
    eligible: tuple[tuple[str, PodCandidates], ...]
    pool_percent: int
    """The use of the shared CPUs from which on they are overloaded."""

    @property
    def count(self) -> int:
        """The number of containers that may burst."""
        return sum(len(pod.containers) for _, pod in self.eligible)


def planned(snapshot: NodeSnapshot, last: BurstPlan | None) -> BurstPlan:
    """Returns the plan for the snapshot; ``last`` itself if nothing changed."""
    policy, limits, pods = snapshot.policy, snapshot.limits, snapshot.pods
    is_known = last is not None and last.policy is policy
    is_limited_so = last is not None and last.limits is limits
    if last is not None and is_known and is_limited_so and last.pods is pods:
        return last
    by_uid = {}
    for pod in pods:
        entry = None if last is None else last.by_uid.get(pod.uid)
        holds = is_known and (is_limited_so or pod.kube_qos is not KubeQoS.BEST_EFFORT)
        if entry is None or entry[0] is not pod or not holds:
            found = candidates(pod, policy, limits)
            entry = pod, entry[1] if entry is not None and entry[1] == found else found
        by_uid[pod.uid] = entry
    eligible = tuple([(uid, found) for uid, (_, found) in by_uid.items() if found is not None])
    if last is not None and last.eligible == eligible:
        eligible = last.eligible
    return BurstPlan(policy, limits, pods, by_uid, eligible, node_strategy(policy).share_pool_threshold_percent or 0)


def node_strategy(policy: EffectivePolicy) -> CPUBurstStrategy:
    return schema.overlay(_DEFAULTS, policy.slo.cpu_burst)


def is_wanted(policy: CPUBurstPolicy | None) -> bool:
    """Does the policy want bursts of any kind?"""
    return policy in _BUFFERING or policy in _RAISING


def candidates(pod: PodView, policy: EffectivePolicy, limits: BestEffortLimits = NO_LIMITS) -> PodCandidates | None:
    """Returns the containers of a pod that may burst, or whose tokens are counted; None if there are none."""
    if not _is_eligible(pod, policy, limits):
        return None
    settings = _settings(pod, policy)
    if not (is_wanted(settings.policy) or settings.has_bucket):
        return None
    running = running_containers(pod)
    containers = tuple([each for each in (_candidate(pod, one, policy, limits) for one in running) if each is not None])
    if not containers:
        return None
    buffers = NO_OPINIONS
    if settings.buffers and BURST in (policy.host.files or ()):
        buffers = _buffers(pod, settings, containers, of_pod=bool(pod.cgroup) and len(containers) == len(running))
    quota = Target(pod.cgroup, QUOTA) if pod.cgroup else None
    shrinks = any(each.next_us < each.base_us for each in containers)
    raises = settings.raises and not (shrinks and policy.host.cgroup_version == 1)
    return PodCandidates(pod.key, quota, settings, raises, containers, buffers)


def _is_eligible(pod: PodView, policy: EffectivePolicy, limits: BestEffortLimits) -> bool:
    context, node = pod.context, policy.node
    if not live(pod) or context.raw_qos in _NEVER or is_kata(pod, node):
        return False
    if context.treated_as(node.derivation) is QoSClass.BE:
        return False
    return not (limits.tier_milli and pod.kube_qos is KubeQoS.BEST_EFFORT)


def _settings(pod: PodView, policy: EffectivePolicy) -> BurstSettings:
    merged = schema.overlay(node_strategy(policy), pod.context.annotations.cpu_burst)
    assert merged.policy is not None and merged.cpu_burst_percent is not None
    assert merged.cfs_quota_burst_percent is not None and merged.cfs_quota_burst_period_seconds is not None
    return BurstSettings(
        merged.policy,
        max(0, merged.cpu_burst_percent),
        max(100, merged.cfs_quota_burst_percent),
        merged.cfs_quota_burst_period_seconds,
    )


def _candidate(
    pod: PodView, container: ContainerView, policy: EffectivePolicy, limits: BestEffortLimits
) -> BurstCandidate | None:
    """Returns the container as a candidate; None if it has no quota."""
    context = container_cgroup(pod, container, policy.node)
    edit = engine.decide(context, policy, limits).get(Field.CPU_QUOTA)
    spec_us = normalization.spec_quota_us(context)
    base_us = spec_us if edit is None else edit.value
    if not isinstance(base_us, int) or base_us <= 0:
        return None
    period_us = container.requested.quota_period_us
    next_us = base_us * _next_spec_us(pod, container.name, spec_us, period_us) // spec_us if spec_us > 0 else base_us
    quota = Target(container.cgroup, QUOTA)
    return BurstCandidate(container.id, container.name, quota, base_us, period_us, edit is not None, next_us)


def _next_spec_us(pod: PodView, container: str, spec_us: int, period_us: int) -> int:
    """Returns the quota by the spec's limit, if it is smaller: kubelet tells the runtime of a resize last."""
    limit_milli = next((each.native.cpu_limit for each in pod.spec_containers or () if each.name == container), None)
    return min(spec_us, cfs.quota_us(limit_milli, period_us)) if limit_milli else spec_us


def _buffers(pod: PodView, settings: BurstSettings, containers: tuple[BurstCandidate, ...], of_pod: bool) -> Opinions:
    """Returns the buffers of the containers and, with ``of_pod``, their sum for the pod."""
    found: dict[Target, Opinion] = {}
    total: dict[str, int] = {}
    for each in containers:
        value = steps.buffer_us(each.base_us, settings.buffer_percent, each.next_us)
        fed: Inputs = {
            FORMULA: steps.BUFFER_FORMULA,
            "quota_us": each.base_us,
            "percent": settings.buffer_percent,
            "at_most_us": each.next_us,
        }
        why = f"burst buffer: {settings.buffer_percent} % of its quota, and at most all of it"
        found[Target(each.quota.cgroup, BURST)] = Opinion.set(value, why, fed, pod.key)
        total[f"{each.name}_us"] = value
    if of_pod:
        why, fed = "burst buffer: those of its containers together", {FORMULA: steps.SUM_FORMULA, **total}
        found[Target(pod.cgroup, BURST)] = Opinion.set(sum(total.values()), why, fed, pod.key)
    return found
