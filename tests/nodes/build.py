"""A node's files below a directory: /proc, /sys, /etc, /run and /var as far as anything of Koord's reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from koord.host.layout import kubepods_path, tiers_of
from koord.model.cgroup_parent import CgroupStyle
from koord.model.qos import KubeQoS
from koordctl.node.collect import RECORDING_FILE, Recording
from tests.fakes import cgroups
from tests.nodes.parameters import CGROUPFS, HYBRID, SYSTEMD, V1, V2, Parameters, Runtime

CGROUP_ROOT = "/sys/fs/cgroup"
KUBELET_PID, RUNTIME_PID = 812, 640
FREE_BYTES = 20 << 30
PODS = {
    KubeQoS.GUARANTEED: "0b3d1b2c-54a1-4a93-8f27-5f3d9f1c0a01",
    KubeQoS.BURSTABLE: "5c8a7c64-0d27-4b0e-9b1e-7a6d2e4f0b02",
    KubeQoS.BEST_EFFORT: "e4f9d1aa-7b6c-4c55-a3a7-1c2d3e4f0c03",
}
_CONTAINERS = ("b" * 64,)
_V1_MOUNTS = ("cpuset", "cpu,cpuacct", "memory", "blkio", "pids", "devices", "freezer")
_WITH_FILES = ("cpuset", "cpu,cpuacct", "memory", "blkio")  # what Koord's rows know; the rest are mounts only
_LINK = "-> "


def lay_out(root: Path, node: Parameters) -> Path:
    """Write the node's tree below ``root``, which is made, and return it."""
    files = {path: text for path, text in _files(node) if not path.startswith(node.absent or "\0")}
    files.update(node.extra)
    for directory in {os.path.dirname(path) for path in files}:
        os.makedirs(f"{root}{directory}", exist_ok=True)
    for path, text in files.items():
        place = f"{root}{path}"
        if text.startswith(_LINK):
            os.symlink(text.removeprefix(_LINK), place)
        else:
            with open(place, "x") as file:
                file.write(text)
    return root


def kubepods(node: Parameters) -> str:
    return kubepods_path(node.cgroup_root, CgroupStyle(node.tree_driver))


def _files(node: Parameters) -> Iterator[tuple[str, str]]:
    yield from _proc(node)
    yield from _sys(node)
    yield from (_cgroups_v2(node) if node.cgroup == V2 else _cgroups_v1(node))
    yield from _kubelet(node)
    yield from _runtime(node.runtime, node.runtime_driver or node.driver)
    yield "/etc/os-release", 'ID=debian\nVERSION_ID="12"\n'
    yield "/var/run", f"{_LINK}../run"
    if node.rules:
        yield "/etc/koord/qosd-rules.yaml", node.rules
    told = (node.runtime.name, node.runtime.version)
    yield f"/{RECORDING_FILE}", Recording(node.kubelet, told, FREE_BYTES).text()


def _proc(node: Parameters) -> Iterator[tuple[str, str]]:
    yield "/proc/sys/kernel/osrelease", f"{node.kernel}\n"
    yield "/proc/sys/kernel/perf_event_paranoid", "2\n"
    yield "/proc/meminfo", "MemTotal:       16303428 kB\nMemFree:        12000000 kB\nSwapTotal:             0 kB\n"
    flags = " ".join(("fpu", "sse2", "avx2", *node.rdt))
    yield "/proc/cpuinfo", "".join(f"processor\t: {cpu}\nflags\t\t: {flags}\n\n" for cpu in range(2))
    yield "/proc/self/mountinfo", "\n".join(_mounts(node)) + "\n"
    yield "/proc/net/unix", "Num       RefCount Protocol Flags    Type St Inode Path\n"
    if node.psi:
        yield from ((f"/proc/pressure/{name}", cgroups.PRESSURE) for name in ("cpu", "io", "memory"))
    yield from _process(node, 1, node.init, (f"/sbin/{node.init}",), "init.scope")
    program = {"docker": "dockerd", "cri-o": "crio"}.get(node.runtime.name, node.runtime.name)
    yield from _process(node, RUNTIME_PID, program, (f"/usr/bin/{program}",), f"{program}.service")
    yield from _process(node, KUBELET_PID, "kubelet", ("/usr/bin/kubelet", *_arguments(node)), "kubelet.service")


