"""Each check on the facts that turn it, and whole nodes as recorded trees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from koord.host.support import Support
from koordctl.doctor import CheckStatus, kernel, koord, kubernetes
from koordctl.doctor.checks import CHECKS, Check, blockers, examine
from koordctl.node.collect import Answers, collect
from koordctl.node.facts import (
    CgroupFacts,
    Facts,
    HookFileFacts,
    KoordFacts,
    KubeletSettings,
    OthersFacts,
    RestartFacts,
    RuntimeFacts,
)
from koordctl.node.files import NodeFiles
from qosd.decide.reliefsteps import CPU_FLOOR_MILLI
from runtimeproxy.options import Options
from tests.koordctl.doctor.goodnode import DAEMON, GOOD, KUBELET, V2, record

OK, INFO, WARN, FAIL = CheckStatus.OK, CheckStatus.INFO, CheckStatus.WARN, CheckStatus.FAIL
RESIZE = {"InPlacePodVerticalScaling": True}
DRIVERLESS = replace(KUBELET, cgroup_driver="")


def test_in_a_pod_no_unit_is_spoken_of() -> None:
    """What the table and the refusals of an installation say on the chart's node, with no daemon and with a bad one."""
    bare = replace(GOOD, systemd=False, in_pod=True, koord=KoordFacts(), kubelet=KubeletSettings())
    of_hosts = ("koord-qosd.service", "systemctl", "koordctl install", "koord.slice")
    weak = replace(DAEMON, open_files_limit=20_000, lacking=("cpuSuppress lacks CAP_SYS_NICE",))
    for facts in (replace(bare, daemon=None, daemon_says="no socket"), replace(bare, daemon=weak)):
        of_koord = (koord.daemon, koord.unit, koord.slice_memory, koord.open_files, koord.grants)
        for finding in (check(facts) for check in of_koord):
            said = f"{finding.sentence} {finding.remedy}"
            assert not any(word in said for word in of_hosts)
        assert blockers(facts) == ()


def of_runtime(name: str, version: str) -> RuntimeFacts:
    """Its cgroup driver is in files that are not read."""
    return RuntimeFacts(name, version, "/run/r.sock", True)


