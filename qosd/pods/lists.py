"""The runtime's lists as last told, with the verbose details of each object fetched only when they may have changed.

Details are asked for when an object is new, when its state changed, after ``stale``, and, a few at each list, by age:
so even an update without an event is found. Invariant: a failed list changes nothing (RuntimeUnreachable); an object
that ends between list and status is left out; details of objects that are gone are forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from qosd.pods.cri import AT_ONCE, CONTAINER_CREATED, CONTAINER_RUNNING, Container, CRIClient, Detail, Sandbox
from qosd.pods.cri import RuntimeUnreachable as Unreachable

RECHECKED = AT_ONCE  # details asked again at a safety list
_LIVE = (CONTAINER_CREATED, CONTAINER_RUNNING)


class RuntimeLists:
    """``exists(cgroup)``: whether the cgroup tree has that directory; False where the tree is not watched."""

    def __init__(self, runtime: CRIClient, exists: Callable[[str], bool]) -> None:
        self._runtime, self._exists = runtime, exists
        self.sandboxes: dict[str, Sandbox] = {}
        self.containers: dict[str, tuple[Container, ...]] = {}
        """By sandbox id, oldest first."""
        self.details: dict[str, Detail] = {}
        self.told = False
        self._states: dict[str, str] = {}  # as of the detail
        self._stale: set[str] = set()

    def stale(self, ids: Iterable[str]) -> None:
        """Marks the details of these objects as perhaps out of date."""
        self._stale.update(ids)

    async def refresh(self, recheck: bool) -> None:
        """Lists, then fetches details; ``recheck``: also some without a hint. Raises RuntimeUnreachable."""
        listed = await asyncio.gather(self._runtime.sandboxes(), self._runtime.containers())
        sandboxes = _newest_sandboxes(listed[0])
        containers = [one for one in _newest_containers(listed[1]) if one.sandbox_id in sandboxes]
        self._doubt(sandboxes)
        gone = await self._fetch(sandboxes, containers, recheck)
        self.sandboxes = {id_: one for id_, one in sandboxes.items() if id_ not in gone}
        by_sandbox: dict[str, list[Container]] = {}
        for one in containers:
            if one.id not in gone:
                by_sandbox.setdefault(one.sandbox_id, []).append(one)
        self.containers = {id_: tuple(found) for id_, found in by_sandbox.items()}
        self.told = True

    def _doubt(self, sandboxes: Mapping[str, Sandbox]) -> None:
        """Raises RuntimeUnreachable if the runtime suddenly lists no pod while their containers run on."""
        if sandboxes or not self.sandboxes:
            return
        left = sum(self._exists(detail.cgroup) for detail in self.details.values() if detail.cgroup)
        if left:
            reason = f"{self._runtime.endpoint}: lists no pods, but {left} cgroups of their containers exist"
            raise Unreachable(reason, 0)

    async def _fetch(self, sandboxes: Mapping[str, Sandbox], containers: list[Container], recheck: bool) -> set[str]:
        """Brings ``details`` up to date. Returns the ids of objects that turned out to be gone."""
        states = {id_: one.state for id_, one in sandboxes.items()} | {one.id: one.state for one in containers}
        for known in (self.details, self._states):
            for id_ in [id_ for id_ in known if id_ not in states]:
                del known[id_]
        live = {one.id for one in containers if one.state in _LIVE} | set(sandboxes)
        wanted = [id_ for id_ in states if (id_ in live and self._states.get(id_) != states[id_]) or id_ in self._stale]
        if recheck:
            wanted += [id_ for id_ in self._states if id_ in live and id_ not in wanted][:RECHECKED]
        self._stale.clear()
        answers = await asyncio.gather(*(self._detail(id_, id_ in sandboxes) for id_ in wanted))
        gone = set()
        for id_, answer in zip(wanted, answers, strict=True):
            self._states.pop(id_, None)  # and back at the end: the order is that of age
            if answer is None:
                gone.add(id_)
                self.details.pop(id_, None)
            elif isinstance(answer, Detail):
                self.details[id_], self._states[id_] = answer, states[id_]
        return gone

    async def _detail(self, id_: str, is_sandbox: bool) -> Detail | Unreachable | None:
        """Returns the detail, None for an object that is gone, or the error: it is asked again next time."""
        try:
            return await (self._runtime.sandbox_detail(id_) if is_sandbox else self._runtime.container_detail(id_))
        except Unreachable as error:
            return error


def _newest_sandboxes(listed: list[Sandbox]) -> dict[str, Sandbox]:
    """Returns the newest sandbox of every pod, by sandbox id."""
    newest = {}
    for one in sorted(listed, key=lambda one: (one.created_unix_ns, one.attempt)):
        newest[one.uid, one.namespace, one.name] = one
    return {one.id: one for one in newest.values()}


def _newest_containers(listed: list[Container]) -> list[Container]:
    """Returns the newest container of every name in a sandbox, oldest first."""
    newest: dict[tuple[str, str], Container] = {}
    for one in sorted(listed, key=lambda one: one.created_unix_ns):
        newest.pop((one.sandbox_id, one.name), None)
        newest[one.sandbox_id, one.name] = one
    return list(newest.values())
