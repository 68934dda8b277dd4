"""Faults on a node with systemd: one each, and afterwards everything is as if it had not happened.

What brings things back is systemd and Koord alone. Tests share one guest and leave it as they found it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from integration.guest import koordnode, programs
from integration.guest.guest import Guest
from integration.guest.inside.faults import CONTAINERD, PROXY, QOSD
from integration.guest.koordnode import BE_EDITED, KUBELET, PROXY_SOCKET, UNITS, Node

pytestmark = pytest.mark.soak

NOT_READY_S = 30.0
DAY_S = 86_400


@pytest.fixture(scope="module")
def node(guest: Guest) -> Node:
    return koordnode.set_up(guest)


@pytest.fixture(autouse=True)
def _complaints_of_this_test(node: Node) -> None:
    node.forget_complaints()


# --- killed and stopped ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "units",
    [[PROXY], [QOSD], [CONTAINERD], UNITS],
    ids=["proxy", "qosd", "containerd", "all"],
)
def test_killed(node: Node, units: Sequence[str]) -> None:
    pids = {unit: node.guest.main_pid(unit) for unit in units}
    node.signal("KILL", *units)
    for unit, pid in pids.items():
        node.wait_replaced(unit, pid)
    node.wait_runtime()
    node.unharmed()


def test_stopped_proxy_is_ended_by_the_watchdog(node: Node) -> None:
    pid, since = node.guest.main_pid(PROXY), time.monotonic()
    node.signal("STOP", PROXY)
    node.wait_replaced(PROXY, pid)
    node.wait_answer()
    took_s = time.monotonic() - since
    print(f"  an answer {took_s:.1f} s after the SIGSTOP")
    assert took_s < NOT_READY_S
    node.unharmed()


def test_proxy_stopped_while_it_starts(node: Node) -> None:
    """No watchdog counts before it is ready."""
    pid, since = node.guest.main_pid(PROXY), time.monotonic()
    node.guest.sh(
        f"systemctl kill -s KILL --kill-whom=main {PROXY}; old={pid}; pid=$old;"
        f" while [ $pid = $old ] || [ $pid = 0 ]; do pid=$(systemctl show -P MainPID {PROXY}); done; kill -STOP $pid;"
        f" systemctl show -P SubState {PROXY} | grep -qx start"
    )
    node.wait_active(PROXY)
    node.wait_answer()
    took_s = time.monotonic() - since
    print(f"  an answer {took_s:.1f} s after the SIGKILL")
    assert took_s < NOT_READY_S
    node.unharmed()


def test_stopped_qosd_is_ended_by_the_watchdog(node: Node) -> None:
    """Meanwhile its hooks cost each call their timeout, and then nothing: the proxy stops asking."""
    pid = node.guest.main_pid(QOSD)
    node.signal("STOP", QOSD)
    node.wait_replaced(QOSD, pid)
    node.unharmed()


@pytest.mark.parametrize("unit", [QOSD, CONTAINERD])
def test_stopped_for_a_moment(node: Node, unit: str) -> None:
    node.signal("STOP", unit)
    time.sleep(5)
    node.signal("CONT", unit)
    node.unharmed()


@pytest.mark.parametrize("unit", [PROXY, QOSD])
def test_out_of_memory(node: Node, unit: str) -> None:
    pid = node.guest.main_pid(unit)
    node.guest.write(f"/sys/fs/cgroup/koord.slice/{unit}/memory.max", "4M")
    node.wait_replaced(unit, pid)
    assert node.guest.text(f"/sys/fs/cgroup/koord.slice/{unit}/memory.max") != str(4 << 20)
    node.unharmed()


# --- restarted by the operator ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [CONTAINERD, KUBELET, PROXY_SOCKET])
def test_restarted(node: Node, unit: str) -> None:
    node.guest.do("systemctl", "restart", unit)
    node.wait_active(*UNITS, PROXY_SOCKET, KUBELET)
    node.wait_runtime()
    node.unharmed()


# --- the socket file -------------------------------------------------------------------------------------------------


def test_deleted_directory_of_the_socket_comes_back_without_a_restart(node: Node) -> None:
    """With all that the unit's sandbox forbids; kubelet's new connections are served again."""
    guest = node.guest
    pid, directory = guest.main_pid(PROXY), programs.SOCKET.rpartition("/")[0]
    for _ in range(2):
        guest.sh(f"until rm -r {directory}; do :; done")  # the proxy may put the file back while rm is at work
        guest.wait(lambda: guest.exists(programs.SOCKET), "a new socket file")
        node.wait_answer()
        assert guest.do("stat", "-c", "%a %U", directory).strip() == "755 root"
        assert guest.main_pid(PROXY) == pid
    node.unharmed()


def test_deleted_socket_file_comes_back_and_outlives_the_proxy(node: Node) -> None:
    guest = node.guest
    for life in range(2):
        before = _inode(guest)
        guest.do("rm", programs.SOCKET)
        guest.wait(lambda: guest.exists(programs.SOCKET), "a new socket file")
        made = _inode(guest)
        assert made != before
        assert guest.do("stat", "-c", "%a %U:%G", programs.SOCKET).strip() == "660 root:root"
        assert guest.do("systemctl", "show", "--property=NFileDescriptorStore", "--value", PROXY).strip() == "1"
        node.wait_answer()
        pid = guest.main_pid(PROXY)
        node.signal("KILL", PROXY)
        node.wait_replaced(PROXY, pid)
        node.wait_answer()
        assert _inode(guest) == made, f"life {life}: the successor made a socket of its own"
    node.unharmed()


def _inode(guest: Guest) -> str:
    return guest.do("stat", "-c", "%i %W", programs.SOCKET).strip()


# --- nothing left ----------------------------------------------------------------------------------------------------


def test_full_disk(node: Node) -> None:
    """Both go on and even start; the journal says what is wrong, holds its entries, and writes them when it can."""
    guest = node.guest
    weight = f"{_container(node)}/cpu.weight"
    with node.full("/"):
        _touch_until(node, weight, lambda: _journal_is_full(guest), "the journal's problem")
        pid = guest.main_pid(PROXY)
        node.signal("KILL", PROXY)
        node.wait_replaced(PROXY, pid)
        assert guest.active(QOSD)
    guest.wait(lambda: not _journal_is_full(guest), "the journal to write again")
    node.unharmed()


def test_qosd_starts_on_a_full_disk(node: Node) -> None:
    with node.full("/"):
        pid = node.guest.main_pid(QOSD)
        node.signal("KILL", QOSD)
        node.wait_replaced(QOSD, pid)
    node.unharmed()


def test_full_run(node: Node) -> None:
    """Without room for its undo record qosd writes nothing to the kernel; then it does. The proxy needs no room."""
    guest = node.guest
    weight = f"{_container(node)}/cpu.weight"
    with node.full("/run"):
        pid = guest.main_pid(PROXY)
        node.signal("KILL", PROXY)
        node.wait_replaced(PROXY, pid)
        node.wait_answer()
        assert guest.active(QOSD)
    guest.write(weight, "77")
    guest.wait(lambda: guest.text(weight) == BE_EDITED["cpu.weight"], "the value put back")
    node.unharmed()


def test_proxy_out_of_descriptors(node: Node) -> None:
    """kubelet's connection goes on; who comes waits until there are descriptors again."""
    guest = node.guest
    pid = guest.main_pid(PROXY)
    with _no_descriptors(node, pid):
        assert not node.answers()
        assert node.guest.get(10248, "/healthz") == "ok"
    node.wait_answer()
    assert guest.main_pid(PROXY) == pid
    node.unharmed()