CASES: list[tuple[Check, dict[str, Any], CheckStatus, str]] = [
    (kernel.kernel, {"kernel_release": ""}, WARN, "'unknown' is not understood"),
    (kernel.kernel, {"kernel_release": "4.9.0"}, FAIL, "older than 4.18"),
    (kernel.kernel, {"kernel_release": "5.10.0-8-amd64"}, WARN, "lacks cpu.idle"),
    (kernel.kernel, {"kernel_release": "5.15.0-8-amd64"}, OK, "Linux 5.15.0-8-amd64"),
    (kernel.cgroup_version, {"cgroup": CgroupFacts()}, FAIL, "no cgroup hierarchy"),
    (kernel.cgroup_version, {"cgroup": replace(V2, version=1)}, INFO, "no memory.high"),
    (kernel.cgroup_version, {"cgroup": replace(V2, version=1, hybrid=True)}, INFO, "pressure per container"),
    (kernel.controllers, {"cgroup": CgroupFacts()}, FAIL, "missing: all"),
    (kernel.controllers, {"cgroup": replace(V2, controllers=frozenset(("cpu", "io")))}, FAIL, "cpuset, memory"),
    (kernel.controllers, {"cgroup": replace(V2, enabled_for_pods=frozenset(("cpu",)))}, FAIL, "cpuset, memory, io"),
    (
        kernel.controllers,
        {"cgroup": replace(V2, enabled_for_pods=frozenset(("cpu", "memory")), has_containers=False)},
        INFO,
        "for pods not yet cpuset, io: their first container brings it",
    ),
    (kernel.controllers, {"cgroup": replace(V2, controllers=V2.controllers - {"io"})}, WARN, "missing: io"),
    (
        kernel.controllers,
        {"cgroup": replace(V2, controllers=V2.controllers - {"cpuset"}), "kernel_release": "4.19.0"},
        FAIL,
        "missing: cpuset (v2 has cpuset since Linux 5.0)",
    ),
    (kubernetes.kubelet_restart, {"restart": None}, INFO, "no cluster was asked"),
    (kubernetes.kubelet_restart, {"restart": RestartFacts(problem="no route")}, INFO, "is not known: no route"),
    (kubernetes.kubelet_restart, {"restart": RestartFacts()}, OK, "offers all that its running pods request"),
    (kubernetes.kubelet_restart, {"restart": RestartFacts(("a", "b"))}, WARN, "now ends pods: a; b"),
    (kernel.kubelet_tree, {"cgroup": replace(V2, kube_root_exists=False)}, WARN, "/kubepods.slice is expected"),
    (kernel.psi, {"psi": False}, WARN, "/proc/pressure is missing: "),
    (kernel.psi, {"psi": False, "kernel_release": "4.19.0"}, WARN, "missing (Linux 4.20 has it)"),
    (kernel.psi, {"cgroup": replace(V2, version=1, support={})}, INFO, "that of pods is not"),
    (kernel.psi, {"cgroup": replace(V2, support={}, kube_root_exists=False)}, OK, "cannot be seen"),
    (kernel.cpu_idle, {"cgroup": replace(V2, support={})}, INFO, "BE pods yield by weight alone"),
    (kernel.cpu_idle, {"cgroup": replace(V2, support={}, kube_root_exists=False)}, INFO, "cannot be seen"),
    (kernel.cpu_burst, {"cgroup": replace(V2, support={})}, INFO, "raising the quota"),
    (kernel.task_slices, {"kernel_release": "6.11.2"}, INFO, "no slices of single tasks (Linux 6.12)"),
    (kernel.task_slices, {"kernel_release": "6.12.0"}, OK, "can have long slices"),
    (kernel.task_slices, {"kernel_release": "?"}, INFO, "no slices of single tasks"),
    (kernel.group_identity, {}, INFO, "vendor kernels only"),
    (
        kernel.memory_qos,
        {"cgroup": replace(V2, version=1, support={"memory.soft_limit_in_bytes": Support.PRESENT})},
        INFO,
        "cgroup v1 has no memory.min and no memory.low: memory.soft_limit_in_bytes stands in for memory.low, "
        "nothing for memory.min",
    ),
    (
        kernel.memory_qos,
        {"cgroup": replace(V2, version=1, support={})},
        INFO,
        "cgroup v1 has no memory.min and no memory.low: nothing stands in for them",
    ),
    (kernel.memory_qos, {"cgroup": replace(V2, support={}, kube_root_exists=False)}, INFO, "cannot be seen"),
    (
        kernel.memory_reclaim,
        {"cgroup": replace(V2, version=1, support={})},
        INFO,
        "cgroup v1 has no memory.reclaim: neither background reclaim nor page-cache limits",
    ),
    (
        kernel.memory_reclaim,
        {"cgroup": replace(V2, support={})},
        INFO,
        "this kernel, before Linux 5.19, has no memory.reclaim: neither background reclaim nor page-cache limits",
    ),
    (kernel.memory_reclaim, {"cgroup": replace(V2, support={}, kube_root_exists=False)}, INFO, "cannot be seen"),
    (
        kernel.memory_reclaim,
        {"psi": False, "swap_bytes": 1 << 30},
        INFO,
        "no background reclaim: without pressure files (PSI) nobody can tell whether it hurts; no page-cache limit is "
        "kept: with swap, file pages alone are reclaimed from Linux 6.11 on",
    ),
    (kernel.memory_reclaim, {"kernel_release": "6.11.2", "swap_bytes": 1 << 30}, OK, "are possible"),
    (koord.slice_memory, {"koord": KoordFacts()}, INFO, "no koord.slice: koord-qosd's memory is protected only if"),
    (koord.slice_memory, {"koord": KoordFacts(slice_memory_min="")}, WARN, "koord.slice has no MemoryMin="),
    (koord.slice_memory, {"koord": KoordFacts(slice_memory_min="0")}, WARN, "koord.slice has no MemoryMin="),
    (koord.slice_memory, {"cgroup": replace(V2, version=1)}, INFO, "MemoryMin=256M, which cgroup v1 cannot keep"),
    (kernel.memory_throttle, {}, OK, "is throttled by memory.high first"),
    (
        kernel.memory_throttle,
        {"cgroup": replace(V2, version=1, support={})},
        INFO,
        f"no memory throttle here (memory.high): a pod that takes too much memory is held to {CPU_FLOOR_MILLI}m of CPU "
        "instead, so that it grows slower, before it is frozen and evicted",
    ),
    (kernel.memory_throttle, {"cgroup": replace(V2, support={}, kube_root_exists=False)}, INFO, "cannot be seen"),
    (kernel.cpuset_partition, {"cgroup": replace(V2, support={})}, INFO, kernel.NO_REMOTE_PARTITIONS),
    (kernel.cpuset_partition, {"cgroup": replace(V2, version=1, support={})}, INFO, kernel.NO_REMOTE_PARTITIONS),
    (kernel.cpuset_partition, {"cgroup": replace(V2, support={}, kube_root_exists=False)}, INFO, "cannot be seen"),
    (kernel.cpuset_partition, {"kernel_release": "5.14.0-503.el9"}, OK, "possible"),
    (kernel.isolated_cpus, {}, OK, "balances load over all CPUs"),
    (kernel.isolated_cpus, {"isolated_cpus": "1-3"}, WARN, "CPUs 1-3 are isolated"),
    (kernel.resctrl, {"cpu_flags": frozenset()}, INFO, "no RDT"),
    (kernel.resctrl, {"resctrl_mounted": False}, WARN, "not mounted"),
    (kernel.resctrl, {"resctrl_in_mbps": True}, WARN, "bandwidths are MB/s, not percent"),
    (kernel.perf, {"perf_hardware": False}, INFO, "no hardware counters"),
    (kernel.perf, {"perf_paranoid": 4}, WARN, "perf_event_paranoid is 4"),
    (kernel.swap, {"swap_bytes": 1 << 30}, WARN, "failSwapOn is true"),
    (kernel.swap, {"swap_bytes": 1 << 30, "kubelet": KubeletSettings()}, INFO, "1.0 GiB of swap"),
    (kubernetes.kubelet, {"kubelet": KubeletSettings()}, WARN, "no kubelet is running"),
    (kubernetes.kubelet, {"kubelet": KubeletSettings(running=True, config_problem="x: bad")}, WARN, "x: bad"),
    (kubernetes.kubelet_version, {"kubelet": replace(KUBELET, version="")}, INFO, "not known"),
    (kubernetes.kubelet_version, {"kubelet": replace(KUBELET, version="v1.22.17")}, FAIL, "v1alpha2 only"),
    (kubernetes.kubelet_version, {"kubelet": replace(KUBELET, version="v1.23.0")}, FAIL, "dockershim"),
    (
        kubernetes.kubelet_version,
        {"kubelet": replace(KUBELET, version="v1.23.0", container_runtime="remote")},
        OK,
        "kubelet v1.23.0",
    ),
    (kubernetes.cgroup_driver, {"kubelet": replace(KUBELET, cgroups_per_qos=False)}, FAIL, "without cgroups per QoS"),
    (kubernetes.cgroup_driver, {"kubelet": replace(KUBELET, cgroup_driver="")}, WARN, "kubelet v1.34.4 takes"),
    (
        kubernetes.cgroup_driver,
        {"kubelet": replace(KUBELET, cgroup_driver="cgroupfs", version="v1.30.2")},
        FAIL,
        "kubelet's cgroup driver is cgroupfs, and containerd's is systemd (its default)",
    ),
    (
        kubernetes.cgroup_driver,
        {"kubelet": replace(KUBELET, cgroup_driver="cgroupfs", feature_gates={"KubeletCgroupDriverFromCRI": False})},
        FAIL,
        "kubelet's cgroup driver is cgroupfs",
    ),
    (
        kubernetes.cgroup_driver,
        {"cgroup": replace(V2, kube_root="/kubepods", driver="cgroupfs")},
        FAIL,
        "kubelet is set to /kubepods.slice, and pods are below /kubepods",
    ),
    (kubernetes.cgroup_driver, {"kubelet": DRIVERLESS, "runtime": of_runtime("cri-o", "1.31.3")}, OK, "systemd"),
    (kubernetes.cgroup_driver, {"kubelet": DRIVERLESS, "runtime": of_runtime("cri-o", "1.28.0")}, OK, "systemd"),
    (kubernetes.cgroup_driver, {"kubelet": DRIVERLESS, "runtime": of_runtime("containerd", "2.0.1")}, OK, "systemd"),
    (kubernetes.cgroup_driver, {"kubelet": DRIVERLESS, "runtime": of_runtime("cri-o", "1.27.9")}, FAIL, "/kubepods, "),
    (
        kubernetes.cgroup_driver,
        {"kubelet": DRIVERLESS, "runtime": of_runtime("containerd", "1.7.1")},
        FAIL,
        "/kubepods, ",
    ),
    (kubernetes.cgroup_driver, {"kubelet": DRIVERLESS, "runtime": of_runtime("", "")}, FAIL, "/kubepods, "),
    (
        kubernetes.cgroup_driver,
        {"kubelet": replace(DRIVERLESS, version="v1.30.2"), "runtime": of_runtime("cri-o", "1.31.3")},
        FAIL,
        "kubelet is set to /kubepods, and pods are below /kubepods.slice",
    ),
    (
        kubernetes.cgroup_driver,
        {"kubelet": replace(DRIVERLESS, cgroup_root="/k"), "runtime": of_runtime("cri-o", "1.31.3")},
        FAIL,
        "kubelet is set to /k.slice/k-kubepods.slice",
    ),
    (
        kubernetes.cgroup_driver,
        {"kubelet": replace(KUBELET, cgroup_root="/k")},
        FAIL,
        "kubelet is set to /k.slice/k-kube",
    ),
    (kubernetes.cgroup_driver, {"cgroup": replace(V2, layout_problems=("they differ",))}, WARN, "they differ"),
    (kubernetes.cgroup_driver, {"cgroup": CgroupFacts(layout_problems=("none",))}, INFO, "neither kubelet"),
    (kubernetes.cpu_manager, {"koord": KoordFacts(rules_cpu_manager_policy="static")}, FAIL, "the rules say static"),
    (
        kubernetes.cpu_manager,
        {"kubelet": replace(KUBELET, cpu_manager_policy="static")},
        INFO,
        "CPUs that kubelet gave exclusively stay untouched",
    ),
    (
        kubernetes.cpu_manager,
        {
            "kubelet": replace(KUBELET, cpu_manager_policy="static"),
            "koord": KoordFacts(rules_cpu_manager_policy="none"),
        },
        WARN,
        "although the rules say none",
    ),
    (kubernetes.in_place_resize, {}, OK, "kubelet reads what it requested"),
    (
        kubernetes.in_place_resize,
        {"koord": KoordFacts(rules_limits_in_cri=True)},
        WARN,
        "kubelet takes limits that Koord edited for its own: batch pods count",
    ),
    (kubernetes.in_place_resize, {"kubelet": replace(KUBELET, version="v1.26.1", feature_gates=RESIZE)}, OK, "is off"),
    (kubernetes.in_place_resize, {"kubelet": replace(KUBELET, version="v1.32.1")}, OK, "is off"),
    (
        kubernetes.in_place_resize,
        {"kubelet": replace(KUBELET, version="v1.32.1", feature_gates=RESIZE)},
        OK,
        "is on; kubelet reads what it requested",
    ),
    (
        kubernetes.in_place_resize,
        {"kubelet": replace(KUBELET, version="v1.27.0", feature_gates={"AllAlpha": True})},
        OK,
        "is on",
    ),
    (
        kubernetes.in_place_resize,
        {
            "kubelet": replace(KUBELET, version="v1.32.1", feature_gates=RESIZE),
            "koord": KoordFacts(rules_limits_in_cri=True),
        },
        WARN,
        "and resizes such containers without end",
    ),
    (
        kubernetes.in_place_resize,
        {"kubelet": KubeletSettings(feature_gates={"InPlacePodVerticalScaling": False})},
        OK,
        "is off",
    ),
    (kubernetes.kubelet_memory_qos, {"kubelet": KubeletSettings(writes_memory_protection=True)}, WARN, "MemoryQoS"),
    (kubernetes.kubelet_memory_qos, {"kubelet": KubeletSettings(writes_memory_protection=False)}, OK, "alone"),
    (kubernetes.kubelet_memory_qos, {"kubelet": KubeletSettings()}, INFO, "not known"),
    (kubernetes.runtime, {"runtime": RuntimeFacts(socket="/run/x.sock")}, FAIL, "/run/x.sock"),
    (kubernetes.runtime, {"runtime": RuntimeFacts(socket="/run/x.sock", socket_exists=True)}, WARN, "not answer"),
    (kubernetes.runtime, {"runtime": RuntimeFacts("containerd", "1.5.9", "/x", True)}, FAIL, "no CRI v1"),
    (kubernetes.runtime, {"runtime": RuntimeFacts("containerd", "3.1.0", "/x", True)}, WARN, "tried with 1.6 to 2.3"),
    (kubernetes.runtime, {"runtime": RuntimeFacts("pouch", "1.3.0", "/x", True)}, FAIL, "no runtime that Koord knows"),
    (kubernetes.runtime, {"runtime": RuntimeFacts("docker", "24.0.7", "/x", True)}, OK, "through cri-dockerd"),
    (
        kubernetes.runtime,
        {"runtime": RuntimeFacts(socket="/x", socket_exists=True, can_be_asked=False)},
        INFO,
        "not asked",
    ),
    (kubernetes.runtime, {"runtime": RuntimeFacts("cri-o", "1.30.2", "/x", True)}, OK, "cri-o 1.30.2"),
    (kubernetes.runtime_config, {"runtime": RuntimeFacts(config_problem="x: bad")}, WARN, "x: bad"),
    (kubernetes.cri_events, {"runtime": RuntimeFacts("containerd", "1.6.20~ds1")}, INFO, "inotify"),
    (kubernetes.cri_events, {}, OK, "every subscriber"),
    (kubernetes.nri, {"runtime": RuntimeFacts(nri_disabled=True, config_file="/etc/x")}, INFO, "disabled in /etc/x"),
    (kubernetes.nri, {"runtime": RuntimeFacts(nri_socket_exists=True)}, OK, "NRI socket is there"),
    (
        kubernetes.nri,
        {
            "runtime": RuntimeFacts(nri_socket_exists=True),
            "kubelet": replace(KUBELET, runtime_endpoint="unix:///run/koord-runtimeproxy/runtimeproxy.sock"),
        },
        INFO,
        "both there",
    ),
    (kubernetes.leftovers, {}, OK, "koordctl journal"),
    (kubernetes.leftovers, {"daemon": None}, OK, "hold what kubelet writes"),
    (
        kubernetes.leftovers,
        {"daemon": None, "leftovers": ("/a holds 1, and kubelet writes 2",)},
        WARN,
        "agent: /a holds",
    ),
    (kubernetes.leftovers, {"resctrl_classes": frozenset({"koordlet-uid", "BE"})}, WARN, "koordlet-uid"),
    (kubernetes.other_agents, {}, OK, "no other agent"),
    (kubernetes.other_agents, {"others": OthersFacts(("koordlet (pid 7)",))}, FAIL, "koordlet (pid 7) is running"),
    (
        kubernetes.other_agents,
        {"others": OthersFacts(proxy_socket_holder="socat (pid 7)")},
        FAIL,
        "socat (pid 7) listens on /run/koord-runtimeproxy/runtimeproxy.sock",
    ),
    (
        kubernetes.other_agents,
        {"others": OthersFacts(hook_files=(HookFileFacts("/h/koordlet.json", "/run/k.sock", True, False),))},
        FAIL,
        "/h/koordlet.json registers the hook server /run/k.sock",
    ),
    (
        kubernetes.other_agents,
        {"others": OthersFacts(hook_files=(HookFileFacts("/h/koordlet.json", "/run/k.sock", False, False),))},
        WARN,
        "left behind by another agent: /h/koordlet.json",
    ),
    (koord.daemon, {"daemon": None, "daemon_says": "no socket"}, WARN, "no socket"),
    (koord.unit, {"systemd": False}, INFO, "not process 1"),
    (koord.unit, {"koord": KoordFacts()}, WARN, "not installed"),
    (koord.kubelet_drop_in, {"kubelet": KUBELET}, INFO, "not set by a drop-in"),
    (koord.kubelet_drop_in, {"kubelet": replace(KUBELET, drop_in_stale=True)}, WARN, "kubelet.service has changed"),
    (koord.kubelet_drop_in, {"kubelet": replace(KUBELET, drop_in_stale=False)}, OK, "on the proxy's socket"),
    (koord.open_files, {"daemon": replace(DAEMON, open_files_limit=1024)}, FAIL, "1024 files: too few"),
    (koord.open_files, {"daemon": replace(DAEMON, open_files_limit=8192)}, WARN, "8192"),
    (koord.open_files, {"daemon": None, "koord": KoordFacts(unit_open_files=1024)}, FAIL, "1024"),
    (koord.open_files, {"daemon": None, "koord": KoordFacts()}, INFO, "not known"),
    (koord.grants, {}, OK, "allows what the features that are on need"),
    (koord.grants, {"koord": KoordFacts(grants_stale=True)}, WARN, "allows something else than"),
    (
        koord.grants,
        {"daemon": replace(DAEMON, lacking=("systemConfig lacks /proc/sys/vm/min_free_kbytes",))},
        WARN,
        "may not do all that its strategies need: systemConfig lacks /proc/sys/vm/min_free_kbytes",
    ),
    (koord.warnings, {"daemon": None}, INFO, "so it has no warnings"),
    (koord.warnings, {"daemon": DAEMON}, OK, "none"),
    (koord.warnings, {"daemon": replace(DAEMON, warnings=("a", "b", "c", "d"))}, WARN, "a; b; c; and 1 more"),
    (koord.rules, {"koord": KoordFacts(rules_problem="x: bad")}, WARN, "x: bad"),
    (koord.policy, {"daemon": None}, INFO, "does not run, so its policy is not known"),
    (
        koord.policy,
        {"daemon": replace(DAEMON, policy=("NodeSLO generation 1", "/r.yaml"))},
        OK,
        "generation 1; /r.yaml",
    ),
    (koord.policy, {"daemon": replace(DAEMON, policy=("last good",), is_policy_doubtful=True)}, WARN, "last good"),
    (koord.hook_file, {"koord": KoordFacts(hook_problem="x: bad")}, WARN, "x: bad"),
    (koord.hook_file, {"koord": KoordFacts(hook_file="/h.json", hook_endpoint="/s")}, WARN, "/s: no such socket"),
    (koord.hook_file, {}, INFO, "asks no hooks"),
    (koord.bypass, {}, OK, "no file"),
    (koord.bypass, {"koord": KoordFacts(bypass_file="/run/koord/bypass")}, WARN, "/run/koord/bypass exists"),
    (koord.front_end, {"daemon": replace(DAEMON, attached_front_ends=("proxy", "nri"))}, OK, "attached, but idle: nri"),
    (koord.front_end, {"daemon": replace(DAEMON, attached_front_ends=("proxy", "reconciler"))}, OK, "proxy acts"),
    (koord.front_end, {"daemon": replace(DAEMON, acting_front_end="reconciler")}, INFO, "just after they start"),
    (koord.loops, {"daemon": replace(DAEMON, failing_loops=("disks (EIO)",))}, WARN, "disks (EIO)"),
    (koord.contested, {"daemon": replace(DAEMON, contested=("/f (kubelet)",))}, WARN, "/f (kubelet)"),
    (koord.journal_space, {"koord": KoordFacts(state_free_bytes=1 << 20)}, FAIL, "1 MiB free"),
    (koord.journal_space, {"koord": KoordFacts(state_free_bytes=100 << 20)}, WARN, "100 MiB free"),
    (koord.journal_drops, {"daemon": replace(DAEMON, journal_dropped=3)}, WARN, "3 journal entries"),
    (koord.undo_record, {"koord": KoordFacts(run_is_tmpfs=False)}, WARN, "no tmpfs"),
]


