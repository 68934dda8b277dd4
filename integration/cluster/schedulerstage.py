"""koord-schedulers on a real API server with a man in the middle, and what must hold of placements whatever happens.

Each replica is a process of its own and has its requests recorded under its host name. Nodes are fakes that offer
``ROOM``; nobody runs pods, and no controller collects what is left over.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from integration.cluster import controlplane, middleman, objects
from integration.cluster.api import Api, Object
from integration.cluster.controlplane import ControlPlane
from integration.cluster.middleman import Call, Middleman
from integration.cluster.ports import free_ports
from integration.harness.processes import HarnessError, Process, wait_for
from koord.model import quantity

USER = "koord-scheduler"
SOON_S = 60.0
FOREVER = 1 << 30
NODES = [f"n{index}" for index in range(4)]
CLASSES = {"middle": 5, "high": 10}
"""PriorityClasses that there are, and their values."""
ROOM = {"cpu": "4", "memory": "8Gi", "pods": "110"}
SMALL = {"cpu": "100m", "memory": "32Mi"}
PODS, EVENTS = objects.pods_of("default"), "/api/v1/namespaces/default/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Replica:
    """One koord-scheduler. ``host``: its name in the Lease and in the record."""

    def __init__(self, host: str, process: Process, port: int) -> None:
        self.host, self.process, self._port = host, process, port

    def is_ready(self) -> bool:
        """Whether it follows the cluster."""
        try:
            return self._page("readyz") == "ok\n"
        except OSError:
            return False

    def figure(self, name: str) -> float:
        """A metric without labels."""
        lines = [line.split() for line in self._page("metrics").splitlines() if line.startswith(f"{name} ")]
        if not lines:
            raise HarnessError(f"{self.host} has no metric {name}")
        return float(lines[0][1])

    def _page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/{path}", timeout=10) as answer:
            return str(answer.read().decode())


class Stage:
    """``gone_s``: since when nodes are gone, by the monotonic clock."""

    def __init__(self, plane: ControlPlane, api: Api, middle: Middleman) -> None:
        self.plane, self.api, self.middle = plane, api, middle
        self.gone_s: dict[str, float] = {}

    @contextlib.contextmanager
    def set_up(self) -> Iterator[None]:
        """With ``NODES`` and nothing else; at the end without anything."""
        self.add_nodes(*NODES)
        try:
            yield
        finally:
            self.clear()

    def clear(self) -> None:
        """Without pods, Events and nodes, as before the first test; the record is empty."""
        self.api.delete(PODS, gracePeriodSeconds="0")
        self.api.delete(objects.NODES)
        self.api.delete(EVENTS)
        wait_for(lambda: not self.api.items(PODS), SOON_S, "the pods to be gone")
        self.middle.forget()
        self.gone_s.clear()

    def add_nodes(self, *names: str, room: Mapping[str, str] = ROOM, labels: Mapping[str, str] | None = None) -> None:
        objects.create_nodes(self.plane.api, [objects.node(name, room, labels) for name in names])

    def delete_node(self, name: str) -> None:
        self.api.delete(f"{objects.NODES}/{name}")
        self.gone_s[name] = time.monotonic()

    def add_pods(
        self, scheduler: str, names: Iterable[str], requests: Mapping[str, str] = SMALL, **spec: object
    ) -> None:
        documents = [objects.pod(name, requests, schedulerName=scheduler) for name in names]
        for document in documents:
            document["spec"] |= spec
        objects.create_pods(self.plane.api, "default", documents)

    def placed(self, names: Iterable[str] = ()) -> dict[str, str]:
        """The nodes of the pods that have one; ``names``: none are all."""
        wanted = set(names)
        found = {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in self.api.items(PODS)}
        return {name: node for name, node in found.items() if node and (not wanted or name in wanted)}

    def wait_placed(self, names: Sequence[str], within_s: float = SOON_S) -> None:
        wait_for(lambda: len(self.placed(names)) == len(names), within_s, f"{len(names)} pods to be placed")

    def nominated(self, name: str) -> str:
        """The node that is cleared for the pod."""
        return str(self.api.get(f"{PODS}/{name}")["status"].get("nominatedNodeName", ""))

    def leader(self, lease: str) -> str:
        """The host of the replica that has the Lease; "" if none has."""
        path = f"{LEASES}/{lease}"
        if not self.api.exists(path):
            return ""
        return str(self.api.get(path)["spec"].get("holderIdentity") or "").partition("_")[0]

    def wait_leader(self, lease: str, *hosts: str) -> str:
        return wait_for(
            lambda: leader if (leader := self.leader(lease)) in hosts else "", SOON_S, f"one of {hosts} to lead"
        )

    @contextlib.contextmanager
    def replica(self, host: str, scheduler: str, elects: bool = True) -> Iterator[Replica]:
        """Of pods whose scheduler is ``scheduler``, which is the Lease's name, too. Ended at the end of the block."""
        configuration = self.plane.directory / f"{host}.json"
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {
                "leaderElect": elects,
                "resourceName": scheduler,
                "resourceNamespace": "kube-system",
            },
            "profiles": [{"schedulerName": scheduler}],
        }
        configuration.write_text(json.dumps(document))
        (port,) = free_ports(1)
        argv = [
            *(sys.executable, "-m", "koord_scheduler", f"--config={configuration}"),
            *(f"--kubeconfig={self.middle.kubeconfig(host)}", f"--metrics-addr=127.0.0.1:{port}"),
        ]
        process = Process(argv, self.plane.directory / f"{host}.log", {"HOSTNAME": host})
        try:
            yield Replica(host, process, port)
        finally:
            process.stop(10.0)

    def wrongs(self, names: Sequence[str], is_whole: bool = True) -> list[str]:
        """What is wrong with the placements now; ``is_whole`` as of the function."""
        pods = [each for each in self.api.items(PODS) if each["metadata"]["name"] in names]
        others = [each for each in self.api.items(PODS) if each["metadata"]["name"] not in names]
        if is_whole:
            uids = {each["metadata"]["uid"] for each in pods}
            wait_for(lambda: uids <= _told(self.api.items(EVENTS)).keys(), SOON_S, "Events of all pods")
        return [
            *(f"{name} is not there" for name in sorted(set(names) - {each["metadata"]["name"] for each in pods})),
            *wrongs(pods, self.api.items(EVENTS), list(self.middle.calls), self.gone_s, is_whole),
            *overcommitted(self.api.items(objects.NODES), [*pods, *others]),
        ]


