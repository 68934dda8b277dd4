"""The policy in force, made in one place of all its sources, and the limits of best-effort pods by it.

    documents    the rules file; over it, with a cluster, the NodeSLO and the Node (``overlay``), each the last good one
    host         what the kernel has (``HostFacts``)
    kubelet      the CPU manager policy that runs, and kubelet's reservation (``kubeletpolicy``)
    pods         the CPU pools that they leave (``pools``)

Hook server, NRI and the node's loop take both from here, so they never disagree about a pool or a limit. Invariants:
``current`` is another object only when it says something else, and its ``slo`` and ``host`` likewise, because its
readers skip work by identity; the same holds for ``limits``. A new fact counts at the next reading. Before the first
``update`` the pods are unknown, and so are the pools unless the file gives them; there are none either while the policy
is unknown (``EffectivePolicy.policy_unknown``), and then nothing is decided and nothing released.

Problems of the documents are kept as ``warnings`` for koordctl until they are gone, and logged once; with them stand
the settings that have no effect on this node (``sloeffects``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from koord.host.topology import Topology
from koord.model import featuregates, slo_defaults
from koord.model.featuregates import NO_SETTINGS, Settings
from qosd.metrics import Metrics
from qosd.model.besteffort import NO_LIMITS, BestEffortLimits
from qosd.model.pod import PodContext
from qosd.model.policy import EffectivePolicy, HostFacts, NodeSettings
from qosd.model.snapshot import PodView
from qosd.policy import kubeletpolicy, provenance, scheduling, sloeffects
from qosd.policy.clusterpolicy import ClusterPolicy
from qosd.policy.kept import Keeper
from qosd.policy.kubeletpolicy import KubeletPolicyInputs
from qosd.policy.overlay import NodePolicy, overlay
from qosd.policy.pools import Pools, compute_pools
from qosd.policy.provenance import Origin, Provenance
from qosd.policy.rulesfile import FROZEN, RulesFile, shortened

FILE = "rules file"
"""The name of the lowest layer."""
EXPECTED_NS = 60 * 10**9
"""How long a pod that a hook announced counts without being seen: creating its sandbox may have failed."""
_NOTHING_SAID = KubeletPolicyInputs()
_NO_CPUS: Mapping[str, str] = MappingProxyType({})
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The inputs of the pools."""

    topology: Topology
    pods: tuple[PodView, ...]
    kubelet_cpus: Mapping[str, str]
    fought: Mapping[str, str]

    def is_same(self, other: _Seen) -> bool:
        is_same_node = self.topology is other.topology and self.kubelet_cpus is other.kubelet_cpus
        return is_same_node and self.pods is other.pods and self.fought is other.fought


