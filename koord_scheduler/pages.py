"""The scheduler's pages for people and tools: upstream's paths, and why pods wait or are where they are, as JSON.

Only the leader knows: another replica answers 503. Invariant: pages are made one at a time, whoever asks how often, and
after each is a rest nine times as long as it took, two seconds at most: pages of up to 0.2 s have a tenth of the time,
and longer ones, such as the queue of 20,000 pods on a busy machine with half a second, a fifth of it. What it takes to
read requests and to send answers is beside that. A caller waits for its turn, and the server cuts those off that wait
too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec

from koord.kube.kind import Key
from koord.model.schedulerpages import POD_PAGE, QUEUE_PAGE, QUOTA_PAGE, QUOTAS_PAGE, ErrorPage
from koord.scheduling.amounts import PODS
from koord.scheduling.nodecolumns import Amounts
from koord.scheduling.plugin import PluginError
from koord.scheduling.state import ClusterState
from koord.service.statusserver import LocalMaker, Page, PageRequest
from koord_scheduler import quotapages
from koord_scheduler.configuration import KIND, Configuration
from koord_scheduler.explaining import Explainer
from koord_scheduler.loadpage import node_load
from koord_scheduler.options import Options
from koord_scheduler.pluginargs import API_VERSION
from koord_scheduler.pluginsets import FILTER, PERMIT, PRE_BIND, RESERVE, SCORE

CONFIG_PAGE, NODE_PAGE, SERVICES_PAGE = "/configz", "/apis/v1/nodes/", "/apis/v1/__services__"
LOAD_PAGE = "/apis/v1/plugins/LoadAwareScheduling/node/"
DEFAULT_LIMIT, MOST_ROWS = 100, 1000
_NOT_LEADER = "the instance is not leader"
_REST = 9
"""So many times as long as a page took, no other one is made."""
_LONGEST_REST_S = 2.0
_CPU, _MEMORY, _DISK = "cpu", "memory", "ephemeral-storage"


class Turns:
    """Lets pages be made one after the other, with rests between."""

    def __init__(
        self, monotonic_s: Callable[[], float], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._monotonic_s, self._sleep = monotonic_s, sleep
        self._lock, self._free_s = asyncio.Lock(), 0.0

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Within the block a page is made; the first one at once."""
        async with self._lock:
            await self._sleep(max(0.0, self._free_s - self._monotonic_s()))
            begun_s = self._monotonic_s()
            try:
                yield
            finally:
                ended_s = self._monotonic_s()
                self._free_s = ended_s + min(_REST * (ended_s - begun_s), _LONGEST_REST_S)


class SchedulerPages:
    """``leads``: whether this replica does; ``state``: what it knows of nodes."""

    def __init__(
        self,
        explainer: Explainer,
        state: ClusterState,
        leads: Callable[[], bool],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._explainer, self._state, self._leads = explainer, state, leads
        self._turns = Turns(monotonic_s)

    def makers(self, configuration: Mapping[str, Any]) -> Mapping[str, LocalMaker]:
        """Returns the pages by path. ``configuration``: what ``/configz`` says."""
        by_path: dict[str, LocalMaker] = {
            POD_PAGE: self._of_leader(self._pod),
            QUEUE_PAGE: self._of_leader(self._queue),
            NODE_PAGE: self._of_leader(self._node),
            QUOTAS_PAGE: self._of_leader(self._quotas),
            QUOTA_PAGE: self._of_leader(self._quota),
            LOAD_PAGE: self._of_leader(self._load),
        }
        paths = (
            *(f"{POD_PAGE}:namespace/:name", QUEUE_PAGE, f"{NODE_PAGE}:nodeName", f"{LOAD_PAGE}:nodeName"),
            *(QUOTAS_PAGE, f"{QUOTA_PAGE}:name", SERVICES_PAGE),
        )
        services = {"GET": sorted(paths)}

        async def services_page(_: PageRequest) -> Page:
            return _json(200, services)

        by_path[SERVICES_PAGE] = self._of_leader(services_page)
        return {CONFIG_PAGE: lambda _: _json(200, configuration), **by_path}

    def _of_leader(self, make: Callable[[PageRequest], Awaitable[Page]]) -> LocalMaker:
        async def made(request: PageRequest) -> Page:
            if not self._leads():
                return _error(503, _NOT_LEADER)
            async with self._turns.one():
                return await make(request)

        return made

    async def _pod(self, request: PageRequest) -> Page:
        namespace, slash, name = request.rest.partition("/")
        try:
            found = self._explainer.pod(Key(namespace, name)) if slash else None
        except PluginError as error:
            return _error(500, str(error))
        return _error(404, f"there is no pod {request.rest}") if found is None else _json(200, found)

    async def _queue(self, request: PageRequest) -> Page:
        text = request.query.get("limit", str(DEFAULT_LIMIT))
        if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= MOST_ROWS):
            return _error(400, f"limit={text}: is not a number from 1 to {MOST_ROWS}")
        return _json(200, await self._explainer.queue(int(text)))

    async def _quotas(self, request: PageRequest) -> Page:
        return _json(200, await quotapages.quotas(self._state))

    async def _quota(self, request: PageRequest) -> Page:
        found = quotapages.quota(self._state, request.rest)
        return _error(404, f"there is no quota {request.rest}") if found is None else _json(200, found)

    async def _node(self, request: PageRequest) -> Page:
        row = self._state.table.row(request.rest)
        if row is None:
            return _error(404, f"cannot find node {request.rest}")
        return _json(200, _node_info(self._state, request.rest, row))

    async def _load(self, request: PageRequest) -> Page:
        row = self._state.table.row(request.rest)
        if row is None:
            return _error(404, f"cannot find node {request.rest}")
        self._explainer.tell_time()
        return _json(200, node_load(self._state, request.rest, row))


