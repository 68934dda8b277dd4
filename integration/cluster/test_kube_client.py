"""``koord.kube`` against a real API server: what it lists and watches, through restarts, silence and a lost past."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from integration.cluster import controlplane, objects
from integration.cluster.api import Api
from integration.cluster.controlplane import ADMINS, ControlPlane, Options
from integration.harness.processes import Process, until, wait_for
from koord.kube import kubeconfig
from koord.kube.backoff import Backoff
from koord.kube.client import ANY_VERSION, BURST, NEWEST, Client, PatchType, Preconditions, Selection, connected
from koord.kube.credentials import Credentials
from koord.kube.errors import APIError, Unreachable
from koord.kube.informer import Informer, Pace, as_read
from koord.kube.kind import CONFIG_MAP, LEASE, NODE, POD, Key, Kind
from koord.kube.lease import address_of
from koord.kube.reading import WatchEventType, as_it_is, read_page
from koord.kube.recorder import EventRecorder, EventType, Subject
from koord.kube.stream import EventStream
from koord.model.core import Pod

PODS = 2000
PATH = objects.pods_of("default")
FAST = Pace(stall_s=5.0, backoff=Backoff(0.05, 0.5))
LEASE_KEY = Key("default", "koordinator-manager")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A plane that tests may end and start again, with many pods."""
    with controlplane.private(tmp_path_factory.mktemp("kube") / "plane") as plane:
        pods = [objects.pod(f"pod-{number:04}", {"cpu": "1"}, nodeName=f"n{number % 50}") for number in range(PODS)]
        objects.create_pods(plane.api, "default", pods)
        yield plane


@pytest.fixture
def admin(plane: ControlPlane) -> Iterator[Api]:
    with plane.api() as api:
        yield api


@asynccontextmanager
async def client(config: Path, qps: float = 1000.0, burst: int = BURST) -> AsyncIterator[Client]:
    credentials = Credentials(lambda: kubeconfig.read_kubeconfig([config]), {}, time.monotonic, time.time)
    async with connected(credentials, "koord-test/1", qps, burst) as api:
        yield api


