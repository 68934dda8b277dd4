"""The rules in force: what the rules file says, with the CPU pools that the node's pods leave.

Hook server, NRI and reconciler all take their rules from here, so they never disagree about a pool, or about what
strategies leave to best-effort pods. Invariants: the same object as long as neither file nor pools
changed, because identity tells the others what they need not do again; a file that is read again counts at once, with
pools made of what was last seen. Before the first ``update`` the pods are unknown, and so are the pools: no opinion,
unless the file gives them. Neither are there pools while nobody can tell the policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from koord.host.topology import Topology
from qosd.model.besteffort import NO_LIMITS, BestEffortLimits, BestEffortScheduling
from qosd.model.pod import PodContext
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import PodView
from qosd.policy import scheduling
from qosd.policy.pools import Pools, compute_pools
from qosd.policy.rulesfile import InForce

_NOBODY: Mapping[str, str] = MappingProxyType({})
EXPECTED_NS = 60 * 10**9
"""How long a pod that a hook announced counts without being seen: creating its sandbox may have failed."""


def with_pools(policy: EffectivePolicy, pools: Pools) -> EffectivePolicy:
    """``policy`` with these pools and kubelet's CPUs; ``policy`` itself if it has all that."""
    node = replace(policy.node, ls_pools=pools.ls, be_pools=pools.be, kubelet_cpus=pools.kubelet)
    return policy if node == policy.node else replace(policy, node=node)


@dataclass(frozen=True, slots=True)
class _Inputs:
    topology: Topology
    pods: tuple[PodView, ...]
    kubelet_cpus: Mapping[str, str]
    fought: Mapping[str, str]


class PooledRules:
    """``file``: the rules that know nothing of the pods."""

    def __init__(self, file: InForce) -> None:
        self._file = file
        self._from = self._current = file.current
        self._pools = Pools(self._from.node.ls_pools, self._from.node.be_pools)
        self._warnings: tuple[str, ...] = ()
        self._seen: _Inputs | None = None
        self._expected: dict[str, tuple[PodContext, int]] = {}
        self._tier_cpus = ""
        self._limits = NO_LIMITS
        self.best_effort: Mapping[str, BestEffortScheduling] = {}
        """What strategies leave to best-effort pods, by strategy."""

    @property
    def current(self) -> EffectivePolicy:
        """The rules to decide by, now."""
        if self._file.current is not self._from:
            self._make()
        return self._current

    @property
    def limits(self) -> BestEffortLimits:
        """What is left to best-effort pods, now; the same object while it is equal."""
        if self._file.current is not self._from:
            self._make()
        return self._limits

    @property
    def pools(self) -> Pools:
        """The pools with what they are made of; the same object while they are equal."""
        return self._pools

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes no sense of pods' CPUs, or of what strategies leave of them."""
        return self._warnings

    def update(
        self,
        topology: Topology,
        pods: tuple[PodView, ...],
        kubelet_cpus: Mapping[str, str],
        monotonic_ns: int,
        fought: Mapping[str, str] = _NOBODY,
    ) -> EffectivePolicy:
        """The rules after what is now known; ``pods`` and the others are compared by identity.

        ``fought``: by cgroup, the CPUs of containers whose CPU set another writer fights for.
        """
        forgotten = self._forget({pod.uid for pod in pods}, monotonic_ns) if self._expected else False
        now = _Inputs(topology, pods, kubelet_cpus, fought)
        if forgotten or self._seen is None or not _is_same(self._seen, now):
            self._seen = now
            self._make()
        return self.current

    def expect(self, pod: PodContext, monotonic_ns: int) -> bool:
        """A pod whose sandbox is being made: its CPUs leave the pools before it starts. Has that changed the rules?"""
        if not pod.bound_cpus or self._seen is None:
            return False
        before = self._current
        self._expected[pod.request.uid] = (pod, monotonic_ns)
        self._make()
        return self._current is not before

    def leave(self, best_effort: Mapping[str, BestEffortScheduling]) -> bool:
        """What strategies leave to best-effort pods, by strategy, from now on. Has that changed the limits?"""
        before, self.best_effort = self._limits, best_effort
        self._make()
        return self._limits is not before

    def bound_tier(self, cpus: str) -> bool:
        """What kubelet's BestEffort tier has from now on (``TierCPUs``). Has that changed the limits?"""
        if cpus == self._tier_cpus:
            return False
        self._tier_cpus = cpus
        self._make()
        return True

    def _forget(self, seen_uids: set[str], monotonic_ns: int) -> bool:
        """Drop the expected pods that were seen or that never came; has any gone?"""
        kept = {
            uid: entry
            for uid, entry in self._expected.items()
            if uid not in seen_uids and monotonic_ns - entry[1] < EXPECTED_NS
        }
        gone = len(kept) < len(self._expected)
        self._expected = kept
        return gone

    def _make(self) -> None:
        policy, seen = self._file.current, self._seen
        pools = Pools(policy.node.ls_pools, policy.node.be_pools) if seen is None else self._computed(seen, policy)
        left = {} if policy.policy_unknown else self.best_effort
        topology, pods = (None, ()) if seen is None else (seen.topology, seen.pods)
        pooled = with_pools(policy, pools)
        limits, warnings = scheduling.limits(left, pooled.node, topology, pods, self._limits, self._tier_cpus)
        self._limits = self._limits if limits == self._limits else limits
        self._pools = self._pools if pools == self._pools else pools
        unknown = policy.node.cpus_unknown
        frozen = (f"{unknown}: which CPUs kubelet gave exclusively is unknown, so no CPU set is widened",)
        self._warnings = (*(frozen if unknown else ()), *pools.warnings, *warnings)
        unchanged = policy is self._from and with_pools(self._current, pools) is self._current
        if not unchanged:
            self._from, self._current = policy, pooled

    def _computed(self, inputs: _Inputs, policy: EffectivePolicy) -> Pools:
        """While nobody can tell the policy, nobody knows what is reserved, or given in the file."""
        expected = [pod for pod, _ in self._expected.values()]
        pools = compute_pools(inputs.topology, inputs.pods, policy.node, inputs.kubelet_cpus, expected, inputs.fought)
        return replace(pools, ls=(), be=()) if policy.policy_unknown else pools


def _is_same(seen: _Inputs, now: _Inputs) -> bool:
    is_same_node = seen.topology is now.topology and seen.kubelet_cpus is now.kubelet_cpus
    return is_same_node and seen.pods is now.pods and seen.fought is now.fought
