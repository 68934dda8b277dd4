"""Evictions by a node's credential: what a real API server answers, and a pod of a real kubelet from order to end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from integration.cluster import controlplane, objects
from integration.cluster.api import Api, Object
from integration.cluster.controlplane import ControlPlane
from integration.cluster.node import Node
from integration.harness import cgroups
from integration.harness.images import BUSYBOX
from integration.harness.processes import until, wait_for
from koord.host.undo import UndoRecord
from koord.kube import kubeconfig
from koord.kube.client import CallLimits, Client, connected
from koord.kube.credentials import Credentials
from koord.kube.kind import Key
from koord.kube.recorder import EventRecorder
from koord.model.eventreasons import EVICTED, NOT_EVICTED
from qosd.act.cristop import CRIStop
from qosd.act.evictor import EvictionRefused, Evictor
from qosd.act.journal import Journal, JournalEntry
from qosd.cluster.apieviction import CALL_S, evicting_by_api
from qosd.cluster.evictionrequest import BOUNDS, EvictionBounds, EvictionRequest, NotByAPI
from qosd.decide.decision import Decision, Eviction, Stage
from qosd.decide.reliefstate import Relief
from qosd.decide.runner import Decisions, StrategyResult, StrategyStatus
from qosd.decide.shortage import Resource, Shortage, Victims
from qosd.model.snapshot import EvictionPhase
from qosd.pods.cri import CRIClient

PODS = objects.pods_of("default")
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
EVENTS = "/api/v1/namespaces/default/events"
NODE_A, NODE_B = "node-a", "node-b"
CROWD, EARLY, RESTARTS = 400, 50, 4
SHORT = EvictionBounds(refused_s=2.0, unanswered_s=5.0, gone_s=20.0, pause_s=0.1)
WHY = "beMemoryEvict: 162.4 MiB of memory must be freed (72 % of the pods' limit is in use); evict: {}"
_S = 1_000_000_000


@asynccontextmanager
async def node_client(plane: ControlPlane, name: str) -> AsyncIterator[Client]:
    """What kubelet of node ``name`` may do; one try for each request."""
    config = plane.node_kubeconfig(name)
    credentials = Credentials(lambda: kubeconfig.read_kubeconfig([config]), {}, time.monotonic, time.time)
    async with connected(credentials, "koord-test/1") as client:
        yield client.with_limits(CallLimits(tries=1, timeout_s=CALL_S))


# requests, of pods without a kubelet


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd and an API server that a test may end and start again."""
    with controlplane.private(tmp_path_factory.mktemp("eviction") / "plane") as plane:
        yield plane


@pytest.fixture
def admin(plane: ControlPlane) -> Iterator[Api]:
    with plane.api() as api:
        yield api


def bound(plane: ControlPlane, admin: Api, name: str, node: str = NODE_A) -> Eviction:
    """A pod that runs on ``node``, as far as the API knows; the order to evict it."""
    admin.create(PODS, objects.pod(name, {"cpu": "1"}, labels={"app": name}, nodeName=node))
    objects.run_pods(plane.api, "default", [name])
    return order(admin, name)


def order(api: Api, name: str) -> Eviction:
    uid = api.get(f"{PODS}/{name}")["metadata"]["uid"]
    return Eviction(uid, f"default/{name}", WHY.format(f"default/{name}"), f"/kubepods/burstable/pod{uid}")