def names_of(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{index}" for index in range(count)]


def wrongs(
    pods: Sequence[Object],
    events: Sequence[Object],
    calls: Sequence[Call],
    gone_s: Mapping[str, float],
    is_whole: bool = True,
) -> list[str]:
    """Returns what must not be, a sentence each. ``is_whole``: no scheduler was killed, nor the API server: each
    binding's answer is known, and each pod has its Event.
    """
    found = []
    bindings = [call for call in calls if call.path.endswith("/binding") and call.sent_s]
    told = _told(events)
    for pod in pods:
        name, uid, node = pod["metadata"]["name"], pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        sent = [call for call in bindings if call.document["metadata"]["uid"] == uid]
        done = [call for call in sent if call.status == 201]
        unknown = [call for call in sent if not call.status]
        nodes = {call.document["target"]["name"] for call in (done or unknown)}
        if not node:
            found.append(f"{name} has no node")
            continue
        if len(done) > 1 or not (done or unknown) or (is_whole and not done):
            found.append(f"{name} was bound {len(done)} times")
        if node not in nodes:
            found.append(f"{name} is on {node}, and was bound to {sorted(nodes)}")
        if told[uid] > 1 or (is_whole and not told[uid]):
            found.append(f"{name} has {told[uid]} Events that it is scheduled")
        began = [call.came_s for call in calls if call.text == f"POST {EVENTS}" and _is_told(call.document, uid)]
        if done and began and min(began) < done[0].answered_s:
            found.append(f"{name} has an Event from before it was bound")
    for call in bindings:
        target = call.document["target"]["name"]
        if target in gone_s and call.sent_s > gone_s[target]:
            found.append(f"{call.path} names {target}, gone {call.sent_s - gone_s[target]:.3f} s before")
    return found


def overcommitted(nodes: Sequence[Object], pods: Sequence[Object]) -> list[str]:
    """Returns a sentence for each node whose pods ask for more than it has."""
    found = []
    for node in nodes:
        name, there = node["metadata"]["name"], node["status"]["allocatable"]
        here = [each for each in pods if each["spec"].get("nodeName") == name]
        for resource in ("cpu", "memory"):
            asked = sum(
                _amount(resource, container["resources"].get("requests", {}).get(resource, "0"))
                for each in here
                for container in each["spec"]["containers"]
            )
            if asked > _amount(resource, there[resource]):
                found.append(f"{name} has {there[resource]} of {resource}, and its pods ask for {asked}")
        if len(here) > int(there["pods"]):
            found.append(f"{name} has room for {there['pods']} pods, and {len(here)} are there")
    return found


def _amount(resource: str, text: str) -> int:
    """CPU in thousandths, memory in bytes."""
    parsed = quantity.parse(text)
    return quantity.cpu_milli(parsed) if resource == "cpu" else quantity.memory_bytes(parsed)


def _told(events: Sequence[Object]) -> Counter[str]:
    """How often an Event says of a pod that it is scheduled, by its uid."""
    told = Counter[str]()
    for event in events:
        if event["reason"] == "Scheduled":
            told[event["involvedObject"]["uid"]] += event.get("count") or 1
    return told


def _is_told(event: Object, uid: str) -> bool:
    return bool(event.get("reason") == "Scheduled" and event["involvedObject"]["uid"] == uid)


@contextlib.contextmanager
def stage(directory: Path, options: controlplane.Options | None = None) -> Iterator[Stage]:
    """Schedulers are the user ``USER``, who may do everything, but not past the API server's fairness."""
    with controlplane.private(directory, options) as plane, plane.api() as api:
        api.create(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {
                "metadata": {"name": USER},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": USER}],
            },
        )
        for name, value in CLASSES.items():
            api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value})
        with middleman.between(plane, USER) as middle:
            yield Stage(plane, api, middle)
