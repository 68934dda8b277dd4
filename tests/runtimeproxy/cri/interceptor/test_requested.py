"""kubelet reads back what it requested, whatever became of it, and after a restart of the proxy as well."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from koord.pb.cri import api_pb2 as cri
from runtimeproxy.cri.requested import LARGEST_BYTES, RECORD
from tests.runtimeproxy.cri.interceptor.servers import answer, best_effort, exclusive, told
from tests.runtimeproxy.cri.rig import V1, V1ALPHA2, Rig, container
from tests.runtimeproxy.hooks.doubles import koordlet, saying
from tests.support.waiting import until

REQUESTED = {"cpu_period": 100_000, "cpu_quota": 400_000, "cpu_shares": 4096, "memory_limit_in_bytes": 1 << 30}


def stated(rig: Rig, **options: str) -> dict[str, int]:
    found = rig.status(**options).resources.linux
    return {field: getattr(found, field) for field in REQUESTED}


async def made(rig: Rig, **resources: int) -> Rig:
    await rig.run_pod()
    await rig.create(container(**{**REQUESTED, **resources}))
    return rig


def restarted(rig: Rig, directory: Path) -> Rig:
    """A proxy that is started anew, before the same runtime."""
    return Rig({"a.json": koordlet(exclusive)}, runtime=rig.runtime, requested=str(directory))


@pytest.mark.parametrize("service", [V1, V1ALPHA2])
async def test_an_edited_container_is_told_as_requested(service: str) -> None:
    rig = await made(Rig({"a.json": koordlet(best_effort)}))
    resources = rig.sent.config.linux.resources
    assert (resources.cpu_shares, resources.cpu_quota) == (1024, 200_000)
    assert stated(rig, service=service) == REQUESTED
    assert RECORD not in rig.status().annotations


async def test_a_container_that_was_not_edited_is_no_byte_longer() -> None:
    rig = await made(Rig({"a.json": koordlet()}))
    assert rig.sent.config == container(**REQUESTED)
    assert stated(rig) == REQUESTED


async def test_hook_servers_are_not_shown_the_record() -> None:
    rig = await made(Rig({"a.json": koordlet(best_effort)}))
    for proxy in (rig, Rig({"a.json": koordlet(best_effort)}, runtime=rig.runtime)):
        await proxy.update(cpuset_cpus="0")
        asked = told(proxy, "PreUpdateContainerResources")[0]
        assert RECORD not in asked.container_annotations


async def test_a_resize_is_told_as_requested_also_by_the_next_proxy(tmp_path: Path) -> None:
    rig = await made(Rig({"a.json": koordlet(exclusive)}, requested=str(tmp_path)))
    for quota_us in (500_000, 600_000):
        await rig.update(cpu_quota=quota_us)
        assert rig.sent.linux.cpu_quota == -1
        for proxy in (rig, restarted(rig, tmp_path)):
            assert stated(proxy) == {**REQUESTED, "cpu_quota": quota_us}


async def test_a_resize_without_hook_servers_is_told_as_the_runtime_has_it(tmp_path: Path) -> None:
    rig = await made(Rig({"a.json": koordlet(exclusive)}, requested=str(tmp_path)))
    rig.interceptor.use(())
    await rig.update(cpu_quota=500_000)
    assert stated(rig) == {**REQUESTED, "cpu_quota": 500_000}
    assert stated(restarted(rig, tmp_path)) == {**REQUESTED, "cpu_quota": 500_000}


async def test_a_resize_of_a_container_that_is_not_remembered(tmp_path: Path) -> None:
    rig = await made(Rig({"a.json": koordlet(exclusive)}, requested=str(tmp_path)))
    proxy = restarted(rig, tmp_path)
    await proxy.update(cpu_quota=500_000)
    assert stated(proxy) == {**REQUESTED, "cpu_quota": 500_000}


async def test_a_failed_resize_is_told_as_what_was_requested_before(tmp_path: Path) -> None:
    rig = await made(Rig({"a.json": koordlet(exclusive)}, requested=str(tmp_path)))
    await rig.update(cpu_quota=500_000, status=13)
    assert stated(rig) == stated(restarted(rig, tmp_path)) == REQUESTED


async def test_a_resize_during_which_the_proxy_ends_is_told_either_way(tmp_path: Path) -> None:
    """It was noted, and the runtime's answer was not heard: what the runtime has decides."""
    rig = await made(Rig({"a.json": saying(answer(cpu_shares=512))}, requested=str(tmp_path)))
    request = cri.UpdateContainerResourcesRequest(container_id="c1")
    request.linux.cpu_shares = 8192
    rig.server().handler = saying(answer(cpu_shares=256))
    rig.interceptor.answered = lambda *told: None  # type: ignore[method-assign]
    await rig.call("UpdateContainerResources", request)
    held = rig.runtime.containers["c1"][1].linux.resources
    for shares, requested in ((512, 4096), (256, 8192)):
        held.cpu_shares = shares
        assert stated(restarted(rig, tmp_path))["cpu_shares"] == requested


