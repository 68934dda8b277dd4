"""What a pod requests, as far as it is known when its containers are made: by kubelet's list, else by the runtime."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from koord.pb.hooks import api_pb2 as hooks
from qosd.hookserver.server import PROXY_METADATA, RESTORES_METADATA, SERVICE, HookServer
from qosd.metrics import Metrics
from qosd.model.besteffort import NO_LIMITS
from qosd.pods.source import KUBELET_GAP_S
from tests.qosd.contexts import EXTENDED, QOS, STATUS, V2, extended, policy
from tests.qosd.pods.source_rig import Node, node
from tests.support.waiting import until

PARENT = "/kubepods/burstable/poduid-web"
CLAIM = {
    STATUS: json.dumps({"cpuset": "1-63"}),
    EXTENDED: json.dumps(extended(request="64000", limit="64000", memory="1Ti")),
}


def created(n: Node, qos: str, shares: int) -> hooks.LinuxContainerResources:
    """What the container ``main`` of the pod ``web`` gets if it is made now."""
    request = hooks.ContainerResourceHookRequest(
        pod_meta={"namespace": "default", "name": "web", "uid": "uid-web"},
        container_meta={"name": "main"},
        pod_annotations=CLAIM,
        pod_labels={QOS: qos},
        pod_cgroup_parent=PARENT,
        pod_resources={"cpu_shares": shares},
        container_resources={"cpu_shares": shares},
    )
    server = HookServer(lambda: (policy(V2, limitsInCRI=True), NO_LIMITS), Metrics(), as_listed=n.source.as_listed)
    create = server.methods()[f"/{SERVICE}/PreCreateContainerHook"]
    reply: Any = create(request.SerializeToString(), {PROXY_METADATA: b"1", RESTORES_METADATA: b"1"})
    return hooks.ContainerResourceHookResponse.FromString(reply.message).container_resources


def containers(**requests: str) -> list[dict[str, Any]]:
    named = {name.replace("batch_", "kubernetes.io/batch-"): text for name, text in requests.items()}
    return [{"name": "main", "resources": {"requests": named, "limits": named}}]


async def test_the_list_goes_before_what_the_call_says(tmp_path: Path) -> None:
    async with node(tmp_path, kubelet=True, start=False) as n:
        n.runtime.pod("web", annotations=CLAIM)
        n.kubelet.pod("web", containers=containers(cpu="2"), annotations=CLAIM)
        assert created(n, "LSR", 10).cpuset_cpus == "1"
        await n.source.refresh()
        assert created(n, "LSR", 10).cpuset_cpus == "1-2"


async def test_batch_amounts_are_those_of_the_spec_once_the_list_has_the_pod(tmp_path: Path) -> None:
    """CRI tells nothing of them: what is made before the list has the pod is put right by it, in a second."""
    async with node(tmp_path, kubelet=True) as n:
        await until(lambda: n.kubelet.asked)
        listed = containers(batch_cpu="1k", batch_memory="1Gi")
        n.kubelet.pod("web", containers=listed, annotations=CLAIM, labels={QOS: "BE"})
        early, begun_s = created(n, "BE", 2), asyncio.get_running_loop().time()
        assert (early.cpu_quota, early.memory_limit_in_bytes) == (6_400_000, 1 << 40)
        n.runtime.pod("web", annotations=CLAIM)
        await until(lambda: created(n, "BE", 2).cpu_quota == 100_000)
        assert asyncio.get_running_loop().time() - begun_s < 2 * KUBELET_GAP_S
        assert created(n, "BE", 2).memory_limit_in_bytes == 1 << 30
        await until(lambda: n.names == ["web"] and n.pod("web").cpu_request_milli is not None)
        amounts = n.pod("web").context.amounts_of("main")
        assert amounts is not None and amounts.cpu_limit_milli == 1000


@pytest.mark.parametrize(
    ("shares", "made", "bound"),
    [(2, ["main"], ""), (10, ["main"], "1"), (1024, ["main"], "1"), (1024, ["main", "side"], "1-2"),
     (2, [], ""), (None, ["main"], "1-63")],
    ids=["requests nothing", "10m", "one CPU", "one CPU each", "no container yet", "nobody tells"],
)  # fmt: skip
async def test_without_a_list_a_pod_requests_what_its_containers_do(
    tmp_path: Path, shares: int | None, made: list[str], bound: str
) -> None:
    """cri-o shows no resources of the pod as a whole."""
    async with node(tmp_path, start=False) as n:
        n.runtime.cpu_shares = shares
        pod = n.runtime.pod("web", annotations=CLAIM, labels={QOS: "LSE"})
        for attempt in (0, 1):
            for name in made:
                n.runtime.container(pod, name, attempt=attempt)
        await n.source.refresh()
        assert n.pod("web").context.bound_cpus == bound
