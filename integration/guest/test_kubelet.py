"""The guest's own kubelet (standalone, static pods, systemd driver, cgroup v2) behind the proxy and with koord-qosd.

First the same pods live without Koord and with it; then kubelet's CPU manager is ``static``, and each test goes on
where the one before it ended.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration.guest import kubelet, pods, programs
from integration.guest.guest import Guest, Size, booted
from integration.guest.image import Image
from integration.guest.kubelet import Held, Values
from integration.harness import klog
from integration.kubelet.staticpods import PODS, Limits, StaticPod

ALL = "0-6"
SIZE = Size(cpus=7, online=2)
READY_S = 600.0
LIVES = 3
"""Lives of the pods with and without Koord until a kind of error line counts: kubelet's own races log now and then."""
SLOW = "Housekeeping took longer than expected"
"""What kubelet says of a slow machine, whoever is between it and the runtime."""
STATUS = "scheduling.koordinator.sh/resource-status"
WHOLE_CPU = {"limits": {"cpu": "1", "memory": "64Mi"}}
LSR, LS, BE = PODS
BASE = {pod.name for pod in PODS}
CPUS_WITH_KOORD = {"lsr": "0", "ls": "1-6", "be": ALL}
STATIC = ("--cpu-manager-policy=static", "--reserved-cpus=0")


