"""Leadership: never two at one moment whatever network, clocks and processes do; and how soon the next one leads.

On virtual time. ``Replica`` is a process with a clock of its own and a network that hangs, loses requests and loses
answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Mapping
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.kube.errors import APIError, KubeError, NotLeader, Unreachable
from koord.kube.kind import Key, Kind, T
from koord.kube.lease import Election, Identity, Term, Timing, address_of
from koord.kube.reading import read_object
from tests.kube import virtualtime
from tests.support.waiting import until

KEY = Key("koordinator-system", "koordinator-manager")


TIMING = Timing()


def now_s() -> float:
    return asyncio.get_running_loop().time()


class Store:
    """The Lease as the API server has it."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.written_s = 0.0

    def get(self) -> dict[str, Any]:
        if self.lease is None:
            raise APIError(404, "NotFound", "")
        return deepcopy(self.lease)

    def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if self.lease is not None:
            raise APIError(409, "AlreadyExists", "")
        return self._stored(dict(body))

    def patch(self, body: Mapping[str, Any]) -> dict[str, Any]:
        lease = self.get()
        if body["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]:
            raise APIError(409, "Conflict", "")
        metadata = lease["metadata"] | body["metadata"]
        return self._stored({"metadata": metadata, "spec": lease.get("spec", {}) | body["spec"]})

    def _stored(self, lease: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.written_s = now_s()
        lease["metadata"] = dict(lease["metadata"]) | {"resourceVersion": str(self.version)}
        self.lease = lease
        return deepcopy(lease)


class Network:
    """Between one process and the store. ``weather`` says of each call what becomes of it."""

    def __init__(self, store: Store, weather: Any = None) -> None:
        self._store, self._weather = store, weather or (lambda: ("fine", 0.01, 0.01))
        self.calls = 0

    async def get(self, kind: Kind[T], key: Key) -> T:
        return await self._call(kind, self._store.get)

    async def create(self, kind: Kind[T], body: Mapping[str, Any], namespace: str) -> T:
        assert namespace == KEY.namespace
        return await self._call(kind, self._store.create, body)

    async def patch(self, kind: Kind[T], key: Key, body: Mapping[str, Any]) -> T:
        return await self._call(kind, self._store.patch, body)

    async def _call(self, kind: Kind[T], do: Any, *arguments: Any) -> T:
        """A request that hangs may arrive all the same, after its sender has given it up."""
        self.calls += 1
        fate, there_s, back_s = self._weather()
        if fate == "late":
            asyncio.get_running_loop().call_later(there_s + 20, _quietly, do, *arguments)
            await asyncio.sleep(3600)
        await asyncio.sleep(there_s)
        if fate == "lost":
            raise Unreachable("lost", may_have_arrived=True)
        answer = do(*arguments)
        await asyncio.sleep(back_s)
        if fate == "answer lost":
            raise Unreachable("lost", may_have_arrived=True)
        return read_object(kind, msgspec.json.encode(answer))


def _quietly(do: Any, *arguments: Any) -> None:
    with contextlib.suppress(KubeError):
        do(*arguments)


class Replica:
    """A process that wants to lead. Its clock stands at ``offset_s`` and runs at ``rate``."""

    def __init__(
        self,
        name: str,
        network: Network,
        offset_s: float = 0.0,
        rate: float = 1.0,
        seed: int = 0,
        timing: Timing = TIMING,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.network, self.rate = name, network, rate
        self.terms: list[Term] = []
        self.ended: list[float] = []
        self.election = Election(
            network,
            KEY,
            Identity(name, f"{name}:1"),
            timing,
            clock=lambda: offset_s + now_s() * rate,
            wall_s=lambda: 1e9 + offset_s + now_s(),
            sleep=lambda seconds: asyncio.sleep(seconds / rate),
            random=random.Random(seed).random,
            annotations=lambda: annotations or {},
        )

    async def lead(self, term: Term) -> None:
        self.terms.append(term)
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append(now_s())

    def start(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.election.run(self.lead))

    def is_leading(self) -> bool:
        return self.election.term is not None


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def virtual(main: Coroutine[Any, Any, None]) -> None:
    virtualtime.run(main)


@pytest.mark.parametrize("times", [(10, 10.0, 2.0), (15, 2.0, 2.0), (15, 2.3, 2.0), (15, 10.0, 0.0)], ids=str)
def test_times_that_do_not_follow_each_other(times: tuple[int, float, float]) -> None:
    with pytest.raises(ValueError):
        Timing(*times)


@pytest.mark.parametrize(
    ("holder", "address"),
    [("manager-0_1234@10.0.0.1:9443", "10.0.0.1:9443"), ("manager-0_1234", ""), ("", ""), ("a@b@[::1]:1", "[::1]:1")],
)
def test_addresses(holder: str, address: str) -> None:
    assert address_of(holder) == address


def test_one_leads_and_writes_what_others_read() -> None:
    async def main() -> None:
        store = Store()
        replica = Replica("a", Network(store))
        task = replica.start()
        await asyncio.sleep(7)
        term = replica.election.term
        assert term == replica.terms[0] == Term("a@a:1", 0)
        replica.election.check()
        spec = store.get()["spec"]
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a@a:1", 15, 0)
        assert spec["acquireTime"] == "2001-09-09T01:46:40.010000Z"
        assert spec["renewTime"] > spec["acquireTime"]
        await stop(task)
        assert store.get()["spec"]["holderIdentity"] == ""
        assert replica.election.term is None
        with pytest.raises(NotLeader, match="a@a:1 does not lead"):
            replica.election.check()

    virtual(main())


def test_the_leader_says_more_of_itself_once_it_knows() -> None:
    """In a Lease that is there and in a new one; who follows and says nothing of that kind leaves it."""
    said: dict[str, str] = {}

    async def main() -> None:
        store = Store()
        first, second = Replica("a", Network(store), annotations=said), Replica("b", Network(store))

        def annotations() -> Any:
            return store.get()["metadata"].get("annotations")

        task = first.start()
        await until(lambda: bool(first.terms))
        assert annotations() is None
        said["koord.sh/nodelink-ca"] = "PEM"
        await asyncio.sleep(3)
        assert annotations() == said
        await stop(task)
        store.lease = None
        task = first.start()
        await until(lambda: len(first.terms) == 2)
        assert annotations() == said
        await stop(task)
        task = second.start()
        await until(lambda: bool(second.terms))
        assert annotations() == said
        await stop(task)

    virtual(main())


@pytest.mark.parametrize(
    ("spec", "leads_after_s"),
    [
        (None, 0),
        ({}, 0),
        ({"holderIdentity": "", "leaseTransitions": 4}, 0),
        ({"holderIdentity": None, "leaseTransitions": None}, 0),
        ({"holderIdentity": "a@a:1", "leaseDurationSeconds": 15}, 0),
        ({"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": "2001-01-01T00:00:00.000000Z"}, 15),
        ({"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": "2999-01-01T00:00:00.000000Z"}, 15),
        ({"holderIdentity": "other", "leaseDurationSeconds": 60}, 60),
        ({"holderIdentity": "other", "leaseDurationSeconds": None}, 15),
    ],
    ids=range(9),
)
def test_a_lease_that_is_there(spec: dict[str, Any] | None, leads_after_s: float) -> None:
    """However old or new the renewal's time is: what counts is how long we have seen it unchanged."""

    async def main() -> None:
        store = Store()
        if spec is not None:
            store.create({"metadata": {"namespace": KEY.namespace, "name": KEY.name}, "spec": spec})
        replica = Replica("a", Network(store))
        task = replica.start()
        await until(lambda: replica.terms, within_s=leads_after_s + 3)
        assert leads_after_s <= now_s() <= leads_after_s + 2.6
        before = (spec or {}).get("leaseTransitions") or 0
        assert replica.terms[0].transitions == (before + 1 if spec and any(spec.values()) else 0)
        await stop(task)

    virtual(main())


@pytest.mark.parametrize(("is_released", "limit_s"), [(True, 3.0), (False, 20.0)], ids=["SIGTERM", "SIGKILL"])
def test_the_next_one_takes_over(is_released: bool, limit_s: float) -> None:
    async def main() -> None:
        store = Store()
        network = Network(store)
        a, b = Replica("a", network), Replica("b", Network(store), seed=1)
        first = a.start()
        await asyncio.sleep(1)
        second = b.start()
        await asyncio.sleep(31.3)
        assert b.election.leader == "a@a:1"
        if not is_released:
            network._weather = lambda: ("late", 3600, 0)
        await stop(first)
        ended_s = now_s()
        await until(lambda: bool(b.terms))
        assert now_s() - ended_s <= limit_s
        assert b.terms[0].transitions == a.terms[0].transitions + 1
        await stop(second)

    virtual(main())


@pytest.mark.parametrize("call_s", [3.0, 4.0, 9.0])
@pytest.mark.parametrize("back_s", [0.01, 1.5])
def test_leadership_ends_in_time_though_the_api_hangs(call_s: float, back_s: float) -> None:
    """Counted from when the last renewal reached the server, however long its answer took."""

    async def main() -> None:
        store = Store()
        network = Network(store, lambda: ("fine", 0.01, back_s))
        replica = Replica("a", network, timing=Timing(call_s=call_s))
        task = replica.start()
        await asyncio.sleep(12)
        network._weather = lambda: ("late", 3600, 0)
        await until(lambda: bool(replica.ended))
        assert 9.9 <= replica.ended[0] - store.written_s <= 10
        assert not replica.is_leading()
        network._weather = lambda: ("fine", 0, 0)
        await asyncio.sleep(15)
        first, second = replica.terms
        assert (first.transitions, second.transitions) == (0, 1)
        assert replica.election.term == second
        await stop(task)

    virtual(main())


def test_a_lease_that_another_took_ends_leadership_at_once() -> None:
    async def main() -> None:
        store = Store()
        replica = Replica("a", Network(store))
        task = replica.start()
        await asyncio.sleep(5)
        spec = {"holderIdentity": "thief", "leaseDurationSeconds": 15}
        store.patch({"metadata": store.get()["metadata"], "spec": spec})
        await asyncio.sleep(2.1)
        assert replica.ended
        assert replica.election.leader == "thief"
        await stop(task)
        assert store.get()["spec"]["holderIdentity"] == "thief"

    virtual(main())


def test_who_ends_does_not_release_the_lease_of_another() -> None:
    async def main() -> None:
        store = Store()
        replica = Replica("a", Network(store))
        task = replica.start()
        await asyncio.sleep(5)
        spec = {"holderIdentity": "thief", "leaseDurationSeconds": 15}
        store.patch({"metadata": store.get()["metadata"], "spec": spec})
        assert replica.election.term is not None
        await stop(task)
        assert store.get()["spec"]["holderIdentity"] == "thief"

    virtual(main())


def test_a_lease_that_was_deleted_is_made_again_by_its_leader() -> None:
    async def main() -> None:
        store = Store()
        a, b = Replica("a", Network(store)), Replica("b", Network(store), seed=1)
        tasks = [a.start()]
        await asyncio.sleep(1)
        tasks.append(b.start())
        await asyncio.sleep(5)
        store.lease = None
        await asyncio.sleep(60)
        assert (len(a.terms), len(b.terms)) == (1, 0)
        for task in tasks:
            await stop(task)

    virtual(main())


@pytest.mark.parametrize("fails", [True, False], ids=["fails", "returns"])
def test_work_that_ends_releases(fails: bool) -> None:
    async def main() -> None:
        store = Store()
        replica = Replica("a", Network(store))

        async def lead(_: Term) -> None:
            await asyncio.sleep(3)
            if fails:
                raise ZeroDivisionError

        if fails:
            with pytest.raises(ZeroDivisionError):
                await replica.election.run(lead)
        else:
            await replica.election.run(lead)
        assert store.get()["spec"]["holderIdentity"] == ""

    virtual(main())


@pytest.mark.parametrize("cancellations", [1, 2, 3])
def test_work_that_takes_its_time_to_end_is_waited_for_before_the_release(cancellations: int) -> None:
    async def main() -> None:
        store = Store()
        replica = Replica("a", Network(store))
        holders: list[str] = []

        async def lead(term: Term) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                await asyncio.sleep(2)
                replica.election.check()
                holders.append(store.get()["spec"]["holderIdentity"])

        task = asyncio.create_task(replica.election.run(lead))
        await asyncio.sleep(5)
        for _ in range(cancellations):
            task.cancel()
            await asyncio.sleep(0.5)
        await asyncio.wait([task])
        assert task.cancelled()
        assert (holders, store.get()["spec"]["holderIdentity"]) == (["a@a:1"], "")

    virtual(main())


FATES = ["fine"] * 6 + ["lost", "answer lost", "late"]


@given(st.integers(0, 2**32), st.lists(st.sampled_from(["bad", "good", "kill", "stop", "start"]), max_size=30))
@settings(max_examples=60)
def test_no_two_lead_at_one_moment(seed: int, steps: list[str]) -> None:
    dice = random.Random(seed)

    async def main() -> None:
        store = Store()
        networks = [Network(store) for _ in range(3)]
        replicas: list[Replica] = []
        tasks: dict[str, asyncio.Task[None]] = {}

        def start(number: int) -> None:
            name = f"{number}-{len(replicas)}"
            clock = dice.uniform(-1e6, 1e6), dice.uniform(0.9, 1.1)
            replicas.append(Replica(name, networks[number], *clock, seed=dice.randrange(99)))
            tasks[name] = replicas[-1].start()

        watching = asyncio.create_task(watch(replicas))
        for number in range(3):
            start(number)
        for step in [*steps, "end"]:
            await asyncio.sleep(dice.uniform(0, 20))
            number = dice.randrange(3)
            network = networks[number]
            if step == "bad":
                network._weather = lambda: (dice.choice(FATES), dice.uniform(0, 4), dice.uniform(0, 4))
            elif step == "good":
                network._weather = lambda: ("fine", 0.01, 0.01)
            elif step in ("kill", "stop") and tasks:
                name = dice.choice(sorted(tasks))
                if step == "kill":
                    networks[int(name[0])]._weather = lambda: ("lost", 0, 0)
                await stop(tasks.pop(name))
            elif step == "start":
                start(number)
            assert not watching.done()
        for network in networks:
            network._weather = lambda: ("fine", 0.01, 0.01)
        start(0)
        await asyncio.sleep(60)
        assert sum(replica.election.term is not None for replica in replicas) == 1
        for task in tasks.values():
            await stop(task)
        watching.cancel()
        await asyncio.wait([watching])
        assert watching.cancelled(), watching.exception()
        transitions = [term.transitions for replica in replicas for term in replica.terms]
        assert len(set(transitions)) == len(transitions)

    virtual(main())


async def watch(replicas: list[Replica]) -> None:
    while True:
        leading = [replica for replica in replicas if replica.election.term is not None]
        assert len(leading) <= 1, [replica.name for replica in leading]
        await asyncio.sleep(0.1)
