"""Updates of the resources of containers that servers have edited."""

from __future__ import annotations

from typing import Any

import pytest

from koord.pb.cri import api_pb2 as cri
from tests.runtimeproxy.cri.interceptor.servers import answer, best_effort, exclusive, told
from tests.runtimeproxy.cri.rig import Rig, container
from tests.runtimeproxy.hooks.doubles import koordlet, saying


async def test_an_update_of_the_cpu_set_stays_one() -> None:
    rig = Rig({"a.json": koordlet(exclusive)})
    await rig.run_pod()
    await rig.create()
    await rig.update(cpuset_cpus="0-7")
    assert rig.sent.linux == cri.LinuxContainerResources(cpuset_cpus="2-3")
    asked = told(rig, "PreUpdateContainerResources")[0]
    assert asked.container_meta.id == "c1"
    assert (asked.container_resources.cpu_quota, asked.container_resources.cpuset_cpus) == (-1, "0-7")
    assert (asked.container_resources.cpu_shares, asked.container_envs["PATH"]) == (2, b"/bin")


async def test_an_update_never_brings_back_what_kubelet_asked_for_at_first() -> None:
    rig = Rig({"a.json": koordlet(best_effort)})
    await rig.create(container(cpuset_cpus="0-7"))
    rig.server().handler = koordlet()
    await rig.update(cpuset_mems="0")
    assert rig.sent.linux == cri.LinuxContainerResources(cpuset_mems="0")
    asked = told(rig, "PreUpdateContainerResources")[0].container_resources
    assert (asked.cpu_shares, asked.cpu_quota, asked.cpuset_cpus) == (1024, 200_000, "")


async def test_a_cpu_set_that_the_server_drops_is_withdrawn_from_the_update() -> None:
    rig = Rig({"a.json": koordlet(best_effort)})
    await rig.create()
    await rig.update(cpuset_cpus="0-7")
    assert rig.sent.linux.cpuset_cpus == ""
    assert told(rig, "PreUpdateContainerResources")[0].container_resources.cpu_shares == 1024
    assert not rig.sent.linux.HasField("cpu_shares")
    await rig.update(cpu_shares=1024)
    assert told(rig, "PreUpdateContainerResources")[1].container_resources.cpuset_cpus == ""


async def test_a_resize_gets_the_hooks_values_again() -> None:
    rig = Rig({"a.json": koordlet(exclusive)})
    await rig.create()
    await rig.update(cpu_quota=300_000, cpu_shares=3072, memory_limit_in_bytes=1 << 31)
    assert rig.sent.linux == cri.LinuxContainerResources(cpu_quota=-1, cpu_shares=3072, memory_limit_in_bytes=1 << 31)


async def test_zero_means_leave_alone_in_an_update() -> None:
    rig = Rig({"a.json": saying(answer(cpu_quota=0, memory_limit_in_bytes=0, cpuset_mems=""))})
    await rig.create(container(cpu_quota=5, memory_limit_in_bytes=6, cpuset_mems="0"))
    await rig.update(cpu_quota=9000, cpuset_cpus="1")
    assert rig.sent.linux == cri.LinuxContainerResources(cpu_quota=9000, cpuset_cpus="1")


@pytest.mark.parametrize("score", [None, 0, 500, -997])
async def test_servers_see_the_containers_own_oom_score_whatever_an_update_says(score: int | None) -> None:
    rig = Rig({"a.json": koordlet(exclusive)})
    await rig.create(container(oom_score_adj=985))
    for cpus in ("0-7", "4-7"):
        own: dict[str, Any] = {} if score is None else {"oom_score_adj": score}
        await rig.update(cpuset_cpus=cpus, **own)
        assert rig.sent.linux == cri.LinuxContainerResources(cpuset_cpus="2-3", oom_score_adj=score)
    asked = told(rig, "PreUpdateContainerResources")
    assert [each.container_resources.oom_score_adj for each in asked] == [985, 985]


async def test_what_the_runtime_did_not_accept_was_not_asserted() -> None:
    rig = Rig({"a.json": koordlet()})
    await rig.create()
    request = cri.UpdateContainerResourcesRequest(container_id="c1", linux=cri.LinuxContainerResources(cpu_shares=999))
    await rig.call("UpdateContainerResources", request, status=13)
    await rig.update(cpuset_cpus="1")
    assert told(rig, "PreUpdateContainerResources")[1].container_resources.cpu_shares == 2


async def test_updates_without_a_server_are_remembered() -> None:
    rig = Rig({})
    await rig.create()
    await rig.update(cpu_shares=999)
    rig.callers["/run/a.json"] = rig.callers["/run/containerd.sock"].__class__(koordlet())
    rig.interceptor.use(Rig({"a.json": koordlet()}).loaded)
    await rig.update(cpuset_cpus="1")
    assert told(rig, "PreUpdateContainerResources")[0].container_resources.cpu_shares == 999
    rig.interceptor.close()
