"""What the cache lacks is read from the runtime, whatever its JSON looks like, and without asking twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.http2.client import UnaryError
from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.cri import rebuild
from runtimeproxy.cri.objectcache import ContainerEntry, PodEntry
from runtimeproxy.cri.rebuild import CALLS_AT_A_TIME, Rebuilder, RebuildFailed, oci_resources, resources_from_cri
from runtimeproxy.hooks.messages import flatten_resources
from tests.runtimeproxy.cri.rig import PARENT, V1, Runtime, container, pod
from tests.runtimeproxy.hooks.doubles import Caller, failing, garbage, hanging


def verbose(info: str) -> Any:
    async def handle(path: str, message: bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
        if path.endswith("ListContainers"):
            return cri.ListContainersResponse(
                containers=[cri.Container(id="c", pod_sandbox_id="listed")]
            ).SerializeToString(), {}
        if path.endswith("PodSandboxStatus"):
            return cri.PodSandboxStatusResponse(info={"info": info}).SerializeToString(), {}
        status = cri.ContainerStatus(metadata=cri.ContainerMetadata(name="main"))
        status.resources.linux.cpu_shares = 5
        return cri.ContainerStatusResponse(info={"info": info}, status=status).SerializeToString(), {}

    return Rebuilder(Caller(handle))


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (failing(14, "not initialized"), "not initialized"),
        (garbage, "PodSandboxStatusResponse"),
        (hanging, "within"),
    ],
)
async def test_what_cannot_be_found_out_is_an_error(handler: Any, says: str) -> None:
    with pytest.raises(RebuildFailed, match=says):
        await Rebuilder(Caller(handler)).pod(V1, "p", 0.02)


@pytest.mark.parametrize("info", ["{", "[" * 20_000, "\x00"])
async def test_info_that_is_no_json_is_an_error(info: str) -> None:
    with pytest.raises(RebuildFailed, match="not JSON"):
        await verbose(info).container(V1, "c", 1)


async def test_what_the_runtime_does_not_know_is_none() -> None:
    rebuilder = Rebuilder(Caller(Runtime().handle))
    assert await rebuilder.pod(V1, "p", 1) is None
    assert await rebuilder.container(V1, "c", 1) is None


@pytest.mark.parametrize(
    "info",
    [
        "{}",
        "[]",
        "null",
        '{"config": 5, "runtimeSpec": []}',
        '{"runtimeSpec": {"process": {"env": 7}}, "config": {"envs": [3, {"key": 4}]}}',
    ],
)
async def test_info_that_says_nothing_leaves_the_status_and_the_list(info: str) -> None:
    entry = await verbose(info).container(V1, "c", 1)
    assert entry is not None
    assert entry.pod_id == "listed"
    assert hooks.ContainerResourceHookRequest.FromString(entry.request).container_resources.cpu_shares == 5


@pytest.mark.parametrize(
    ("info", "parent"),
    [
        ({"config": {"linux": {"cgroup_parent": PARENT}}}, PARENT),
        ({"runtimeSpec": {"annotations": {"io.kubernetes.cri-o.CgroupParent": "x.slice"}}}, "x.slice"),
        ({"config": {"linux": {"cgroup_parent": 7}}}, ""),
        ({"config": {"linux": {"cgroup_parent": "\ud800"}}}, ""),
    ],
)
async def test_where_runtimes_keep_the_cgroup_parent(info: dict[str, Any], parent: str) -> None:
    entry = await verbose(json.dumps(info)).pod(V1, "p", 1)
    assert hooks.PodSandboxHookRequest.FromString(entry.request).cgroup_parent == parent


async def test_a_list_gives_everything_but_the_cgroup_parent() -> None:
    [(pod_id, entry)] = await Rebuilder(Caller(Runtime(pods={"p": pod()}).handle)).sandboxes(V1)
    assert (pod_id, entry.uid, entry.namespace) == ("p", pod().metadata.uid, "ns")
    assert (entry.complete, entry.rebuilt) == (False, True)


async def test_questions_about_one_object_share_one_call() -> None:
    runtime = Runtime(containers={"c": ("p", container())})
    rebuilder = Rebuilder(Caller(runtime.handle))
    found = await asyncio.gather(*(rebuilder.container(V1, "c", 1) for _ in range(10)))
    assert len({entry.request for entry in found if entry}) == 1
    assert runtime.calls == ["ContainerStatus"]


async def test_one_id_of_a_sandbox_and_of_a_container_is_two_objects() -> None:
    """As a client may have it that does not mean well."""
    runtime = Runtime(pods={"x": pod()}, containers={"x": ("x", container())})
    rebuilder = Rebuilder(Caller(runtime.handle))
    sandbox, inside = await asyncio.gather(rebuilder.pod(V1, "x", 1), rebuilder.container(V1, "x", 1))
    assert isinstance(sandbox, PodEntry) and isinstance(inside, ContainerEntry)


async def test_one_that_gives_up_does_not_take_the_answer_from_others() -> None:
    gate = asyncio.Event()
    runtime = Runtime(pods={"p": pod()})

    async def slow(path: str, message: bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
        await gate.wait()
        return await runtime.handle(path, message)

    rebuilder = Rebuilder(Caller(slow))
    patient = asyncio.ensure_future(rebuilder.pod(V1, "p", 1))
    with pytest.raises(RebuildFailed):
        await rebuilder.pod(V1, "p", 0.01)
    gate.set()
    assert await patient is not None


class Crowd:
    """A runtime that knows nothing, slowly; ``most``: of its calls at the same time."""

    def __init__(self) -> None:
        self.running = self.most = 0

    async def handle(self, path: str, message: bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.001)
        self.running -= 1
        raise UnaryError(5, "no such sandbox")


async def test_few_calls_run_at_a_time() -> None:
    crowd = Crowd()
    rebuilder = Rebuilder(Caller(crowd.handle))
    await asyncio.gather(*(rebuilder.pod(V1, str(number), 1) for number in range(20)))
    assert crowd.most == CALLS_AT_A_TIME


async def test_wake_ups_that_fail_cost_their_own_questions_and_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "TIMEOUT_S", 0.05)
    crowd = Crowd()
    rebuilder = Rebuilder(Caller(crowd.handle))

    def fail() -> None:
        raise MemoryError

    monkeypatch.setattr(rebuilder, "_next_turn", fail)
    questions = [asyncio.ensure_future(rebuilder.pod(V1, str(number), 5)) for number in range(CALLS_AT_A_TIME * 3)]
    await asyncio.wait(questions, return_when=asyncio.FIRST_EXCEPTION)
    monkeypatch.undo()
    results = await asyncio.gather(*questions, return_exceptions=True)
    errors = [result for result in results if result is not None]
    assert {type(error) for error in errors} == {MemoryError}
    assert len(errors) < len(results)
    crowd.most = 0
    await asyncio.gather(*(rebuilder.pod(V1, str(number), 5) for number in range(20)))
    assert crowd.most == CALLS_AT_A_TIME


def test_resources_of_a_runtime_spec() -> None:
    target = hooks.LinuxContainerResources()
    oci_resources(
        {
            "process": {"oomScoreAdj": -997},
            "linux": {
                "resources": {
                    "cpu": {"shares": 2048, "quota": -1, "period": 100000, "cpus": "0-3", "mems": "0"},
                    "memory": {"limit": 5, "swap": 6},
                    "unified": {"memory.high": "4", "bad": 3},
                    "hugepageLimits": [{"pageSize": "2MB", "limit": 8}, {"limit": 9}, 3],
                }
            },
        },
        target,
    )
    assert {slot.key or slot.field: value for slot, value in flatten_resources(target).items()} == {
        "oom_score_adj": -997,
        "cpu_shares": 2048,
        "cpu_quota": -1,
        "cpu_period": 100000,
        "cpuset_cpus": "0-3",
        "cpuset_mems": "0",
        "memory_limit_in_bytes": 5,
        "memory_swap_limit_in_bytes": 6,
        "memory.high": "4",
        "2MB": 8,
    }


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "linux",
                    "resources",
                    "cpu",
                    "shares",
                    "cpus",
                    "memory",
                    "limit",
                    "unified",
                    "hugepageLimits",
                    "pageSize",
                    "process",
                    "oomScoreAdj",
                    "cpu_quota",
                    "cpuset_cpus",
                    "hugepage_limits",
                    "page_size",
                    "\ud800",
                ]
            ),
            inner,
        )
    ),
    max_leaves=15,
)


@given(
    st.dictionaries(
        st.sampled_from(["linux", "process", "cpu_quota", "cpuset_cpus", "hugepage_limits", "unified"]), json_values
    )
)
def test_any_json_reads_as_something_or_nothing(document: dict[str, Any]) -> None:
    oci_resources(document, hooks.LinuxContainerResources())
    resources_from_cri(document, hooks.PodSandboxHookRequest(), "resources")