@pytest.mark.parametrize(("check", "changes", "status", "says"), CASES)
def test_checks(check: Check, changes: dict[str, Any], status: CheckStatus, says: str) -> None:
    finding = check(replace(GOOD, **changes))
    assert (finding.status, says in finding.sentence) == (status, True), finding
    assert finding.remedy or status in (OK, INFO)


def test_a_good_node_has_nothing_to_do() -> None:
    findings = examine(GOOD)
    assert [finding for finding in findings if finding.status in (WARN, FAIL)] == []
    assert len({finding.check for finding in findings}) == len(CHECKS)


def test_a_node_of_which_nothing_is_known_is_judged_without_an_error() -> None:
    assert len(examine(Facts())) == len(CHECKS)


# --- recorded trees --------------------------------------------------------------------------------------------------


V2_TREE = {
    "/proc/sys/kernel/osrelease": "6.1.0-32-cloud-amd64\n",
    "/proc/1/comm": "systemd\n",
    "/proc/pressure/cpu": "some avg10=0.00\n",
    "/proc/meminfo": "MemTotal: 1024 kB\nSwapTotal:       2097152 kB\n",
    "/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu cat_l3 mba\n",
    "/proc/sys/kernel/perf_event_paranoid": "3\n",
    "/proc/self/mountinfo": "25 1 0:23 / /run rw shared:5 - tmpfs tmpfs rw\n",
    "/proc/812/comm": "kubelet\n",
    "/proc/812/cmdline": "/usr/bin/kubelet\0--config=/etc/kubelet.yaml\0--feature-gates\0MemoryQoS=true\0",
    "/etc/kubelet.yaml": "cgroupDriver: systemd\ncpuManagerPolicy: static\nfailSwapOn: false\n"
    "containerRuntimeEndpoint: unix:///run/koord-runtimeproxy/runtimeproxy.sock\n"
    "featureGates: {InPlacePodVerticalScaling: true}\n",
    "/etc/containerd/config.toml": 'version = 3\n[plugins."io.containerd.nri.v1.nri"]\ndisable = true\n'
    '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]\nSystemdCgroup = true\n',
    "/run/containerd/containerd.sock": "",
    "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
    "/sys/fs/cgroup/kubepods.slice/cgroup.subtree_control": "cpuset cpu memory\n",
    "/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/cpu.idle": "0\n",
    "/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/memory.high": "max\n",
    "/etc/runtime/hookserver.d/koord-qosd.json": '{"remote-endpoint": "/run/koord/qosd-hooks.sock"}',
    "/etc/systemd/system/koord-qosd.service": "[Service]\nLimitNOFILE=1024\n",
    "/etc/systemd/system/koord-qosd.service.d/files.conf": "[Service]\nLimitNOFILE=65536:524288\n",
    "/etc/koord/qosd-rules.yaml": "node: {cpuManagerPolicy: none}\n",
}


