"""The matrix: every kind of node, and whether Koord installs there or is refused, with exactly which sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from koordctl.doctor.kernel import NO_REMOTE_PARTITIONS
from tests.nodes.build import CGROUP_ROOT
from tests.nodes.parameters import (
    CAT_ONLY,
    CGROUPFS,
    CONTAINERD_1_5,
    CONTAINERD_1_6,
    CONTAINERD_2,
    CRI_DOCKERD,
    CRI_O,
    HYBRID,
    POUCH,
    RDT,
    SYSTEMD,
    V1,
    V2,
    Parameters,
    Runtime,
)

RESIZE = {"InPlacePodVerticalScaling": True}
RESTORED = (
    "feature gate InPlacePodVerticalScaling is on; kubelet reads what it requested of a container, and a resize is a "
    "new base"
)
K4, K5_10, K5_15, K6_1, K6_8 = "4.19.0-26-amd64", "5.10.0-33-amd64", "5.15.0-130-generic", "6.1.0-32-amd64", "6.8.0-51"
NO_PSI_YET = "/proc/pressure is missing (Linux 4.20 has it): interference is seen late"
NO_PSI = "/proc/pressure is missing: interference is seen late"
PROXY_SOCKET = "/run/koord-runtimeproxy/runtimeproxy.sock"
LISTENER = f"ffff: 00000002 00000000 00010000 0001 01 4711 {PROXY_SOCKET}\n"


def differ(kubelets: str, runtime: str, runtimes: str, file: str, version: str = "") -> str:
    """The sentence of two drivers; ``version``: of a kubelet that takes the runtime's, cgroupfs."""
    said = f"driver: /var/lib/kubelet/config.yaml says {kubelets}, but {file} says {runtimes}"
    text = f"kubelet's cgroup driver is {kubelets}, and {runtime}'s is {runtimes} ({file}); {said}"
    made = "/var/lib/kubelet/config.yaml makes it /kubepods.slice, which does not exist; the tree has /kubepods"
    return f"{text}; {made}; kubelet {version} takes the runtime's" if version else text


@dataclass(frozen=True)
class Cell:
    """One node; ``refused`` the reasons in order (none: it installs), ``found`` other findings worth a look."""

    node: Parameters
    found: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[str, ...] = ()


def cell(
    cgroup: str,
    driver: str,
    root: str,
    runtime: Runtime,
    kernel: str,
    found: Mapping[str, str] | None = None,
    refused: tuple[str, ...] | str = (),
    **more: object,
) -> Cell:
    node = Parameters(cgroup, driver, root, runtime, kernel=kernel, **more)  # type: ignore[arg-type]
    return Cell(node, found or {}, (refused,) if isinstance(refused, str) else refused)


