"""Keeps the status of PodGroups: in which phase a gang is, and how many of its members are where.

The status follows from the members as they are, with upstream's phases. A group that has ended keeps its status when
its pods are gone. Changes of a second are one write, and no status is written twice in a row: where another controller
writes another one, that is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from koord.kube.client import Client
from koord.kube.errors import APIError, KubeError, NotLeader
from koord.kube.kind import Key
from koord.kube.schedulingkinds import POD_GROUP
from koord.model.core import api_time
from koord.model.gang import GangKey
from koord.model.scheduling.koordinator import PodGroupStatus
from koord.scheduling.gangs import Gang, Gangs
from koord.scheduling.podinfo import PodInfo

_log = logging.getLogger(__name__)
_PAUSE_S = 1.0
_ENDED = ("Finished", "Failed")


class PodGroupStatusWriter:
    """``client``: the leader's. ``is_ours``: whether this scheduler places a pod; of groups without such pods it writes
    nothing. ``wall_s``: seconds since 1970.
    """

    def __init__(
        self,
        client: Client,
        gangs: Gangs,
        is_ours: Callable[[PodInfo], bool],
        wall_s: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client, self._gangs, self._is_ours = client, gangs, is_ours
        self._wall_s, self._sleep = wall_s, sleep
        self._changed, self._wake = dict[GangKey, None](), asyncio.Event()
        self._written: dict[GangKey, PodGroupStatus] = {}

    def changed(self, key: GangKey) -> None:
        """The gang's members or its PodGroup have changed."""
        self._changed[key] = None
        self._wake.set()

    async def run(self) -> None:
        """Writes until it is cancelled."""
        for gang in self._gangs:
            self.changed(gang.key)
        while True:
            await self._wake.wait()
            await self._sleep(_PAUSE_S)
            self._wake.clear()
            changed, self._changed = self._changed, {}
            for key in changed:
                await self._write(key)

    async def _write(self, key: GangKey) -> None:
        gang = self._gangs.get(key)
        if gang is None or gang.pod_group is None:
            self._written.pop(key, None)
            return
        members = (*gang.waiting.values(), *gang.placed.values())
        if not any(map(self._is_ours, members)) and not (gang.succeeded or gang.failed):
            return
        now = api_time(self._wall_s())
        wanted = status_of(gang, now)
        if wanted in (gang.pod_group.status, self._written.get(key)):
            return
        body = {"metadata": {"uid": gang.pod_group.metadata.uid}, "status": _document(wanted)}
        try:
            await self._client.patch(POD_GROUP, Key(*key), body, subresource="status")
        except NotLeader:
            raise
        except KubeError as error:
            _log.info("the status of PodGroup %s cannot be written: %s", key, error)
            if not (isinstance(error, APIError) and error.is_refusal):
                self.changed(key)
            return
        self._written[key] = wanted


def _document(status: PodGroupStatus) -> dict[str, Any]:
    """As a merge patch, zeros among it."""
    return {
        "phase": status.phase,
        "occupiedBy": status.occupied_by,
        "scheduled": status.scheduled,
        "running": status.running,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "scheduleStartTime": status.schedule_start_time,
    }


def status_of(gang: Gang, now: str) -> PodGroupStatus:
    """Returns what the status of the gang's PodGroup is to say. ``now``: as RFC 3339."""
    assert gang.pod_group is not None
    before, least = gang.pod_group.status, max(1, gang.pod_group.spec.min_member)
    if not gang.member_count and before.phase in _ENDED:
        return before
    running = sum(pod.pod.status.phase == "Running" for pod in gang.placed.values())
    succeeded, failed = len(gang.succeeded), len(gang.failed)
    scheduled = len(gang.placed) + succeeded + failed
    if failed and failed + running + succeeded >= least:
        phase = "Failed"
    elif succeeded >= least:
        phase = "Finished"
    elif running + succeeded >= least:
        phase = "Running"
    elif scheduled >= least:
        phase = "Scheduled"
    elif scheduled:
        phase = "Scheduling"
    else:
        phase = "PreScheduling" if len(gang.waiting) >= least else "Pending"
    started = (before.schedule_start_time or now) if scheduled else None
    return PodGroupStatus(phase, owners(gang) or before.occupied_by, scheduled, running, succeeded, failed, started)


def owners(gang: Gang) -> str:
    """Returns the owners of the members that wait or are placed, as a status has them."""
    found = {
        f"{pod.namespace}/{owner.name}"
        for pod in (*gang.waiting.values(), *gang.placed.values())
        if (owner := pod.pod.metadata.controller) is not None
    }
    return ",".join(sorted(found))
