"""Collects all facts of a node, read once below one root directory: this node, a host mount, or a recorded tree.

What no file says comes from ``Answers``: the runtime's answer to CRI's Version, kubelet's of its version, free disk
space. A recorded tree holds them in ``RECORDING_FILE`` at its top, and a tree that has this file is recorded, whatever
its path: it is never mixed with this machine's answers. Fails with ClickException, which names that file, if it is no
recording.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import click

from koord.host import kubelet, layout, support
from koord.host.cgroup import Tree, detect
from koord.host.claims import flag
from koord.host.kubelet import KubeletProcess
from koord.host.resctrl import is_in_mbps
from koord.model.locations import BYPASS_FILE, CGROUP_ROOT, HOOK_SERVER_FILE, RESCTRL_ROOT, RULES_FILE, STATE_DIRECTORY
from koord.model.qos import KubeQoS
from koordctl.client import IN_POD
from koordctl.node import grants, others, settings, units
from koordctl.node.facts import CgroupFacts, DaemonFacts, Facts, KoordFacts, RestartFacts
from koordctl.node.files import NodeFiles

_CORE_PMUS = ("cpu", "cpu_core", "armv8_pmuv3", "armv8_pmuv3_0")
_RESCTRL_OWN = ("info", "mon_groups", "mon_data")
_RUNTIME_TIMEOUT_S = 2.0
_KUBELET_TIMEOUT_S = 30.0
_CLUSTER_TIMEOUT_S = 5.0
_KUBELET_SAYS = "Kubernetes "
_THIS_NODE = Path("/")
NOT_ASKED = (None, "not asked")
"""Stands for the daemon's facts."""


def gather(
    root: Path,
    offline: bool = False,
    runtime: str = "",
    daemon: tuple[DaemonFacts | None, str] = NOT_ASKED,
    kubelet_unit: str = "",
) -> Facts:
    """Returns the facts of the node at ``root``; ``offline``: by its files only.

    ``daemon``: what koord-qosd says of itself, and why if it says nothing. ``runtime``, ``kubelet_unit``: the runtime's
    socket and kubelet's unit, found if "". Raises ClickException for a bad recording.
    """
    recorded = read_recording(root)
    if recorded is not None:
        told = Answers(
            lambda socket: recorded.runtime, lambda program: recorded.kubelet, lambda path: recorded.state_free_bytes
        )
        return collect(root, told, runtime, (None, "not asked (recorded)"), kubelet_unit, recorded=True)
    if offline:
        return collect(root, Answers(), runtime, daemon, kubelet_unit, recorded=root.resolve() != _THIS_NODE)
    in_pod = bool(os.environ.get(IN_POD))
    answers = Answers(ask_runtime, ask_kubelet) if in_pod else Answers(ask_runtime, ask_kubelet, restart=ask_restart)
    return replace(collect(root, answers, runtime, daemon, kubelet_unit), in_pod=in_pod)


# --- what no file says -----------------------------------------------------------------------------------------------


def free_bytes(path: Path) -> int | None:
    """Returns the space for root in the file system of ``path`` or of its nearest parent that exists."""
    for directory in (path, *path.parents):
        try:
            found = os.statvfs(directory)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        return found.f_bavail * found.f_frsize
    return None


def ask_runtime(socket: str) -> tuple[str, str] | None:
    """Returns name and version of the runtime that listens on ``socket``; None if it does not answer."""
    from koord.http2.grpc import UNIMPLEMENTED, UnaryError  # noqa: PLC0415
    from koord.pb.cri import api_pb2 as cri  # noqa: PLC0415
    from koordctl.cri import call  # noqa: PLC0415

    request = cri.VersionRequest()
    for package in ("runtime.v1", "runtime.v1alpha2"):  # the old one only to learn the name of an old runtime
        try:
            version = call(socket, "Version", request, cri.VersionResponse, _RUNTIME_TIMEOUT_S, package)
        except UnaryError as error:
            if error.code == UNIMPLEMENTED:
                continue
            return None
        return version.runtime_name, version.runtime_version
    return None


