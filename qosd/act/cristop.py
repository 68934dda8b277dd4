"""Evicts through the container runtime: calls StopContainer for every container of the pod, and checks the result.

The answer to a stop decides nothing: an eviction has come about when the runtime, asked again, lists no running
container of the pod, and the cgroups of all of them are gone, for only then is their memory free. Invariants: all
containers are stopped at the same time, and none is spared because another's stop fails; containers that kubelet starts
meanwhile are stopped too, ``ROUNDS`` times in all; every wait is bounded. It may be repeated at any time: a container
that has exited is not stopped again. Fails with EvictionFailed, which names each container that is left and says why.

A container that is created and does not run yet has no process; containerd leaves it as it is, so it counts as stopped
unless it has a cgroup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from qosd.act.evictor import EvictionFailed
from qosd.decide.decision import Eviction
from qosd.pods.cri import CONTAINER_CREATED, Container, CRIClient, RuntimeUnreachable

EXIT_S = 30.0
"""The time that killed processes have to exit: one with much memory takes seconds, a frozen one waits to be thawed."""
SETTLE_S = 5.0
"""The time after the last stop for the runtime to list the containers as exited, and for the cgroups to go."""
ROUNDS = 3
_PAUSE_S = 0.1
_SHORT_ID = 12
_EXITED = "CONTAINER_EXITED"


class CRIStop:
    """Evicts by ``runtime``. ``exists``: is there a cgroup at that path (``/kubepods/…``)?"""

    def __init__(
        self, runtime: CRIClient, exists: Callable[[str], bool], *, exit_s: float = EXIT_S, settle_s: float = SETTLE_S
    ) -> None:
        self._runtime, self._exists = runtime, exists
        self._exit_s, self._settle_s = exit_s, settle_s

    def pod(self, eviction: Eviction) -> EvictedPod:
        """Returns the pod's containers, to look at."""
        return EvictedPod(eviction, self._runtime, self._exists)

    async def evict(self, eviction: Eviction) -> None:
        """Stops every container of the pod; returns when all have exited and their cgroups are gone.

        Raises EvictionFailed.
        """
        if not eviction.uid:
            raise EvictionFailed(f"pod {eviction.pod} has no UID to find its containers by")
        await self.end(self.pod(eviction))

    async def end(self, pod: EvictedPod) -> None:
        """Does the same for a pod that was looked at before, some of whose containers may be gone by now."""
        loop = asyncio.get_running_loop()
        rounds, deadline_s = 0, loop.time() + self._settle_s
        while problems := await pod.look():
            if pod.unstopped and rounds < ROUNDS:
                await pod.stop(self._exit_s)
                rounds, deadline_s = rounds + 1, loop.time() + self._settle_s
            elif loop.time() >= deadline_s:
                raise EvictionFailed("; ".join(problems))
            else:
                await asyncio.sleep(_PAUSE_S)


class EvictedPod:
    """The containers of one pod, as ``look`` saw them last. ``unstopped``: those that were not stopped so far.

    It tells for every way of evicting whether the eviction has come about.
    """

    def __init__(self, eviction: Eviction, runtime: CRIClient, exists: Callable[[str], bool]) -> None:
        self._eviction, self._runtime, self._exists = eviction, runtime, exists
        self.unstopped: Sequence[Container] = ()
        self._answers: dict[tuple[str, str], str] = {}  # to the stop of container id in that state
        self._cgroups: dict[str, str] = {}
        self._unknown: dict[str, str] = {}
        self._names: dict[str, str] = {}

    async def look(self) -> list[str]:
        """Returns a sentence on each part of the pod that is left; none: it is evicted. Never raises."""
        try:
            containers = await self._containers()
        except RuntimeUnreachable as error:
            self.unstopped = ()
            return [str(error)]
        self._names.update((each.id, f"container {each.name} ({each.id[:_SHORT_ID]})") for each in containers)
        alive = [each for each in containers if each.state != _EXITED]
        self.unstopped = [each for each in alive if (each.id, each.state) not in self._answers]
        self._unknown.clear()
        await self._learn_cgroups(each for each in containers if each not in self.unstopped)
        left = {**self._left_cgroups(), **self._alive(alive)}
        return [f"{self._names[id_]}: {why}" for id_, why in left.items()]

    async def stop(self, exit_s: float) -> None:
        """Stops the unstopped, all at the same time. Never raises: ``look`` tells the result."""
        stops = [self._stop(each, exit_s) for each in self.unstopped]
        await asyncio.gather(*stops, self.learn_cgroups())

    async def learn_cgroups(self) -> None:
        """Learns the cgroups of the unstopped, before others end them: the runtime may have forgotten them then."""
        await self._learn_cgroups(self.unstopped)

    async def _containers(self) -> list[Container]:
        """Returns the containers of all sandboxes of the pod. A runtime without filters lists other pods' too."""
        uid = self._eviction.uid
        ids = [each.id for each in await self._runtime.sandboxes(uid) if each.uid == uid]
        lists = await asyncio.gather(*(self._runtime.containers(id_) for id_ in ids))
        return [each for id_, listed in zip(ids, lists, strict=True) for each in listed if each.sandbox_id == id_]

    async def _stop(self, container: Container, exit_s: float) -> None:
        try:
            await self._runtime.stop_container(container.id, self._eviction.grace_s, exit_s)
            answer = "the runtime says that it has been stopped"
        except RuntimeUnreachable as error:
            answer = str(error)
        self._answers[container.id, container.state] = answer

    async def _learn_cgroups(self, containers: Iterable[Container]) -> None:
        await asyncio.gather(*(self._learn_cgroup(each.id) for each in containers if each.id not in self._cgroups))

    async def _learn_cgroup(self, container_id: str) -> None:
        """Learns the container's cgroup; "" if the runtime no longer has it, or does not tell."""
        try:
            detail = await self._runtime.container_detail(container_id)
        except RuntimeUnreachable as error:
            self._unknown[container_id] = str(error)
        else:
            self._cgroups[container_id] = "" if detail is None else detail.cgroup

    def _alive(self, containers: Iterable[Container]) -> Mapping[str, str]:
        """Returns by container id the state of containers that have not ended."""
        lives, unstopped = {}, "kubelet has made it since" if self._answers else "nobody has ended it"
        for each in containers:
            answer = self._answers.get((each.id, each.state))
            if answer is None or each.state != CONTAINER_CREATED:
                state = each.state.removeprefix("CONTAINER_").lower()
                lives[each.id] = f"is {state}: {answer or unstopped}"
        return lives

    def _left_cgroups(self) -> Mapping[str, str]:
        """Returns by container id what is wrong with its cgroup."""
        left = {id_: f"its cgroup is not known: {why}" for id_, why in self._unknown.items()}
        for id_, cgroup in self._cgroups.items():
            if cgroup and self._exists(cgroup):
                left[id_] = f"its cgroup {cgroup} is still there"
        return left