def judged(root: Path, told: tuple[str, str] | None) -> dict[str, tuple[CheckStatus, str]]:
    asked: list[str] = []

    def ask(socket: str) -> tuple[str, str] | None:
        asked.append(socket)
        return told

    findings = examine(collect(root, Answers(ask, free_bytes=lambda path: 1 << 30)))
    assert asked == [f"{root}/run/containerd/containerd.sock"] * len(asked)
    return {finding.check: (finding.status, finding.sentence) for finding in findings}


CRIO_TREE = {
    "/proc/1/comm": "systemd\n",
    "/proc/812/comm": "kubelet\n",
    "/proc/812/cmdline": "/usr/bin/kubelet\0--container-runtime-endpoint=unix:///run/crio/crio.sock\0",
    "/etc/crio/crio.conf.d/10-crio.conf": '[crio.runtime]\ndefault_runtime = "crun"\n',
    "/run/crio/crio.sock": "",
    "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
    "/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/cpu.idle": "0\n",
}


@pytest.mark.parametrize(("version", "status"), [("v1.31.0", OK), ("v1.30.2", FAIL)])
def test_a_kubelet_that_asks_cri_o_for_its_driver(tmp_path: Path, version: str, status: CheckStatus) -> None:
    record(tmp_path, CRIO_TREE)
    facts = collect(tmp_path, Answers(lambda socket: ("cri-o", "1.31.3"), lambda program: version))
    assert facts.runtime.cgroup_driver == ""
    assert kubernetes.cgroup_driver(facts).status is status