async def test_a_cpu_set_alone_leaves_no_file(tmp_path: Path) -> None:
    rig = await made(Rig({"a.json": koordlet(exclusive)}, requested=str(tmp_path)))
    await rig.update(cpuset_cpus="0-7")
    assert not os.listdir(tmp_path)


async def test_plain_resizes_of_plain_containers_leave_no_file(tmp_path: Path) -> None:
    rig = await made(Rig({"a.json": koordlet()}, requested=str(tmp_path)))
    await rig.update(cpu_quota=500_000)
    assert not os.listdir(tmp_path)
    assert stated(rig) == {**REQUESTED, "cpu_quota": 500_000}


async def test_the_record_goes_with_the_container(tmp_path: Path) -> None:
    rig = await made(Rig({"a.json": koordlet(exclusive)}, requested=str(tmp_path)))
    await rig.update(cpu_quota=500_000)
    assert os.listdir(tmp_path) == ["c1"]
    await rig.call("RemoveContainer", cri.RemoveContainerRequest(container_id="c1"))
    assert not os.listdir(tmp_path)


async def test_the_record_of_a_container_that_was_removed_meanwhile_goes_with_the_next_list(tmp_path: Path) -> None:
    rig = await made(Rig({"a.json": koordlet(exclusive)}, requested=str(tmp_path)))
    await rig.create(container(**REQUESTED), container_id="c2")
    await rig.update("c1", cpu_quota=500_000)
    await rig.update("c2", cpu_quota=500_000)
    del rig.runtime.containers["c1"]
    proxy = restarted(rig, tmp_path)
    await proxy.interceptor.warm_up()
    await until(lambda: os.listdir(tmp_path) == ["c2"])
    proxy.interceptor.close()


@pytest.mark.parametrize("fault", ["a file in the place of the directory", "no id for a file"])
async def test_what_cannot_be_written_is_known_until_the_proxy_ends(
    tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    directory, id_ = tmp_path / "requested", "c1" if fault.startswith("a file") else "../c1"
    if id_ == "c1":
        directory.touch()
    rig = Rig({"a.json": koordlet(exclusive)}, requested=str(directory))
    await rig.run_pod()
    await rig.create(container(**REQUESTED), container_id=id_)
    await rig.update(id_, cpu_quota=500_000)
    assert stated(rig, container_id=id_)["cpu_quota"] == 500_000
    assert "forgotten at a restart" in caplog.text
    assert os.listdir(tmp_path) == (["requested"] if id_ == "c1" else [])


@pytest.mark.parametrize(
    ("message", "counted"),
    [
        (b"\x0a\xff", {}),
        (b"\x0a\x05\x6a\xff\xff\xff\x0f", {}),
        (b"\x12\x00" * (LARGEST_BYTES // 2 + 1), {"large": 1}),
    ],
)
def test_an_answer_that_cannot_be_read_passes_as_it_is(message: bytes, counted: dict[str, int]) -> None:
    rig = Rig({})
    assert rig.interceptor.rewritten(V1 + "ContainerStatus", message) is message
    assert rig.recorder.not_rewritten == counted
