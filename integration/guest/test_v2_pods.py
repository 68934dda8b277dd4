"""Koord with a real kubelet, the systemd cgroup driver and cgroup v2: the reconciler, hooks behind the proxy, and NRI.

Each way the same pods come to the same values, in the pods' slices and the containers' scopes; kubelet's own work and
a reload of systemd leave them alone, even while no qosd runs; and restoring gives all of it back, to systemd as well.
Each test goes on where the one before it ended.
"""

from __future__ import annotations

import json

import pytest

from integration.guest import kubelet, pods, programs
from integration.guest.guest import Guest
from integration.guest.kubelet import CONTAINERD, KUBEPODS, Held
from integration.kubelet.staticpods import PODS

ALL = "0-1"
CPUS = {"lsr": "0", "ls": "1", "be": ALL}
NAMES = frozenset(CPUS)
READY_S = 300.0
KUBELET_PORT = "http://127.0.0.1:10255"
QOSD = "koord-qosd.service"
ARGUMENTS = "/etc/systemd/system/koord-qosd.service.d/arguments.conf"
DROP_INS = "/run/systemd"


DIRECT = {pod.name: kubelet.expected(pod.direct, ALL) for pod in PODS}
EDITED = {pod.name: kubelet.expected(pod.edited, ALL, CPUS[pod.name]) for pod in PODS}
RESTORED = {pod.name: kubelet.expected(pod.direct, ALL, ALL) for pod in PODS}
"""A populated CPU set cannot be emptied again."""


@pytest.fixture(scope="module")
def node(guest: Guest) -> Guest:
    programs.put(guest)
    return guest


def settled(node: Guest, wanted: dict[str, Held]) -> dict[str, Held]:
    return kubelet.settled(node, lambda: kubelet.held(node, wanted), wanted)


def start_qosd(node: Guest, *arguments: str) -> None:
    node.do("mkdir", "-p", ARGUMENTS.rpartition("/")[0])
    node.put(ARGUMENTS, f"[Service]\nExecStart=\nExecStart=/usr/bin/koord-qosd {' '.join(arguments)}\n")
    node.sh(f"systemctl daemon-reload; systemctl start {QOSD}")


def reload_without_qosd(node: Guest) -> None:
    """No daemon runs that would correct values."""
    node.do("systemctl", "stop", QOSD)
    for verb in ("daemon-reload", "daemon-reexec"):
        node.do("systemctl", verb)


def others(node: Guest, runtime: str, ended: str, made: str) -> dict[str, Held]:
    """kubelet works on the CRI socket ``runtime`` from now on; the pods with suffix ``ended`` end, and the same ones
    begin with ``made`` (two CPUs have no room for both). What is wanted of them.

    kubelet does not run meanwhile: one that ends between making a pod's cgroup and limiting it leaves it unlimited.
    """
    node.do("systemctl", "stop", "kubelet")
    kubelet.configure(node, runtime)
    pods.remove(node, [f"{name}{ended}" for name in NAMES])
    pods.put(node, PODS, made)
    node.do("systemctl", "start", "kubelet")
    wanted = {f"{name}{made}": each for name, each in EDITED.items()}
    pods.wait_ready(node, wanted, READY_S)
    return wanted


def drop_ins(node: Guest) -> dict[str, str]:
    """Every drop-in file that systemd made at run time, with what it says."""
    return dict(line.split(":", 1) for line in node.sh(f"grep -r = {DROP_INS} --include=*.conf || true").splitlines())


def journal(node: Guest) -> list[dict[str, str]]:
    return list(json.loads(node.do("koordctl", "journal", "-o", "json"))["entries"])


# --- the reconciler ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def before(node: Guest) -> dict[str, str]:
    """kubelet's pods without Koord, and then with qosd beside it, which knows pods from kubelet alone: the drop-ins."""
    pods.put(node, PODS)
    node.do("systemctl", "start", "kubelet")
    pods.wait_ready(node, NAMES, READY_S)
    assert settled(node, DIRECT) == DIRECT
    files = drop_ins(node)
    start_qosd(node, f"--kubelet-endpoint={KUBELET_PORT}", "--runtime-endpoint=", "--nri-socket=")
    return files


