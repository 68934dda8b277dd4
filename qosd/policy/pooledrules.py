"""The rules in force: what the rules file says, with the CPU pools that the node's pods leave.

Hook server, NRI and reconciler all take their rules from here, so they never disagree about a pool; what strategies
leave to best-effort pods narrows it for all of them. Invariants: the same object as long as neither file nor pools
changed, because identity tells the others what they need not do again; a file that is read again counts at once, with
pools made of what was last seen. Before the first ``update`` the pods are unknown, and so are the pools: no opinion,
unless the file gives them. Neither are there pools while nobody can tell the policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from koord.host.topology import Topology
from koord.model import cpuset
from koord.model.cpuset import EMPTY, CPUSetError
from qosd.model.pod import PodContext
from qosd.model.rules import BestEffortCPUs, Pool, Rules
from qosd.model.snapshot import PodView
from qosd.policy.pools import Pools, compute_pools, narrowed, with_time
from qosd.policy.rulesfile import InForce

EXPECTED_NS = 60 * 10**9
"""How long a pod that a hook announced counts without being seen: creating its sandbox may have failed."""


def with_pools(rules: Rules, pools: Pools) -> Rules:
    """``rules`` with these pools and kubelet's CPUs; ``rules`` itself if it has them."""
    node = replace(
        rules.node,
        ls_pools=pools.ls,
        be_pools=pools.be,
        be_left_by=pools.be_left_by,
        be_cpu_milli=pools.be_cpu_milli,
        be_cpu_why=pools.be_cpu_why,
        kubelet_cpus=pools.kubelet,
    )
    return rules if node == rules.node else replace(rules, node=node)


@dataclass(frozen=True, slots=True)
class _Inputs:
    topology: Topology
    pods: tuple[PodView, ...]
    kubelet_cpus: Mapping[str, str]


class PooledRules:
    """``file``: the rules that know nothing of the pods."""

    def __init__(self, file: InForce) -> None:
        self._file = file
        self._from = self._current = file.current
        self._pools = Pools(self._from.node.ls_pools, self._from.node.be_pools)
        self._seen: _Inputs | None = None
        self._expected: dict[str, tuple[PodContext, int]] = {}
        self.best_effort: Mapping[str, BestEffortCPUs] = {}
        """What strategies leave of the BE pool, by strategy."""

    @property
    def current(self) -> Rules:
        """The rules to decide by, now."""
        if self._file.current is not self._from:
            self._make()
        return self._current

    @property
    def pools(self) -> Pools:
        """The pools with what they are made of, and warnings; the same object while they are equal."""
        return self._pools

    def update(
        self, topology: Topology, pods: tuple[PodView, ...], kubelet_cpus: Mapping[str, str], monotonic_ns: int
    ) -> Rules:
        """The rules after what is now known; ``pods`` and the others are compared by identity."""
        forgotten = self._forget({pod.uid for pod in pods}, monotonic_ns) if self._expected else False
        if forgotten or self._seen is None or not _is_same(self._seen, topology, pods, kubelet_cpus):
            self._seen = _Inputs(topology, pods, kubelet_cpus)
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

    def narrow(self, best_effort: Mapping[str, BestEffortCPUs]) -> bool:
        """What strategies leave of the BE pool, by strategy, from now on. Has that changed the rules?"""
        before, self.best_effort = self._current, best_effort
        self._make()
        return self._current is not before

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
        rules = self._file.current
        pools = Pools(rules.node.ls_pools, rules.node.be_pools)
        if self._seen is not None:
            pools = self._computed(self._seen, rules)
        elif self.best_effort and not rules.policy_unknown:
            pools = with_time(replace(pools, be=_remembered(self.best_effort)), self.best_effort)
        self._pools = self._pools if pools == self._pools else pools
        unchanged = rules is self._from and with_pools(self._current, self._pools) is self._current
        if not unchanged:
            self._from, self._current = rules, with_pools(rules, self._pools)

    def _computed(self, inputs: _Inputs, rules: Rules) -> Pools:
        expected = [pod for pod, _ in self._expected.values()]
        pools = compute_pools(inputs.topology, inputs.pods, rules.node, inputs.kubelet_cpus, expected)
        if rules.policy_unknown:  # nobody knows what is reserved, or given in the file
            return replace(pools, ls=(), be=())
        return narrowed(pools, inputs.topology, self.best_effort)


def _remembered(best_effort: Mapping[str, BestEffortCPUs]) -> tuple[Pool, ...]:
    """The BE pool until the pods are known: what an earlier run left of it. Who has which CPU, the topology tells then.

    Without it the front ends would say "whatever the tier has" of containers that are held, and the runtime would
    widen them.
    """
    cpus = EMPTY
    for leaves in best_effort.values():
        with suppress(CPUSetError):
            theirs = cpuset.parse(leaves.cpus)
            cpus = (cpus & theirs) or cpus or theirs
    return (Pool(0, 0, str(cpus)),) if cpus else ()


def _is_same(inputs: _Inputs, topology: Topology, pods: tuple[PodView, ...], kubelet_cpus: Mapping[str, str]) -> bool:
    return inputs.topology is topology and inputs.pods is pods and inputs.kubelet_cpus is kubelet_cpus
