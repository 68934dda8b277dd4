"""The CPU pools of Koordinator's guide to CPU orchestration, on a node with 16 CPUs, cgroup v2, systemd and kubelet.

The guide is ``integration/cluster/quickstart/cpu-orchestration.zh.md``. Static pods stand for its Deployments, with the
annotations that scheduler and webhook would have written (kubelet refuses batch resources in static pods). A script
with the guide's own logic and paths reads their CPU sets.
"""

from __future__ import annotations

import json

import pytest

from integration.guest import kubelet, payload, pods
from integration.guest.guest import CPUS, Guest
from integration.kubelet.staticpods import StaticPod

HERE = f"{payload.ROOT}/repo/integration/guest/quickstart"
TWO_CPUS = {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}
BATCH = {"kubernetes.io/batch-cpu": "2k"}
EXTENDED = {"containers": {"main": {"limits": BATCH, "requests": BATCH}}}
SPREAD = {"scheduling.koordinator.sh/resource-spec": {"preferredCPUBindPolicy": "SpreadByPCPUs"}}
STATUS = "scheduling.koordinator.sh/resource-status"

LSE = StaticPod("nginx-lse", "LSE", TWO_CPUS, {**SPREAD, STATUS: {"cpuset": "0-1"}})
LSR = StaticPod("nginx-lsr", "LSR", TWO_CPUS, {**SPREAD, STATUS: {"cpuset": "2-3"}})
LS = StaticPod("nginx-ls", "LS", TWO_CPUS, SPREAD)
BE = StaticPod("nginx-be", "BE", {}, {**SPREAD, "node.koordinator.sh/extended-resource-spec": EXTENDED})
ALL = (LSE, LSR, LS, BE)

DOCUMENT = [
    "CPU set for Pod nginx-lse-node (Burstable QoS): 0-1",
    "CPU set for Pod nginx-lsr-node (Burstable QoS): 2-3",
    "CPU set for Pod nginx-ls-node (Burstable QoS): 4-15",
    "CPU set for Pod nginx-be-node (BestEffort QoS): 2-15",
]
POOLS = {"nginx-lse": "0-1", "nginx-lsr": "2-3", "nginx-ls": "4-15", "nginx-be": "2-15"}
WITHOUT_LSE = {"nginx-lsr": "2-3", "nginx-ls": "0-1,4-15", "nginx-be": "0-15"}
LIMITS = {  # cpu.weight and cpu.max of pod and container; no quota where CPUs are bound
    "nginx-lse": ("79", "max 100000"),
    "nginx-lsr": ("79", "max 100000"),
    "nginx-ls": ("79", "200000 100000"),
    "nginx-be": ("79", "200000 100000"),
}
STARTED = """
import sys, time
pids = open(sys.argv[1] + "/cgroup.procs").read().split()
ticks = [int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[19]) for pid in pids]
print(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + min(ticks) / 100)
"""


@pytest.fixture(scope="module")
def node(guest: Guest) -> Guest:
    """16 CPUs, kubelet behind the proxy, and the document's four pods, all of them Ready."""
    guest.do("install", "-t", "/usr/local/bin", f"{HERE}/kubectl", f"{HERE}/get_cpuset.sh")
    kubelet.start_behind_the_proxy(guest, CPUS, ALL)
    return guest


def moved(node: Guest, wanted: dict[str, str]) -> dict[str, str]:
    return kubelet.settled(node, lambda: kubelet.cpus(node), wanted)


def read_by_the_document(node: Guest) -> list[str]:
    return [node.do("get_cpuset.sh", f"{pod.name}-node").strip() for pod in ALL]


def test_the_document_s_pools(node: Guest) -> None:
    assert moved(node, POOLS) == POOLS
    lines = read_by_the_document(node)
    print("", *lines, sep="\n")
    assert lines == DOCUMENT


def test_limits_follow_the_class(node: Guest) -> None:
    def read() -> dict[str, set[tuple[str, str]]]:
        found = kubelet.held(node)
        return {
            name: {(values.weight, values.cpu_max) for values in (each.pod, each.container)}
            for name, each in found.items()
        }

    wanted = {name: {limits} for name, limits in LIMITS.items()}
    assert kubelet.settled(node, read, wanted) == wanted


def test_lse_leaves_and_ls_and_be_get_its_cpus_back(node: Guest) -> None:
    pods.remove(node, [LSE.name])
    assert moved(node, WITHOUT_LSE) == WITHOUT_LSE


def test_ls_and_be_have_left_before_lse_starts(node: Guest) -> None:
    assert moved(node, WITHOUT_LSE) == WITHOUT_LSE
    pods.put(node, [LSE])
    assert moved(node, POOLS) == POOLS
    started_s = float(node.do("python3", "-c", STARTED, kubelet.running(node)[LSE.name].cgroup))
    wanted = {name: POOLS[name] for name in (LS.name, BE.name)}
    kubelet.settled(node, lambda: {name: after for name, (_, after) in last_moves(node).items()}, wanted)
    moves = last_moves(node)
    said = {name: f"{(started_s - at_s) * 1e3:.0f} ms before" for name, (at_s, _) in moves.items()}
    print(f"\n{LSE.name} starts; {said}")
    assert {name: after for name, (_, after) in moves.items()} == wanted
    assert all(at_s < started_s for at_s, _ in moves.values())


def last_moves(node: Guest) -> dict[str, tuple[float, str]]:
    """By pod: when the CPU set of its container was written last (Unix time), and what it was then."""
    argv = ("koordctl", "journal", "--file", "cpuset_cpus", "--limit", "1000", "-o", "json")
    scopes = {each.cgroup: name for name, each in kubelet.running(node).items() if name in (LS.name, BE.name)}
    found: dict[str, tuple[float, str]] = {}
    for entry in sorted(json.loads(node.do(*argv))["entries"], key=lambda entry: int(entry["unix_ns"])):
        name = scopes.get(entry["path"].rpartition("/")[0])
        if name is not None and entry["result"] == "done":
            found[name] = (int(entry["unix_ns"]) / 1e9, entry["after"])
    return found


def test_a_reload_of_systemd_undoes_nothing(node: Guest) -> None:
    assert moved(node, POOLS) == POOLS
    before = kubelet.held(node)
    node.do("systemctl", "daemon-reload")
    assert kubelet.held(node) == before
    assert read_by_the_document(node) == DOCUMENT


def test_koordctl_shows_the_pools(node: Guest) -> None:
    answer = json.loads(node.do("koordctl", "node", "-o", "json"))
    assert {pool["name"]: pool["cpus"] for pool in answer["pools"]} == {"LS": "4-15", "BE": "2-15"}
