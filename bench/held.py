"""A CreateContainer that the proxy holds, asks about and edits, and that the runtime then refuses at once.

The container's image does not exist. So the call costs what a creation costs in the proxy and in koord-qosd, without
the tens of milliseconds, different each time, that a runtime needs to create something.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bench.calls import Call
from bench.creates import LABELS
from integration.harness import cgroups
from integration.harness.cri import RUNTIME, Cri
from integration.harness.pods import Container, Pod, container_config, sandbox_config
from koord.pb.cri import api_pb2 as pb

NOT_FOUND = "5"


@contextlib.contextmanager
def refused_creation(runtime: Path, cgroup_root: str) -> Iterator[Call]:
    """The call, for a container of a pod that exists until the end of the block."""
    container = Container("main", cpu_limit_milli=500, memory_limit_bytes=64 << 20)
    pod = Pod("held", (container,), labels=LABELS, cgroup_root=cgroup_root)
    config = container_config(pod, container)
    config.image.image = "localhost/none:1"
    cgroups.make_pod(pod)
    with Cri(runtime) as client:
        sandbox_id = client.run_pod(pod)
        try:
            request = pb.CreateContainerRequest(
                pod_sandbox_id=sandbox_id, config=config, sandbox_config=sandbox_config(pod)
            )
            yield Call("CreateContainer", RUNTIME + "CreateContainer", request.SerializeToString(), NOT_FOUND)
        finally:
            client.remove(sandbox_id)
            cgroups.remove(pod.cgroup_parent)
