"""What the runtime gets of a pod that servers edit, and of its containers then."""

from __future__ import annotations

import pytest

from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.hooks.hookfile import FailurePolicy
from tests.runtimeproxy.cri.interceptor.servers import MOVED, best_effort, moving, told
from tests.runtimeproxy.cri.rig import PARENT, Rig, Runtime, pod
from tests.runtimeproxy.hooks.doubles import failing, koordlet, saying


async def test_an_edited_sandbox_is_repeated_in_each_of_its_containers() -> None:
    rig = Rig({"a.json": koordlet(pod=moving)})
    await rig.run_pod()
    assert rig.sent.config.linux.cgroup_parent == MOVED
    await rig.create()
    got = rig.sent.sandbox_config
    assert got.linux.cgroup_parent == MOVED
    assert got.annotations["rdt.resources.beta.kubernetes.io/pod"] == "BE"
    assert told(rig, "PreCreateContainer")[0].pod_cgroup_parent == MOVED
    assert ("pod ns/pod", "cgroup_parent", PARENT, MOVED, "sandbox") in rig.recorder.audit


SLICES = "/kubepods.slice/kubepods-besteffort.slice"
SLICE, OTHER = "kubepods-besteffort-podx.slice", "kubepods-besteffort-pody.slice"


@pytest.mark.parametrize(
    ("runtimes", "kubelets", "sent"),
    [
        (f"{SLICES}/{SLICE}", f"{SLICES}/{SLICE}", None),
        (SLICE, f"{SLICES}/{SLICE}", None),
        (OTHER, f"{SLICES}/{SLICE}", OTHER),
        (MOVED, PARENT, MOVED),
    ],
    ids=["the same", "its short form", "another slice", "another path"],
)
async def test_a_parent_that_a_predecessor_edited_is_repeated(runtimes: str, kubelets: str, sent: str | None) -> None:
    rig = Rig({"a.json": koordlet()}, runtime=Runtime(pods={"p1": pod(runtimes)}))
    await rig.create(sandbox=pod(kubelets))
    assert rig.sent.sandbox_config.linux.cgroup_parent == (sent or kubelets)
    assert ([line[1] for line in rig.recorder.audit] == ["cgroup_parent"]) == (sent is not None)


async def test_a_parent_outside_the_pods_tree_is_refused() -> None:
    def away(request: hooks.PodSandboxHookRequest, said: hooks.PodSandboxHookResponse) -> None:
        said.cgroup_parent = "/elsewhere"
        said.labels["io.kubernetes.pod.uid"] = "another"

    rig = Rig({"a.json": koordlet(pod=away)})
    await rig.run_pod()
    assert rig.sent.config == pod()
    assert (rig.counted("guard", "cgroup_parent"), rig.counted("guard", "key")) == (1, 1)
    allowed = Rig({"a.json": koordlet(pod=away)}, foreign_parents=True)
    await allowed.run_pod()
    assert allowed.sent.config.linux.cgroup_parent == "/elsewhere"


async def test_pod_resources_are_edited_at_run_and_at_update() -> None:
    said = hooks.PodSandboxHookResponse(resources=hooks.LinuxContainerResources(cpu_shares=5, cpu_quota=0))
    rig = Rig({"a.json": saying(said)})
    await rig.run_pod()
    assert rig.sent.config.linux.resources.cpu_shares == 5
    request = cri.UpdatePodSandboxResourcesRequest(
        pod_sandbox_id="p1", resources=cri.LinuxContainerResources(cpu_quota=7, cpu_shares=9)
    )
    await rig.call("UpdatePodSandboxResources", request)
    assert rig.sent.resources == cri.LinuxContainerResources(cpu_quota=7, cpu_shares=5)
    assert told(rig, "PreUpdatePodSandboxResources")[0].resources.cpu_shares == 9


async def test_hooks_may_refuse_starts_and_removals_only() -> None:
    rig = Rig({"a.json": koordlet(best_effort, moving)})
    await rig.run_pod()
    await rig.create()
    await rig.call("StartContainer", cri.StartContainerRequest(container_id="c1"))
    assert rig.sent == cri.StartContainerRequest(container_id="c1")
    rig.server().handler = failing()
    await rig.call("StartContainer", cri.StartContainerRequest(container_id="c1"))
    failing_closed = Rig({"a.json": failing()}, policy=FailurePolicy.FAIL, runtime=rig.runtime)
    assert await failing_closed.call("StartContainer", cri.StartContainerRequest(container_id="c1"))
    assert await failing_closed.call("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id="p1"))
