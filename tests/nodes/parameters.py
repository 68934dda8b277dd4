"""What distinguishes one node from another, as far as Koord can see.

Whole nodes as directory trees: ``build.lay_out`` writes what kernel, systemd, kubelet and runtime would show, for any
combination of these parameters; ``cgroups`` knows which files a cgroup has on which kernel. ``integration/nodes``
compares the result with real nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

V1, V2, HYBRID = "v1", "v2", "hybrid"
CGROUPFS, SYSTEMD = "cgroupfs", "systemd"
RDT = ("rdt_a", "cat_l3", "mba", "cqm", "cqm_llc", "cqm_occup_llc", "cqm_mbm_total", "cqm_mbm_local")
CAT_ONLY = ("rdt_a", "cat_l3")


@dataclass(frozen=True, slots=True)
class Runtime:
    """``name`` and ``version`` as CRI's Version tells them; ``scope``: prefix of its containers' scopes."""

    name: str
    version: str
    socket: str
    scope: str
    config_version: int = 0


CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CONTAINERD_1_5 = Runtime("containerd", "1.5.18", CONTAINERD_SOCKET, "cri-containerd", 2)
CONTAINERD_1_6 = Runtime("containerd", "1.6.20~ds1", CONTAINERD_SOCKET, "cri-containerd", 2)
CONTAINERD_1_7 = Runtime("containerd", "1.7.27", CONTAINERD_SOCKET, "cri-containerd", 2)
CONTAINERD_2 = Runtime("containerd", "v2.1.4", CONTAINERD_SOCKET, "cri-containerd", 3)
CRI_DOCKERD = Runtime("docker", "26.1.5", "/run/cri-dockerd.sock", "docker")
CRI_O = Runtime("cri-o", "1.31.3", "/run/crio/crio.sock", "crio")
POUCH = Runtime("pouch", "1.3.0", "/run/pouchcri.sock", "pouch")


@dataclass(frozen=True, slots=True)
class Parameters:
    """One node. ``runtime_driver`` "" is kubelet's; ``psi`` False is a kernel that has it off or not at all.

    ``unit``: how kubelet is started (kubeadm | plain | none). ``rules``: text of Koord's rules file. ``extra``: files
    that are put on top; a text that begins with ``-> `` makes a symbolic link. ``absent``: what is left out, by how its
    path begins.
    """

    cgroup: str = V2
    driver: str = SYSTEMD
    cgroup_root: str = ""
    runtime: Runtime = CONTAINERD_1_7
    runtime_driver: str = ""
    kernel: str = "6.1.0-32-cloud-amd64"
    psi: bool = True
    rdt: tuple[str, ...] = ()
    resctrl: bool = False
    cpu_manager: str = "none"
    kubelet: str = "v1.31.9"
    gates: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    flags: tuple[str, ...] = ()
    unit: str = "kubeadm"
    init: str = "systemd"
    rules: str = ""
    extra: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    absent: tuple[str, ...] = ()

    @property
    def tree_driver(self) -> str:
        """The driver by which kubelet makes its cgroups: from 1.31 on the one that containerd 2 tells it."""
        told = self.runtime is CONTAINERD_2 and tuple(map(int, self.kubelet[1:].split(".")[:2])) >= (1, 31)
        return self.runtime_driver or self.driver if told else self.driver

    @property
    def release(self) -> tuple[int, int]:
        major, minor = self.kernel.split(".")[:2]
        return int(major), int(minor)
