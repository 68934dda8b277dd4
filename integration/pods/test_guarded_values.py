"""What the proxy's guard refuses and lets pass, given to a real containerd: it fails a container, and does not.

What only a later layer would notice (an argument list that is too long, a page size that the node lacks) is not here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import grpc
import pytest

from integration.harness import cgroups
from integration.harness.containerd import Containerd
from integration.harness.cri import RUNTIME, Cri
from integration.harness.pods import Container, Pod, container_config, sandbox_config
from koord.pb.cri import api_pb2 as pb
from runtimeproxy.hooks.edits import Slot
from runtimeproxy.hooks.values import acceptable

ROOT = f"/koordtest-{os.getpid()}-guarded"
POD = Pod("guarded", (), cgroup_root=f"{ROOT}/kubepods")
MIB = 1 << 20


@pytest.fixture(scope="module")
def sandbox(containerd1: Containerd) -> Iterator[tuple[Cri, str]]:
    with cgroups.root(ROOT), Cri(containerd1.socket) as cri:
        sandbox_id = cri.run_pod(POD)
        yield cri, sandbox_id
        cri.remove(sandbox_id)


def starts(cri: Cri, sandbox_id: str, field: str, value: int | str) -> bool:
    """Does a container start with this value?"""
    config = container_config(POD, Container("main"))
    setattr(config.linux.resources, field, value)
    if field == "cpu_period":
        config.linux.resources.cpu_quota = -1
    request = pb.CreateContainerRequest(pod_sandbox_id=sandbox_id, config=config, sandbox_config=sandbox_config(POD))
    container_id = cri.call(RUNTIME + "CreateContainer", request, pb.CreateContainerResponse).container_id
    try:
        cri.start_container(container_id)
    except grpc.RpcError:
        return False
    else:
        return True
    finally:
        cri.remove_container(container_id)


@pytest.mark.parametrize(
    ("field", "refused", "taken"),
    [
        ("cpu_shares", (-1, 1, 262145), (2, 262144)),
        ("cpu_period", (-1, 999, 1_000_001), (1000, 1_000_000)),
        ("cpu_quota", (1, 999, 1 << 44), (-1, 1000, (1 << 44) - 1)),
        ("memory_limit_in_bytes", (-7, 1, 4096, MIB), (-1, 4 * MIB)),
        ("oom_score_adj", (1001,), (1000,)),
        ("cpuset_cpus", ("3-1", "0-", "---", "99999999"), ("", "0")),
    ],
)
def test_the_guard_refuses_what_fails_and_lets_its_bounds_pass(
    sandbox: tuple[Cri, str], field: str, refused: tuple[int | str, ...], taken: tuple[int | str, ...]
) -> None:
    assert {
        value: (acceptable(Slot(field), value), starts(*sandbox, field, value)) for value in (*refused, *taken)
    } == {
        **dict.fromkeys(refused, (False, False)),
        **dict.fromkeys(taken, (True, True)),
    }