_THROTTLED, _TIERED = "memoryThrottlingFactor: 0.8\n", "memoryReservationPolicy: TieredReservation\n"


@pytest.mark.parametrize(
    ("version", "config", "writes"),
    [
        ("v1.35.1", "", False),
        ("v1.35.1", _THROTTLED, False),
        ("v1.37.0", "", False),
        ("v1.37.0", _THROTTLED, None),
        ("v1.37.0", _TIERED, True),
        ("v1.37.0", f"{_TIERED}featureGates: {{MemoryQoS: false}}\n", False),
        ("", "", False),
        ("", _THROTTLED, None),
        ("v1.37.0", "- no mapping", None),
    ],
)
def test_whether_kubelet_protects_memory(tmp_path: Path, version: str, config: str, writes: bool | None) -> None:
    record(tmp_path, {
        "/proc/812/comm": "kubelet\n",
        "/proc/812/cmdline": "/usr/bin/kubelet\0--config=/etc/kubelet.yaml\0",
        "/etc/kubelet.yaml": config,
    })  # fmt: skip
    facts = collect(tmp_path, Answers(kubelet=lambda program: version))
    assert facts.kubelet.writes_memory_protection is writes


def test_a_kubelet_whose_root_only_root_may_see(tmp_path: Path) -> None:
    """Its files are taken for this node's own; root may see all, so a link that nobody can follow stands for it."""
    record(tmp_path, V2_TREE)
    (tmp_path / "proc/812/root").symlink_to("x" * 300)
    assert not NodeFiles(tmp_path).exists("/proc/812/root")
    assert not NodeFiles(tmp_path).exists("/proc/812/root/etc/kubelet.yaml")
    assert judged(tmp_path, None)["kubelet"][1] == "running, configured by /etc/kubelet.yaml"


