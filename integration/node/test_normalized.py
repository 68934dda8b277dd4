"""CPU normalization by the reconciler alone: containers still start, again and again, with what kubelet asks for."""

from __future__ import annotations

import time

from integration.harness import cgroups
from integration.harness.cri import Cri
from integration.harness.pods import Container, Pod
from integration.harness.processes import wait_for
from integration.node import kinds
from integration.node.conftest import MakeDaemon

RULES = "node: {cpuNormalizationRatio: 1.25}\n"
ASKED_US, SCALED_US = 40_000, 32_000
SLACK_S = 1.0


def test_a_container_starts_beside_and_after_a_scaled_one(
    make_daemon: MakeDaemon, anchor: Pod, cri: Cri, kubepods: str
) -> None:
    daemon = make_daemon(RULES)
    daemon.start()
    one, two = (Container(name, 200, 400, command=kinds.SLEEP) for name in ("one", "two"))
    pod = Pod("normalized", (one, two), labels={kinds.QOS: "LS"}, cgroup_root=kubepods)
    cgroups.make_pod(pod)
    sandbox = cri.run_pod(pod)
    time.sleep(SLACK_S)  # the pod is known before any container is
    for container in (one, two, one):
        id_ = cri.create_container(sandbox, pod, container)
        cri.start_container(id_)
        cgroup = f"{pod.cgroup_parent}/{id_}"
        wait_for(lambda cgroup=cgroup: cgroups.read(cgroup).cfs_quota_us == SCALED_US, 10, f"{cgroup} to be scaled")  # type: ignore[misc]
        if container is one:
            cri.stop_container(id_)
            cri.remove_container(id_)
    assert cgroups.read(pod.cgroup_parent).cfs_quota_us == 2 * ASKED_US