class Copy:
    """What a reader of the stream makes of it."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self.versions: dict[Key, str] = {}

    async def follow(self) -> None:
        while True:
            for event in await self._stream.take(100):
                if event.after is None:
                    del self.versions[event.key]
                else:
                    self.versions[event.key] = event.after.metadata.resource_version

    def is_whole(self, admin: Api) -> bool:
        there = {
            Key("default", item["metadata"]["name"]): item["metadata"]["resourceVersion"] for item in admin.items(PATH)
        }
        return self.versions == there


@asynccontextmanager
async def following(
    plane: ControlPlane, pace: Pace = FAST, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> AsyncIterator[tuple[Informer[Pod, Pod], Copy]]:
    stream = EventStream()
    copy = Copy(stream)
    async with client(plane.admin) as api, asyncio.TaskGroup() as group:
        indexes = {"node": lambda pod: (pod.spec.node_name,)}
        informer = Informer(
            api, POD, time.monotonic, indexes=indexes, stream=stream, pace=pace, sleep=sleep, transform=as_read
        )
        tasks = [group.create_task(informer.run()), group.create_task(copy.follow())]
        await asyncio.wait_for(informer.synced.wait(), 30)
        yield informer, copy
        for task in tasks:
            task.cancel()


def change(admin: Api, mark: str) -> None:
    """A pod that is new, one that is gone, one that is other."""
    admin.create(PATH, objects.pod(f"new-{mark}", {"cpu": "1"}))
    admin.delete(f"{PATH}/{admin.items(PATH, limit='1')[0]['metadata']['name']}")
    admin.merge(f"{PATH}/pod-1500", {"metadata": {"labels": {"mark": mark}}})


async def test_two_thousand_pods(plane: ControlPlane, admin: Api, figure: Callable[[str], None]) -> None:
    begun_s = time.monotonic()
    async with following(plane) as (informer, copy):
        figure(f"{len(informer.objects)} pods listed in {time.monotonic() - begun_s:.2f} s")
        assert len(informer.objects) == PODS
        assert len(informer.indexed("node", "n7")) == PODS // 50
        begun_s = time.monotonic()
        await asyncio.to_thread(change, admin, "one")
        await until(lambda: copy.is_whole(admin), "the changes to be seen")
        figure(f"three changes seen after {time.monotonic() - begun_s:.2f} s")
        assert informer.counts.lists == informer.counts.watches == 1
        assert not informer.unreadable


async def test_decoding(plane: ControlPlane, figure: Callable[[str], None]) -> None:
    async with client(plane.admin) as api:
        document = json.loads(await api.get_path(PATH))
    document["items"] = (document["items"] * 3)[:5000]
    body = json.dumps(document).encode()
    begun_s = time.thread_time()
    page = read_page(POD, body, as_it_is)
    figure(f"5,000 pods ({len(body) / 1e6:.0f} MB) decoded in {time.thread_time() - begun_s:.3f} s of CPU time")
    assert len(page.entries) == 5000
    assert all(entry.object is not None for entry in page.entries)


@pytest.mark.parametrize("part", ["api_server", "etcd"])
async def test_a_restart(plane: ControlPlane, admin: Api, part: str) -> None:
    async with following(plane) as (informer, copy):
        server = getattr(plane, part)
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(1)
        assert len(informer.objects) >= PODS - 10
        await asyncio.to_thread(server.start)
        await until(admin.healthy, "the API to serve")
        await asyncio.to_thread(change, admin, part.replace("_", "-"))
        await until(lambda: copy.is_whole(admin), "the changes to be seen")
        await until(lambda: informer.error == "", "the error to be over")


async def test_a_server_that_says_nothing(plane: ControlPlane, admin: Api) -> None:
    """A stopped process keeps its connections: only silence tells."""
    async with following(plane, Pace(stall_s=5.0, backoff=Backoff(0.05, 0.5))) as (informer, copy):
        await asyncio.to_thread(change, admin, "speech")
        await until(lambda: copy.is_whole(admin), "the watch to be open: a request without an answer is no silence")
        plane.api_server.pause()
        try:
            await until(lambda: informer.counts.stalls > 0, "the silence to be noticed")
        finally:
            plane.api_server.resume()
        await asyncio.to_thread(change, admin, "silence")
        await until(lambda: copy.is_whole(admin), "the changes to be seen")


async def test_a_past_that_is_lost(plane: ControlPlane, admin: Api) -> None:
    """The server restarts, things change, the past is compacted, it restarts again; only then does a watch go on."""
    gate = asyncio.Event()

    async def sleep(_: float) -> None:
        await gate.wait()

    async with following(plane, sleep=sleep) as (informer, copy):
        await asyncio.to_thread(plane.api_server.restart)
        await asyncio.to_thread(change, admin, "lost")
        await asyncio.to_thread(compact, plane, admin)
        await asyncio.to_thread(plane.api_server.restart)
        gate.set()
        await until(lambda: copy.is_whole(admin), "the changes to be seen")
        assert informer.counts.expired >= 1
        assert informer.counts.lists >= 2


async def test_a_watch_of_a_past_that_is_lost(plane: ControlPlane, admin: Api) -> None:
    await asyncio.to_thread(compact, plane, admin)
    async with client(plane.admin) as api:
        with pytest.raises(APIError) as caught:
            async with aclosing(api.watch(POD, "1")) as changes:
                async for _ in changes:
                    break
    assert caught.value.is_expired


def compact(plane: ControlPlane, admin: Api) -> None:
    """By etcd's own gateway."""
    revision = admin.get(PATH, limit="1")["metadata"]["resourceVersion"]
    url = plane.etcd.argv[[str(word).startswith("--listen-client-urls") for word in plane.etcd.argv].index(True)]
    body = json.dumps({"revision": revision, "physical": True}).encode()
    request = urllib.request.Request(f"{str(url).partition('=')[2]}/v3/kv/compaction", body)
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


