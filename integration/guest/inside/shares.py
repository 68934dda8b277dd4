"""Makes a pod directly at the guest's runtime and shows what the runtime makes of CPU shares.

Arguments: the runtime's socket, shares to create a container with each (with commas), and shares to which the last of
them is updated one by one. stdout is JSON: ``created`` and ``updated`` (shares → text of cpu.weight), and ``groups``,
the containers' cgroups. The pod is left running.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from integration.harness.cri import Cri
from integration.harness.pods import Container, Pod
from koord.pb.cri import api_pb2 as pb

ROOT = Path("/sys/fs/cgroup")


def main(socket: str, create: str, update: str) -> int:
    shares = create.split(",")
    containers = tuple(Container(f"of-{each}", cpu_request_milli=_milli(int(each))) for each in shares)
    pod = Pod("shares", containers, cgroup_root="/kubepods.slice", uid="0f0e0d0c-0000-4000-8000-000000000001")
    with Cri(Path(socket), timeout_s=120) as cri:
        ids = list(cri.run(pod)[1].values())
        groups = [f"{pod.cgroup_parent}/cri-containerd-{id_}.scope" for id_ in ids]
        created = dict(zip(shares, map(_weight, groups), strict=True))
        updated = {}
        for each in update.split(","):
            cri.update_container(ids[-1], pb.LinuxContainerResources(cpu_shares=int(each)))
            updated[each] = _weight(groups[-1])
    json.dump({"created": created, "updated": updated, "groups": groups}, sys.stdout)
    return 0


def _milli(shares: int) -> int:
    """The request that kubelet turns into these shares."""
    return -(-shares * 1000 // 1024)


def _weight(cgroup: str) -> str:
    return (ROOT / cgroup.strip("/") / "cpu.weight").read_text(encoding="ascii").strip()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
