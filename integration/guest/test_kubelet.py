"""The guest's own kubelet (standalone, static pods, systemd driver, cgroup v2) behind the proxy and with koord-qosd.

The same pods live without Koord and with it, through a restart of kubelet.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration.guest import kubelet, pods, programs
from integration.guest.guest import Guest
from integration.guest.kubelet import Held
from integration.harness import klog
from integration.kubelet.staticpods import PODS

pytestmark = pytest.mark.soak

ALL = "0-1"
LIVES = 3
"""Lives of the pods with and without Koord until a kind of error line counts: kubelet's own races log now and then."""
NOT_OURS = (
    "Housekeeping took longer than expected",  # a slow machine
    "Error proxying data from client to backend",  # exec's stream, which passes no proxy, at its end
)
BASE = {pod.name for pod in PODS}
CPUS_WITH_KOORD = {"lsr": "0", "ls": "1", "be": ALL}


@dataclass(frozen=True, slots=True)
class Life:
    """What the pods held before and after kubelet was restarted, and the kinds of error lines in its log."""

    before: dict[str, Held]
    after: dict[str, Held]
    errors: Counter[str]


def test_the_same_pods_without_and_with_koord(guest: Guest, tmp_path: Path) -> None:
    programs.put(guest)
    extra: set[str] | None = None
    for number in range(LIVES):
        for unit in programs.UNITS:
            guest.do("systemctl", "stop", unit)
        direct = life(
            guest, kubelet.CONTAINERD, {pod.name: kubelet.expected(pod.direct, ALL) for pod in PODS}, tmp_path / "log"
        )
        programs.start(guest)
        edited = {pod.name: kubelet.expected(pod.edited, ALL, CPUS_WITH_KOORD[pod.name]) for pod in PODS}
        proxied = life(guest, programs.SOCKET, edited, tmp_path / "log")
        show("directly on containerd", direct)
        show("behind the proxy, with koord-qosd", proxied)
        extra = (set(proxied.errors) if extra is None else extra & set(proxied.errors)) - set(direct.errors)
        if not extra:
            return
        print(f"  only with Koord, in life {number + 1}: {sorted(extra)}")
    assert sorted(extra or ()) == []


def life(guest: Guest, runtime: str, wanted: dict[str, Held], log: Path) -> Life:
    """The pods from their start to their end on the CRI socket ``runtime``, through a restart of kubelet."""
    seen = len(kubelet_log(guest))
    kubelet.configure(guest, runtime)
    pods.put(guest, PODS)
    guest.do("systemctl", "start", "kubelet")
    pods.wait_ready(guest, BASE, kubelet.READY_S)
    before = kubelet.settled(guest, lambda: kubelet.held(guest), wanted)
    assert before == wanted
    answers = kubelet.exec_and_log(guest, BASE)
    assert answers == {name: ["in 42\n", "Success", "Failure", "started\n"] for name in BASE}
    kubelet.restart_cleanly(guest)
    after = kubelet.settled(guest, lambda: kubelet.held(guest), wanted)
    assert after == wanted
    pods.remove(guest, BASE)
    guest.wait(lambda: not kubelet.pod_groups(guest), "kubelet to remove its pods, and their cgroups")
    guest.do("systemctl", "stop", "kubelet")
    log.write_text(kubelet_log(guest)[seen:])
    errors = klog.error_kinds(log)
    return Life(
        before,
        after,
        Counter({kind: count for kind, count in errors.items() if not any(one in kind for one in NOT_OURS)}),
    )


def kubelet_log(guest: Guest) -> str:
    return guest.do("journalctl", "-u", "kubelet", "-o", "cat", "--no-pager")


def show(title: str, life: Life) -> None:
    print(f"\n{title}")
    for name, found in life.after.items():
        print(f"  {name:4} {found.container}\n       {found.pod}")
    print(f"  kinds of error lines in kubelet's log: {len(life.errors)}")
    for kind, count in sorted(life.errors.items()):
        print(f"  {count:4} × {kind}")
