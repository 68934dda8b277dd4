"""One round of each strategy on cgroup v2, with systemd and the real kubelet, on 16 CPUs in 8 cores and 2 NUMA nodes.

Eviction, and what stands before it, have tests of their own (``test_v2_shortage``, ``test_v2_exhaustion``), and so do
the kernel's settings (``test_install``). Each test switches its strategies on by the rules; afterwards they are off,
and the kernel holds what it held before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from integration.guest import kubelet, pods
from integration.guest.guest import CPUS, Guest, Topology, booted
from integration.guest.image import Image
from integration.guest.test_v2_pods import KUBELET_PORT, QOSD, start_qosd
from integration.kubelet.staticpods import MIB, StaticPod

pytestmark = pytest.mark.soak

TOPOLOGY = Topology(nodes=2, threads=2)
RULES = "/etc/koord/qosd-rules.yaml"
SOON_S = 120.0
SPINNING = ("/bin/sh", "-c", "while :; do :; done")
HOG = ("/bin/sh", "-c", "head -c 200000000 /dev/zero > /file; sync; while :; do :; done & while :; do :; done")
WEB_NATIVE = {"requests": {"cpu": "200m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}}
WEB = StaticPod("web", "LS", WEB_NATIVE, {"koordinator.sh/oom-score-adj": 200}, command=SPINNING)
BATCH = StaticPod("batch", "BE", {}, {}, command=HOG)
WITH_REQUESTS = StaticPod("requesting", "BE", {"requests": {"cpu": "200m"}}, {})
TIERS = ("", "/kubepods-burstable.slice", "/kubepods-besteffort.slice")
FILES = (
    "cpu.weight", "cpu.max", "cpu.max.burst", "cpu.idle", "cpuset.cpus.effective",
    "memory.min", "memory.low", "memory.high", "memory.oom.group",
)  # fmt: skip
SCORES = "for pid in $(cat {cgroup}/cgroup.procs); do cat /proc/$pid/oom_score_adj; done"
SUPPRESSED: Mapping[str, Any] = {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 65}}


@pytest.fixture(scope="module")
def node(guest_image: Image, guest_payload: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """kubelet behind the proxy, and koord-qosd, which knows requests from kubelet; every strategy is off."""
    with booted(guest_image, tmp_path_factory.mktemp("strategies"), guest_payload, TOPOLOGY) as guest:
        guest.do("mkdir", "-p", "/etc/koord")
        rule(guest, {})
        kubelet.start_behind_the_proxy(guest, CPUS, (WEB, BATCH))
        guest.do("systemctl", "stop", QOSD)
        start_qosd(guest, f"--kubelet-endpoint={KUBELET_PORT}")
        yield guest


@pytest.fixture(autouse=True)
def nothing_stays(node: Guest) -> Iterator[None]:
    before = holds(node)
    yield
    rule(node, {})
    assert kubelet.settled(node, lambda: holds(node), before) == before


def rule(node: Guest, spec: Mapping[str, Any], **of_node: Any) -> None:
    """Rules in the old ones' place, as an editor makes it; without suppression unless ``spec`` says so."""
    off = {"resourceUsedThresholdWithBE": {"enable": False}}
    node.put(f"{RULES}.new", json.dumps({"spec": {**off, **spec}, "node": of_node}))
    node.do("mv", f"{RULES}.new", RULES)


def holds(node: Guest) -> dict[str, str | None]:
    """What the kernel holds for tiers, pods and containers, quotas in 100 ms (it doubles quota and period where it is
    too slow for the period)."""
    running = kubelet.running(node)
    cgroups = [f"{kubelet.KUBEPODS}{tier}" for tier in TIERS]
    cgroups += [cgroup for each in running.values() for cgroup in (each.pod_group, each.cgroup)]
    paths = [f"{cgroup}/{file}" for cgroup in cgroups for file in FILES]
    found = dict(zip(paths, node.texts(paths), strict=True))
    return {path: _per_100_ms(text) if path.endswith("/cpu.max") else text for path, text in found.items()}


def _per_100_ms(text: str | None) -> str | None:
    quota, _, period = (text or "").partition(" ")
    return f"{int(quota) * 100_000 // int(period)} 100000" if quota.isdecimal() else text