def test_a_recorded_v2_node(tmp_path: Path) -> None:
    record(tmp_path, V2_TREE)
    found = judged(tmp_path, ("containerd", "2.0.4"))
    assert {check: status for check, (status, _) in found.items() if status in (WARN, FAIL)} == {
        "cpu-manager": WARN,  # static against the rules' none
        "kubelet-memory-qos": WARN,
        "resctrl": WARN,
        "daemon": WARN,
        "hook-file": WARN,
    }
    assert found["controllers"] == (
        INFO,
        "cpu, cpuset, memory, io; for pods not yet io: their first container brings it",
    )
    assert found["kubelet"][1] == "running, configured by /etc/kubelet.yaml"
    assert found["cgroup-driver"] == (OK, "systemd")
    assert found["open-files"] == (OK, "koord-qosd may open 65536 files")
    assert found["swap"] == (INFO, "2.0 GiB of swap: a container's memory limit does not bound what it swaps")
    assert found["cpu-idle"][0] is OK
    assert found["cpu-burst"][0] is INFO
    assert found["undo-record"][0] is OK


def test_a_bypass_that_somebody_left_on(tmp_path: Path) -> None:
    record(tmp_path, {**V2_TREE, Options().bypass_file: ""})
    assert judged(tmp_path, None)["bypass"] == (WARN, "/run/koord/bypass exists: the runtime proxy edits nothing")


