"""The facts of a node with nothing to complain of, and files of nodes that are otherwise."""

from __future__ import annotations

from pathlib import Path

from koord.host.support import Support
from koordctl.node.facts import CgroupFacts, DaemonFacts, Facts, KoordFacts, KubeletSettings, RuntimeFacts

ROWS = ("cpu.idle", "cpu.max.burst", "memory.high", "memory.reclaim", "cpu.pressure", "cpuset.cpus.exclusive")
V2 = CgroupFacts(
    version=2,
    controllers=frozenset(("cpu", "cpuset", "memory", "io")),
    kube_root="/kubepods.slice",
    kube_root_exists=True,
    driver="systemd",
    enabled_for_pods=frozenset(("cpu", "cpuset", "memory", "io")),
    has_containers=True,
    support=dict.fromkeys(ROWS, Support.PRESENT),
)
KUBELET = KubeletSettings(
    running=True,
    version="v1.34.4",
    unit="kubelet.service",
    config_file="/var/lib/kubelet/config.yaml",
    cgroup_driver="systemd",
)
DAEMON = DaemonFacts("0.1.0", 65536, "proxy", ("proxy",))
GOOD = Facts(
    kernel_release="6.8.0-31-generic",
    systemd=True,
    psi=True,
    cpu_flags=frozenset(("cat_l3",)),
    resctrl_mounted=True,
    perf_hardware=True,
    cgroup=V2,
    kubelet=KUBELET,
    runtime=RuntimeFacts("containerd", "v2.0.1", "/run/containerd/containerd.sock", True, cgroup_driver="systemd"),
    koord=KoordFacts(
        unit_file="/etc/systemd/system/koord-qosd.service",
        slice_memory_min="256M",
        state_free_bytes=1 << 30,
        run_is_tmpfs=True,
    ),
    daemon=DAEMON,
)


def record(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