def test_pods_that_run_come_to_their_values(node: Guest, before: dict[str, str]) -> None:
    assert settled(node, EDITED) == EDITED
    written = [entry for entry in journal(node) if entry["result"] == "done"]
    assert written
    assert {entry["path"] for entry in written if "; also set through systemd" not in entry["why"]} == set()


def test_a_new_pod_and_kubelets_sync_leave_them_alone(node: Guest, before: dict[str, str]) -> None:
    tier = f"{KUBEPODS}/kubepods-burstable.slice"
    pods.put(node, [PODS[2]], "-too")
    pods.wait_ready(node, {*NAMES, "be-too"}, READY_S)
    wanted = {**EDITED, "be-too": EDITED["be"]}
    assert settled(node, wanted) == wanted
    assert node.text(f"{tier}/cpu.weight") == EDITED["ls"].pod.weight, "kubelet's, for the LS pod's request"
    assert not [entry for entry in journal(node) if entry["path"].rpartition("/")[0] == tier]
    assert not [entry for entry in journal(node) if entry["result"] in ("foreign", "yielded")]
    pods.remove(node, ["be-too"])
    pods.wait_ready(node, NAMES, READY_S)


def test_koordctl_names_slices_and_scopes(node: Guest, before: dict[str, str]) -> None:
    cgroup = kubelet.running(node)["be"].cgroup
    explained = node.do("koordctl", "explain", "file", f"{cgroup}/cpu.max")
    assert "batchResource" in explained
    assert cgroup in explained
    assert json.loads(node.do("koordctl", "plan", "-o", "json"))["writes"] == []


def test_reloads_leave_them_alone_while_no_qosd_runs(node: Guest, before: dict[str, str]) -> None:
    reload_without_qosd(node)
    assert kubelet.held(node, EDITED) == EDITED


def test_restoring_gives_everything_back(node: Guest, before: dict[str, str]) -> None:
    node.do("koordctl", "restore", "--yes")
    assert kubelet.held(node, RESTORED) == RESTORED
    assert drop_ins(node) == before
    node.do("systemctl", "daemon-reload")
    assert kubelet.held(node, RESTORED) == RESTORED


# --- hooks behind the proxy, and NRI ---------------------------------------------------------------------------------


def test_pods_that_the_proxy_edits_keep_their_values(node: Guest) -> None:
    programs.start(node)
    wanted = others(node, programs.SOCKET, "", "-proxied")
    assert settled(node, wanted) == wanted
    reload_without_qosd(node)
    assert kubelet.held(node, wanted) == wanted


@pytest.mark.parametrize(("unit", "most"), [("koord-runtime-proxy.service", 1.5), (QOSD, 4.0)])
def test_the_units_that_served_them_are_shut_in(node: Guest, unit: str, most: float) -> None:
    (line,) = node.sh(f"systemctl start {unit}; systemd-analyze security --no-pager {unit} | grep Overall").splitlines()
    print(f"\n{line}")
    assert float(line.split(": ")[1].split()[0]) <= most


def test_pods_that_nri_edits_keep_their_values(node: Guest) -> None:
    """On containerd 2.x, which takes the other one's place under the pods that run."""
    node.do("systemctl", "stop", "kubelet", QOSD, "koord-runtime-proxy.socket", "koord-runtime-proxy.service")
    programs.use_containerd_2(node)
    start_qosd(node)
    node.wait(lambda: programs.acting(node) == ["nri"], "qosd to be attached to NRI", READY_S)
    wanted = others(node, CONTAINERD, "-proxied", "-nri")
    assert settled(node, wanted) == wanted
    reload_without_qosd(node)
    assert kubelet.held(node, wanted) == wanted
