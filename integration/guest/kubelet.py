"""kubelet in a guest: how it is started, what it says of its pods, and what the kernel holds for them (cgroup v2).

What a pod holds is read by the paths that kubelet's answer implies, never through Koord. Invariant: what ``held``
returns of one pod is of one container, the one that kubelet names at that moment.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from integration.guest import payload, pods, programs
from integration.guest.guest import Guest, GuestError
from integration.kubelet.staticpods import Limits, StaticPod

CONTAINERD = "/run/containerd/containerd.sock"
FLAGS = "/var/lib/kubelet/kubeadm-flags.env"
STATE = "/var/lib/kubelet/cpu_manager_state"
KUBEPODS = "/sys/fs/cgroup/kubepods.slice"
FILES = ("cpu.weight", "cpu.max", "memory.max", "cpuset.cpus", "cpuset.cpus.effective")
READY_S = 600.0
SETTLED_S = 300.0
CALLS_S = 300.0
_TIERS = {"Guaranteed": "kubepods", "Burstable": "kubepods-burstable", "BestEffort": "kubepods-besteffort"}
_CALLS = """
import json, sys
from integration.harness.kubelet_api import KubeletApi
api = KubeletApi(10250, timeout_s=120)
def of(pod):
    said = api.exec("default", pod, "main", "sh", "-c", "echo in $((6 * 7))")
    return [*said, api.exec("default", pod, "main", "false")[1], api.log("default", pod, "main")]
json.dump({pod: of(pod) for pod in sys.argv[1:]}, sys.stdout)
"""
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Values:
    """What ``FILES`` of one cgroup hold; ``cpus`` are its own, "" = as the parent.

    ``cpu_max`` is of a period of 100 ms, whatever the kernel made of it: it doubles quota and period where the machine
    is too slow for the timer of the period.
    """

    weight: str
    cpu_max: str
    memory_max: str
    cpus: str
    effective: str


@dataclass(frozen=True, slots=True)
class Running:
    """A pod with one container, as kubelet's status tells it; groups are paths of directories."""

    container_id: str
    restarts: int
    pod_group: str
    cgroup: str


@dataclass(frozen=True, slots=True)
class Held:
    """What the kernel holds for a pod and for its container."""

    pod: Values
    container: Values


def bring_up_cpus(guest: Guest, cpus: int) -> None:
    """The machine's first ``cpus`` go online."""
    guest.sh(f"for cpu in {{1..{cpus - 1}}}; do echo 1 > /sys/devices/system/cpu/cpu$cpu/online; done")


def configure(guest: Guest, runtime: str, *flags: str) -> None:
    """From its next start kubelet works on the CRI socket ``runtime``, with ``flags``."""
    argv = (f"--container-runtime-endpoint=unix://{runtime}", "--hostname-override=node", *flags)
    guest.put(FLAGS, f'KUBELET_KUBEADM_ARGS="{" ".join(argv)}"\n')


def start_behind_the_proxy(guest: Guest, cpus: int, static_pods: Sequence[StaticPod], *flags: str) -> None:
    """On that many CPUs, with Koord's programs and these pods, all of them Ready when this returns."""
    bring_up_cpus(guest, cpus)
    programs.put(guest)
    programs.start(guest)
    configure(guest, programs.SOCKET, *flags)
    pods.put(guest, static_pods)
    guest.do("systemctl", "start", "kubelet")
    pods.wait_ready(guest, {pod.name for pod in static_pods}, READY_S)


def expected(limits: Limits | None, all_cpus: str, cpus: str = "") -> Held:
    """``limits`` as the files hold them: of the pod, which has no CPU set of its own, and of its container."""
    assert limits is not None
    quota = "max" if limits.cfs_quota_us < 0 else str(limits.cfs_quota_us)
    memory = "max" if limits.memory_limit_bytes is None else str(limits.memory_limit_bytes)
    of_pod = Values(_weight(limits.cpu_shares), f"{quota} 100000", memory, "", all_cpus)
    return Held(of_pod, replace(of_pod, cpus=cpus, effective=cpus or all_cpus))