@pytest.fixture(scope="module")
def guest(guest_image: Image, guest_payload: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """A node with seven CPUs; Koord's programs are there and do not run yet."""
    with booted(guest_image, tmp_path_factory.mktemp("kubelet"), guest_payload, SIZE) as running:
        running.unpack_payload()
        kubelet.bring_up_cpus(running)
        programs.put(running)
        yield running


# --- without and with Koord ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Life:
    """What the pods held before and after kubelet was restarted, and the kinds of error lines in its log."""

    before: dict[str, Held]
    after: dict[str, Held]
    errors: Counter[str]


def test_the_same_pods_without_and_with_koord(guest: Guest, tmp_path: Path) -> None:
    extra: set[str] | None = None
    for number in range(LIVES):
        for unit in programs.UNITS:
            guest.do("systemctl", "stop", unit)
        direct = life(guest, kubelet.CONTAINERD, {pod.name: expected(pod.direct) for pod in PODS}, tmp_path / "log")
        programs.start(guest)
        edited = {pod.name: expected(pod.edited, CPUS_WITH_KOORD[pod.name]) for pod in PODS}
        proxied = life(guest, programs.SOCKET, edited, tmp_path / "log")
        show("directly on containerd", direct)
        show("behind the proxy, with koord-qosd", proxied)
        extra = (set(proxied.errors) if extra is None else extra & set(proxied.errors)) - set(direct.errors)
        if not extra:
            return
        print(f"  only with Koord, in life {number + 1}: {sorted(extra)}")
    assert sorted(extra or ()) == []


def expected(limits: Limits | None, cpus: str = "") -> Held:
    """``limits`` as the v2 files hold them, of the pod too, which has no CPU set of its own."""
    assert limits is not None
    quota = "max" if limits.cfs_quota_us < 0 else str(limits.cfs_quota_us)
    memory = "max" if limits.memory_limit_bytes is None else str(limits.memory_limit_bytes)
    of_pod = Values(weight(limits.cpu_shares), f"{quota} 100000", memory, "", ALL)
    return Held(of_pod, dataclasses.replace(of_pod, cpus=cpus, effective=cpus or ALL))


def weight(shares: int) -> str:
    """The cpu.weight that runc 1.1 and kubelet 1.34 make of shares; the life without Koord shows that they do."""
    return str(1 + (shares - 2) * 9999 // 262142)


def life(guest: Guest, runtime: str, wanted: dict[str, Held], log: Path) -> Life:
    """The pods from their start to their end on the CRI socket ``runtime``, through a restart of kubelet."""
    seen = len(kubelet_log(guest))
    kubelet.configure(guest, runtime)
    pods.put(guest, PODS)
    guest.do("systemctl", "start", "kubelet")
    pods.wait_ready(guest, BASE, READY_S)
    before = kubelet.settled(guest, lambda: kubelet.held(guest), wanted)
    assert before == wanted
    answers = kubelet.exec_and_log(guest, BASE)
    assert answers == {name: ["in 42\n", "Success", "Failure", "started\n"] for name in BASE}
    restart_cleanly(guest)
    after = kubelet.settled(guest, lambda: kubelet.held(guest), wanted)
    assert after == wanted
    pods.remove(guest, BASE)
    guest.wait(lambda: not kubelet.scopes(guest), "kubelet to stop its pods")
    guest.do("systemctl", "stop", "kubelet")
    log.write_text(kubelet_log(guest)[seen:])
    errors = klog.error_kinds(log)
    return Life(before, after, Counter({kind: count for kind, count in errors.items() if SLOW not in kind}))


def restart_cleanly(guest: Guest) -> None:
    """A new kubelet has looked at every pod, and the containers are those from before."""
    running, scopes = kubelet.running(guest), kubelet.scopes(guest)
    guest.do("systemctl", "restart", "kubelet")
    pods.wait_ready(guest, running, READY_S)  # it says so of no pod before it has synchronized it
    assert kubelet.running(guest) == running
    assert kubelet.scopes(guest) == scopes


def kubelet_log(guest: Guest) -> str:
    return guest.do("journalctl", "-u", "kubelet", "-o", "cat", "--no-pager")


def show(title: str, life: Life) -> None:
    print(f"\n{title}")
    for name, found in life.after.items():
        print(f"  {name:4} {found.container}\n       {found.pod}")
    print(f"  kinds of error lines in kubelet's log: {len(life.errors)}")
    for kind, count in sorted(life.errors.items()):
        print(f"  {count:4} × {kind}")


# --- CPU manager static ----------------------------------------------------------------------------------------------


def pod(name: str, qos: str, native: dict[str, Any], cpus: str = "") -> StaticPod:
    return StaticPod(name, qos, native, {STATUS: {"cpuset": cpus}} if cpus else {})


@pytest.fixture(scope="module")
def node(guest: Guest) -> Guest:
    """kubelet is ``static`` and behind the proxy; an LSR pod on CPU 3, which kubelet would have put on 1, LS and BE."""
    programs.start(guest)
    kubelet.configure(guest, programs.SOCKET, *STATIC)
    guest.do("rm", "-f", kubelet.STATE)
    pods.put(guest, [dataclasses.replace(LSR, annotations={STATUS: {"cpuset": "3"}}), LS, BE])
    guest.do("systemctl", "start", "kubelet")
    pods.wait_ready(guest, BASE, READY_S)
    return guest


def moved(node: Guest, wanted: dict[str, str]) -> dict[str, str]:
    return kubelet.settled(node, lambda: kubelet.cpus(node), wanted)


START = {"lsr": "3", "ls": "0-2,4-6", "be": ALL}
WITH_WHOLE = {"lsr": "3", "ls": "0-1,4-6", "be": "0-1,3-6", "whole": "2"}
WITH_LSE = {"lsr": "3", "ls": "0-1,6", "be": "0-1,3,6", "whole": "2", "lse": "4-5"}
IN_CONFLICT = {"lsr": "1", "ls": "0,6", "be": "0,6", "whole": "2", "lse": "5", "whole-too": "3-4"}
WITHOUT_LSE = {"lsr": "1", "ls": "0,5-6", "be": "0,5-6", "whole": "2", "whole-too": "3-4"}


def test_whole_cpus_of_a_pod_without_a_label_are_kubelets(node: Guest) -> None:
    assert moved(node, START) == START
    pods.put(node, [pod("whole", "", WHOLE_CPU)])
    assert moved(node, WITH_WHOLE) == WITH_WHOLE
    assert set(kubelet.exclusive(node).values()) == {"1", "2", "0,3-6"}


def test_they_stay_so_when_an_lse_pod_comes(node: Guest) -> None:
    pods.put(node, [pod("lse", "LSE", {"limits": {"cpu": "1"}}, "4-5")])
    assert moved(node, WITH_LSE) == WITH_LSE


def test_they_stay_so_when_kubelet_is_restarted(node: Guest) -> None:
    """A new kubelet knows of no CPU set that it sent, and sends every container its own."""
    seen = kubelet.updates(node)
    restart_cleanly(node)
    node.wait(lambda: kubelet.updates(node) >= seen + len(WITH_LSE), "kubelet to update every container")
    assert moved(node, WITH_LSE) == WITH_LSE


def test_cpus_that_kubelet_gives_away_are_lost_to_who_is_bound_to_them(node: Guest) -> None:
    """kubelet knows of no annotation and gives 3 and 4 away: LSR is left with what kubelet meant for it, LSE with 5."""
    seen = kubelet.updates(node)
    pods.put(node, [pod("whole-too", "", {"limits": {"cpu": "2", "memory": "64Mi"}})])
    assert moved(node, IN_CONFLICT) == IN_CONFLICT
    node.wait(lambda: kubelet.updates(node) >= seen + 3, "kubelet to send the shared pods its new default set")
    assert moved(node, IN_CONFLICT) == IN_CONFLICT
    assert set(kubelet.exclusive(node).values()) == {"1", "2", "3-4", "0,5-6"}
    taken = "with kubelet's exclusive CPUs {} of default/whole-too-node (kubelet): it {}"
    assert_warned(node, f"default/lsr-node (LSR) is bound to CPUs 3, {taken.format(3, 'counts as not bound')}")
    assert_warned(node, f"default/lse-node (LSE) is bound to CPUs 4-5, {taken.format(4, 'gets CPUs 5')}")


def test_they_stay_so_when_the_lse_pod_leaves(node: Guest) -> None:
    pods.remove(node, ["lse"])
    assert moved(node, WITHOUT_LSE) == WITHOUT_LSE


def test_nothing_of_kubelets_was_ever_written_and_nothing_broke(node: Guest) -> None:
    found = json.loads(node.do("koordctl", "journal", "--limit", "10000", "-o", "json"))["entries"]
    assert {entry["pod"] for entry in found} >= {"default/lsr-node", "default/ls-node", "default/be-node"}
    assert [entry for entry in found if "whole" in entry.get("pod", "")] == []
    said = node.journal("koord-runtime-proxy") + node.journal("koord-qosd")
    assert [line for line in said.splitlines() if "koord.audit" in line and "/whole" in line] == []
    assert "Traceback" not in said
    restarts = [node.do("systemctl", "show", "-p", "NRestarts", "--value", unit) for unit in programs.UNITS[1:]]
    assert restarts == ["0\n", "0\n"]


def assert_warned(node: Guest, sentence: str) -> None:
    assert sentence in node.journal("koord-qosd")
