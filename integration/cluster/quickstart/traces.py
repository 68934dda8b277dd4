"""What of a node could show that Koord was there: a recording of it, files that were written, values in the kernel.

Two moments of one node are compared. Invariant: a difference counts unless ``OWNERS`` names who makes it without Koord
too; values that only measure (usage, pressure, who is in a group) are no trace, and neither are empty directories.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from integration.cluster.quickstart.cluster import Cluster
from integration.record_node import record
from koordctl.node.collect import RECORDING_FILE as RECORDING

CGROUP_ROOT = Path("/sys/fs/cgroup")
SETTINGS = (
    *("vm/min_free_kbytes", "vm/watermark_scale_factor", "kernel/sched_rt_runtime_us", "net/ipv4/ip_forward"),
    *("net/core/default_qdisc", "vm/overcommit_memory"),
)
OWNERS: Mapping[str, str] = {
    r"/run/(runc|lock|netns)(/.*)?|/run/xtables\.lock": "runc, CNI and iptables",
    r"/var/lib/(containerd|cni)/.*": "containerd and CNI",
    r"/var/log/(pods|containers)/.*": "kubelet: logs of pods",
    r"/proc/.*": "the machine: memory in use, processes",
}
_MEASURES = re.compile(
    r"/(tasks|cgroup\.(procs|threads|kill|clone_children|event_control)|notify_on_release|[^/]*(pressure|stat|usage[^/]*))$"
    r"|/[^/]*\.(max_usage_in_bytes|failcnt|force_empty|reset|events[^/]*|peak)$"
)


def snapshot(cluster: Cluster, scratch: Path) -> dict[str, str]:
    """Everything by path, with its content where that says something; ``scratch`` is used and removed."""
    record(scratch, str(cluster.containerd.socket))
    recorded = {f"/{path.relative_to(scratch)}": path for path in scratch.rglob("*") if path.is_file()}
    found = {path: file.read_text(errors="replace") for path, file in recorded.items() if _is_value(path)}
    shutil.rmtree(scratch)
    found |= dict.fromkeys(cluster.layers.written(), "")
    found |= {f"sysctl {name}": (Path("/proc/sys") / name).read_text() for name in SETTINGS if _exists(name)}
    return {path: text for path, text in found.items() if owner(path) is None}


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """One line for each path that differs."""
    return [
        f"{path}: {before.get(path, 'absent')!r:.200} -> {after.get(path, 'absent')!r:.200}"
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    ]


def owner(path: str) -> str | None:
    return next((who for pattern, who in OWNERS.items() if re.fullmatch(pattern, path)), None)


def _is_value(path: str) -> bool:
    """Files of cgroups that a program sets."""
    if path == f"/{RECORDING}":  # of programs' answers and free space
        return False
    if not path.startswith(f"{CGROUP_ROOT}/"):
        return True
    if _MEASURES.search(path):
        return False
    try:
        return bool(Path(path).stat().st_mode & 0o200)
    except OSError:
        return False


def _exists(name: str) -> bool:
    return (Path("/proc/sys") / name).exists()