async def test_a_list_whose_moment_is_lost_between_two_pages(tmp_path: Path) -> None:
    """Of a server without a cache of its own, which would remember the moment for longer than etcd."""
    pods = [objects.pod(f"pod-{number:04}", {"cpu": "1"}) for number in range(30)]
    with controlplane.private(tmp_path / "plane", Options(api_server_flags=("--watch-cache=false",))) as plane:
        objects.create_pods(plane.api, "default", pods)
        async with client(plane.admin, qps=2.0, burst=1) as api:
            listing = asyncio.create_task(api.list(POD, page_size=10))
            await asyncio.sleep(0.4)
            with plane.api() as admin:
                await asyncio.to_thread(admin.create, PATH, objects.pod("made-meanwhile", {"cpu": "1"}))
                await asyncio.to_thread(compact, plane, admin)
            page = await listing
    names = [entry.key.name for entry in page.entries]
    assert sorted(names) == sorted([*(pod["metadata"]["name"] for pod in pods), "made-meanwhile"])


async def test_bookmarks(plane: ControlPlane, admin: Api) -> None:
    """A client whose selected objects do not change still learns the server's revision, if any object changes."""
    elsewhere = Selection(namespace="kube-system")

    async def change_now_and_then() -> None:
        for number in range(4):
            await asyncio.sleep(2)
            await asyncio.to_thread(change, admin, f"bookmark-{number}")

    async with client(plane.admin) as api:
        page = await api.list(POD, elsewhere)
        changing = asyncio.create_task(change_now_and_then())
        async with aclosing(api.watch(POD, page.resource_version, elsewhere, timeout_s=10)) as changes:
            said = [each async for each in changes]
        await changing
    assert [each.type for each in said] == [WatchEventType.BOOKMARK] * len(said)
    assert int(said[-1].entry.resource_version) > int(page.resource_version)


# writes


async def test_writes_that_meet_others(plane: ControlPlane, admin: Api) -> None:
    key = Key("default", "shared")
    async with client(plane.admin) as api:
        made = await api.create(CONFIG_MAP, {"metadata": {"name": "shared"}, "data": {"a": "1"}}, "default")
        version = made.metadata.resource_version
        await api.patch(CONFIG_MAP, key, {"data": {"b": "2"}})
        with pytest.raises(APIError) as caught:
            await api.patch(CONFIG_MAP, key, {"metadata": {"resourceVersion": version}, "data": {"a": "3"}})
        assert caught.value.is_conflict
        with pytest.raises(APIError) as caught:
            await api.create(CONFIG_MAP, {"metadata": {"name": "shared"}}, "default")
        assert caught.value.is_already_exists
        with pytest.raises(APIError) as caught:
            await api.delete(CONFIG_MAP, key, Preconditions(uid="of another"))
        assert caught.value.is_conflict
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": {"c": "3"}}
        applied = await api.patch(CONFIG_MAP, key, body, PatchType.APPLY, field_manager="koord", force=True)
        assert applied.content["data"] == {"a": "1", "b": "2", "c": "3"}
        removal = [{"op": "remove", "path": "/data/a"}]
        await api.patch(CONFIG_MAP, key, removal, PatchType.JSON)
        await api.delete(CONFIG_MAP, key, Preconditions(uid=made.metadata.uid))
        with pytest.raises(APIError) as caught:
            await api.get(CONFIG_MAP, key)
        assert caught.value.is_not_found


async def test_a_nodes_status(plane: ControlPlane, admin: Api) -> None:
    objects.create_nodes(plane.api, [objects.node("kube-1")])
    async with client(plane.admin) as api:
        offer = {"status": {"allocatable": {"kubernetes.io/batch-cpu": "1500"}}}
        node = await api.patch(NODE, Key("", "kube-1"), offer, PatchType.STRATEGIC, subresource="status")
        assert node.status.allocatable["kubernetes.io/batch-cpu"] == "1500"
        withdrawal = {"status": {"allocatable": {"kubernetes.io/batch-cpu": None}}}
        node = await api.patch(NODE, Key("", "kube-1"), withdrawal, subresource="status")
        assert "kubernetes.io/batch-cpu" not in node.status.allocatable
        assert node.status.allocatable["cpu"] == "16"