class PolicySource:
    """Lives in the event loop. ``kept``: remembers the last good rules file beyond this process. ``gate_flags``: the
    feature gates of the command line. ``cluster``: the layers over the file; its feeder calls ``recompose`` when it has
    changed. ``kubelet`` is asked at each reading, since a pod waits.
    """

    def __init__(
        self,
        file: Path,
        host_facts: Callable[[], HostFacts],
        metrics: Metrics,
        kept: Keeper | None = None,
        now_unix_s: Callable[[], float] = time.time,
        gate_flags: Settings = NO_SETTINGS,
        cluster: ClusterPolicy | None = None,
        kubelet: Callable[[], KubeletPolicyInputs] = lambda: _NOTHING_SAID,
    ) -> None:
        self.file = RulesFile(file, metrics, kept, now_unix_s)
        self._host_facts, self._gate_flags, self._kubelet = host_facts, gate_flags, kubelet
        self._cluster = cluster or ClusterPolicy(lambda: None)
        self._host = host_facts()
        self._documents, self._unknown = self.file.policy, ""
        self._cluster_unknown = ""
        self._slo = slo_defaults.in_force(self._documents.spec)
        self._layer_warnings: tuple[str, ...] = ()
        self._told: frozenset[str] = frozenset()
        self._kubelet_facts = _NOTHING_SAID
        self._seen: _Seen | None = None
        self._expected: dict[str, tuple[PodContext, int]] = {}
        self._tier_cpus = ""
        self._left = self._limited_by = NO_LIMITS
        self._current, self._limits = EffectivePolicy(host=self._host, gate_flags=gate_flags), NO_LIMITS
        self._pool_warnings: tuple[str, ...] = ()
        self._limit_warnings: tuple[str, ...] = ()
        self._compose()

    @property
    def current(self) -> EffectivePolicy:
        """Returns the policy to decide by, now."""
        self._look()
        return self._current

    @property
    def limits(self) -> BestEffortLimits:
        """Returns what is left to best-effort pods, now."""
        self._look()
        return self._limits

    def in_force(self) -> tuple[EffectivePolicy, BestEffortLimits]:
        """Returns policy and limits of one moment."""
        self._look()
        return self._current, self._limits

    # the documents

    @property
    def warnings(self) -> tuple[str, ...]:
        """Returns what is wrong with the documents and their copies, and which settings have no effect on this node.

        It is empty when all was taken whole and kept.
        """
        away = f"{self._cluster_unknown}; {FROZEN}" if self._cluster_unknown else self._cluster.outage
        policy = self.current
        gates = (*featuregates.without_effect(policy.gate_flags, policy.node.features), policy.unused_ratio)
        layers = (*self._cluster.warnings, *self._layer_warnings, away)
        found = (*self.file.warnings, *layers, *self._without_effect(), *gates, self.file.copy_problem)
        return tuple(filter(None, found))

    @property
    def layers(self) -> Mapping[str, Provenance]:
        """Returns the provenance of the file and of the layers over it, the lowest first; none without a cluster."""
        cluster = self._cluster.layers
        return {FILE: self.file.provenance, **cluster} if cluster else {}

    @property
    def overall(self) -> Provenance:
        """Returns the provenance of the policy in force as a whole."""
        layers = self.layers
        if not layers:
            return self.file.provenance
        unknown = self.current.policy_unknown
        return Provenance(Origin.UNKNOWN, "", problem=unknown) if unknown else provenance.overall(layers.values())

    def load(self) -> None:
        """Reads the rules file again; a bad file, an empty one and none change nothing but the warnings."""
        is_taken = self.file.load()
        self._host = self._looked_up()
        self._compose()
        if is_taken:
            self._tell()

    def look_at_host(self) -> bool:
        """Looks up the host's facts again, but does not read the file. Returns whether that changed the policy."""
        before, self._host = self._host, self._looked_up()
        return self._host is not before and self._make()

    def recompose(self) -> bool:
        """Takes over what the cluster says now. Returns whether that changed the policy."""
        has_changed = self._compose()
        self._tell()
        return has_changed

    def _looked_up(self) -> HostFacts:
        host = self._host_facts()
        return self._host if host == self._host else host

    def _compose(self) -> bool:
        """Lays the documents over each other. Returns whether that changed the policy."""
        self._cluster_unknown = self._cluster.unknown(self.file.is_known)
        self._unknown = "; ".join(filter(None, (self.file.unknown, self._cluster_unknown)))
        warnings: list[str] = []
        unknown = NodePolicy()
        stated = unknown if self._unknown else overlay(self.file.policy, self._cluster.stated, warnings.append)
        self._documents, self._layer_warnings = stated, tuple(warnings)
        slo = stated.spec if self._unknown else slo_defaults.in_force(stated.spec)
        self._slo = self._slo if slo == self._slo else slo
        return self._make()

    def _without_effect(self) -> tuple[str, ...]:
        """Returns which settings of the policy in force have no effect on this node."""
        source = self._documents.source
        idle = [f"{source}: {sentence}" for sentence in sloeffects.without_effect(self._documents.spec, self._current)]
        return shortened(source, idle)

    def _tell(self) -> None:
        """Logs each warning once, as long as it holds."""
        warnings = self.warnings
        _log_new(self._told, warnings)
        self._told = frozenset(warnings)

    # the pods

    @property
    def cpu_warnings(self) -> tuple[str, ...]:
        """Returns what is contradictory about pods' CPUs, or about the CPUs that strategies leave."""
        return (*self._pool_warnings, *self._limit_warnings)

    def update(
        self,
        topology: Topology,
        pods: tuple[PodView, ...],
        kubelet_cpus: Mapping[str, str],
        monotonic_ns: int,
        fought: Mapping[str, str] = _NO_CPUS,
    ) -> EffectivePolicy:
        """Returns the policy with these facts; ``pods`` and the others are compared by identity.

        ``fought``: by cgroup, the CPUs of containers whose CPU set another writer fights for.
        """
        has_forgotten = self._forget({pod.uid for pod in pods}, monotonic_ns) if self._expected else False
        seen = _Seen(topology, pods, kubelet_cpus, fought)
        if has_forgotten or self._seen is None or not self._seen.is_same(seen):
            self._seen = seen
            self._make()
        return self.current

    def expect(self, pod: PodContext, monotonic_ns: int) -> bool:
        """Takes the CPUs of a pod whose sandbox is being made out of the pools. Returns whether that changed the
        policy.
        """
        if not pod.bound_cpus or self._seen is None:
            return False
        self._expected[pod.request.uid] = (pod, monotonic_ns)
        return self._make()

    def _forget(self, seen_uids: set[str], monotonic_ns: int) -> bool:
        """Drops the expected pods that were seen or that never came. Returns whether there was one."""
        kept = {
            uid: entry
            for uid, entry in self._expected.items()
            if uid not in seen_uids and monotonic_ns - entry[1] < EXPECTED_NS
        }
        has_gone = len(kept) < len(self._expected)
        self._expected = kept
        return has_gone

    # what is left to best-effort pods

    def set_best_effort_limits(self, limits: BestEffortLimits) -> None:
        """Sets what strategies leave to best-effort pods from now on; the limits are made anew when the pods change.

        Any thread may call this: it is one assignment, and each later reader of ``limits`` sees it.
        """
        self._left = limits

    def bound_tier(self, cpus: str) -> bool:
        """Sets the CPUs that kubelet's BestEffort tier has (``TierCPUs``). Returns whether that changed the limits."""
        if cpus == self._tier_cpus:
            return False
        self._tier_cpus = cpus
        self._limit()
        return True

    # how both are made

    def _look(self) -> None:
        if self._kubelet() != self._kubelet_facts:
            self._make()
        elif self._left is not self._limited_by:
            self._limit()

    def _make(self) -> bool:
        """Makes the policy of all that is known. Returns whether that changed it."""
        self._kubelet_facts, stated, before = self._kubelet(), self._documents, self._current
        node = kubeletpolicy.overlay(stated.node, self._kubelet_facts)
        pools = Pools(node.ls_pools, node.be_pools) if self._seen is None else self._pools(self._seen, node)
        node = replace(node, ls_pools=pools.ls, be_pools=pools.be, kubelet_cpus=pools.kubelet)
        made = EffectivePolicy(
            self._slo, node, self._host, self._unknown, self._gate_flags, stated.slo_generation, stated.bad_settings
        )
        self._current = before if made == before else made
        why = f"{node.cpus_unknown}: which CPUs kubelet gave exclusively is unknown, so no CPU set is widened"
        warnings = (*([why] if node.cpus_unknown else ()), *pools.warnings)
        _log_new(self._pool_warnings, warnings)
        self._pool_warnings = warnings
        self._limit()
        return self._current is not before

    def _pools(self, seen: _Seen, node: NodeSettings) -> Pools:
        """Returns the pools; none while the policy is unknown, and with it reserved CPUs and the file's pools."""
        expected = [pod for pod, _ in self._expected.values()]
        pools = compute_pools(seen.topology, seen.pods, node, seen.kubelet_cpus, expected, seen.fought)
        return replace(pools, ls=(), be=()) if self._unknown else pools

    def _limit(self) -> None:
        """Makes the limits of what strategies leave; keeps the tick's object while the new one equals it."""
        self._limited_by = left = self._left
        by_strategy = {} if self._unknown else left.by_strategy
        topology, pods = (None, ()) if self._seen is None else (self._seen.topology, self._seen.pods)
        node = self._current.node
        made, warnings = scheduling.limits(by_strategy, node, topology, pods, self._limits, self._tier_cpus)
        self._limits = next((each for each in (self._limits, left) if each == made), made)
        _log_new(self._limit_warnings, warnings)
        self._limit_warnings = warnings


def _log_new(before: Iterable[str], warnings: Iterable[str]) -> None:
    for warning in warnings:
        if warning not in before:
            _log.warning("%s", warning)
