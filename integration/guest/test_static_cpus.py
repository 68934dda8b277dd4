"""kubelet's CPU manager is ``static`` (standalone kubelet, systemd driver, cgroup v2), and Koord works around it.

Exclusive CPUs are kubelet's, whatever annotations say. Each test goes on where the one before it ended.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from integration.guest import kubelet, pods, programs
from integration.guest.guest import Guest
from integration.kubelet.staticpods import PODS, StaticPod

CPUS = 7
ALL = "0-6"
STATUS = "scheduling.koordinator.sh/resource-status"
WHOLE_CPU = {"limits": {"cpu": "1", "memory": "64Mi"}}
LSR, LS, BE = PODS
STATIC = ("--cpu-manager-policy=static", "--reserved-cpus=0")


def pod(name: str, qos: str, native: dict[str, Any], cpus: str = "") -> StaticPod:
    return StaticPod(name, qos, native, {STATUS: {"cpuset": cpus}} if cpus else {})


@pytest.fixture(scope="module")
def node(guest: Guest) -> Guest:
    """kubelet is ``static`` and behind the proxy; an LSR pod on CPU 3, which kubelet would have put on 1, LS and BE."""
    lsr = dataclasses.replace(LSR, annotations={STATUS: {"cpuset": "3"}})
    kubelet.start_behind_the_proxy(guest, CPUS, [lsr, LS, BE], *STATIC)
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
    pods.put(node, [pod("lse", "LSE", {"requests": {"cpu": "1100m"}}, "4-5")])
    assert moved(node, WITH_LSE) == WITH_LSE


def test_they_stay_so_when_kubelet_is_restarted(node: Guest) -> None:
    """A new kubelet knows of no CPU set that it sent, and sends every container its own."""
    seen = kubelet.updates(node)
    kubelet.restart_cleanly(node)
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