def configuration_page(options: Options, configuration: Configuration) -> Mapping[str, Any]:
    """Returns what is in effect, in upstream's form, but for the arguments of plugins."""
    profiles = [
        {
            "schedulerName": profile.name,
            "plugins": {
                FILTER: {"enabled": [{"name": each.plugin.name} for each in profile.plugins if each.filters]},
                SCORE: {
                    "enabled": [
                        {"name": each.plugin.name, "weight": each.weight} for each in profile.plugins if each.weight
                    ]
                },
                **{
                    point: {"enabled": [{"name": each.name} for each in plugins]}
                    for point, plugins in (
                        (RESERVE, profile.reserve),
                        (PERMIT, profile.permit),
                        (PRE_BIND, profile.pre_bind),
                    )
                    if plugins
                },
            },
        }
        for profile in configuration.profiles
    ]
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "leaderElection": {
            "leaderElect": options.enable_leader_election,
            "resourceName": configuration.lease,
            "resourceNamespace": options.lease_namespace,
        },
        "clientConnection": {"qps": options.rest_config_qps, "burst": options.rest_config_burst},
        "podInitialBackoffSeconds": configuration.backoff.first_s,
        "podMaxBackoffSeconds": configuration.backoff.most_s,
        "profiles": profiles,
    }
    return {"kubescheduler.config.k8s.io": document}


def _node_info(state: ClusterState, name: str, row: int) -> dict[str, Any]:
    """A node as upstream's services page has it, without what its plugins cache."""
    node = state.nodes.nodes[row]
    allocatable, requested = _resources(state.nodes.allocatable, row), _resources(state.requested, row)
    assumed = {"MilliCPU": int(state.assumed_cpu_milli[row]), "Memory": int(state.assumed_memory_bytes[row])}
    scalars = {
        each: amount - requested["ScalarResources"].get(each, 0)
        for each, amount in allocatable["ScalarResources"].items()
    }
    remaining = {each: allocatable[each] - requested[each] for each in allocatable if each != "ScalarResources"}
    return {
        "node": {"metadata": {"name": name, "labels": node.metadata.labels}, "spec": node.spec},
        "pods": [
            {"Pod": {"metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}}}
            for pod in state.pods_on(name)
        ],
        "requested": requested,
        "nonZeroRequested": {**requested, **assumed},
        "remaining": {**remaining, "ScalarResources": scalars},
        "allocatable": allocatable,
        "generation": state.version,
    }


def _resources(amounts: Amounts, row: int) -> dict[str, Any]:
    """As Go writes a Resource."""
    found = {name: amounts.at(row, name) for name in amounts.names}
    scalars = {name: amount for name, amount in found.items() if name not in (_CPU, _MEMORY, _DISK, PODS) and amount}
    return {
        "MilliCPU": found.get(_CPU, 0),
        "Memory": found.get(_MEMORY, 0),
        "EphemeralStorage": found.get(_DISK, 0),
        "AllowedPodNumber": found.get(PODS, 0),
        "ScalarResources": scalars,
    }


def _json(status: int, document: Any) -> Page:
    return Page(status, msgspec.json.encode(document) + b"\n", "application/json")


def _error(status: int, message: str) -> Page:
    return _json(status, ErrorPage(message))
