"""NodeInspect against a CRI server on a socket and a cgroup tree on disk, on v1 and v2 and in both path styles."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from koord.host import cgroup
from koord.pb.koord import inspect_pb2 as inspect
from qosd.hooks.rules import HostFacts
from qosd.inspect.runtime import Runtime, RuntimeUnreachable
from qosd.inspect.service import Inspector
from qosd.metrics import Metrics
from qosd.rules import RulesSource
from tests.qosd.fake_cri import FakeRuntime
from tests.qosd.pods import EXTENDED, QOS, extended

PARENT_V1 = "/kubepods/besteffort/pod1"
PARENT_V2 = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice"
BE = {
    "labels": {QOS: "BE"},
    "annotations": {EXTENDED: json.dumps(extended(request="1500", limit="2000", memory="4Gi"))},
}


def fill(directory: Path, files: dict[str, str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text + "\n")


def v1_tree(root: Path, group: str, quota: str = "200000") -> None:
    path = group.lstrip("/")
    fill(root / "cpu" / path, {"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": "100000", "cpu.shares": "1536"})
    fill(root / "cpuset" / path, {"cpuset.cpus": "0-1", "cpuset.mems": "0"})
    fill(root / "cpuset" / path.rpartition("/")[0], {"cpuset.cpus": "0-1", "cpuset.mems": "0"})
    fill(root / "memory" / path, {"memory.limit_in_bytes": str(4 << 30)})


def v2_tree(root: Path, group: str) -> None:
    fill(root, {"cgroup.controllers": "cpu cpuset memory"})
    path = root / group.lstrip("/")
    fill(
        path,
        {"cpu.max": "200000 100000", "cpu.weight": "59", "cpuset.cpus.effective": "0-1", "memory.max": str(4 << 30)},
    )
    fill(path.parent, {"cpuset.cpus.effective": "0-3"})


@asynccontextmanager
async def inspector(
    tmp_path: Path, fake: FakeRuntime, rules_file: str = "", version: int = 1
) -> AsyncIterator[Inspector]:
    (tmp_path / "rules.yaml").write_text(rules_file)
    rules = RulesSource(tmp_path / "rules.yaml", lambda: HostFacts(cgroup_version=version), Metrics())
    rules.load()
    async with fake.serving(tmp_path / "cri.sock") as endpoint:
        runtime = Runtime(endpoint, 5)
        try:
            yield Inspector(runtime, cgroup.detect(tmp_path / "cgroup", ""), rules, lambda: 42)
        finally:
            await runtime.close()


def shown(container: inspect.Container) -> dict[str, tuple[str | None, str | None]]:
    return {
        value.field: (
            value.desired if value.HasField("desired") else None,
            value.actual if value.HasField("actual") else None,
        )
        for value in container.values
    }


async def test_no_runtime_is_said_with_its_endpoint(tmp_path: Path) -> None:
    runtime = Runtime(f"unix://{tmp_path}/none.sock", 2)
    with pytest.raises(RuntimeUnreachable, match=r"none\.sock: ListPodSandbox: UNAVAILABLE"):
        await runtime.sandboxes("", "")
    await runtime.close()


async def test_a_pod_that_goes_away_costs_only_its_own_values(tmp_path: Path) -> None:
    fake = FakeRuntime()
    gone = fake.add_pod("gone", PARENT_V1, **BE)
    container = fake.add_container(gone, "main", "x")
    del fake.parents[gone], fake.cgroups_paths[container]
    async with inspector(tmp_path, fake) as asked:
        answer = await asked.list_pods("", "")
    values = shown(answer.pods[0].containers[0])
    assert values["cpu_shares"] == ("1536", None)
    assert values["cpu_period"] == (None, None)
    assert answer.pods[0].cgroup_parent == ""


async def test_cgroup_v1_with_the_cgroupfs_driver(tmp_path: Path) -> None:
    fake = FakeRuntime()
    sandbox = fake.add_pod("job", PARENT_V1, **BE)
    fake.add_container(sandbox, "main", f"{PARENT_V1}/c1")
    v1_tree(tmp_path / "cgroup", f"{PARENT_V1}/c1", quota="150000")
    async with inspector(tmp_path, fake) as asked:
        answer = await asked.list_pods("", "")
    pod = answer.pods[0]
    assert (pod.qos_class, pod.qos_source, pod.priority_class) == ("BE", "label", "koord-batch")
    assert (pod.cgroup_parent, pod.state, answer.observed_unix_ns) == (PARENT_V1, "SANDBOX_READY", 42)
    assert shown(pod.containers[0]) == {
        "cpuset_cpus": ("", ""),  # wanted: the parent's; the kernel's set is the parent's
        "cpu_quota": ("200000", "150000"),
        "cpu_period": (None, "100000"),
        "cpu_shares": ("1536", "1536"),
        "memory_limit_in_bytes": (str(4 << 30), str(4 << 30)),
    }
    quota = pod.containers[0].values[1]
    assert quota.file == f"{tmp_path}/cgroup/cpu{PARENT_V1}/c1/cpu.cfs_quota_us"
    assert quota.why == "batchResource: batch-cpu limit 2000m"
    assert quota.raw == "150000"


async def test_cgroup_v2_with_the_systemd_driver(tmp_path: Path) -> None:
    fake = FakeRuntime()
    sandbox = fake.add_pod("job", PARENT_V2, **BE)
    fake.add_container(sandbox, "main", "kubepods-besteffort-pod1.slice:cri-containerd:c1")
    v2_tree(tmp_path / "cgroup", f"{PARENT_V2}/cri-containerd-c1.scope")
    async with inspector(tmp_path, fake, "node: {sharedPools: {be: [{cpuset: 0-1}]}}", version=2) as asked:
        answer = await asked.list_pods("", "")
    assert answer.pods[0].containers[0].cgroup_path == f"{PARENT_V2}/cri-containerd-c1.scope"
    assert shown(answer.pods[0].containers[0]) == {
        "cpuset_cpus": ("0-1", "0-1"),
        "cpu_quota": ("200000", "200000"),
        "cpu_period": (None, "100000"),
        "cpu_shares": ("1536", "1536"),
        "memory_limit_in_bytes": (str(4 << 30), str(4 << 30)),
    }


async def test_the_path_is_found_when_the_runtime_does_not_tell(tmp_path: Path) -> None:
    fake = FakeRuntime()
    sandbox = fake.add_pod("job", PARENT_V1)
    container = fake.add_container(sandbox, "main", "")
    v1_tree(tmp_path / "cgroup", f"{PARENT_V1}/{container}")
    async with inspector(tmp_path, fake) as asked:
        answer = await asked.list_pods("", "")
    assert answer.pods[0].containers[0].cgroup_path == f"{PARENT_V1}/{container}"


async def test_the_newest_sandbox_of_a_pod_counts_and_the_filters_work(tmp_path: Path) -> None:
    fake = FakeRuntime()
    fake.add_pod("a", "/kubepods/poda")
    fake.add_pod("b", "/kubepods/podb")
    fake.add_pod("a", "/kubepods/poda", attempt=1)
    async with inspector(tmp_path, fake, "node: {x: 1}") as asked:
        assert [pod.sandbox_id for pod in (await asked.list_pods("", "")).pods] == ["sandbox-a-1", "sandbox-b-0"]
        assert [pod.name for pod in (await asked.list_pods("default", "b")).pods] == ["b"]
        assert list((await asked.list_pods("other", "")).pods) == []
        assert "node.x" in (await asked.list_pods("", "")).warnings[0]


async def test_a_scaled_quota_is_shown_as_met_and_a_new_ratio_as_missing(tmp_path: Path) -> None:
    fake = FakeRuntime()
    sandbox = fake.add_pod("web", "/kubepods/burstable/pod1", labels={QOS: "LS"})
    fake.add_container(
        sandbox,
        "main",
        "/kubepods/burstable/pod1/c1",
        83334,
        {"qosd.koord.sh/cpu-quota-spec-and-scaled": "100000/83334"},
    )
    v1_tree(tmp_path / "cgroup", "/kubepods/burstable/pod1/c1", quota="83334")
    for ratio, desired in (("1.2", "83334"), ("1.5", "66667")):
        async with inspector(tmp_path, fake, f"node: {{cpuNormalizationRatio: {ratio}}}") as asked:
            answer = await asked.list_pods("", "")
        assert shown(answer.pods[0].containers[0])["cpu_quota"] == (desired, "83334")


async def test_a_running_guaranteed_pod_under_cpu_manager_static_is_lsr(tmp_path: Path) -> None:
    fake = FakeRuntime()
    fake.add_pod("db", "/kubepods/pod1", annotations={"koordinator.sh/cpuQOS": "{"})
    async with inspector(tmp_path, fake, "node: {cpuManagerPolicy: static}") as asked:
        pod = (await asked.list_pods("", "")).pods[0]
    assert pod.qos_class == "LSR"
    assert pod.qos_source == "kubernetes QoS Guaranteed, running under CPU manager static"
    assert pod.problems[0].startswith("koordinator.sh/cpuQOS: '{'")
