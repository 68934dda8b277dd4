"""A node's rules file, state directory and clock, and what the cluster says of that node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from koord.model.core import Node
from qosd.metrics import Metrics
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.policy.clusterpolicy import NODE_SLO, ClusterPolicy
from qosd.policy.provenance import Origin
from qosd.policy.source import PolicySource
from tests.qosd.policy.test_kept_policy import Disk
from tests.support import kubernetes

BEGIN_S = 1_700_000_000.0
MINUTE_S, HOUR_S = 60.0, 3600.0
AWAY = "https://10.0.0.1:6443: Connection refused"
RESERVATION = "node.koordinator.sh/reservation"
BURST = {"cpuBurstStrategy": {"policy": "auto", "cpuBurstPercent": 500}}
QUOTA = {"cpuBurstStrategy": {"policy": "cfsQuotaBurstOnly"}}
BROKEN = {"resourceQOSStrategy": {"beClass": {"memoryQOS": 5}}}
FILE_SAYS = (
    "spec: {cpuBurstStrategy: {policy: cpuBurstOnly, sharePoolThresholdPercent: 40}}\nnode: {guaranteedAs: LSR}\n"
)
ALL_CLUSTER, ALL_FILE, BY_DEFAULT = ("auto", 500, 40), ("cpuBurstOnly", 1000, 40), ("none", 1000, 50)


def node(annotations: Mapping[str, str] | None = None, uid: str = "u", **allocatable: str) -> Node:
    return kubernetes.read(
        Node, kubernetes.node("worker-1", allocatable, annotations=annotations, metadata={"uid": uid})
    )


HAS = {"cpu": "4", "memory": "6Gi"}
RESERVES = {RESERVATION: '{"reservedCPUs":"0"}'}
RESERVED = node(RESERVES, **HAS)


class Machine:
    """A node's rules file and state directory, and a clock; each ``start`` is a qosd that has just been started."""

    cluster: ClusterPolicy
    source: PolicySource

    def __init__(self, root: Path) -> None:
        self.file, self.state = root / "rules.yaml", root / "state"
        self.now_s = BEGIN_S
        self.changes = 0

    def start(self, is_expected: bool = True) -> None:
        def changed() -> None:
            self.changes += 1
            self.source.recompose()

        def now_s() -> float:
            return self.now_s

        self.cluster = ClusterPolicy(
            changed,
            is_expected=is_expected,
            kept_slo=Disk(self.state / "nodeslo.yaml"),
            kept_node=Disk(self.state / "node.yaml"),
            now_unix_s=now_s,
            clock=now_s,
        )
        self.source = PolicySource(
            self.file, HostFacts, Metrics(), Disk(self.state / "policy.yaml"), now_s, cluster=self.cluster
        )
        self.source.load()

    def take(self, spec: Mapping[str, Any] | None = BURST, generation: int = 12, taken: Node | None = RESERVED) -> None:
        """The session's first words after a start: the API server answers."""
        self.cluster.reached()
        self.cluster.take_slo(spec, generation)
        self.cluster.take_node(taken)

    @property
    def policy(self) -> EffectivePolicy:
        return self.source.current

    def origins(self) -> dict[str, Origin]:
        return {kind: each.origin for kind, each in self.source.layers.items()}

    def age_s(self, kind: str = NODE_SLO) -> float | None:
        return self.source.layers[kind].age_s(self.now_s)

    @property
    def burst(self) -> tuple[str | None, int | None, int | None]:
        strategy = self.policy.slo.cpu_burst
        if strategy is None:
            return None, None, None
        return strategy.policy, strategy.cpu_burst_percent, strategy.share_pool_threshold_percent