async def test_who_may_not(plane: ControlPlane) -> None:
    async with client(plane.kubeconfig("bob", ["dev"])) as api:
        with pytest.raises(APIError) as caught:
            await api.list(POD)
    assert (caught.value.status, caught.value.reason) == (403, "Forbidden")


async def test_evictions(plane: ControlPlane, admin: Api) -> None:
    await asyncio.to_thread(admin.create, PATH, objects.pod("guarded", {"cpu": "1"}, labels={"app": "guarded"}))
    await asyncio.to_thread(admin.create, PATH, objects.pod("free", {"cpu": "1"}))
    budget = {
        "metadata": {"name": "guarded"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
    }
    await asyncio.to_thread(admin.create, "/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await asyncio.to_thread(admin.merge, f"{PATH}/guarded/status", ready)
    async with client(plane.admin) as api:
        with pytest.raises(APIError) as caught:
            await api.evict(Key("default", "guarded"))
        assert caught.value.blocked_by_pdb
        assert api.retries == 0
        await api.evict(Key("default", "free"), grace_period_s=0)
        with pytest.raises(APIError):
            await api.get(POD, Key("default", "free"))


async def test_bindings(plane: ControlPlane) -> None:
    objects.create_nodes(plane.api, [objects.node(name) for name in ("first", "second")])
    key = Key("default", "unplaced")
    async with client(plane.admin) as api:
        made = await api.create(POD, objects.pod("unplaced", {"cpu": "1"}), "default")
        with pytest.raises(APIError, match="UID") as caught:
            await api.bind(key, "of another", "first")
        assert caught.value.is_conflict
        await api.bind(key, made.metadata.uid, "first")
        assert (await api.get(POD, key)).spec.node_name == "first"
        for node in ("first", "second"):
            with pytest.raises(APIError, match="already assigned") as bound:
                await api.bind(key, made.metadata.uid, node)
            assert bound.value.is_conflict
        with pytest.raises(APIError) as caught:
            await api.bind(Key("default", "nowhere"), made.metadata.uid, "first")
        assert caught.value.is_not_found


@pytest.mark.parametrize("version", [NEWEST, ANY_VERSION, "not older"])
async def test_lists_by_version(plane: ControlPlane, version: str) -> None:
    """From the database in pages, and from the server's cache in one piece."""
    async with client(plane.admin) as api:
        newest = await api.list(POD)
        least = newest.resource_version if version == "not older" else version
        page = await api.list(POD, page_size=500, transform=as_it_is, resource_version=least)
        assert {entry.key for entry in page.entries} == {entry.key for entry in newest.entries}
        assert not [entry.problem for entry in page.entries if entry.object is None]


async def test_a_watch_that_begins_with_the_list(plane: ControlPlane) -> None:
    """As this release of the server lets one by default."""
    async with client(plane.admin) as api:
        for kind in (POD, NODE):
            listed = {entry.key for entry in (await api.list(kind)).entries}
            told = set()
            async with aclosing(api.watch(kind, NEWEST, begins_with_list=True)) as changes:
                async for change in changes:
                    if change.ends_list:
                        break
                    told.add(change.entry.key)
            assert told == listed


async def test_events(plane: ControlPlane) -> None:
    async with client(plane.admin) as api:
        recorder = EventRecorder(api, "koord-manager", "manager-0", time.time)
        running = asyncio.create_task(recorder.run())
        objects.create_nodes(plane.api, [objects.node("told")])
        await api.create(POD, objects.pod("told", {}, {}), "default")
        await api.create(CONFIG_MAP, {"metadata": {"name": "told", "namespace": "default"}}, "default")
        keys: tuple[tuple[Kind[Any], Key], ...] = (
            (NODE, Key("", "told")),
            (POD, Key("default", "told")),
            (CONFIG_MAP, Key("default", "told")),
        )
        for kind, key in keys:
            found = await api.get(kind, key)
            recorder.record(Subject.of(kind, found.metadata), EventType.WARNING, "Told", f"a word about a {kind}")
        recorder.close()
        await running
        assert (recorder.written, recorder.failed) == (3, 0)
    for kind, key in keys:
        described = plane.kubectl("describe", kind.plural, key.name)
        assert f"a word about a {kind}" in described.partition("Events:")[2], described


# credentials


async def test_a_certificate_that_is_replaced(plane: ControlPlane) -> None:
    now_s = 0.0
    path = plane.kubeconfig("carol", ADMINS)
    credentials = Credentials(lambda: kubeconfig.read_kubeconfig([path]), {}, lambda: now_s, time.time)
    async with connected(credentials, "koord-test/1") as api:
        await api.list(NODE)
        plane.authority.issue_client("carol", ADMINS, timedelta(seconds=-1))
        await api.list(NODE)
        now_s += 10
        with pytest.raises(APIError, match="401 Unauthorized"):
            await api.list(NODE)
        plane.authority.issue_client("carol", ADMINS)
        now_s += 10
        await api.list(NODE)


async def test_an_authority_that_is_not_the_servers(plane: ControlPlane) -> None:
    settings = kubeconfig.read_kubeconfig([plane.admin])
    other = kubeconfig.RESTConfig(settings.server, ca=None)
    credentials = Credentials(lambda: other, {}, time.monotonic, time.time)
    async with connected(credentials, "koord-test/1") as api:
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await api.get_path("/version")


# leases

CANDIDATE = """
import asyncio, signal, sys, time
from pathlib import Path
from koord.kube.client import CallLimits, connected
from koord.kube.credentials import Credentials
from koord.kube.kind import Key
from koord.kube.kubeconfig import read_kubeconfig
from koord.kube.lease import Election, Identity

async def main(config, name):
    credentials = Credentials(lambda: read_kubeconfig([Path(config)]), {}, time.monotonic, time.time)
    async with connected(credentials, "koord-test/1") as api:
        leases = api.with_limits(CallLimits(tries=1, timeout_s=3.0))
        election = Election(leases, Key("default", "koordinator-manager"), Identity(name, "127.0.0.1:1"))
        task = asyncio.create_task(election.run(lambda term: asyncio.Event().wait()))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await asyncio.wait([task])

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("number", "limit_s"), [(signal.SIGTERM, 3.0), (signal.SIGKILL, 20.0)], ids=["SIGTERM", "SIGKILL"]
)
async def test_a_leader_that_ends_is_replaced(
    plane: ControlPlane,
    admin: Api,
    tmp_path: Path,
    figure: Callable[[str], None],
    number: signal.Signals,
    limit_s: float,
) -> None:
    def leader() -> str:
        path = LEASE.object_path(LEASE_KEY)
        return str(admin.get(path)["spec"].get("holderIdentity", "")) if admin.exists(path) else ""

    def start(name: str) -> Process:
        return Process([sys.executable, "-c", CANDIDATE, plane.admin, name], tmp_path / f"{name}.log")

    def take_over() -> float:
        first = start(f"first-{number.name}")
        try:
            wait_for(lambda: leader().startswith(f"first-{number.name}@") or None, 30, "the first to lead")
            second = start("second")
            try:
                time.sleep(4)
                assert address_of(leader()) == "127.0.0.1:1"
                first.signal(number)
                begun_s = time.monotonic()
                wait_for(lambda: leader().startswith("second@") or None, limit_s, "the second to lead")
                return time.monotonic() - begun_s
            finally:
                second.stop(5)
        finally:
            first.kill()

    figure(f"a leader is replaced {await asyncio.to_thread(take_over):.1f} s after {number.name}")
