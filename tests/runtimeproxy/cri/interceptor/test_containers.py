"""What the runtime gets of a container that servers edit, and what servers are told of it."""

from __future__ import annotations

import time

import pytest

from koord.pb.cri import api_pb2 as cri
from runtimeproxy.intercept import Call
from tests.runtimeproxy.cri.interceptor.servers import answer, best_effort, told
from tests.runtimeproxy.cri.rig import PARENT, UID, V1, V1ALPHA2, Rig, container, pod
from tests.runtimeproxy.hooks.doubles import koordlet, saying


async def test_an_echo_edits_nothing() -> None:
    rig = Rig({"a.json": koordlet()})
    request = cri.CreateContainerRequest(pod_sandbox_id="p1", config=container(), sandbox_config=pod())
    message = request.SerializeToString()
    decision = await rig.interceptor.request(Call(V1 + "CreateContainer", None, time.monotonic()), message)
    assert decision.message is message
    assert rig.recorder.audit == []


@pytest.mark.parametrize("service", [V1, V1ALPHA2])
async def test_a_batch_container_gets_its_own_amounts(service: str) -> None:
    rig = Rig({"a.json": koordlet(best_effort)})
    await rig.create(container(cpuset_cpus="0-7"), service=service)
    got = rig.sent.config.linux.resources
    assert (got.cpu_shares, got.cpu_quota, got.memory_limit_in_bytes) == (1024, 200_000, 1 << 30)
    assert (got.cpuset_cpus, got.oom_score_adj, got.cpu_period) == ("", 1000, 100_000)
    assert rig.counted("edit", "CreateContainer", "cpuset_cpus") == 1
    assert ("container ns/pod/main", "cpu_shares", "2", "1024", "a.json") in rig.recorder.audit


async def test_presence_sets_zeros_and_deletes_entries() -> None:
    said = answer(cpu_quota=0, cpuset_cpus="", oom_score_adj=0)
    said.container_envs["ADDED"] = b"1"
    said.removed_container_envs.append("LANG")
    rig = Rig({"a.json": saying(said)})
    await rig.create(container(cpu_quota=50_000, cpuset_cpus="0-7"))
    got = rig.sent.config
    assert [(each.key, each.value) for each in got.envs] == [("PATH", b"/bin"), ("RAW", b"\xff\xfe"), ("ADDED", b"1")]
    assert (got.linux.resources.cpu_quota, got.linux.resources.cpuset_cpus) == (0, "")
    assert got.linux.resources.oom_score_adj == 0
    assert got.linux.resources.cpu_shares == 2


async def test_values_that_are_not_utf8_are_never_shown_and_never_lost() -> None:
    said = answer()
    said.container_envs["RAW"] = b"seen?"
    rig = Rig({"a.json": saying(said), "b.json": koordlet()})
    await rig.create()
    assert "RAW" not in told(rig, "PreCreateContainer")[0].container_envs
    assert [each.value for each in rig.sent.config.envs if each.key == "RAW"] == [b"\xff\xfe"]
    assert rig.counted("guard", "hidden_env") == 1


async def test_environment_values_and_foreign_annotations_are_not_audited() -> None:
    said = answer()
    said.container_envs["TOKEN"] = b"s3cret"
    said.container_annotations["example.com/key"] = "s3cret"
    said.container_annotations["node.koordinator.sh/x"] = "shown"
    rig = Rig({"a.json": saying(said)})
    await rig.create()
    lines = {line[1]: line for line in rig.recorder.audit}
    assert "s3cret" not in str(rig.recorder.audit)
    assert lines["annotations[node.koordinator.sh/x]"][3] == "shown"
    assert "envs[TOKEN]" in lines


async def test_what_hooks_are_told_of_a_container() -> None:
    rig = Rig({"a.json": koordlet()})
    await rig.run_pod()
    sandbox = pod()
    sandbox.annotations["new"] = "since the sandbox was made"
    sandbox.linux.resources.cpu_shares = 77
    await rig.create(sandbox=sandbox)
    asked = told(rig, "PreCreateContainer")[0]
    assert (asked.pod_meta.name, asked.pod_meta.uid, asked.pod_meta.namespace) == ("pod", UID, "ns")
    assert (asked.container_meta.name, asked.container_meta.id) == ("main", "")
    assert asked.pod_annotations["new"] == "since the sandbox was made"
    assert asked.pod_labels["app"] == "batch"
    assert asked.pod_cgroup_parent == PARENT
    assert asked.pod_resources.cpu_shares == 77
    assert asked.container_resources.oom_score_adj == 1000
    assert dict(asked.container_envs) == {"PATH": b"/bin", "LANG": b"C"}
