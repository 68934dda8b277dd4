"""A node with 10,000 containers: more than the cache holds, and nothing that it forgets goes wrong.

``SOAK=1`` makes as many; otherwise it is 3,000 that are so much larger.
"""

from __future__ import annotations

import os

import pytest

from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.cri.objectcache import MAX_BYTES
from runtimeproxy.intercept import Treatment
from tests.runtimeproxy.cri.rig import V1, Rig, Runtime, container, pod
from tests.runtimeproxy.hooks.doubles import PRESENCE, Handler
from tests.support.waiting import until

PODS, CONTAINERS = 1000 if os.environ.get("SOAK") else 300, 10  # so many containers in each
VALUE_BYTES = 300_000 // PODS  # of a variable: fewer containers are larger, and as many bytes
LOOKED_AT = 97  # every so-many-th
KEY = "koordinator.sh/moved"


async def edit(path: str, message: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """Marks a sandbox, and gives a container as many shares as it has variables."""
    if "PodSandbox" in path:
        return hooks.PodSandboxHookResponse(annotations={KEY: "yes"}).SerializeToString(), dict(PRESENCE)
    asked = hooks.ContainerResourceHookRequest.FromString(message)
    said = hooks.ContainerResourceHookResponse()
    said.container_resources.cpu_shares = 100 + len(asked.container_envs)
    return said.SerializeToString(), dict(PRESENCE)


def config(number: int) -> cri.ContainerConfig:
    """With an environment of about a kilobyte; ``number`` decides how many variables."""
    made = container()
    for index in range(number % 7):
        made.envs.add(key=f"V{index}", value=b"x" * VALUE_BYTES)
    return made


def variables(number: int) -> int:
    return len([each for each in config(number).envs if each.value.isascii()])


async def full(rig: Rig) -> Rig:
    """Pods ``p0`` and so on with containers ``c0`` and so on, ten in each."""
    for number in range(PODS):
        assert await rig.run_pod(pod(), f"p{number}") is None
        for each in range(number * CONTAINERS, (number + 1) * CONTAINERS):
            assert await rig.create(config(each), pod_id=f"p{number}", container_id=f"c{each}") is None
            rig.runtime.specs[f"c{each}"] = {
                "process": {
                    "env": [f"{env.key}={env.value.decode('utf-8', 'replace')}" for env in rig.sent.config.envs]
                },
                "linux": {"resources": {"cpu": {"shares": rig.sent.config.linux.resources.cpu_shares}}},
            }
    return rig


async def test_what_the_cache_forgets_is_asked_again() -> None:
    handler: Handler = edit
    rig = await full(Rig({"a.json": handler}))
    cache = rig.interceptor._context.cache
    cached_pods, cached_containers = cache.sizes
    assert cache.stored_bytes <= MAX_BYTES
    assert (cached_pods, cached_containers < PODS * CONTAINERS) == (PODS, True)

    rig.runtime.calls.clear()
    rig.callers["/run/a.json"].asked.clear()
    for number in range(0, PODS * CONTAINERS, LOOKED_AT):
        assert await rig.update(f"c{number}", cpuset_cpus="0-1") is None
        assert rig.sent.linux.cpuset_cpus == "0-1"
    questions = [message for path, message in rig.server().asked if path.endswith("PreUpdateContainerResourcesHook")]
    for number, question in zip(range(0, PODS * CONTAINERS, LOOKED_AT), questions, strict=True):
        asked = hooks.ContainerResourceHookRequest.FromString(question)
        assert (asked.container_resources.cpuset_cpus, asked.pod_annotations[KEY]) == ("0-1", "yes")
        assert asked.container_resources.cpu_shares == 100 + variables(number)
        assert len(asked.container_envs) == variables(number)
    assert 0 < rig.runtime.calls.count("ContainerStatus") < PODS * CONTAINERS / LOOKED_AT
    assert cache.stored_bytes <= MAX_BYTES
    rig.interceptor.close()


async def test_the_edits_of_a_forgotten_sandbox_are_repeated_and_its_end_is_noticed() -> None:
    handler: Handler = edit
    rig = Rig({"a.json": handler})
    cache = rig.interceptor._context.cache
    wide = pod(labels={"wide": "x" * 8000})
    for number in range(1200):
        assert await rig.run_pod(wide, f"p{number}") is None
    assert cache.sizes[0] < 1200
    assert await rig.create(sandbox=wide, pod_id="p0") is None
    assert rig.sent.sandbox_config.annotations[KEY] == "yes"
    for number in range(1200):
        await rig.call("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id=f"p{number}"))
    assert cache.sizes == (0, 0)
    assert not cache._suspects
    rig.interceptor.close()


@pytest.mark.parametrize("answer_bytes", [1 << 20, 16 << 20])
async def test_a_list_of_all_that_runs_is_read_whatever_its_length(answer_bytes: int) -> None:
    runtime = Runtime()
    annotation = "x" * (answer_bytes // 2600)
    for number in range(2500):
        config_of = pod(annotations={"wide": annotation})
        config_of.metadata.uid = str(number)
        runtime.pods[f"p{number}"] = config_of
    handler: Handler = edit
    rig = Rig({"a.json": handler}, runtime=runtime)
    await rig.interceptor.warm_up()
    cache = rig.interceptor._context.cache
    await until(lambda: cache._listed)
    assert cache.stored_bytes <= MAX_BYTES
    assert len(cache._suspects) == 2500  # each may have been edited by a predecessor
    assert rig.interceptor.plan(V1 + "CreateContainer").treatment is Treatment.HOLD
    for number in (0, 2499):
        assert await rig.create(sandbox=runtime.pods[f"p{number}"], pod_id=f"p{number}") is None
        assert rig.sent.config.linux.resources.cpu_shares == 102
    rig.interceptor.close()