def ask_kubelet(program: Path) -> str:
    """Returns the version (``v1.30.2``) that kubelet's ``program`` says; "" if it says none."""
    try:
        done = subprocess.run(
            [str(program), "--version"], check=False, capture_output=True, text=True, timeout=_KUBELET_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    output = done.stdout.strip()
    return output.removeprefix(_KUBELET_SAYS) if output.startswith(_KUBELET_SAYS) else ""


def ask_restart(node: NodeFiles, process: KubeletProcess) -> RestartFacts | None:
    """Asks the cluster what kubelet would find if it restarted; None if no kubelet runs, or it is in no cluster."""
    kubeconfig = flag(process.args, "kubeconfig")
    if not process.pid or not kubeconfig:
        return None
    from koordctl.cluster import restart  # noqa: PLC0415

    name = flag(process.args, "hostname-override") or os.uname().nodename
    try:
        return RestartFacts(restart.shortages(str(node.at(kubeconfig)), name.strip().lower(), _CLUSTER_TIMEOUT_S))
    except click.ClickException as error:
        return RestartFacts(problem=error.message)


@dataclass(frozen=True, slots=True)
class Answers:
    """``runtime`` gets the path of the runtime's socket here and returns name and version (None: no answer).

    ``runtime`` None: it is not asked. ``kubelet`` gets the path of kubelet's program and returns a version, "" =
    unknown. ``free_bytes`` gets a directory. ``restart`` gets the kubelet that runs.
    """

    runtime: Callable[[str], tuple[str, str] | None] | None = None
    kubelet: Callable[[Path], str] = lambda program: ""
    free_bytes: Callable[[Path], int | None] = free_bytes
    restart: Callable[[NodeFiles, KubeletProcess], RestartFacts | None] = lambda node, process: None


RECORDING_FILE = "koord-recording.json"


@dataclass(frozen=True, slots=True)
class Recording:
    """The answers of a recorded node. ``kubelet``: its version, "" = unknown. ``runtime`` None: it did not answer."""

    kubelet: str = ""
    runtime: tuple[str, str] | None = None
    state_free_bytes: int | None = None

    def text(self) -> str:
        name, version = self.runtime or ("", "")
        told = {"name": name, "version": version} if self.runtime else None
        return json.dumps({"kubelet": self.kubelet, "runtime": told, "stateFreeBytes": self.state_free_bytes}) + "\n"


def read_recording(root: Path) -> Recording | None:
    """Returns the answers that the tree at ``root`` holds; None if it is no recording. Raises ClickException."""
    file = root / RECORDING_FILE
    try:
        found = json.loads(file.read_bytes())
        told = found["runtime"]
        runtime = (str(told["name"]), str(told["version"])) if told else None
        return Recording(str(found["kubelet"]), runtime, found["stateFreeBytes"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise click.ClickException(f"{file}: {error!r}") from error


# --- what files say --------------------------------------------------------------------------------------------------


def collect(
    root: Path,
    answers: Answers,
    runtime_socket: str = "",
    daemon: tuple[DaemonFacts | None, str] = NOT_ASKED,
    kubelet_unit: str = "",
    recorded: bool = False,
) -> Facts:
    """Reads the facts of the node at ``root``."""
    node = NodeFiles(root)
    process = settings.kubelet_process(node)
    version = answers.kubelet(node.at(f"/proc/{process.pid}/exe")) if process.pid else ""
    said = settings.kubelet(node, process, version, kubelet_unit)
    others_there = others.acting(node, others.processes(node))
    socket = runtime_socket or settings.runtime_socket(node, said.runtime_endpoint, others_there.proxy_backend)
    mountinfo = node.text("/proc/self/mountinfo") or ""
    told = answers.runtime(str(node.at(socket))) if answers.runtime and node.exists(socket) else None
    config = settings.runtime_config(settings.runtime_kind(socket, told))
    tree = detect(node.at(CGROUP_ROOT), mountinfo)
    cgroup = _cgroup(node, tree, process, config)
    tiers = layout.tiers_of(cgroup.kube_root) if cgroup.kube_root else {}
    daemon_facts, daemon_says = daemon
    return Facts(
        kernel_release=(node.text("/proc/sys/kernel/osrelease") or "").strip(),
        systemd=_systemd(node),
        psi=node.text("/proc/pressure/cpu") is not None,
        swap_bytes=_swap_bytes(node.text("/proc/meminfo") or ""),
        cpu_flags=_cpu_flags(node.text("/proc/cpuinfo") or ""),
        isolated_cpus=(node.text("/sys/devices/system/cpu/isolated") or "").strip(),
        resctrl_mounted=node.exists(f"{RESCTRL_ROOT}/schemata"),
        resctrl_in_mbps=is_in_mbps(mountinfo),
        resctrl_classes=_resctrl_classes(node),
        perf_paranoid=_number(node.text("/proc/sys/kernel/perf_event_paranoid")),
        perf_hardware=any(node.exists(f"/sys/bus/event_source/devices/{name}") for name in _CORE_PMUS),
        cgroup=cgroup,
        kubelet=said,
        restart=answers.restart(node, process),
        runtime=settings.runtime(node, socket, told, can_be_asked=answers.runtime is not None),
        koord=_koord(node, mountinfo, answers.free_bytes(node.at(STATE_DIRECTORY))),
        others=others_there,
        leftovers=() if daemon_facts else others.leftovers(node, tree, tiers, said.writes_memory_protection),
        recorded=recorded,
        daemon=daemon_facts,
        daemon_says=daemon_says,
    )


def _systemd(node: NodeFiles) -> bool | None:
    name = node.text("/proc/1/comm")
    return None if name is None else name.strip() == "systemd"


def _swap_bytes(meminfo: str) -> int:
    found = re.search(r"^SwapTotal:\s+(\d+) kB$", meminfo, re.MULTILINE)
    return int(found.group(1)) * 1024 if found else 0


def _cpu_flags(cpuinfo: str) -> frozenset[str]:
    found = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    return frozenset(found.group(1).split()) if found else frozenset()


def _resctrl_classes(node: NodeFiles) -> frozenset[str]:
    names = node.names(RESCTRL_ROOT)
    return frozenset(
        name for name in names if name not in _RESCTRL_OWN and node.exists(f"{RESCTRL_ROOT}/{name}/schemata")
    )


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _cgroup(node: NodeFiles, tree: Tree, process: KubeletProcess, runtime_config: str) -> CgroupFacts:
    if tree.version == 1 and not tree.controllers:
        return CgroupFacts()
    claims = kubelet.claims(process, [node.at(runtime_config)])
    found = layout.detect(tree, claims)
    cgroup, tier = found.kubepods, found.tiers.get(KubeQoS.BEST_EFFORT, "")
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
        best_effort=tier if tier and tree.exists(tier) else "",
    )


def _holds_container(node: NodeFiles, tree: Tree, tier: str) -> bool:
    """Returns whether there is any cgroup in any pod's below ``tier``."""
    top = node.own(tree.directory(tier))
    pods = (name for name in node.names(top) if layout.kubepods_above(f"{tier}/{name}"))
    return any(os.path.isdir(node.at(f"{top}/{pod}/{name}")) for pod in pods for name in node.names(f"{top}/{pod}"))


def _v1_controllers(tree: Tree) -> list[str]:
    """Returns the mounts' options that are controllers."""
    return [name for name in tree.controllers if "=" not in name and name != "xattr"]


def _koord(node: NodeFiles, mountinfo: str, state_free_bytes: int | None) -> KoordFacts:
    hook = settings.json_file(node, HOOK_SERVER_FILE)
    endpoint = hook.text("remote-endpoint").removeprefix("unix://")
    rules = settings.yaml_file(node, RULES_FILE)
    unit = units.find(node, units.QOSD)
    wanted = grants.drop_in(grants.wanted(node))
    return KoordFacts(
        hook_file=hook.file,
        hook_endpoint=endpoint,
        hook_endpoint_exists=bool(endpoint) and node.exists(endpoint),
        hook_problem=hook.problem,
        unit_file=unit.files[0].path if unit else "",
        unit_open_files=settings.open_files(unit) if unit else None,
        grants=wanted,
        grants_stale=unit is not None and (node.text(grants.DROP_IN) or "") != wanted,
        slice_memory_min=settings.slice_memory_min(node),
        rules_file=rules.file,
        rules_problem=rules.problem,
        rules_cpu_manager_policy=rules.text("node", "cpuManagerPolicy"),
        rules_limits_in_cri=rules.truth("node", "limitsInCRI") is True,
        state_free_bytes=state_free_bytes,
        run_is_tmpfs=_is_tmpfs(mountinfo, "/run"),
        bypass_file=BYPASS_FILE if node.exists(BYPASS_FILE) else "",
    )


def _is_tmpfs(mountinfo: str, point: str) -> bool | None:
    """Returns whether ``point`` is a tmpfs mount; None if the mounts are not known."""
    if not mountinfo:
        return None
    kinds = [line.partition(" - ")[2].split()[:1] for line in mountinfo.splitlines() if line.split()[4:5] == [point]]
    return kinds[-1:] == [["tmpfs"]]