def quota_us(node: Guest, cgroup: str) -> int | None:
    """In 100 ms; None: no quota."""
    quota, _, period = node.text(f"{cgroup}/cpu.max").partition(" ")
    return None if quota == "max" else int(quota) * 100_000 // int(period)


def cpus(text: str) -> set[int]:
    ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
    return {cpu for first, *last in ends for cpu in range(first, (last or [first])[0] + 1)}


def says(node: Guest, strategy: str) -> str:
    strategies = json.loads(node.do("koordctl", "node", "-o", "json"))["strategies"]
    return next(str(each["sentence"]) for each in strategies if each["name"] == strategy)


def doctors(node: Guest) -> str:
    return node.run("koordctl", "doctor").stdout


def test_a_cpu_set_of_whole_cores_of_both_numa_nodes(node: Guest) -> None:
    batch = kubelet.running(node)["batch"].cgroup
    rule(node, SUPPRESSED)

    def chosen() -> set[int]:
        return cpus(node.text(f"{batch}/cpuset.cpus.effective"))

    node.wait(lambda: len(chosen()) <= 11, "the CPU set to shrink", SOON_S)
    found = chosen()
    assert 2 <= len(found) <= 11
    cores = [cpus(node.text(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")) for cpu in found]
    assert {len(core) for core in cores} == {TOPOLOGY.threads}
    halves = [core for core in cores if not core <= found]
    assert len(halves) <= 1, (found, cores)
    nodes = [cpus(node.text(f"/sys/devices/system/node/node{number}/cpulist")) for number in range(TOPOLOGY.nodes)]
    shares = sorted(len(found & each) for each in nodes)
    print(f"\nbest-effort pods have CPUs {sorted(found)} of {nodes}: {says(node, 'cpuSuppress')}")
    assert shares[1] - shares[0] <= 2, "nodes take turns, by cores"
    tier = cpus(node.text(f"{kubelet.KUBEPODS}{TIERS[2]}/cpuset.cpus.effective"))
    assert tier == set(range(16)), "a tier keeps all"


def test_a_quota_of_the_tier(node: Guest) -> None:
    tier = f"{kubelet.KUBEPODS}{TIERS[2]}"
    rule(
        node,
        {"resourceUsedThresholdWithBE": {**SUPPRESSED["resourceUsedThresholdWithBE"], "cpuSuppressPolicy": "cfsQuota"}},
    )
    found_us = node.wait(lambda: quota_us(node, tier), "the tier's quota", SOON_S)  # kubelet takes it back now and then
    most_us = 16 * 100_000 * 65 // 100
    assert 2000 <= found_us < most_us, "the threshold, less what others use"
    found = re.search(r"65 % of 16000m, less (\d+)m of pods", says(node, "cpuSuppress"))
    assert found and int(found[1]) > 0
    assert "covers default/batch" in says(node, "bestEffort")


def test_by_pressure_the_lowest_weight_wherever_kubelet_has_it(node: Guest) -> None:
    pods.put(node, (WITH_REQUESTS,))
    pods.wait_ready(node, ("web", "batch", "requesting"), kubelet.READY_S)
    requesting, web = (kubelet.running(node)[name].pod_group for name in ("requesting", "web"))
    before = node.text(f"{requesting}/cpu.weight"), node.text(f"{web}/cpu.weight")
    rule(node, SUPPRESSED, cpuSuppress={"policy": "pressure"})
    node.wait(lambda: node.text(f"{requesting}/cpu.weight") == "1", "the lowest weight", SOON_S)
    assert node.text(f"{web}/cpu.weight") == before[1]
    assert "lowest weight" in says(node, "cpuSuppress")
    assert "no slices of single tasks (Linux 6.12)" in doctors(node)
    rule(node, {})
    node.wait(lambda: node.text(f"{requesting}/cpu.weight") == before[0], "its own weight", SOON_S)
    pods.remove(node, ["requesting"])
    pods.wait_ready(node, ("web", "batch"), kubelet.READY_S)
    pods.wait_ended(node)


def test_a_throttled_container_bursts(node: Guest) -> None:
    web = kubelet.running(node)["web"]
    rule(node, {"cpuBurstStrategy": {"policy": "auto"}})

    def evidence() -> str:
        held = node.texts(
            [f"{group}/{name}" for group in (web.cgroup, web.pod_group) for name in ("cpu.max", "cpu.stat")]
        )
        explained = node.run("koordctl", "explain", "pod", "web-node").stdout
        return f"{says(node, 'cpuBurst')}\n{held}\n{explained}"

    node.wait(lambda: (quota_us(node, web.cgroup) or 0) > 100_000, "its quota to double", SOON_S, evidence)
    assert node.text(f"{web.cgroup}/cpu.max.burst") == "50000"
    steps = [
        int(entry["after"])
        for entry in journal(node, "cpuBurst")
        if entry["path"] == f"{web.cgroup}/cpu.max" and int(entry["after"]) > 50_000
    ]
    assert steps[:4] == [60_000, 72_000, 86_400, 103_680]


def journal(node: Guest, strategy: str) -> list[dict[str, Any]]:
    """What was done for ``strategy``, oldest first."""
    answer = json.loads(node.do("koordctl", "journal", "--strategy", strategy, "--limit", "1000", "-o", "json"))
    entries = [entry for entry in answer.get("entries", ()) if entry["result"] == "done"]
    return sorted(entries, key=lambda entry: int(entry["unix_ns"]))


def test_a_quota_by_the_normalization_ratio(node: Guest) -> None:
    web = kubelet.running(node)["web"]
    rule(node, {}, cpuNormalizationRatio=1.25)
    node.wait(lambda: quota_us(node, web.cgroup) == 40_000, "the quota, divided", SOON_S)
    assert quota_us(node, web.pod_group) == 40_000


def test_memory_is_protected_throttled_and_probed_for(node: Guest) -> None:
    running = kubelet.running(node)
    web, batch = running["web"], running["batch"]
    memory = {"enable": True, "minLimitPercent": 20, "lowLimitPercent": 50, "throttlingPercent": 80, "oomKillGroup": 1}
    classes = {"lsClass": {"memoryQOS": memory}, "beClass": {"memoryQOS": {"enable": True, "wmarkRatio": 95}}}
    rule(node, {"resourceQOSStrategy": classes}, features={"CgroupReconcile": True})
    high = (32 * MIB + 32 * MIB * 80 // 100) // 4096 * 4096
    wanted = {"memory.min": str(32 * MIB * 20 // 100 // 4096 * 4096), "memory.low": str(16 * MIB)}
    of_container = {**wanted, "memory.high": str(high), "memory.oom.group": "1"}
    places = {web.cgroup: of_container, web.pod_group: wanted}
    places |= {f"{kubelet.KUBEPODS}{tier}": wanted for tier in TIERS[:2]}
    files: Mapping[str, str | None] = {
        f"{cgroup}/{name}": value for cgroup, names in places.items() for name, value in names.items()
    }

    def read() -> Mapping[str, str | None]:
        return dict(zip(files, node.texts(list(files)), strict=True))

    assert kubelet.settled(node, read, files) == files

    def probed() -> set[str]:
        return {entry["path"] for entry in journal(node, "memoryReclaim")}

    node.wait(probed, "a best-effort container to be probed for memory that it does not use", SOON_S)
    assert probed() <= {f"{cgroup}/memory.reclaim" for cgroup in (batch.cgroup, batch.pod_group)}


def test_scores_of_processes(node: Guest) -> None:
    script = SCORES.format(cgroup=kubelet.running(node)["web"].cgroup)
    before = node.sh(script).split()
    rule(node, {}, features={"OOMScoreAdj": True})
    node.wait(lambda: set(node.sh(script).split()) == {"200"}, "the annotation's score", SOON_S)
    rule(node, {})
    node.wait(lambda: node.sh(script).split() == before, "kubelet's score", SOON_S)


def test_group_identity_is_the_vendor_kernels(node: Guest) -> None:
    rule(node, {"resourceQOSStrategy": {"lsClass": {"cpuQOS": {"enable": True}}}})
    told = "lsClass.cpuQOS.enable: true has no effect: this node has no cpu.bvt_warp_ns, which only vendor kernels have"
    node.wait(lambda: told in node.run("koordctl", "node").stderr, "a warning", SOON_S)
    assert "no cpu.bvt_warp_ns (vendor kernels only): weights and cpu.idle instead" in doctors(node)