def test_qosd_out_of_descriptors(node: Node) -> None:
    guest = node.guest
    pid = guest.main_pid(QOSD)
    with _no_descriptors(node, pid):
        guest.run("timeout", "5", "koordctl", "pods")
        assert guest.active(QOSD)
    guest.wait(lambda: guest.run("koordctl", "pods").returncode == 0, "koordctl's answer")
    assert guest.main_pid(QOSD) == pid
    node.unharmed()


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump_s", [DAY_S, -2 * DAY_S], ids=["a day on", "two days back"])
def test_clock_jump(node: Node, jump_s: int) -> None:
    guest = node.guest
    pids = [guest.main_pid(unit) for unit in UNITS]
    _jump(guest, jump_s)
    try:
        node.unharmed()
        assert [guest.main_pid(unit) for unit in UNITS] == pids
    finally:
        _jump(guest, -jump_s)


# --- boot ------------------------------------------------------------------------------------------------------------


def test_boot_without_the_runtime(node: Node) -> None:
    """The proxy serves before kubelet starts and holds its calls until the runtime comes."""
    guest = node.guest
    guest.do("systemctl", "disable", "--quiet", CONTAINERD)
    guest.reboot()
    assert not guest.active(CONTAINERD)
    assert guest.active(PROXY)
    assert guest.active(QOSD)
    _assert_order(guest)
    guest.do("systemctl", "enable", "--quiet", "--now", CONTAINERD)
    node.settle()
    node.unharmed()