def _process(node: Parameters, pid: int, name: str, args: tuple[str, ...], unit: str) -> Iterator[tuple[str, str]]:
    yield f"/proc/{pid}/comm", f"{name[:15]}\n"
    yield f"/proc/{pid}/cmdline", "".join(f"{arg}\0" for arg in args)
    cgroup = f"/{unit}" if unit.endswith(".scope") else f"/system.slice/{unit}"
    if node.init != "systemd":
        cgroup = "/"
    v1 = [f"{number}:{name}:{cgroup}" for number, name in enumerate(_V1_MOUNTS, 2)] + [f"1:name=systemd:{cgroup}"]
    lines = {V2: [f"0::{cgroup}"], V1: v1, HYBRID: [*v1, f"0::{cgroup}"]}[node.cgroup]
    yield f"/proc/{pid}/cgroup", "\n".join(lines) + "\n"


def _mounts(node: Parameters) -> Iterator[str]:
    yield "22 27 0:20 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw"
    yield "23 27 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:14 - proc proc rw"
    yield "25 27 0:23 / /run rw,nosuid,nodev,noexec,relatime shared:5 - tmpfs tmpfs rw,size=1630344k,mode=755"
    flags = "rw,nosuid,nodev,noexec,relatime"
    if node.cgroup == V2:
        yield f"30 22 0:26 / {CGROUP_ROOT} {flags} shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot"
    else:
        yield f"30 22 0:26 / {CGROUP_ROOT} ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,size=4096k,mode=755"
        for number, name in enumerate(_V1_MOUNTS, 40):
            yield f"{number} 30 0:{number} / {CGROUP_ROOT}/{name} {flags} shared:{number} - cgroup cgroup rw,{name}"
        yield f"31 30 0:27 / {CGROUP_ROOT}/systemd {flags} shared:11 - cgroup cgroup rw,xattr,name=systemd"
    if node.cgroup == HYBRID:
        yield f"32 30 0:28 / {CGROUP_ROOT}/unified {flags} shared:10 - cgroup2 cgroup2 rw,nsdelegate"
    if node.resctrl:
        yield "60 22 0:50 / /sys/fs/resctrl rw,relatime shared:30 - resctrl resctrl rw"


def _sys(node: Parameters) -> Iterator[tuple[str, str]]:
    yield "/sys/bus/event_source/devices/cpu/type", "4\n"
    yield "/sys/devices/system/cpu/online", "0-1\n"
    if node.resctrl:
        yield "/sys/fs/resctrl/schemata", "MB:0=100\nL3:0=7ff\n"
        yield "/sys/fs/resctrl/cpus_list", "0-1\n"
        yield "/sys/fs/resctrl/info/L3/cbm_mask", "7ff\n"
        yield "/sys/fs/resctrl/info/L3/min_cbm_bits", "1\n"
        yield "/sys/fs/resctrl/info/L3/num_closids", "16\n"


# --- cgroups ---------------------------------------------------------------------------------------------------------


def _groups(node: Parameters) -> Iterator[str]:
    """Every cgroup of interest below the root, parents first."""
    systemd = node.init == "systemd"
    yield from ("/init.scope", "/system.slice", "/system.slice/kubelet.service") if systemd else ()
    top = kubepods(node)
    parts = top.strip("/").split("/")
    yield from ("/" + "/".join(parts[:depth]) for depth in range(1, len(parts)))
    yield top
    for qos, tier in tiers_of(top).items():
        if tier != top:
            yield tier
        pod = _pod(node, tier, PODS[qos])
        yield pod
        yield from (f"{pod}/{_container(node, name)}" for name in _CONTAINERS)


def _pod(node: Parameters, tier: str, uid: str) -> str:
    if node.tree_driver == CGROUPFS:
        return f"{tier}/pod{uid}"
    return f"{tier}/{tier.rpartition('/')[2].removesuffix('.slice')}-pod{uid.replace('-', '_')}.slice"


def _container(node: Parameters, name: str) -> str:
    return name if node.tree_driver == CGROUPFS else f"{node.runtime.scope}-{name}.scope"


def _cgroups_v1(node: Parameters) -> Iterator[tuple[str, str]]:
    groups = ("", *_groups(node))
    for mount in _V1_MOUNTS:
        controllers = mount.split(",")
        yield from ((f"{CGROUP_ROOT}/{name}", f"{_LINK}{mount}") for name in controllers if name != mount)
        for cgroup in groups if mount in _WITH_FILES else ("",):
            for controller in controllers:
                for file in cgroups.v1_files(controller, node.release):
                    yield f"{CGROUP_ROOT}/{mount}{cgroup}/{file.name}", file.text
    yield f"{CGROUP_ROOT}/systemd/cgroup.procs", ""
    if node.cgroup == HYBRID:
        yield f"{CGROUP_ROOT}/unified/cgroup.controllers", ""
        for cgroup in groups[1:]:
            for file in cgroups.v2_files((), node.release, node.psi):
                yield f"{CGROUP_ROOT}/unified{cgroup}/{file.name}", file.text