def budget(admin: Api, name: str, app: str, allowed: int | None) -> None:
    """A budget for one pod. ``allowed``: the disruptions that a controller says it has left; None: it says nothing."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
    admin.create(BUDGETS, {"metadata": {"name": name}, "spec": spec})
    if allowed is not None:
        allow(admin, name, allowed)


def allow(admin: Api, name: str, allowed: int) -> None:
    status = {
        "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1 + allowed, "desiredHealthy": 1,
        "expectedPods": 1 + allowed,
    }  # fmt: skip
    admin.merge(f"{BUDGETS}/{name}/status", {"status": status})


async def requested(
    plane: ControlPlane,
    eviction: Eviction,
    node: str = NODE_A,
    bounds: EvictionBounds = SHORT,
    told: Callable[[], Any] = str,
) -> tuple[str, list[str]]:
    """How the request ends, and the refusals on its way. ``told``: called for each refusal."""
    steps: list[str] = []

    def tell(_: Eviction, result: str, why: str) -> None:
        steps.append(why)
        told()

    async with node_client(plane, node) as client:
        key = Key(*eviction.pod.split("/"))
        try:
            return await EvictionRequest(client, eviction, key, bounds, tell).made(), steps
        except (EvictionRefused, NotByAPI) as error:
            return f"{type(error).__name__}: {error}", steps


async def test_a_nodes_credential_evicts_the_pods_of_that_node(plane: ControlPlane, admin: Api) -> None:
    eviction = bound(plane, admin, "own")
    assert await requested(plane, eviction) == ("the API server has agreed", [])
    assert not admin.exists(f"{PODS}/own")


async def test_and_is_refused_for_another_nodes(plane: ControlPlane, admin: Api) -> None:
    eviction = bound(plane, admin, "others", NODE_B)
    end, _ = await requested(plane, eviction)
    assert end.startswith("NotByAPI: the API server does not do it: 403 Forbidden: ")
    assert f"node {NODE_A} can only evict pods with spec.nodeName set to itself" in end
    assert "deletionTimestamp" not in admin.get(f"{PODS}/others")["metadata"]
    assert (await requested(plane, eviction, NODE_B))[0] == "the API server has agreed"


async def test_a_budget_is_named_and_waited_on(plane: ControlPlane, admin: Api) -> None:
    eviction = bound(plane, admin, "web")
    budget(admin, "web-pdb", "web", 0)
    refusal = (
        "api eviction refused by PodDisruptionBudget web-pdb: "
        "The disruption budget web-pdb needs 1 healthy pods and has 1 currently"
    )
    assert await requested(plane, eviction) == (f"EvictionRefused: {refusal}, for 2 s", [refusal])
    assert "deletionTimestamp" not in admin.get(f"{PODS}/web")["metadata"]
    gives_way = await requested(plane, eviction, bounds=BOUNDS, told=lambda: allow(admin, "web-pdb", 1))
    assert gives_way == ("the API server has agreed", [refusal])


async def test_a_budget_that_the_server_has_not_counted_yet_says_when_to_come_back(
    plane: ControlPlane, admin: Api
) -> None:
    eviction = bound(plane, admin, "new")
    budget(admin, "new-pdb", "new", None)
    begun_s = time.monotonic()
    end, steps = await requested(plane, eviction, bounds=BOUNDS, told=lambda: allow(admin, "new-pdb", 1))
    assert end == "the API server has agreed"
    assert "PodDisruptionBudget new-pdb: The disruption budget new-pdb is still being processed" in steps[0]
    assert time.monotonic() - begun_s >= 10, "as the server's Retry-After says"


async def test_two_budgets_for_one_pod_forbid_it(plane: ControlPlane, admin: Api) -> None:
    eviction = bound(plane, admin, "twice")
    for name in ("one-pdb", "other-pdb"):
        budget(admin, name, "twice", 1)
    end, _ = await requested(plane, eviction)
    assert end.startswith("EvictionRefused: api eviction refused: This pod has more than one PodDisruptionBudget")


async def test_a_pod_that_is_gone_or_has_been_made_anew(
    plane: ControlPlane, admin: Api, figure: Callable[[str], None]
) -> None:
    eviction = bound(plane, admin, "renewed")
    admin.delete(f"{PODS}/renewed", gracePeriodSeconds="0")
    assert (await requested(plane, eviction))[0] == "the API server no longer has the pod"
    bound(plane, admin, "renewed")
    begun_s = time.monotonic()
    assert (await requested(plane, eviction))[0] == "the API server has another pod of that name"
    figure(f"eviction of a pod that has been made anew: noticed after {time.monotonic() - begun_s:.1f} s")
    assert admin.exists(f"{PODS}/renewed")


async def test_an_api_server_that_comes_back(plane: ControlPlane, admin: Api) -> None:
    eviction = bound(plane, admin, "patient")
    admin.close()
    await asyncio.to_thread(plane.api_server.stop)
    away, _ = await requested(plane, eviction, bounds=EvictionBounds(unanswered_s=1.0))
    assert away.startswith("NotByAPI: the API server has not done it in 1 s: Cannot connect")
    request = asyncio.create_task(requested(plane, eviction, bounds=EvictionBounds(unanswered_s=60.0)))
    await asyncio.to_thread(plane.api_server.start)
    assert (await request)[0] == "the API server has agreed"


async def test_an_api_server_that_has_not_read_its_pods_yet(plane: ControlPlane, admin: Api) -> None:
    """For some tenths of a second it finds no pod, and forbids the node to read any, as if all were gone. Its roles it
    has read before or after that."""
    crowd = objects.pod("crowd", {"cpu": "1"}, nodeName=NODE_B)
    crowd["metadata"] |= {"annotations": {"padding": "x" * 100_000}}
    for number in range(CROWD):
        crowd["metadata"]["name"] = f"crowd-{number}"
        admin.create(PODS, crowd)
    for restart in range(RESTARTS):
        evictions = [bound(plane, admin, f"early-{restart}-{number}") for number in range(EARLY)]
        admin.close()
        await asyncio.to_thread(plane.api_server.stop)
        starting = asyncio.create_task(asyncio.to_thread(plane.api_server.start))
        assert await all_requested(plane, evictions) == {"the API server has agreed"}
        await starting
        assert not [each for each in evictions if admin.exists(f"{PODS}/{each.pod.removeprefix('default/')}")]


async def all_requested(plane: ControlPlane, evictions: Sequence[Eviction]) -> set[str]:
    """How the requests end, all made at once by one client."""
    bounds = EvictionBounds(unanswered_s=60.0)
    async with node_client(plane, NODE_A) as client:
        requests = [
            EvictionRequest(client, each, Key(*each.pod.split("/")), bounds, lambda *_: None) for each in evictions
        ]
        return set(await asyncio.gather(*(request.made() for request in requests)))


# a real kubelet, a real runtime


class Rig:
    """An evictor as koord-qosd has one, on the real node, with its journal and its Events."""

    def __init__(self, evictor: Evictor, journal: Journal) -> None:
        self._evictor, self._journal = evictor, journal
        self._ticks = 0

    def order(self, eviction: Eviction, left_s: float | None = None) -> str:
        """``left_s``: when memory is all gone, as the shortage behind it says."""
        self._ticks += 1
        lack = Shortage(Resource.MEMORY_BYTES, 1, Victims(None, "BEMemoryEvict"), (), "97 % are in use", left_s=left_s)
        results = (
            StrategyResult("beMemoryEvict", Stage.RELIEF, StrategyStatus.ACTIVE, Decision("", shortages=(lack,))),
            StrategyResult("eviction", Stage.RELIEF, StrategyStatus.ACTIVE, Relief("", evictions=(eviction,))),
        )
        decisions = Decisions(self._ticks, time.time_ns(), time.monotonic_ns(), results)
        (outcome,) = self._evictor.apply(decisions, self._evictor.plan(decisions))
        return f"{outcome.result} {outcome.detail}"

    async def ended(self, eviction: Eviction, limit_s: float = 60.0) -> EvictionPhase:
        """How the attempt ended."""
        async with asyncio.timeout(limit_s):
            while self._evictor.under_way[eviction.uid].phase is EvictionPhase.STOPPING:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return self._evictor.under_way[eviction.uid].phase

    def rows(self, eviction: Eviction) -> list[JournalEntry]:
        assert self._journal.flush()
        return [*reversed(self._journal.query(pod=eviction.pod))]


@asynccontextmanager
async def evicting(plane: ControlPlane, node: Node, directory: Path, bounds: EvictionBounds) -> AsyncIterator[Rig]:
    loop = asyncio.get_running_loop()
    runtime = CRIClient(f"unix://{node.runtime}", 5.0, loop)
    undo = UndoRecord(directory / "undo", "boot")
    with Journal(directory / "journal") as journal:
        evictor = Evictor(undo, journal, CRIStop(runtime, cgroups.existing), loop)
        async with node_client(plane, node.name) as client:
            recorder = EventRecorder(client, "koordlet", node.name, time.time)
            writing = asyncio.create_task(recorder.run())
            with evicting_by_api(evictor, client, recorder, bounds):
                yield Rig(evictor, journal)
            recorder.close()
            await writing
            assert (recorder.failed, recorder.dropped) == (0, 0)
        await evictor.close()
    runtime.close()
    undo.close()


def running(api: Api, name: str) -> Eviction:
    """A Ready pod of the real node, which kubelet starts again and again; the order to evict it."""
    container = {"name": "main", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["/bin/sleep", "1000000"]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1, "restartPolicy": "Always"}
    api.create(PODS, {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
    wait_for(lambda: objects.ready(api.get(f"{PODS}/{name}")) or None, 60, f"pod {name} to be Ready")
    return order(api, name)


def said_of(api: Api, name: str) -> dict[str, str]:
    """Messages of Koord's Events on a pod, by reason."""
    said: list[Object] = api.items(EVENTS, fieldSelector=f"involvedObject.name={name}")
    return {str(each["reason"]): str(each["message"]) for each in said if each["reportingComponent"] == "koordlet"}


