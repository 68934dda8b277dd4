"""What a well-behaved client asks for."""

from __future__ import annotations

from random import Random

from koord.pb.cri import api_pb2 as pb


def create_request(chance: Random) -> pb.CreateContainerRequest:
    """A best-effort container of any name, now and then with a long command."""
    resources = pb.LinuxContainerResources(cpu_shares=2, oom_score_adj=1000)
    return pb.CreateContainerRequest(
        pod_sandbox_id=f"{chance.getrandbits(256):064x}",
        config=pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=f"container-{chance.randrange(1000)}"),
            image=pb.ImageSpec(image="localhost/busybox:1"),
            command=["sh", "-c", "x" * chance.choice([0, 10, 100_000])],
            linux=pb.LinuxContainerConfig(resources=resources),
        ),
        sandbox_config=pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(name="pod", uid="uid", namespace="default"),
            labels={"koordinator.sh/qosClass": "BE"},
            linux=pb.LinuxPodSandboxConfig(cgroup_parent="/kubepods/besteffort/poduid"),
        ),
    )
