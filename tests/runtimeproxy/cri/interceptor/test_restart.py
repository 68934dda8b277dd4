"""What is read from the runtime again, after a restart and after a bypass."""

from __future__ import annotations

from typing import Any

import pytest

from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.cri.record import RECORD
from tests.runtimeproxy.cri.interceptor.servers import MOVED, exclusive, moving, told
from tests.runtimeproxy.cri.rig import Rig, container, pod
from tests.runtimeproxy.hooks.doubles import Handler, koordlet, saying


async def restarted(rig: Rig, handler: Handler, **options: Any) -> Rig:
    return Rig({"a.json": handler}, runtime=rig.runtime, **options)


async def test_after_a_restart_a_sandboxs_edits_are_read_from_the_runtime() -> None:
    before = Rig({"a.json": koordlet(pod=moving)})
    await before.run_pod()
    rig = await restarted(before, koordlet(), stages=frozenset())
    sandbox = pod()
    sandbox.annotations["note"] = "changed since"
    await rig.create(sandbox=sandbox)
    got = rig.sent.sandbox_config
    assert got.linux.cgroup_parent == MOVED
    assert got.annotations["rdt.resources.beta.kubernetes.io/pod"] == "BE"
    assert got.annotations["note"] == "changed since"
    await rig.create(container_id="c2")
    assert rig.sent.sandbox_config.linux.cgroup_parent == MOVED
    assert rig.runtime.calls.count("PodSandboxStatus") == 1
    rig.interceptor.close()


def noting(request: hooks.PodSandboxHookRequest, said: hooks.PodSandboxHookResponse) -> None:
    said.annotations["by-hook"] = "new"


@pytest.mark.parametrize("rule", [moving, noting, lambda request, said: None])
async def test_after_a_restart_an_annotation_that_the_user_removed_stays_removed(rule: Any) -> None:
    before = Rig({"a.json": koordlet(pod=rule)})
    sandbox = pod()
    sandbox.annotations.update({"removed": "x", "by-user": "1"})
    await before.run_pod(sandbox)
    rig = await restarted(before, koordlet())
    now = pod()
    now.annotations["by-user"] = "2"
    for container_id in ("c1", "c2"):
        await rig.create(sandbox=now, container_id=container_id)
        assert "removed" not in rig.sent.sandbox_config.annotations
        assert RECORD not in rig.sent.sandbox_config.annotations
    assert all(RECORD not in each.pod_annotations for each in told(rig, "PreCreateContainer"))
    rig.interceptor.close()


async def test_after_a_restart_annotations_are_as_they_would_be_without_it() -> None:
    """Set, replaced and deleted ones."""
    handler = saying(
        hooks.PodSandboxHookResponse(annotations={"set": "1", "changed": "hook"}, removed_annotations=["gone"])
    )
    before = Rig({"a.json": handler})
    sandbox = pod()
    sandbox.annotations.update({"changed": "user", "gone": "x"})
    await before.run_pod(sandbox)
    after = await restarted(before, koordlet())
    for rig in (before, after):
        await rig.create(sandbox=sandbox)
    assert after.sent.sandbox_config == before.sent.sandbox_config
    assert dict(after.sent.sandbox_config.annotations)["changed"] == "hook"
    assert "gone" not in after.sent.sandbox_config.annotations
    after.interceptor.close()


async def test_after_a_restart_a_containers_resources_are_read_from_the_runtimes_spec() -> None:
    before = Rig({"a.json": koordlet()})
    await before.run_pod()
    await before.create()
    before.runtime.specs["c1"] = {
        "process": {"env": ["PATH=/bin", "HOSTNAME=x", "RAW=\ufffd\ufffd"], "oomScoreAdj": 1000},
        "linux": {"resources": {"cpu": {"shares": 1024, "quota": -1, "cpus": "2-3"}, "memory": {"limit": 5}}},
    }
    rig = await restarted(before, koordlet(exclusive))
    await rig.update(cpuset_cpus="0-7")
    asked = told(rig, "PreUpdateContainerResources")[0]
    assert dict(asked.container_envs) == {"PATH": b"/bin"}
    assert asked.pod_labels["app"] == "batch"
    assert (asked.container_resources.cpu_shares, asked.container_resources.cpu_quota) == (1024, -1)
    assert rig.sent.linux == cri.LinuxContainerResources(cpuset_cpus="2-3")
    rig.interceptor.close()


async def test_what_is_remembered_is_read_again_after_a_bypass() -> None:
    """kubelet set a quota meanwhile: a hook that is shown its own old answer instead would seem to change nothing."""
    rig = Rig({"a.json": koordlet(exclusive)})
    await rig.run_pod()
    await rig.create(container(cpu_quota=50_000))
    rig.runtime.specs["c1"] = {"linux": {"resources": {"cpu": {"quota": 200_000, "period": 100_000}}}}
    rig.interceptor.forget()
    await rig.update(cpuset_cpus="0-7")
    assert told(rig, "PreUpdateContainerResources")[-1].container_resources.cpu_quota == 200_000
    assert rig.sent.linux.cpu_quota == -1
    rig.interceptor.close()
