"""A node where only kubelet tells of pods: what it has made of their limits stands in the kernel's files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from qosd.locator import cfs_period_in
from tests.qosd.contexts import QOS
from tests.qosd.machine import Machine
from tests.qosd.pods.source_rig import FakeKubelet
from tests.qosd.test_node import BATCH, Living, living

ID = "ab" * 32
WEB, JOB = "/kubepods/poduid-web", "/kubepods/besteffort/poduid-job"


@asynccontextmanager
async def kubelet_alone(machine: Machine) -> AsyncIterator[tuple[Living, FakeKubelet]]:
    server = FakeKubelet()
    listener = await asyncio.start_server(server.converse, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with listener, living(machine, runtime_endpoint="", kubelet_endpoint=url) as alive:
        yield alive, server


def container(machine: Machine, pod_cgroup: str, quota_us: int, period_us: int) -> str:
    """A container as kubelet had it made."""
    cgroup = f"{pod_cgroup}/{ID}"
    for each in (pod_cgroup, cgroup):
        machine.cgroups.make(each)
    if machine.version == 1:
        machine.cgroups.path(cgroup, "cpu.cfs_period_us").write_text(f"{period_us}\n")
        machine.cgroups.path(cgroup, "cpu.cfs_quota_us").write_text(f"{quota_us}\n")
    else:
        quota = "max" if quota_us < 0 else quota_us
        machine.cgroups.path(cgroup, "cpu.max").write_text(f"{quota} {period_us}\n")
    return cgroup


@pytest.fixture(params=[1, 2])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    made = Machine(tmp_path, request.param)
    made.kubepods()
    made.put("rules.yaml", json.dumps({"node": {"cpuNormalizationRatio": "1.20"}}))
    return made


STATUSES = [{"name": "main", "containerID": f"containerd://{ID}", "state": {"running": {}}}]
HALF = {"kubernetes.io/batch-cpu": "500"}
HALF_A_CPU = {"name": "main", "resources": {"requests": HALF, "limits": HALF}}
LIMITED = [{"name": "main", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}]


@pytest.mark.parametrize(
    ("quota_us", "period_us", "scaled_us"),
    [(20_000, 10_000, 16_667), (-1, 100_000, -1), (200_000, 100_000, 166_667), (250_000, 100_000, 208_334)],
    ids=["cpuCFSQuotaPeriod: 10ms", "cpuCFSQuota: false", "the default", "another writer"],
)
async def test_what_stands_in_the_file_is_what_is_scaled(
    machine: Machine, quota_us: int, period_us: int, scaled_us: int
) -> None:
    cgroup = container(machine, WEB, quota_us, period_us)
    async with kubelet_alone(machine) as (alive, kubelet):
        kubelet.pod("web", labels={QOS: "LS"}, qosClass="Guaranteed", containers=LIMITED, containerStatuses=STATUSES)
        await alive.until(lambda: alive.node.pods.current and alive.node.pods.current[0].containers, "the container")
        await alive.until(lambda: alive.quota(cgroup) == scaled_us, "the quota")
        for _ in range(3):
            await alive.until(lambda: True, "a tick")
        assert alive.quota(cgroup) == scaled_us
        assert cfs_period_in(machine.locator().tree, cgroup) == period_us


async def test_a_batch_quota_is_of_the_period_that_the_container_has(machine: Machine) -> None:
    cgroup = container(machine, JOB, -1, 10_000)
    async with kubelet_alone(machine) as (alive, kubelet):
        kubelet.pod(
            "job", labels={QOS: "BE"}, annotations=BATCH, qosClass="BestEffort",
            containers=[HALF_A_CPU], containerStatuses=STATUSES,
        )  # fmt: skip
        await alive.until(lambda: alive.quota(cgroup) != -1, "a quota")
        assert alive.quota(cgroup) == 4_167  # 500m of 10 ms, divided by 1.2
