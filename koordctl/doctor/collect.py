"""All facts of a node, read once below one root directory.

Three things are no files and come from the caller: what the runtime answers to CRI's Version, what kubelet says of its
version, and free disk space. They are functions, so that a recorded tree can answer them too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from koord.host import kubelet, layout, support
from koord.host.cgroup import Tree, detect
from koord.host.kubelet import Kubelet
from koord.host.resctrl import is_in_mbps
from koordctl.doctor import grants, leftovers, others, settings
from koordctl.doctor.facts import CgroupFacts, DaemonFacts, Facts, KoordFacts, KubeletFacts
from koordctl.host.node import Node

CGROUP_ROOT = "/sys/fs/cgroup"
STATE_DIRECTORY = "/var/lib/koord"
_CORE_PMUS = ("cpu", "cpu_core", "armv8_pmuv3", "armv8_pmuv3_0")
_RESCTRL_OWN = ("info", "mon_groups", "mon_data")

AskRuntime = Callable[[str], tuple[str, str] | None]
AskKubelet = Callable[[Path], str]
FreeBytes = Callable[[Path], int | None]


def free_bytes(path: Path) -> int | None:
    """Space for root in the file system of ``path`` or of its nearest parent that exists."""
    for directory in (path, *path.parents):
        try:
            found = os.statvfs(directory)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        return found.f_bavail * found.f_frsize
    return None


def collect(
    root: Path,
    ask_runtime: AskRuntime | None,
    free: FreeBytes = free_bytes,
    runtime_socket: str = "",
    daemon: DaemonFacts | None = None,
    daemon_says: str = "",
    ask_kubelet: AskKubelet = lambda program: "",
    recorded: bool = False,
) -> Facts:
    """The facts of the node at ``root``.

    ``ask_runtime`` is called with the path of the runtime's socket here (None: nobody is asked), ``ask_kubelet`` with
    that of kubelet's program; its answer is a version (``v1.30.2``), "" = unknown.
    """
    node = Node(root)
    process = settings.kubelet_process(node)
    version = ask_kubelet(node.at(f"/proc/{process.pid}/exe")) if process.pid else ""
    said = settings.kubelet(node, process, version)
    others_there = others.look(node, others.processes(node))
    socket = runtime_socket or settings.runtime_socket(node, said.runtime_endpoint, others_there.proxy_backend)
    mountinfo = node.text("/proc/self/mountinfo") or ""
    told = ask_runtime(str(node.at(socket))) if ask_runtime and node.exists(socket) else None
    runtime = settings.runtime(node, socket, told, can_be_asked=ask_runtime is not None)
    config = settings.runtime_config(settings.runtime_kind(socket, told))
    tree = detect(node.at(CGROUP_ROOT), mountinfo)
    cgroup = _cgroup(node, tree, process, config)
    return Facts(
        kernel_release=(node.text("/proc/sys/kernel/osrelease") or "").strip(),
        systemd=_systemd(node),
        psi=node.text("/proc/pressure/cpu") is not None,
        swap_bytes=_swap_bytes(node.text("/proc/meminfo") or ""),
        cpu_flags=_cpu_flags(node.text("/proc/cpuinfo") or ""),
        isolated_cpus=(node.text("/sys/devices/system/cpu/isolated") or "").strip(),
        resctrl_mounted=node.exists("/sys/fs/resctrl/schemata"),
        resctrl_in_mbps=is_in_mbps(mountinfo),
        resctrl_classes=_resctrl_classes(node),
        perf_paranoid=_number(node.text("/proc/sys/kernel/perf_event_paranoid")),
        perf_hardware=any(node.exists(f"/sys/bus/event_source/devices/{name}") for name in _CORE_PMUS),
        cgroup=cgroup,
        kubelet=said,
        runtime=runtime,
        koord=_koord(node, mountinfo, free),
        others=others_there,
        leftovers=() if daemon is not None else _leftovers(node, tree, cgroup.kube_root, said),
        recorded=recorded,
        daemon=daemon,
        daemon_says=daemon_says,
    )


def _leftovers(node: Node, tree: Tree, kube_root: str, said: KubeletFacts) -> tuple[str, ...]:
    tiers = layout.tiers_of(kube_root) if kube_root else {}
    return leftovers.look(node, tree, tiers, said.writes_memory_protection)


def _systemd(node: Node) -> bool | None:
    name = node.text("/proc/1/comm")
    return None if name is None else name.strip() == "systemd"


def _swap_bytes(meminfo: str) -> int:
    found = re.search(r"^SwapTotal:\s+(\d+) kB$", meminfo, re.MULTILINE)
    return int(found.group(1)) * 1024 if found else 0


def _cpu_flags(cpuinfo: str) -> frozenset[str]:
    found = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    return frozenset(found.group(1).split()) if found else frozenset()


def _resctrl_classes(node: Node) -> frozenset[str]:
    names = node.names("/sys/fs/resctrl")
    return frozenset(
        name for name in names if name not in _RESCTRL_OWN and node.exists(f"/sys/fs/resctrl/{name}/schemata")
    )


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _cgroup(node: Node, tree: Tree, process: Kubelet, runtime_config: str) -> CgroupFacts:
    if tree.version == 1 and not tree.controllers:
        return CgroupFacts()
    claims = kubelet.claims(process, [node.at(runtime_config)])
    found = layout.detect(tree, claims)
    cgroup = found.kubepods
    v2 = tree.version == 2
    enabled = node.text(f"{CGROUP_ROOT}{cgroup}/cgroup.subtree_control") if v2 and cgroup else None
    listed = (node.text(f"{CGROUP_ROOT}/cgroup.controllers") or "").split() if v2 else _v1_controllers(tree)
    return CgroupFacts(
        version=tree.version,
        hybrid=tree.unified is not None,
        controllers=frozenset(listed),
        kube_root=cgroup,
        kube_root_exists=bool(cgroup) and tree.exists(cgroup),
        driver=found.driver.value if found.driver else "",
        layout_problems=tuple(map(node.plain, found.problems)),
        enabled_for_pods=None if enabled is None else frozenset(enabled.split()),
        has_containers=any(_holds_container(node, tree, tier) for tier in found.tiers.values()),
        support=support.survey(tree, tuple(found.tiers.values())),
    )


def _holds_container(node: Node, tree: Tree, tier: str) -> bool:
    """Is there any cgroup in any pod's below ``tier``?"""
    top = node.own(tree.directory(tier))
    pods = (name for name in node.names(top) if layout.kubepods_above(f"{tier}/{name}"))
    return any(os.path.isdir(node.at(f"{top}/{pod}/{name}")) for pod in pods for name in node.names(f"{top}/{pod}"))