def test_kubelet_and_runtime_that_disagree(tmp_path: Path) -> None:
    record(tmp_path, {**V2_TREE, "/etc/kubelet.yaml": "cgroupDriver: cgroupfs\n"})
    status, sentence = judged(tmp_path, None)["cgroup-driver"]
    assert status is FAIL
    assert "kubelet's cgroup driver is cgroupfs, and the runtime's is systemd (/etc/containerd/config.toml)" in sentence
    assert str(tmp_path) not in sentence


@pytest.mark.parametrize(
    ("file", "text", "check", "says"),
    [
        ("/etc/kubelet.yaml", "a: [", "kubelet", "/etc/kubelet.yaml: "),
        ("/etc/kubelet.yaml", "- a\n", "kubelet", "/etc/kubelet.yaml is no mapping"),
        ("/etc/containerd/config.toml", "a = ", "runtime-config", "/etc/containerd/config.toml: "),
        ("/etc/koord/qosd-rules.yaml", "a: [", "rules", "/etc/koord/qosd-rules.yaml: "),
        ("/etc/runtime/hookserver.d/koord-qosd.json", "{", "hook-file", "koord-qosd.json: "),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, file: str, text: str, check: str, says: str) -> None:
    record(tmp_path, {**V2_TREE, file: text})
    status, sentence = judged(tmp_path, None)[check]
    assert (status, says in sentence) == (WARN, True), sentence


def test_an_empty_root(tmp_path: Path) -> None:
    found = judged(tmp_path, None)
    assert found["cgroup-version"][0] is FAIL
    assert found["runtime"] == (FAIL, "no socket of a container runtime at /run/containerd/containerd.sock")


def test_cri_o(tmp_path: Path) -> None:
    record(tmp_path, {"/run/crio/crio.sock": "", "/etc/crio/crio.conf": "[crio.nri]\nenable_nri = false\n"})
    facts = collect(tmp_path, Answers(lambda socket: ("cri-o", "1.31.0")))
    assert (facts.runtime.name, facts.runtime.nri_disabled) == ("cri-o", True)
    assert facts.runtime.config_file == "/etc/crio/crio.conf"
