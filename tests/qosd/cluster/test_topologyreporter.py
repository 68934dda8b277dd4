"""When the NodeResourceTopology is written, and what a cluster can do to that. Hours pass in milliseconds."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import structs

from koord.kube.client import Client, Selection
from koord.kube.errors import APIError, KubeError, Unreachable
from koord.kube.kind import NODE_RESOURCE_TOPOLOGY, Key, Kind, T
from koord.kube.reading import Kept, ListPage, Transform, WatchEvent, WatchEventType, read_entry
from koord.model.kubeletconfig import KubeletConfig
from qosd.cluster.topologyreporter import GAP_S, HARDWARE_RETRY_S, HARDWARE_S, TopologyReporter
from qosd.clusterstatus import PartState
from qosd.node import Node
from tests.kube import virtualtime
from tests.kube.server import merged
from tests.qosd.cluster.topologies import NODE, TWO_SOCKETS, inputs
from tests.qosd.cluster.topologyrig import Rig, reporting
from tests.qosd.podviews import view

NAME = "n1"
BATCH = {"name": "kubernetes.io/batch-cpu", "capacity": "5k", "allocatable": "5k", "available": "5k"}
NO_KIND = APIError(404, "NotFound", "the server could not find the requested resource")
FORBIDDEN = APIError(403, "Forbidden", "n1 may not do that")
AWAY = Unreachable("Cannot connect", may_have_arrived=False)
LSR = view("lsr", "LSR", "Guaranteed", cpus="0")


class Cluster:
    """One object at most. ``faults``: what the next calls of a verb raise; ``fault``: what all of them do."""

    def __init__(self) -> None:
        self.content: dict[str, Any] | None = None
        self.version = 0
        self.faults: dict[str, list[KubeError]] = {}
        self.fault: dict[str, KubeError] = {}
        self.calls: list[tuple[str, float]] = []
        self.patches: list[Mapping[str, Any]] = []
        self._news: asyncio.Queue[WatchEvent[Any]] = asyncio.Queue()
        self.is_deaf = False
        """The watch is late."""

    def at(self, verb: str) -> list[float]:
        """When it was called."""
        return [at_s for called, at_s in self.calls if called == verb]

    def put(self, content: dict[str, Any] | None) -> None:
        change = WatchEventType.DELETED if content is None else WatchEventType.MODIFIED
        stored = content if content is not None else self.content
        assert stored is not None
        self.version += 1
        stored["metadata"]["resourceVersion"] = str(self.version)
        self.content = content
        self._late = WatchEvent(change, read_entry(NODE_RESOURCE_TOPOLOGY, json.dumps(stored).encode()))
        if not self.is_deaf:
            self._news.put_nowait(self._late)

    def hear(self) -> None:
        self.is_deaf = False
        self._news.put_nowait(self._late)

    async def list(
        self, kind: Kind[T], selection: Selection, page_size: int, *, transform: Transform[T, Kept],
        is_whole_allowed: bool, resource_version: str,
    ) -> ListPage[Kept]:  # fmt: skip
        await asyncio.sleep(0.1)
        self._called("list")
        assert selection.fields == f"metadata.name={NAME}"
        entry = None if self.content is None else transform(read_entry(kind, json.dumps(self.content).encode()))
        return ListPage(() if entry is None else (entry,), str(self.version))

    async def watch(
        self, kind: Kind[T], resource_version: str, selection: Selection, timeout_s: float, stall_s: float,
        opened: Callable[[], None], begins_with_list: bool,
    ) -> AsyncGenerator[WatchEvent[T], None]:  # fmt: skip
        if begins_with_list:
            raise APIError(422, "Invalid", "sendInitialEvents: Forbidden")
        self._called("watch")
        opened()
        while True:
            yield await self._news.get()

    async def create(self, kind: Kind[T], body: Mapping[str, Any]) -> T:
        self._called("create")
        assert (body["apiVersion"], body["kind"]) == ("topology.node.k8s.io/v1alpha1", "NodeResourceTopology")
        if self.content is not None:
            raise APIError(409, "AlreadyExists", "it exists")
        self.put(json.loads(json.dumps(body)))
        return self._stored(kind)

    async def patch(self, kind: Kind[T], key: Key, body: Mapping[str, Any]) -> T:
        self._called("patch")
        assert key == Key("", NAME)
        if self.content is None:
            raise APIError(404, "NotFound", "n1 not found")
        if body["metadata"]["resourceVersion"] != self.content["metadata"]["resourceVersion"]:
            raise APIError(409, "Conflict", "the object has been modified")
        self.patches.append(body)
        self.put(merged(self.content, body))
        return self._stored(kind)

    def _called(self, verb: str) -> None:
        self.calls.append((verb, asyncio.get_running_loop().time()))
        if self.faults.get(verb):
            raise self.faults[verb].pop(0)
        if verb in self.fault:
            raise self.fault[verb]

    def _stored(self, kind: Kind[T]) -> T:
        entry = read_entry(kind, json.dumps(self.content).encode())
        assert entry.object is not None
        return entry.object


class Reported(Rig):
    """Its cluster is ``Cluster``."""

    def __init__(self, root: Path, cluster: Cluster) -> None:
        super().__init__(root, cluster)
        self.cluster = cluster

    @property
    def stored(self) -> dict[str, Any]:
        assert self.cluster.content is not None
        return self.cluster.content


def gaps(instants: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(instants)]


def on_virtual_time(test: Callable[[Reported], Awaitable[None]]) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        async def main() -> None:
            await test(Reported(tmp_path, Cluster()))

        virtualtime.run(main())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@on_virtual_time
async def test_it_is_made_and_then_left_alone(rig: Reported) -> None:
    async with reporting(rig):
        assert rig.stored["zones"][0]["resources"][3]["capacity"] == "16Gi"
        assert rig.stored["topologyPolicies"] == ["None"]
        rig.tick()
        await asyncio.sleep(500)
        assert (len(rig.cluster.at("create")), rig.cluster.at("patch")) == (1, [])
        assert rig.reporter.status().state is PartState.OK


@on_virtual_time
async def test_what_others_have_written_stays_and_no_patch_repeats_what_is_there(rig: Reported) -> None:
    async with reporting(rig):
        changed = json.loads(json.dumps(rig.stored))
        changed["zones"][0]["resources"].append(BATCH)
        changed["metadata"]["annotations"]["node.koordinator.sh/cpu-topology"] = "{}"
        rig.cluster.put(changed)
        await asyncio.sleep(10)
        assert BATCH in rig.stored["zones"][0]["resources"]
        (patch,) = rig.cluster.patches
        assert patch.keys() == {"metadata"}
        assert patch["metadata"]["annotations"].keys() == {"node.koordinator.sh/cpu-topology"}


@pytest.mark.parametrize(
    ("change", "member"),
    [
        (lambda rig: rig.feed(LSR), "cpu-shared-pools"),
        (lambda rig: rig.feed(reservation={"reservedCPUs": "3"}), "reservation"),
        (lambda rig: setattr(rig.locator, "topology", TWO_SOCKETS), "cpu-topology"),
        (lambda rig: setattr(rig.cluster_policy, "node", structs.replace(NODE, uid="uid-2")), "ownerReferences"),
        (
            lambda rig: setattr(rig.kubelet_config, "current", KubeletConfig(topology_manager_policy="restricted")),
            "topologyPolicies",
        ),
    ],
    ids=["a pod that is bound", "rules", "CPUs", "the Node", "kubelet"],
)
def test_a_tick_brings_what_changed(tmp_path: Path, change: Callable[[Reported], None], member: str) -> None:
    @on_virtual_time
    async def it(rig: Reported) -> None:
        async with reporting(rig):
            await asyncio.sleep(10)
            change(rig)
            rig.tick()
            await asyncio.sleep(0.1)
            (patch,) = rig.cluster.patches
            assert member in json.dumps(patch)

    it(tmp_path)


@on_virtual_time
async def test_pods_that_come_and_go_all_the_time_are_written_every_three_seconds(rig: Reported) -> None:
    async with reporting(rig):
        for number in range(300):
            rig.feed(view("lsr", "LSR", "Guaranteed", cpus=str(number % 4)))
            await asyncio.sleep(0.2)
        await asyncio.sleep(5)
        written = rig.cluster.at("patch")
        assert len(written) > 15
        assert min(gaps(written)) >= GAP_S - 1e-6


def _no_pods(rig: Reported) -> None:
    rig.pods.age_s = None


def _no_node(rig: Reported) -> None:
    rig.cluster_policy.node = None


def _no_policy(rig: Reported) -> None:
    rig.policy.current = replace(rig.policy.current, policy_unknown="rules.yaml is not YAML")


def _gate_off(rig: Reported) -> None:
    rig.policy.current = inputs(features={"NodeTopologyReport": False}).policy


def _no_hardware(rig: Reported) -> None:
    rig.memory_kb(0)
    (rig.root / "proc/meminfo").write_text("MemFree: 1 kB\n")


@pytest.mark.parametrize(
    ("lack", "says", "state"),
    [
        (_no_pods, "the node's pods are not known yet", PartState.WAITING),
        (_no_node, "the Node is not known yet", PartState.WAITING),
        (_no_policy, "there are no CPU pools: rules.yaml is not YAML", PartState.WAITING),
        (_gate_off, "feature gate NodeTopologyReport is off (by node.features)", PartState.OFF),
        (_no_hardware, "has no MemTotal", PartState.WAITING),
    ],
)
def test_what_is_not_known_is_not_reported(
    tmp_path: Path, lack: Callable[[Reported], None], says: str, state: PartState
) -> None:
    @on_virtual_time
    async def it(rig: Reported) -> None:
        lack(rig)
        async with reporting(rig):
            await asyncio.sleep(20)
            assert rig.cluster.content is None
            status = rig.reporter.status()
            assert says in status.says
            assert status.state is state
            known = Reported(tmp_path, rig.cluster)
            rig.pods.age_s, rig.cluster_policy.node, rig.policy.current = 1.0, NODE, known.policy.current
            rig.tick()
            await asyncio.sleep(HARDWARE_RETRY_S)
            assert rig.stored

    it(tmp_path)


@on_virtual_time
async def test_the_hardware_is_read_again_every_ten_minutes(rig: Reported) -> None:
    async with reporting(rig):
        rig.memory_kb(8 << 20)
        await asyncio.sleep(HARDWARE_S - 1)
        assert rig.stored["zones"][0]["resources"][3]["capacity"] == "16Gi"
        await asyncio.sleep(2)
        assert rig.stored["zones"][0]["resources"][3]["capacity"] == "8Gi"
        (rig.root / "proc/meminfo").write_text("nothing\n")
        await asyncio.sleep(2 * HARDWARE_S)
        assert rig.stored["zones"][0]["resources"][3]["capacity"] == "8Gi"


async def test_a_disk_that_stalls_delays_no_report(tmp_path: Path) -> None:
    rig, stalled = Reported(tmp_path, Cluster()), threading.Event()
    with ThreadPoolExecutor(1) as disk:
        disk.submit(stalled.wait)
        rig.node.disk = disk
        rig.reporter = TopologyReporter(cast(Client, rig.cluster), NAME, cast(Node, rig.node))
        try:
            async with reporting(rig):
                assert rig.stored
        finally:
            stalled.set()


@on_virtual_time
async def test_a_write_that_was_not_heard_of_yet_is_not_repeated(rig: Reported) -> None:
    async with reporting(rig):
        rig.cluster.is_deaf = True
        rig.feed(LSR)
        await asyncio.sleep(10)
        rig.feed()
        await asyncio.sleep(10)
        assert len(rig.cluster.patches) == 2
        rig.cluster.hear()
        await asyncio.sleep(10)
        assert len(rig.cluster.patches) == 2
        assert rig.count("failed") == 0


@on_virtual_time
async def test_an_object_that_changed_meanwhile_is_patched_when_it_is_heard_of(rig: Reported) -> None:
    async with reporting(rig):
        rig.cluster.is_deaf = True
        changed = json.loads(json.dumps(rig.stored))
        changed["zones"][0]["resources"].append(BATCH)
        rig.cluster.put(changed)
        rig.feed(LSR)
        await asyncio.sleep(10)
        assert rig.cluster.patches == []
        assert rig.cluster.at("patch")
        rig.cluster.hear()
        await asyncio.sleep(10)
        assert len(rig.cluster.patches) == 1
        assert BATCH in rig.stored["zones"][0]["resources"]
        assert rig.count("failed") == 0


@on_virtual_time
async def test_conflicts_of_which_a_dead_watch_never_tells_are_met_ever_more_seldom_and_said(rig: Reported) -> None:
    async with reporting(rig):
        rig.cluster.is_deaf = True
        changed = json.loads(json.dumps(rig.stored))
        changed["zones"][0]["resources"].append(BATCH)
        rig.cluster.put(changed)
        await asyncio.sleep(10)
        began_s = asyncio.get_running_loop().time()
        rig.feed(LSR)
        await asyncio.sleep(1800)
        tries = [at_s - began_s for at_s in rig.cluster.at("patch")]
        assert tries[:6] == pytest.approx([0, 3, 6, 10, 18, 34], abs=0.1)
        assert gaps(tries)[-5:] == pytest.approx([60] * 5, abs=0.1)
        assert rig.count("conflict") == len(tries)
        status = rig.reporter.status()
        assert (status.state, status.says) == (PartState.FAILING, "409 Conflict: the object has been modified")
        rig.cluster.hear()
        await asyncio.sleep(61)
        assert (len(rig.cluster.patches), rig.reporter.status().state) == (1, PartState.OK)


@on_virtual_time
async def test_one_that_is_deleted_is_made_again(rig: Reported) -> None:
    async with reporting(rig):
        for _ in range(2):
            rig.cluster.put(None)
            await asyncio.sleep(10)
            assert rig.stored
        rig.cluster.is_deaf = True
        rig.cluster.put(None)
        rig.feed(LSR)
        await asyncio.sleep(10)
        rig.cluster.hear()
        await asyncio.sleep(60)
        assert rig.stored
        assert len(rig.cluster.at("create")) == 4


@on_virtual_time
async def test_two_that_make_it_agree(rig: Reported) -> None:
    async with reporting(rig):
        pass
    other = Reported(rig.root, rig.cluster)
    rig.cluster.is_deaf = True
    rig.cluster.faults["list"] = [AWAY]
    async with reporting(other):
        await asyncio.sleep(20)
        assert other.count("unchanged") == 1
    assert len(rig.cluster.at("create")) == 1


@on_virtual_time
async def test_a_server_that_is_away_is_tried_again_ever_more_seldom(rig: Reported) -> None:
    async with reporting(rig):
        rig.cluster.fault["patch"] = AWAY
        began_s = asyncio.get_running_loop().time()
        rig.feed(LSR)
        await asyncio.sleep(3600)
        tries = [at_s - began_s for at_s in rig.cluster.at("patch")]
        assert len(tries) < 70
        assert max(gaps(tries)) <= 61
        status = rig.reporter.status()
        assert (status.state, status.says) == (PartState.FAILING, "Cannot connect")
        del rig.cluster.fault["patch"]
        await asyncio.sleep(61)
        assert len(rig.cluster.patches) == 1
        assert (rig.reporter.status().state, rig.reporter.status().failures) == (PartState.OK, 0)


@pytest.mark.parametrize("verb", ["list", "create"])
@pytest.mark.parametrize("refusal", [NO_KIND, FORBIDDEN], ids=["no such kind", "forbidden"])
def test_a_refusal_is_said_and_at_last_met_every_ten_minutes(
    tmp_path: Path, verb: str, refusal: APIError, caplog: pytest.LogCaptureFixture
) -> None:
    @on_virtual_time
    async def it(rig: Reported) -> None:
        rig.cluster.fault[verb] = refusal
        async with reporting(rig):
            await asyncio.sleep(2 * 3600)
            tries = rig.cluster.at(verb)
            assert len(tries) < 25
            assert gaps(tries)[-5:] == pytest.approx([600] * 5, abs=0.2)
            status = rig.reporter.status()
            has_no_kind = refusal is NO_KIND and verb == "list"
            assert status.state is (PartState.OFF if has_no_kind else PartState.FAILING)
            assert refusal.message in status.says
            assert sum(refusal.message in record.getMessage() for record in caplog.records) == 1
            del rig.cluster.fault[verb]
            await asyncio.sleep(640)
            assert rig.stored
            assert rig.reporter.status().state is PartState.OK

    it(tmp_path)


@on_virtual_time
async def test_a_lost_watch_is_no_reason_to_write(rig: Reported) -> None:
    async with reporting(rig):
        pass
    rig.cluster.faults["watch"] = [AWAY, AWAY]
    async with reporting(rig):
        await asyncio.sleep(60)
        assert (len(rig.cluster.at("create")), rig.cluster.patches) == (1, [])