def guard(api: Api, name: str) -> str:
    """A budget that a pod cannot spare anything of, counted by the real controller; its path."""
    path = f"{BUDGETS}/{name}-pdb"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
    api.create(BUDGETS, {"metadata": {"name": f"{name}-pdb"}, "spec": spec})
    wait_for(lambda: api.get(path).get("status", {}).get("currentHealthy") == 1 or None, 30, "the budget to be counted")
    return path


async def test_a_pod_from_the_order_to_its_end(
    node: Node, whole_control_plane: ControlPlane, whole_api: Api, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    plane, api = whole_control_plane, whole_api
    eviction = await asyncio.to_thread(running, api, "hoard")
    path = await asyncio.to_thread(guard, api, "hoard")
    async with evicting(plane, node, tmp_path, SHORT) as rig:
        assert rig.order(eviction).startswith("started")
        assert await rig.ended(eviction) is EvictionPhase.FAILED
        assert objects.ready(api.get(f"{PODS}/hoard")), "a budget is respected"
        await until(lambda: NOT_EVICTED in said_of(api, "hoard"), "the Event that it is refused")
        await asyncio.to_thread(api.delete, path)
        await asyncio.sleep(10)
        assert rig.order(eviction).startswith("started")
        assert await rig.ended(eviction) is EvictionPhase.STOPPED
        await until(lambda: not api.exists(f"{PODS}/hoard"), "the pod's object to be gone")
        await until(lambda: EVICTED in said_of(api, "hoard"), "the Event that it is evicted")
        rows = rig.rows(eviction)
    assert said_of(api, "hoard")[EVICTED] == eviction.why
    refusal = "api eviction refused by PodDisruptionBudget hoard-pdb: "
    assert refusal in said_of(api, "hoard")[NOT_EVICTED]
    assert [row.result for row in rows] == ["stopping", "refused", "failed", "stopping", "stopping", "done"]
    assert rows[1].why.startswith(refusal)
    assert rows[4].why == "the API server has agreed, and kubelet ends the pod"
    figure(plane.kubectl("get", "events", "--field-selector", "involvedObject.name=hoard,source=koordlet"))
    figure("\n".join(f"{row.result}: {row.why}" for row in rows))


async def test_in_an_emergency_the_runtime_stops_it_whatever_the_budget_says(
    node: Node, whole_control_plane: ControlPlane, whole_api: Api, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    plane, api = whole_control_plane, whole_api
    eviction = await asyncio.to_thread(running, api, "urgent")
    path = await asyncio.to_thread(guard, api, "urgent")
    try:
        async with evicting(plane, node, tmp_path, BOUNDS) as rig:
            assert rig.order(eviction).startswith("started")
            await until(lambda: len(rig.rows(eviction)) == 2, "the budget to refuse it")
            begun_s = time.monotonic()
            assert "is under way" in rig.order(eviction, left_s=3.0)
            assert await rig.ended(eviction, 20) is EvictionPhase.STOPPED
            figure(f"from the emergency to the end of the containers: {time.monotonic() - begun_s:.1f} s")
            rows = rig.rows(eviction)
            await until(lambda: EVICTED in said_of(api, "urgent"), "the Event")
        fell_back = "fell back to CRI because it is too late in 3 s (beMemoryEvict: 97 % are in use)"
        assert [row.result for row in rows] == ["stopping", "refused", "stopping", "done"]
        assert rows[2].why == fell_back
        assert said_of(api, "urgent")[EVICTED] == f"{eviction.why}; {fell_back}"
        await until(lambda: _restarts(api, "urgent") >= 1, "kubelet to start the container again: the pod is there")
        figure(plane.kubectl("get", "events", "--field-selector", "involvedObject.name=urgent,source=koordlet"))
    finally:
        await asyncio.to_thread(api.delete, path)
        await asyncio.to_thread(api.delete, f"{PODS}/urgent")


async def test_without_an_api_server_the_runtime_stops_it(
    node: Node, whole_control_plane: ControlPlane, whole_api: Api, tmp_path: Path
) -> None:
    plane, api = whole_control_plane, whole_api
    eviction = await asyncio.to_thread(running, api, "alone")
    async with evicting(plane, node, tmp_path, SHORT) as rig:
        plane.api_server.pause()
        try:
            assert rig.order(eviction).startswith("started")
            assert await rig.ended(eviction, 60) is EvictionPhase.STOPPED
            rows = rig.rows(eviction)
        finally:
            plane.api_server.resume()
        assert rows[1].why.startswith("fell back to CRI because the API server has not done it in 5 s: ")
        await until(lambda: EVICTED in said_of(api, "alone"), "the Event, when there is a server again")
    await asyncio.to_thread(api.delete, f"{PODS}/alone")


def _restarts(api: Api, name: str) -> int:
    statuses = api.get(f"{PODS}/{name}")["status"].get("containerStatuses") or []
    return sum(int(each["restartCount"]) for each in statuses)
