"""Install, run pods, uninstall: nothing differs from a node on which Koord never was.

Two guests of the same image live through the same pods, one of them without Koord. Some pods are older than the
installation, some come while it is there, one ends meanwhile, and the others still run when it is taken away. Then
every file, every cgroup value and every unit is compared; what the control changes by itself is in ``traces.OWNERS``.
The same guest is then used again: a node without a trace is as good as a new one.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.guest import payload, pods, traces
from integration.guest.guest import Guest, Saved, booted
from integration.guest.image import Image
from integration.guest.traces import Snapshot
from integration.kubelet.staticpods import PODS

KILLS = int(os.environ.get("INSTALL_KILLS") or 2)
SEED = int(os.environ.get("SEED") or random.randrange(1 << 31))
EARLY = [pod for pod in PODS if pod.qos != "LSR"]  # the node has CPUs for one LSR pod
BEFORE = {pod.name for pod in EARLY}
LATER = {f"{pod.name}-late" for pod in PODS}
ENDED = "be-late"
RECORD = "/var/lib/koord/install/record.jsonl"
LAST_LINE = 9  # of the record, while koordctl is sure to go on
REMOVED = (
    "/etc/systemd/system/kubelet.service.d/90-koord.conf",
    "/sys/fs/cgroup/koord.slice/koord-runtime-proxy.service",
    "/sys/fs/cgroup/koord.slice/koord-qosd.service",
    "/etc/systemd/system/multi-user.target.wants/koord-runtime-proxy.service",
)
"""What goes away in the course of a removal, in this order."""
DEB = f"{payload.ROOT}/koord.deb"
RELEASED_CPUSET = re.compile(r".*/kubepods-[^/]*pod[^/]*\.slice/.*/?cpuset\.cpus")
COMPARED_S = 400.0


@pytest.fixture(scope="module")
def control(
    guest_image: Image, guest_payload: Path, saved_guest: Saved, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Snapshot, Snapshot]:
    """A node that never saw Koord: before its first pod, and after all.

    An emulated machine seldom hangs, with both of its CPUs busy. One without Koord is then made once more.
    """
    try:
        return _without_koord(guest_image, tmp_path_factory.mktemp("control"), guest_payload, saved_guest)
    except TimeoutError as error:
        print(f"the control hangs and is made once more: {error}")
        return _without_koord(guest_image, tmp_path_factory.mktemp("control"), guest_payload, saved_guest)


def _without_koord(image: Image, directory: Path, files: Path, saved: Saved) -> tuple[Snapshot, Snapshot]:
    with booted(image, directory, files, saved=saved) as node:
        first = traces.take(node)
        start_pods(node)
        another_package(node)
        more_pods(node)
        end_pod(node)
        node.do("systemctl", "daemon-reload")  # which sets memory.oom.group of every container to 0, whoever asks
        node.do("systemctl", "restart", "kubelet")
        pods.wait_ready(node, BEFORE | LATER - {ENDED})
        pods.wait_ended(node)
        return first, traces.take(node)


@pytest.fixture
def node(guest: Guest) -> Iterator[Guest]:
    """The guest with its early pods; the late ones are gone again afterwards, for the next test."""
    if not guest.active("kubelet"):
        start_pods(guest)
    yield guest
    pods.remove(guest, LATER)
    pods.wait_ready(guest, BEFORE)


def another_package(node: Guest) -> None:
    """A package that has nothing to do with Koord comes and goes."""
    fields = ("Package: other", "Version: 1", "Architecture: all", "Maintainer: nobody", "Description: nothing", "")
    node.do("mkdir", "-p", "/srv/other/DEBIAN")
    node.put("/srv/other/DEBIAN/control", "\n".join(fields))
    node.sh(
        "dpkg-deb -b /srv/other /srv/other.deb && dpkg -i /srv/other.deb && dpkg --purge other && rm -r /srv/other*"
    )


def start_pods(node: Guest) -> None:
    pods.put(node, EARLY)
    node.do("systemctl", "start", "kubelet")
    pods.wait_ready(node, BEFORE)


def more_pods(node: Guest) -> None:
    pods.put(node, PODS, "-late")
    pods.wait_ready(node, BEFORE | LATER)


def end_pod(node: Guest) -> None:
    pods.remove(node, [ENDED])
    pods.wait_ready(node, BEFORE | LATER - {ENDED})


def assert_no_trace(node: Guest, control: Snapshot) -> None:
    """Waits for what kubelet puts right by itself; asserts the one exception exactly."""
    pods.wait_ready(node, BEFORE | LATER - {ENDED})
    left: dict[str, tuple[object, object]] = {}

    def compared() -> bool:
        left.clear()
        left.update(traces.unexplained(traces.differences(control, traces.take(node))))
        released = {path for path in left if RELEASED_CPUSET.fullmatch(path)}
        for path in released:
            assert left.pop(path) == ("\n", f"{all_cpus(node)}\n"), path
        return not left

    try:
        node.wait(compared, "the node to be as if Koord had never been there", COMPARED_S)
    except Exception as error:
        lines = "\n".join(f"{path}: {values[0]!r:.300} -> {values[1]!r:.300}" for path, values in left.items())
        raise AssertionError(f"{len(left)} traces (control -> here):\n{lines}") from error


def all_cpus(node: Guest) -> str:
    return node.text("/sys/fs/cgroup/cpuset.cpus.effective")


def install(node: Guest) -> str:
    return node.do("dpkg", "-i", DEB, timeout_s=300)


def test_the_list_holds_only_what_changes_without_koord(control: tuple[Snapshot, Snapshot], guest: Guest) -> None:
    changed = {**traces.differences(*control), **traces.differences(control[0], traces.take(guest))}
    assert not (unused := list(traces.unused(changed))), unused


def test_apt_purge_leaves_nothing(node: Guest, control: tuple[Snapshot, Snapshot]) -> None:
    print(install(node))
    more_pods(node)
    end_pod(node)
    print(node.do("koordctl", "pods"))
    print(node.do("dpkg", "--purge", "koord", timeout_s=300))
    assert_no_trace(node, control[1])


@pytest.mark.soak
@pytest.mark.parametrize("number", range(KILLS))
def test_an_installation_that_is_killed(node: Guest, control: tuple[Snapshot, Snapshot], number: int) -> None:
    steps = random.Random(f"{SEED}-{number}").randint(1, LAST_LINE)
    killed = kill_when(node, f'[ "$(wc -l < {RECORD} 2>/dev/null || echo 0)" -ge {steps} ]')
    said = node.run("dpkg", "-i", DEB, timeout_s=300)
    print(f"seed {SEED}: killed after {steps} lines of the record\n{said.stdout}{said.stderr}")
    assert killed()
    more_pods(node)
    end_pod(node)
    node.do("dpkg", "--purge", "koord", timeout_s=300)
    assert_no_trace(node, control[1])


@pytest.mark.soak
@pytest.mark.parametrize("number", range(KILLS))
def test_a_removal_that_is_killed(node: Guest, control: tuple[Snapshot, Snapshot], number: int) -> None:
    removed = random.Random(f"{SEED}-{number}").choice(REMOVED)
    install(node)
    more_pods(node)
    end_pod(node)
    killed = kill_when(node, f"[ ! -e {removed} ]")
    said = node.run("dpkg", "--purge", "koord", timeout_s=300)
    print(f"seed {SEED}: killed when {removed} was gone\n{said.stdout}{said.stderr}")
    assert killed()
    if said.returncode != 0:
        node.do("dpkg", "--purge", "koord", timeout_s=300)
    assert_no_trace(node, control[1])


def kill_when(node: Guest, condition: str) -> Callable[[], bool]:
    """SIGKILL koordctl as soon as it runs and ``condition`` holds; the result says whether that happened."""
    unit, sign = "koord-test-kill", "/run/koord-test-killed"
    script = f"""
        until pid=$(pgrep -xo koordctl); do :; done
        until {condition} || [ ! -d /proc/$pid ]; do :; done
        kill -KILL $pid && touch {sign}
    """
    node.run("systemctl", "reset-failed", unit)
    node.do("systemd-run", "--quiet", "--collect", f"--unit={unit}", "sh", "-c", script)

    def was_killed() -> bool:
        node.run("systemctl", "stop", unit)
        was = node.exists(sign)
        node.do("rm", "-f", sign)
        return was

    return was_killed
