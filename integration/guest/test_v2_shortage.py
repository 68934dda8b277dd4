"""Best-effort pods on cgroup v2 while the node lacks something, under a real kubelet, which starts containers again.

Toy strategies state shortages and limit best-effort pods. Each test goes on where the one before it ended.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence

import pytest

from integration.guest import kubelet, pods, programs
from integration.guest.guest import Guest
from integration.kubelet.staticpods import MIB, PODS, StaticPod

STATE = "/var/lib/koord"
HOLDS, LACKS = f"{STATE}/holds", f"{STATE}/lacks"
STEP_S = 180.0
AT_ONCE, TURNS = 2, 25
"""Of each kind. An emulated node has no CPU for fifty pods that start at once, nor for ten that are removed again and
again: its containerd gives a shim two seconds to end."""
LS, BE = PODS[1], PODS[2]
GREEDY = """\
x=$(head -c 25000000 /dev/zero | tr '\\0' x); echo ${#x}
head -c 20000000 /dev/zero > /file
while :; do sleep 1; done
"""
PAGE = "from urllib.request import urlopen; print(urlopen('http://127.0.0.1:9316/metrics').read().decode())"
RECLAIMABLE = "pod_memory_reclaimable_bytes"
JOB = dataclasses.replace(BE, name="job", command=("/bin/sh", "-c", GREEDY))
"""24 MiB that cannot be reclaimed, where there is no swap, and 19 MiB of page cache."""


def mid(name: str) -> StaticPod:
    """In kubelet's BestEffort tier, and no best-effort pod to Koord."""
    spec = json.loads(json.dumps(BE.annotations).replace("batch-", "mid-"))
    return dataclasses.replace(BE, name=name, qos="LS", annotations=spec)


@pytest.fixture(scope="module")
def node(guest: Guest) -> Guest:
    """kubelet behind the proxy, and a koord-qosd with the toys."""
    programs.put(guest)
    programs.put_toys(guest)
    programs.start(guest)
    kubelet.configure(guest, programs.SOCKET)
    pods.put(guest, (LS, JOB))
    guest.do("systemctl", "start", "kubelet")
    pods.wait_ready(guest, (LS.name, JOB.name), kubelet.READY_S)
    return guest


def rows(node: Guest) -> list[dict[str, str]]:
    """What relief has done, oldest first."""
    entries = json.loads(node.do("koordctl", "journal", "--limit", "1000", "-o", "json"))["entries"]
    return [entry for entry in reversed(entries) if "eviction" in entry["owner"].split(", ")]


def results(node: Guest, name: str) -> list[str]:
    return [row["result"] for row in rows(node) if row["name"] == name]


def eviction(node: Guest) -> dict[str, str]:
    """As explain tells it."""
    files = json.loads(node.do("koordctl", "explain", "pod", "job-node", "-o", "json")).get("files", ())
    return next((file for file in files if file["name"] == "pod.eviction"), {})


def used_bytes(node: Guest, metric: str = "pod_memory_usage_bytes") -> float:
    """By the job, as the daemon sees it."""
    answer = json.loads(node.do("koordctl", "metrics", metric, "-o", "json"))
    samples = [sample for metric in answer.get("metrics", ()) for sample in metric.get("samples", ())]
    return max((sample.get("value", 0.0) for sample in samples if "job-node" in sample.get("label", "")), default=0.0)


def urgent_ticks(node: Guest) -> float:
    """Those that the pressure of the throttled job brought about."""
    page = node.do("python3", "-c", PAGE)
    count = 'koord_qosd_tick_seconds_count{kind="urgent"} '
    return next((float(line.removeprefix(count)) for line in page.splitlines() if line.startswith(count)), 0.0)


def test_reclaimed_throttled_frozen_evicted_and_held_at_the_floor(node: Guest) -> None:
    before = kubelet.running(node)
    pod = before["job"].pod_group
    assert node.text(f"{pod}/memory.high") == "max"
    node.wait(lambda: used_bytes(node) > 20 * MIB, "the job to be seen using more than the floor", STEP_S)
    node.wait(lambda: used_bytes(node, RECLAIMABLE) > 15 * MIB, "and its page cache", STEP_S)
    node.put(LACKS, f"memory {96 * MIB}")  # all that its limit lets it have
    node.wait(lambda: node.text(f"{pod}/memory.high") == str(16 * MIB), "memory.high to be at its floor", STEP_S)
    node.wait(lambda: "done" in results(node, "pod.eviction"), "its containers to have exited", STEP_S)
    node.wait(lambda: eviction(node).get("actual") == "restarted", "kubelet to start one again", STEP_S)
    assert "restarted" in results(node, "pod.eviction")
    assert node.text(f"{pod}/cgroup.freeze") == "0"
    assert node.text(f"{pod}/memory.high") == str(16 * MIB)
    node.wait(lambda: results(node, "pod.eviction").count("done") > 1, "the second attempt, after its pause", STEP_S)
    told = rows(node)
    assert {row["pod"] for row in told} == {"default/job-node"}
    order = [row["name"] for row in told if row["result"] != "stopping"]
    first = [order.index(name) for name in ("memory.reclaim", "memory.high", "cgroup.freeze", "pod.eviction")]
    assert first == sorted(first), order
    frozen = [row["after"] for row in told if (row["name"], row["result"]) == ("cgroup.freeze", "done")]
    assert frozen == ["1", "0"], "once, and thawed"
    assert kubelet.running(node)["ls"].container_id == before["ls"].container_id
    assert urgent_ticks(node) > 0


def test_the_next_daemon_gives_back_what_nobody_lacks(node: Guest) -> None:
    node.sh("systemctl kill --signal=KILL koord-qosd.service; rm -f " + LACKS)
    pod = kubelet.running(node).get("job")
    node.wait(lambda: kubelet.running(node).get("job"), "the job to run", kubelet.READY_S)
    pod = kubelet.running(node)["job"]
    node.wait(lambda: node.text(f"{pod.pod_group}/memory.high") == "max", "memory.high to be given back", STEP_S)
    assert node.text(f"{pod.pod_group}/cgroup.freeze") == "0"


def proxy(node: Guest) -> None:
    """What the module's node has."""


def reconciler(node: Guest) -> None:
    """kubelet asks containerd itself, which knows no NRI: containers are put right once they are there."""
    _stop_proxy(node)
    node.do("systemctl", "start", "kubelet")


def nri(node: Guest) -> None:
    """containerd 2.x takes the other one's place under the pods that run."""
    _stop_proxy(node)
    programs.use_containerd_2(node)
    node.wait(lambda: "nri" in programs.acting(node), "qosd to be attached to NRI", STEP_S)
    node.do("systemctl", "start", "kubelet")


def _stop_proxy(node: Guest) -> None:
    """And kubelet, which is to ask containerd itself."""
    node.do("systemctl", "stop", "kubelet", "koord-runtime-proxy.socket", "koord-runtime-proxy.service")
    kubelet.configure(node, kubelet.CONTAINERD)


@pytest.fixture(scope="module", params=[proxy, reconciler, nri], ids=lambda switch: switch.__name__)
def front_end(request: pytest.FixtureRequest, node: Guest) -> str:
    request.param(node)
    pods.wait_ready(node, (LS.name, JOB.name), kubelet.READY_S)
    return str(request.param.__name__)


@pytest.mark.soak
@pytest.mark.parametrize(("left", "style"), [("1", "cpus"), ("200m", "time")], ids=["CPU set", "quota"])
def test_newcomers_start_while_best_effort_is_held(node: Guest, front_end: str, left: str, style: str) -> None:
    """Best-effort pods and pods of the mid band, two of each at a time, fifty of each."""
    tier = f"{kubelet.KUBEPODS}/kubepods-besteffort.slice"
    node.put(HOLDS, left)
    if style == "time":
        node.wait(lambda: not node.text(f"{tier}/cpu.max").startswith("max "), "the tier's quota", STEP_S)
    for turn in range(TURNS):
        began_s = time.monotonic()
        if turn:
            pods.wait_ended(node)  # an emulated runtime that still removes the last ones has no time for these
        suffixes = [f"-{front_end}-{style}-{turn}-{number}" for number in range(AT_ONCE)]
        best_effort = [dataclasses.replace(BE, name=f"be{suffix}") for suffix in suffixes]
        newcomers_start(node, best_effort, [mid(f"mid{suffix}") for suffix in suffixes], style)
        print(f"  {front_end}, {style}: turn {turn + 1} of {TURNS} took {time.monotonic() - began_s:.0f} s", flush=True)
    node.put(HOLDS, "")
    pods.wait_ready(node, (LS.name, JOB.name), kubelet.READY_S)
    node.wait(lambda: node.text(f"{tier}/cpu.max").startswith("max "), "the tier to be free", STEP_S)


def newcomers_start(node: Guest, best_effort: Sequence[StaticPod], mid_pods: Sequence[StaticPod], style: str) -> None:
    """All start at their first attempt; the best-effort ones are held, the others are not. They are removed again."""
    names = [pod.name for pod in (*best_effort, *mid_pods)]
    pods.put(node, (*best_effort, *mid_pods))
    pods.wait_ready(node, (LS.name, JOB.name, *names), kubelet.READY_S)
    running = kubelet.running(node)
    assert {running[name].restarts for name in names} == {0}

    def at_large() -> list[str]:
        if style == "cpus":
            effective = {
                pod.name: node.text(f"{running[pod.name].cgroup}/cpuset.cpus.effective") for pod in best_effort
            }
            return [name for name, cpus in effective.items() if cpus != "1"]
        quotas = {pod.name: node.text(f"{running[pod.name].cgroup}/cpu.max").split()[0] for pod in best_effort}
        return [name for name, quota in quotas.items() if quota == "max" or int(quota) > 20_000]

    node.wait(lambda: not at_large(), "all best-effort pods to be held", STEP_S)
    if style == "time":
        others = {node.text(f"{running[pod.name].cgroup}/cpu.max").split()[0] for pod in mid_pods}
        assert others == {"50000"}, "the mid band keeps its own"
    pods.remove(node, names)
    pods.wait_ready(node, (LS.name, JOB.name), kubelet.READY_S)