def _cgroups_v2(node: Parameters) -> Iterator[tuple[str, str]]:
    controllers = cgroups.v2_controllers(node.release)
    passed_on = " ".join(controllers) + "\n"
    for name in ("cgroup.controllers", "cgroup.subtree_control"):
        yield f"{CGROUP_ROOT}/{name}", passed_on
    yield f"{CGROUP_ROOT}/cgroup.procs", ""
    if "cpuset" in controllers:
        yield f"{CGROUP_ROOT}/cpuset.cpus.effective", "0-1\n"
    if node.release >= (5, 4):
        yield from ((f"{CGROUP_ROOT}/io.cost.{name}", "") for name in ("qos", "model"))
    for cgroup in _groups(node):
        is_leaf = cgroup.rpartition("/")[2].removesuffix(".scope").endswith(_CONTAINERS)
        for file in cgroups.v2_files(controllers, node.release, node.psi):
            inner = file.name == "cgroup.controllers" or (file.name == "cgroup.subtree_control" and not is_leaf)
            yield f"{CGROUP_ROOT}{cgroup}/{file.name}", passed_on if inner else file.text


# --- kubelet and runtime ---------------------------------------------------------------------------------------------

_CONFIG = "/var/lib/kubelet/config.yaml"
_PLAIN_UNIT = """\
[Unit]
Description=kubelet
After=network-online.target

[Service]
ExecStart={command}
Restart=always

[Install]
WantedBy=multi-user.target
"""
_KUBEADM_DROP_IN = """\
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""


def _endpoint(node: Parameters) -> str:
    return f"--container-runtime-endpoint=unix://{node.runtime.socket}"


def _arguments(node: Parameters) -> tuple[str, ...]:
    return ("--kubeconfig=/etc/kubernetes/kubelet.conf", f"--config={_CONFIG}", _endpoint(node), *node.flags)


def _kubelet(node: Parameters) -> Iterator[tuple[str, str]]:
    yield "/usr/bin/kubelet", ""
    units = "/usr/lib/systemd/system"
    if node.unit == "kubeadm":
        yield f"{units}/kubelet.service", _PLAIN_UNIT.format(command="/usr/bin/kubelet")
        yield f"{units}/kubelet.service.d/10-kubeadm.conf", _KUBEADM_DROP_IN
        arguments = " ".join((_endpoint(node), *node.flags))
        yield "/var/lib/kubelet/kubeadm-flags.env", f'KUBELET_KUBEADM_ARGS="{arguments}"\n'
    elif node.unit == "plain":
        command = " ".join(("/usr/bin/kubelet", *_arguments(node)))
        yield "/etc/systemd/system/kubelet.service", _PLAIN_UNIT.format(command=command)
    yield _CONFIG, _configuration(node)
    state = f'{{"policyName":"{node.cpu_manager}","defaultCpuSet":"","checksum":1353318690}}'
    yield "/var/lib/kubelet/cpu_manager_state", state


def _configuration(node: Parameters) -> str:
    lines = ["apiVersion: kubelet.config.k8s.io/v1beta1", "kind: KubeletConfiguration", f"cgroupDriver: {node.driver}"]
    if node.cgroup_root:
        lines.append(f"cgroupRoot: {node.cgroup_root}")
    if node.cpu_manager == "static":
        lines += ["cpuManagerPolicy: static", "kubeReserved:", "  cpu: 500m"]
    if node.gates:
        lines += ["featureGates:", *(f"  {name}: {str(on).lower()}" for name, on in node.gates.items())]
    return "\n".join(lines) + "\n"


def _runtime(runtime: Runtime, driver: str) -> Iterator[tuple[str, str]]:
    yield runtime.socket, ""
    if runtime.name == "docker":
        yield "/etc/docker/daemon.json", f'{{"exec-opts": ["native.cgroupdriver={driver}"], "live-restore": true}}\n'
        yield "/etc/containerd/config.toml", 'disabled_plugins = ["cri"]\n'
        yield "/run/containerd/containerd.sock", ""
    elif runtime.name == "cri-o":
        yield "/etc/crio/crio.conf", f'[crio.runtime]\ncgroup_manager = "{driver}"\n'
    elif runtime.name == "containerd":
        plugin = "io.containerd.cri.v1.runtime" if runtime.config_version == 3 else "io.containerd.grpc.v1.cri"
        runc = f'plugins."{plugin}".containerd.runtimes.runc'
        text = f"version = {runtime.config_version}\n[{runc}]\nruntime_type = 'io.containerd.runc.v2'\n"
        yield (
            "/etc/containerd/config.toml",
            f"{text}[{runc}.options]\nSystemdCgroup = {str(driver == SYSTEMD).lower()}\n",
        )
        if runtime.config_version == 3:
            yield "/run/nri/nri.sock", ""
