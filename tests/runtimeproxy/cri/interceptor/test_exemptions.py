"""Pods and namespaces that are left alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koord.pb.cri import api_pb2 as cri
from runtimeproxy.cri.exempt import SkipRules
from runtimeproxy.hooks.hookfile import FailurePolicy
from tests.runtimeproxy.cri.interceptor.servers import hooks_asked
from tests.runtimeproxy.cri.rig import Rig, pod
from tests.runtimeproxy.hooks.doubles import failing, koordlet
from tests.support.waiting import until


@pytest.mark.parametrize("where", ["labels", "annotations"])
@pytest.mark.parametrize(
    ("policy", "privileged"), [(FailurePolicy.FAIL, ("ns",)), (FailurePolicy.FAIL, ("*",)), (FailurePolicy.IGNORE, ())]
)
async def test_marked_pods_are_left_alone(where: str, policy: FailurePolicy, privileged: tuple[str, ...]) -> None:
    marked = pod()
    getattr(marked, where)["runtimeproxy.koordinator.sh/skip-hookserver"] = "true"
    rig = Rig({"a.json": failing()}, policy=policy, skip=SkipRules(privileged_namespaces=privileged))
    assert await rig.run_pod(marked) is None
    assert await rig.create(sandbox=marked) is None
    assert await rig.update(cpuset_cpus="1") is None
    assert await rig.call("StartContainer", cri.StartContainerRequest(container_id="c1")) is None
    assert hooks_asked(rig) == []
    assert rig.counted("exempt", "mark") > 2


async def test_a_pod_cannot_withdraw_itself_from_a_server_that_must_be_heard() -> None:
    """Elsewhere than in the operator's namespaces: the calls are refused as any other's."""
    marked = pod()
    marked.labels["runtimeproxy.koordinator.sh/skip-hookserver"] = "true"
    rig = Rig({"a.json": failing()}, policy=FailurePolicy.FAIL)
    assert await rig.run_pod(marked) is not None
    assert await rig.create(sandbox=marked) is not None
    assert rig.counted("exempt", "mark") == 0


async def test_static_pods_are_left_alone_if_the_operator_says_so() -> None:
    static = pod()
    static.annotations["kubernetes.io/config.source"] = "file"
    for rules, refused in ((SkipRules(), True), (SkipRules(static_pods=True), False)):
        rig = Rig({"a.json": failing()}, policy=FailurePolicy.FAIL, skip=rules)
        assert (await rig.run_pod(static) is not None) == refused
        assert rig.counted("exempt", "static_pod") == (not refused)


async def test_namespaces_are_left_alone() -> None:
    rig = Rig({"a.json": failing()}, policy=FailurePolicy.FAIL, skip=SkipRules(namespaces=("kube-system", "ns")))
    assert await rig.run_pod() is None
    assert rig.counted("exempt", "namespace") == 1


async def served_from_a_pod(proc: Path, peer_pid: int | None) -> Rig:
    """A proxy that has greeted its hook server, which runs in a pod as process 77."""
    own_uid = "aaaaaaaa-1111-2222-3333-444455556666"
    (proc / "77").mkdir()
    (proc / "77" / "cgroup").write_text(
        f"4:cpu:/kubepods.slice/kubepods-pod{own_uid.replace('-', '_')}.slice/cri-containerd-x.scope\n"
    )
    own = pod(labels={"k8s-app": "koordlet", "controller-revision-hash": "1"})
    own.metadata.uid = own_uid
    rig = Rig({"a.json": koordlet()}, policy=FailurePolicy.FAIL, proc=str(proc))
    rig.server().peer_pid = peer_pid
    rig.runtime.pods["p0"] = own
    await rig.interceptor.warm_up()
    await until(lambda: rig.server().asked)  # greeted
    await asyncio.sleep(0.01)
    return rig


async def comes_back(rig: Rig) -> bool:
    """The server is gone; is its pod's next generation let through, and no other?"""
    rig.server().peer_pid = None
    rig.server().handler = failing()
    reborn = pod(labels={"k8s-app": "koordlet", "controller-revision-hash": "2"})
    reborn.metadata.uid = "bbbbbbbb-1111-2222-3333-444455556666"
    let_through = await rig.run_pod(reborn, "p2") is None
    assert await rig.run_pod(pod(), "p3") is not None
    assert rig.counted("exempt", "own_pod") == let_through
    return let_through


async def test_a_servers_own_pod_can_come_back_without_it(tmp_path: Path) -> None:
    rig = await served_from_a_pod(tmp_path, 77)
    assert await comes_back(rig)
    rig.interceptor.close()


@pytest.mark.parametrize("status", [0, 13])
async def test_a_server_that_came_later_is_known_once_a_call_was_answered(tmp_path: Path, status: int) -> None:
    rig = await served_from_a_pod(tmp_path, None)
    rig.server().peer_pid = 77
    await rig.call("RunPodSandbox", cri.RunPodSandboxRequest(config=pod()), status=status)
    assert await comes_back(rig)
    rig.interceptor.close()