def _v1_controllers(tree: Tree) -> list[str]:
    """Without what is no controller among the options of v1's mounts."""
    return [name for name in tree.controllers if "=" not in name and name != "xattr"]


def _koord(node: Node, mountinfo: str, free: FreeBytes) -> KoordFacts:
    hook = settings.json_file(node, settings.HOOK_FILE)
    endpoint = hook.text("remote-endpoint").removeprefix("unix://")
    rules = settings.yaml_file(node, settings.RULES_FILE)
    unit_file, open_files = settings.unit(node)
    return KoordFacts(
        hook_file=hook.file,
        hook_endpoint=endpoint,
        hook_endpoint_exists=bool(endpoint) and node.exists(endpoint),
        hook_problem=hook.problem,
        unit_file=unit_file,
        unit_open_files=open_files,
        grants_stale=bool(unit_file) and (node.text(grants.DROP_IN) or "") != grants.drop_in(grants.wanted(node)),
        slice_memory_min=settings.slice_memory_min(node),
        rules_file=rules.file,
        rules_problem=rules.problem,
        rules_cpu_manager_policy=rules.text("node", "cpuManagerPolicy"),
        rules_limits_in_cri=rules.truth("node", "limitsInCRI") is True,
        state_free_bytes=free(node.at(STATE_DIRECTORY)),
        run_is_tmpfs=_is_tmpfs(mountinfo, "/run"),
        bypass_file=settings.BYPASS_FILE if node.exists(settings.BYPASS_FILE) else "",
    )


def _is_tmpfs(mountinfo: str, point: str) -> bool | None:
    """Is ``point`` a tmpfs mount? None if the mounts are not known."""
    if not mountinfo:
        return None
    kinds = [line.partition(" - ")[2].split()[:1] for line in mountinfo.splitlines() if line.split()[4:5] == [point]]
    return kinds[-1:] == [["tmpfs"]]