@pytest.mark.parametrize("how", ["reboot", "crash"])
def test_boot(node: Node, how: str) -> None:
    """Pods come up edited, through a proxy that was there first; what was undone is of this boot."""
    guest, before = node.guest, dict(node.running)
    getattr(guest, how)()
    _assert_order(guest)
    node.settle()
    assert not {id_ for id_, _ in before.values()} & {id_ for id_, _ in node.running.values()}
    node.unharmed()


def _assert_order(guest: Guest) -> None:
    """The socket, then a serving proxy and qosd, then kubelet."""
    moments = {
        unit: int(guest.do("systemctl", "show", f"--property={name}", "--value", unit))
        for unit, name in (
            (PROXY_SOCKET, "ActiveEnterTimestampMonotonic"),
            (PROXY, "ActiveEnterTimestampMonotonic"),
            (QOSD, "ActiveEnterTimestampMonotonic"),
            (KUBELET, "InactiveExitTimestampMonotonic"),
        )
    }
    assert moments[PROXY_SOCKET] < moments[PROXY] < moments[KUBELET], moments
    assert moments[QOSD] < moments[KUBELET], moments


# --- what the tests do to the node -----------------------------------------------------------------------------------


def _container(node: Node) -> str:
    """The cgroup of the BE pod's container."""
    id_, _ = node.running["be"]
    return node.guest.do("find", koordnode.BE_TIER, "-name", f"cri-containerd-{id_}.scope").strip()


def _journal_is_full(guest: Guest) -> bool:
    return "full" in guest.run("koordctl", "journal").stderr


def _touch_until(node: Node, file: str, done: Callable[[], bool], what: str) -> None:
    """Write what qosd will put right, and so record, until ``done``."""

    def touched() -> bool:
        node.guest.write(file, "77")
        return done()

    node.guest.wait(touched, what)


@contextmanager
def _no_descriptors(node: Node, pid: int) -> Iterator[None]:
    """The process can open nothing more."""
    guest = node.guest
    limit = guest.do("prlimit", "--pid", str(pid), "--nofile", "--raw", "--noheadings", "-o", "SOFT").strip()
    numbers = [int(name) for name in guest.do("ls", f"/proc/{pid}/fd").split()]
    guest.do("prlimit", "--pid", str(pid), f"--nofile={_first_free(numbers)}:")
    try:
        yield
    finally:
        guest.do("prlimit", "--pid", str(pid), f"--nofile={limit}:")


def _first_free(numbers: Sequence[int]) -> int:
    """The lowest number that is not taken: with it as its limit a process opens nothing."""
    return next(number for number in range(len(numbers) + 1) if number not in numbers)


def _jump(guest: Guest, seconds: int) -> None:
    guest.do("date", "-s", f"@{int(guest.do('date', '+%s')) + seconds}")