INSTALLS = {
    "v2 systemd": cell(V2, SYSTEMD, "", CONTAINERD_1_6, K6_1, {
        "psi": "ok: pressure is measured, of each cgroup too", "cpuset-partition": f"info: {NO_REMOTE_PARTITIONS}",
        "memory-reclaim": "ok: memory.reclaim: background reclaim and page-cache limits are possible",
        "kubelet-tree": "ok: pods are below /kubepods.slice (systemd driver)"}),
    "v2 systemd, containerd 2, RDT": cell(V2, SYSTEMD, "", CONTAINERD_2, K6_8, {
        "cpuset-partition": "ok: remote cpuset partitions are possible", "nri": "ok: the runtime's NRI socket is there",
        "resctrl": "ok: cache allocation, bandwidth allocation, cache monitoring; groups: none"},
        rdt=RDT, resctrl=True),
    "v2 systemd, cgroupRoot, static": cell(V2, SYSTEMD, "/kubelet", CONTAINERD_2, K6_1, {
        "kubelet-tree": "ok: pods are below /kubelet.slice/kubelet-kubepods.slice (systemd driver)",
        "cpu-manager": "info: static: CPUs that kubelet gave exclusively stay untouched, pods without a QoS label keep "
        "kubelet's CPUs"}, cpu_manager="static"),
    "v2 systemd, cri-dockerd": cell(V2, SYSTEMD, "", CRI_DOCKERD, K5_15, {
        "runtime": "ok: docker 26.1.5, through cri-dockerd", "runtime-config": "ok: /etc/docker/daemon.json"}),
    "v2 systemd, cri-o": cell(V2, SYSTEMD, "", CRI_O, K6_8, {
        "runtime": "ok: cri-o 1.31.3; behind the proxy kubelet takes statistics from CRI instead of its own cAdvisor"}),
    "v2 cgroupfs": cell(V2, CGROUPFS, "", CONTAINERD_1_6, K5_15, {
        "kubelet-tree": "ok: pods are below /kubepods (cgroupfs driver)",
        "cpu-idle": "ok: BE pods can be made idle class"}),
    "v2 cgroupfs, cgroupRoot, PSI off": cell(V2, CGROUPFS, "/kubelet", CONTAINERD_1_6, K5_10, {
        "kernel": f"warn: Linux {K5_10} lacks cpu.idle (5.15)", "psi": f"warn: {NO_PSI}"}, psi=False),
    "v2 cgroupfs, cri-dockerd, static": cell(V2, CGROUPFS, "/kubelet", CRI_DOCKERD, K5_10, {
        "cpu-burst": "info: no cpu.max.burst: bursts are given by raising the quota",
        "memory-reclaim": "info: this kernel, before Linux 5.19, has no memory.reclaim: neither background reclaim nor "
        "page-cache limits"}, cpu_manager="static"),
    "v1 cgroupfs, 4.19": cell(V1, CGROUPFS, "", CONTAINERD_1_6, K4, {
        "psi": f"warn: {NO_PSI_YET}",
        "memory-qos": "info: cgroup v1 has no memory.min and no memory.low: memory.soft_limit_in_bytes stands in for "
        "memory.low, nothing for memory.min",
        "memory-reclaim": "info: cgroup v1 has no memory.reclaim: neither background reclaim nor page-cache limits"},
        psi=False),
    "v1 systemd, 4.19, static": cell(V1, SYSTEMD, "", CONTAINERD_1_6, K4, {
        "cpu-idle": "info: no cpu.idle: BE pods yield by weight alone"}, psi=False, cpu_manager="static"),
    "v1 systemd, cgroupRoot, cri-dockerd": cell(V1, SYSTEMD, "/kubelet", CRI_DOCKERD, K5_10, {
        "psi": "info: pressure of the node is measured, that of pods is not: they have no cgroup of version 2"}),
    "v1 cgroupfs, cgroupRoot, containerd 2": cell(V1, CGROUPFS, "/kubelet", CONTAINERD_2, K6_1, {
        "kubelet-tree": "ok: pods are below /kubelet/kubepods (cgroupfs driver)",
        "cpu-burst": "ok: CFS burst is there"}),
    "v1 cgroupfs, RDT unmounted": cell(V1, CGROUPFS, "", CONTAINERD_1_6, K5_15, {
        "resctrl": "warn: the CPU has cache allocation, and resctrl is not mounted"}, rdt=CAT_ONLY),
    "hybrid cgroupfs": cell(HYBRID, CGROUPFS, "", CONTAINERD_1_6, K5_10, {
        "psi": "ok: pressure is measured, of each cgroup too"}),
    "hybrid systemd, containerd 2, RDT": cell(HYBRID, SYSTEMD, "", CONTAINERD_2, K6_1, {
        "resctrl": "ok: cache allocation; groups: none", "cri-events": "ok: CRI events reach every subscriber"},
        rdt=CAT_ONLY, resctrl=True),
    "hybrid systemd, cgroupRoot, cri-dockerd, PSI off": cell(HYBRID, SYSTEMD, "/kubelet", CRI_DOCKERD, K5_15, {
        "psi": f"warn: {NO_PSI}", "cpuset-partition": f"info: {NO_REMOTE_PARTITIONS}"}, psi=False),
    "hybrid cgroupfs, 4.19, static": cell(HYBRID, CGROUPFS, "/kubelet", CONTAINERD_1_6, K4, {
        "psi": f"warn: {NO_PSI_YET}"}, psi=False, cpu_manager="static"),
    "kubelet 1.27 resizing": cell(V2, SYSTEMD, "", CONTAINERD_1_6, K6_1, {
        "in-place-resize": f"ok: {RESTORED}"}, kubelet="v1.27.16", gates=RESIZE),
    "kubelet 1.32 resizing, all alpha": cell(V1, CGROUPFS, "", CONTAINERD_2, K5_15, {
        "in-place-resize": f"ok: {RESTORED}"}, kubelet="v1.32.3", gates={"AllAlpha": True}),
    "kubelet 1.31 resizing by flag, cri-dockerd": cell(V2, CGROUPFS, "", CRI_DOCKERD, K6_8, {
        "in-place-resize": f"ok: {RESTORED}"}, flags=("--feature-gates=InPlacePodVerticalScaling=true",)),
    "kubelet 1.34": cell(V2, SYSTEMD, "", CONTAINERD_2, K6_1, {
        "in-place-resize": f"ok: {RESTORED}"}, kubelet="v1.34.4"),
    "kubelet 1.34 that is told of limits": cell(V2, SYSTEMD, "", CONTAINERD_2, K6_1, {
        "in-place-resize": "warn: node.limitsInCRI is true: but for what koord-runtime-proxy gives back, kubelet takes "
        "limits that Koord edited for its own: batch pods count as CPU and memory that services requested"},
        kubelet="v1.34.4", rules="node: {limitsInCRI: true}\n"),
    "kubelet 1.34 takes the runtime's driver": cell(V2, SYSTEMD, "", CONTAINERD_2, K6_1, {
        "cgroup-driver": "warn: " + differ(SYSTEMD, "containerd", CGROUPFS, "/etc/containerd/config.toml", "v1.34.4")},
        kubelet="v1.34.4", runtime_driver=CGROUPFS),
    "another agent's forgotten file": cell(V2, SYSTEMD, "", CONTAINERD_1_6, K6_1, {
        "other-agents": "warn: left behind by another agent: /etc/runtime/hookserver.d/koordlet.json"},
        extra={"/etc/runtime/hookserver.d/koordlet.json": '{"remote-endpoint": "/run/gone.sock"}'}),
    "kubelet started by a plain unit": cell(V2, SYSTEMD, "", CONTAINERD_1_6, K6_1, unit="plain"),
}  # fmt: skip
REFUSED = {
    "v2 before it had cpuset": cell(V2, CGROUPFS, "", CONTAINERD_1_6, K4, psi=False,
        refused="missing: cpuset (v2 has cpuset since Linux 5.0)"),
    "kernel 4.14": cell(V1, CGROUPFS, "", CONTAINERD_1_6, "4.14.336", psi=False,
        refused="Linux 4.14.336 is older than 4.18"),
    "v1 without memory": cell(V1, CGROUPFS, "", CONTAINERD_1_6, K5_10, absent=(f"{CGROUP_ROOT}/memory",),
        refused="missing: memory"),
    "v2, cpuset not passed on": cell(V2, SYSTEMD, "", CONTAINERD_1_6, K6_1,
        extra={f"{CGROUP_ROOT}/kubepods.slice/cgroup.subtree_control": "cpu io memory pids\n"},
        refused="off in cgroup.subtree_control of kubelet's tree: cpuset"),
    "drivers differ": cell(V2, SYSTEMD, "", CONTAINERD_1_6, K6_1, runtime_driver=CGROUPFS,
        refused=differ(SYSTEMD, "containerd", CGROUPFS, "/etc/containerd/config.toml")),
    "drivers differ, v1": cell(V1, CGROUPFS, "/kubelet", CONTAINERD_2, K5_10, runtime_driver=SYSTEMD, kubelet="v1.30.2",
        refused=differ(CGROUPFS, "containerd", SYSTEMD, "/etc/containerd/config.toml")),
    "drivers differ, cri-dockerd": cell(HYBRID, SYSTEMD, "", CRI_DOCKERD, K5_10, runtime_driver=CGROUPFS,
        refused="kubelet's cgroup driver is systemd, and docker's is cgroupfs (/etc/docker/daemon.json)"),
    "no cgroups per QoS": cell(V2, SYSTEMD, "", CONTAINERD_1_6, K6_1, flags=("--cgroups-per-qos=false",),
        refused="kubelet runs without cgroups per QoS, so a pod's class cannot be seen"),
    "kubelet 1.22": cell(V1, CGROUPFS, "", CONTAINERD_1_6, K4, psi=False, kubelet="v1.22.17",
        flags=("--container-runtime=remote",),
        refused="kubelet v1.22.17 speaks CRI v1alpha2 only, which Koord does not read"),
    "dockershim": cell(V1, CGROUPFS, "", CRI_DOCKERD, K4, psi=False, kubelet="v1.23.17",
        refused="kubelet v1.23.17 drives Docker by its built-in dockershim, so no CRI call can be edited"),
    "containerd 1.5": cell(V1, SYSTEMD, "", CONTAINERD_1_5, K5_10, refused="containerd 1.5.18 speaks no CRI v1"),
    "pouch": cell(V1, CGROUPFS, "", POUCH, K4, psi=False,
        refused="pouch 1.3.0 at /run/pouchcri.sock is no runtime that Koord knows"),
    "no runtime": cell(V2, SYSTEMD, "", CONTAINERD_1_6, K6_1, absent=("/run/containerd/",),
        refused="no socket of a container runtime at /run/containerd/containerd.sock"),
    "a runtime that does not answer": cell(V2, SYSTEMD, "", CONTAINERD_1_6, K6_1,
        extra={"/koord-recording.json": '{"kubelet": "v1.31.9", "runtime": null, "stateFreeBytes": null}'},
        refused="the runtime at /run/containerd/containerd.sock does not answer"),
    "no systemd": cell(V1, CGROUPFS, "", CONTAINERD_1_6, K5_10, init="init",
        refused="process 1 is not systemd, so nothing would start Koord before kubelet"),
    "no kubelet": cell(V2, SYSTEMD, "", CONTAINERD_1_6, K6_1, absent=("/proc/812/",),
        refused="no kubelet is running, so its flags cannot be read"),
    "k3s": cell(V2, CGROUPFS, "", CONTAINERD_2, K6_1, absent=("/proc/812/",),
        extra={"/proc/700/cmdline": "/usr/local/bin/k3s server\0"},
        refused="kubelet is part of k3s (pid 700), whose runtime endpoint Koord cannot change"),
    "kubelet in a container": cell(V1, CGROUPFS, "", CRI_DOCKERD, K4, psi=False, unit="none",
        extra={"/proc/812/cgroup": "1:name=systemd:/docker/4f2a\n"},
        refused="kubelet is run by no systemd unit, so its runtime endpoint cannot be changed"),
    "kubelet before its first cgroup": cell(V2, SYSTEMD, "", CONTAINERD_1_6, K6_1,
        absent=(f"{CGROUP_ROOT}/kubepods.slice",), refused="kubelet has made no cgroup for pods at /kubepods.slice"),
    "koordlet": cell(V2, SYSTEMD, "", CONTAINERD_1_6, K6_1,
        extra={
            "/proc/900/cmdline": "/koordlet\0-addr=:9316\0",
            "/etc/runtime/hookserver.d/koordlet.json": '{"remote-endpoint": "/var/run/koordlet/koordlet.sock"}',
            "/run/koordlet/koordlet.sock": "",
        },
        refused="koordlet (pid 900) is running; /etc/runtime/hookserver.d/koordlet.json registers the hook server "
        "/var/run/koordlet/koordlet.sock"),
    "upstream's proxy": cell(V1, CGROUPFS, "", CONTAINERD_1_6, K4, psi=False,
        extra={"/proc/901/cmdline": "/usr/local/bin/koord-runtime-proxy\0"},
        refused="koord-runtime-proxy (pid 901) is running"),
    "a stranger on the proxy's socket": cell(V2, SYSTEMD, "", CONTAINERD_2, K6_8,
        extra={
            "/proc/902/cmdline": "/usr/bin/socat\0UNIX-LISTEN\0",
            "/proc/902/fd/5": "-> socket:[4711]",
            "/proc/net/unix": f"Num RefCount Protocol Flags Type St Inode Path\n{LISTENER}",
        },
        refused=f"socat (pid 902) listens on {PROXY_SOCKET}"),
    "several reasons": cell(V2, SYSTEMD, "", CONTAINERD_1_5, K6_1, init="init", refused=(
        "process 1 is not systemd, so nothing would start Koord before kubelet", "containerd 1.5.18 speaks no CRI v1")),
}  # fmt: skip
CELLS = {**INSTALLS, **REFUSED}