def _weight(shares: int) -> str:
    """The cpu.weight that runc 1.1 and kubelet 1.34 make of shares; pods without Koord show that they do."""
    return str(1 + (shares - 2) * 9999 // 262142)


def running(guest: Guest) -> dict[str, Running]:
    """Every pod that is Ready, by its name without the node's."""
    found = {}
    for pod in pods.listed(guest):
        if pods.ready(pod):
            (status,) = pod["status"]["containerStatuses"]
            id_, tier = status["containerID"].rpartition("/")[2], _TIERS[pod["status"]["qosClass"]]
            above = KUBEPODS if tier == "kubepods" else f"{KUBEPODS}/{tier}.slice"
            cgroup = f"{above}/{tier}-pod{pod['metadata']['uid'].replace('-', '_')}.slice"
            name = pod["metadata"]["name"].removesuffix("-node")
            found[name] = Running(id_, status["restartCount"], cgroup, f"{cgroup}/cri-containerd-{id_}.scope")
    return found


def held(guest: Guest, names: Collection[str] = ()) -> dict[str, Held]:
    """What the kernel holds for these pods, or for all."""
    found = {name: each for name, each in running(guest).items() if not names or name in names}
    groups = [cgroup for each in found.values() for cgroup in (each.pod_group, each.cgroup)]
    texts = iter(guest.texts([f"{cgroup}/{file}" for cgroup in groups for file in FILES]))
    values = {cgroup: _values([next(texts) or "" for _ in FILES]) for cgroup in groups}
    return {name: Held(values[each.pod_group], values[each.cgroup]) for name, each in found.items()}


def _values(texts: list[str]) -> Values:
    weight, cpu_max, *rest = texts
    quota, _, period = cpu_max.partition(" ")
    if quota.isdecimal():
        cpu_max = f"{int(quota) * 100_000 // int(period)} 100000"
    return Values(weight, cpu_max, *rest)


def cpus(guest: Guest) -> dict[str, str]:
    """The CPUs of each pod's container; those in effect are appended where they are not the same."""
    return {
        name: own if own == effective else f"{own} (effective {effective})"
        for name, found in held(guest).items()
        for own, effective in ((found.container.cpus, found.container.effective),)
    }


def scopes(guest: Guest) -> set[str]:
    """The cgroups of all containers and sandboxes that there are."""
    return set(guest.do("find", KUBEPODS, "-name", "cri-containerd-*.scope").split())


def pod_groups(guest: Guest) -> set[str]:
    """The cgroups of all pods that there are."""
    return set(guest.do("find", KUBEPODS, "-name", "kubepods-*pod*.slice").split())


def exec_and_log(guest: Guest, names: Collection[str]) -> dict[str, list[str]]:
    """By pod: output and status of a command, status of one that fails, and the log; through kubelet's API."""
    argv = ("python3", "-c", _CALLS, *(f"{name}-node" for name in names))
    found = json.loads(guest.do(*argv, timeout_s=CALLS_S, PYTHONPATH=payload.PYTHONPATH))
    return {name.removesuffix("-node"): answers for name, answers in found.items()}


def updates(guest: Guest) -> int:
    """How many containers kubelet has updated through the proxy."""
    calls = [
        line for line in programs.proxy_metrics(guest) if "_calls_total{" in line and "UpdateContainerResources" in line
    ]
    return sum(int(float(line.rpartition(" ")[2])) for line in calls)


def exclusive(guest: Guest) -> Mapping[str, str]:
    """The CPUs that kubelet's CPU manager has given, by pod UID; the rest is under the key "default"."""
    state = json.loads(guest.text(STATE))
    given = {uid: of_pod["main"] for uid, of_pod in state.get("entries", {}).items()}
    return {**given, "default": state["defaultCpuSet"]}


def settled(guest: Guest, read: Callable[[], Found], wanted: Found) -> Found:
    """What ``read`` returns once it is ``wanted``, or at the end: to be compared, so that a failure shows it."""
    with contextlib.suppress(GuestError):
        guest.wait(lambda: read() == wanted, "", SETTLED_S)
    return read()


def restart_cleanly(guest: Guest) -> None:
    """A new kubelet has looked at every pod, and the containers are those from before."""
    before = running(guest), scopes(guest)
    guest.do("systemctl", "restart", "kubelet")
    pods.wait_ready(guest, before[0], READY_S)  # it says so of no pod before it has synchronized it
    assert (running(guest), scopes(guest)) == before
