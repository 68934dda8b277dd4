"""What a storm's pods are, what came of their calls, and what must exist at its end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from integration.demo import pods as demo
from integration.harness.cri import RUNTIME
from integration.harness.pods import Container, Pod
from integration.storm.client import Caller
from integration.storm.groups import Groups
from koord.pb.cri import api_pb2 as pb

LAST_CPU = 1
RULES = demo.rules(LAST_CPU)
QUOTAS_US = (40_000, 20_000)  # at creation and after the update; the pod's own limit is the first
POD_UID = "io.kubernetes.pod.uid"
LOOK_S = 0.25


@dataclass(slots=True)
class Tally:
    """What came of the calls; ``present`` and ``absent`` are interrupted creations, ``failures`` were not in flight
    and failed all the same. ``refused`` were answered with an error by a runtime that was away or coming back, and
    ``late`` containers were put right by the node daemon, after a creation without it.
    """

    interrupted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    present: int = 0
    absent: int = 0
    late: int = 0
    pods: int = 0
    wrecks: int = 0
    failures: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Living:
    """A running container and the values that its cgroup must show."""

    pod: Pod
    sandbox_id: str
    container_id: str
    expected: dict[str, object]

    def wrong(self, groups: Groups) -> list[str]:
        """What the kernel shows otherwise."""
        difference = groups.differences(self.pod, self.container_id, self.expected)
        return [f"{self.container_id[:12]}: {difference}"] if difference else []


def latency_sensitive(root: str, number: int) -> tuple[Pod, dict[str, object]]:
    """An LS pod: kubelet asks for no CPU set, the hook server gives it the shared pool."""
    container = Container("main", cpu_request_milli=250, cpu_limit_milli=400, memory_limit_bytes=64 << 20)
    pod = Pod(f"ls-{number}", (container,), labels={demo.QOS: "LS"}, cgroup_root=root)
    return pod, {"cpuset_cpus": str(LAST_CPU), "cfs_quota_us": QUOTAS_US[0], "cpu_shares": 256}


def best_effort(root: str, number: int) -> tuple[Pod, dict[str, object]]:
    """A BE pod with batch resources, which kubelet knows nothing of."""
    pod = demo.best_effort(root, f"be-{number}")
    return pod, {"cfs_quota_us": 50_000, "cpu_shares": 512, "memory_limit_bytes": 64 << 20}


async def disagreements(
    living: Iterable[Living], wrecked: set[str], groups: Groups, direct: Caller, patience_s: float
) -> list[str]:
    """How the runtime's containers and their cgroups differ from the ledger; empty if they do not.

    ``wrecked``: uids of pods that do not count. Values may take ``patience_s`` to come right.
    """
    answer = await direct.call(RUNTIME + "ListContainers", pb.ListContainersRequest(), pb.ListContainersResponse)
    exist = {item.id: item.state for item in answer.containers if item.labels[POD_UID] not in wrecked}
    ledger = {entry.container_id: entry for entry in living if entry.pod.uid not in wrecked}
    wrong = [f"{cid[:12]} exists and should not" for cid in exist.keys() - ledger.keys()]
    wrong += [f"{cid[:12]} should exist" for cid in ledger.keys() - exist.keys()]
    stopped = {cid: state for cid, state in exist.items() if cid in ledger and state != pb.CONTAINER_RUNNING}
    wrong += [f"{cid[:12]} is in state {state}" for cid, state in stopped.items()]
    return wrong + [text for entry in ledger.values() for text in await settled_wrong(entry, groups, patience_s)]


async def settled_wrong(living: Living, groups: Groups, patience_s: float) -> list[str]:
    """What is still wrong after at most ``patience_s``."""
    for _ in range(round(patience_s / LOOK_S)):
        if not living.wrong(groups):
            return []
        await asyncio.sleep(LOOK_S)
    return living.wrong(groups)
