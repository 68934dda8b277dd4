"""Keeps this node's NodeResourceTopology as ``nodetopology`` wants it: one watch, and a write when something differs.

It looks after each tick, by comparing its inputs with the last ones; every ten minutes the hardware is read again. The
stored object is followed, so other writers' changes of our part are put right, and their additions stay: a patch names
the version that it was made for, and one that comes too late is made anew. Invariants: nothing is written while pods,
policy, the Node or the stored object are not known; at most one write in ``GAP_S``, conflicts among them; a server that
is away, or a watch that does not bring the version that a write conflicts with, is tried again each minute at last, a
server that does not know the kind, or refuses, ever more seldom, at last every ten minutes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from http import HTTPStatus
from random import random as uniform
from typing import Any

from koord.host import cpumodel, numamemory
from koord.host.cgroup import Tree
from koord.host.kernelfile import ParseError
from koord.kube.backoff import Backoff, Random
from koord.kube.client import Client, Selection
from koord.kube.errors import APIError, KubeError
from koord.kube.informer import Informer, Pace, as_read
from koord.kube.kind import NODE_RESOURCE_TOPOLOGY, Key
from koord.model.noderesourcetopology import NodeResourceTopology
from qosd.cluster import nodetopology, topologyobject
from qosd.cluster.nodetopology import DesiredTopology, Hardware, Inputs
from qosd.cluster.ticks import after_each_tick, set_within
from qosd.clusterstatus import ClusterPart, PartState
from qosd.node import Node

GATE = "NodeTopologyReport"
GAP_S = 3.0
HARDWARE_S, HARDWARE_RETRY_S = 600.0, 60.0
AWAY = Backoff(base_s=1.0, max_s=60.0)
REFUSED = Backoff(base_s=15.0, max_s=600.0)
MANY_CONFLICTS = 4
"""So many conflicts in a row are a failure; after a single one, the watch is about to tell the reason."""

_NAME = NODE_RESOURCE_TOPOLOGY.name
_log = logging.getLogger(__name__)


class TopologyReporter:
    """Lives in the running event loop; ``run`` may be called again when it has ended.

    ``thread``: reads the hardware; None: one of its own, which no stalled disk holds up."""

    def __init__(
        self,
        client: Client,
        node_name: str,
        node: Node,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Random = uniform,
        thread: Executor | None = None,
    ) -> None:
        self._client, self._key, self._node = client, Key("", node_name), node
        self._sleep, self._random = sleep, random
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="hardware")
        self._time = asyncio.get_running_loop().time
        selection = Selection(fields=f"metadata.name={node_name}")
        self._informer: Informer[NodeResourceTopology, NodeResourceTopology] = Informer(
            client, NODE_RESOURCE_TOPOLOGY, self._time, selection, pace=Pace(refused=REFUSED),
            sleep=sleep, random=random, observe=self._heard, transform=as_read,
        )  # fmt: skip
        self._woken = asyncio.Event()
        self._seen: tuple[object, ...] = ()
        self._hardware: Hardware | None = None
        self._hardware_due_s = self._time()
        self._hardware_problem = ""
        self._written: tuple[NodeResourceTopology | None, NodeResourceTopology] | None = None
        self._reported_s: float | None = None
        self._failures = self._conflicts = 0
        self._says = "nothing is reported yet"

    async def run(self) -> None:
        """Reports until it is cancelled."""
        with after_each_tick(self._node.after_tick, self._look):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._informer.run(), name=f"{_NAME}: informer")
                while True:
                    await self._sleep(await self._report())
                    await set_within(self._woken, self._hardware_due_s - self._time())

    def status(self) -> ClusterPart:
        age_s = None if self._reported_s is None else self._time() - self._reported_s
        state, says = self._state()
        return ClusterPart(_NAME, state, age_s, self._failures, says)

    def _state(self) -> tuple[PartState, str]:
        if self._is_off:
            return PartState.OFF, self._says
        if self._failures:
            return PartState.FAILING, self._says
        if failure := self._informer.failure:
            has_no_kind = isinstance(failure, APIError) and failure.is_not_found
            return PartState.OFF if has_no_kind else PartState.FAILING, str(failure)
        if self._reported_s is None:
            return PartState.WAITING, self._says
        return PartState.OK, self._says or "in step"

    # when it reports

    def _look(self) -> None:
        if self._sources() != self._seen:
            self._woken.set()

    def _heard(self, _: str) -> None:
        """Looks at the stored object, which may be another by now; the answer to the last write is then out of date."""
        if self._written is not None and self._written[0] is not self._informer.get(self._key):
            self._written = None
        self._look()

    def _sources(self) -> tuple[object, ...]:
        """Returns the inputs of the report: the same objects as long as nothing changes."""
        node = self._node
        return (
            node.pods.age_s is not None,
            node.policy.current,
            node.pods.current,
            node.locator.topology,
            node.cpu_manager.current,
            node.kubelet_config.current,
            node.cluster_policy.node,
            self._informer.synced.is_set(),
            self._informer.get(self._key),
        )

    # what it reports

    async def _report(self) -> float:
        """Writes what differs, if all is known. Returns the seconds until the next look, at the earliest."""
        self._woken.clear()
        await self._read_hardware()
        self._seen = self._sources()
        inputs = self._inputs()
        if isinstance(inputs, str):
            self._says = inputs
            return 0.0
        try:
            await self._write(nodetopology.desired(inputs))
        except KubeError as error:
            self._woken.set()
            return self._failed(error)
        self._reported_s, self._failures, self._conflicts, self._says = self._time(), 0, 0, ""
        return GAP_S

    @property
    def _is_off(self) -> bool:
        return not self._node.policy.current.gate(GATE).is_on

    def _inputs(self) -> Inputs | str:
        """Returns all inputs of the report, or the reason why one is missing."""
        node, policy = self._node, self._node.policy.current
        facts = node.cluster_policy.node
        if self._is_off:
            return f"feature gate {GATE} is off ({policy.gate(GATE).source})"
        if self._hardware is None:
            return self._hardware_problem
        if policy.policy_unknown:
            return f"nobody can tell the policy, so there are no CPU pools: {policy.policy_unknown}"
        if node.pods.age_s is None:
            return "the node's pods are not known yet"
        if facts is None or not facts.uid:
            return "the Node is not known yet"
        if not self._informer.synced.is_set():
            return "the API server has not said yet what it has"
        return Inputs(
            node.locator.topology, self._hardware, policy, node.kubelet_config.current, node.cpu_manager.current,
            node.pods.current, facts,
        )  # fmt: skip

    async def _read_hardware(self) -> None:
        """Reads the hardware if it is due; if that fails, the hardware that was known stays."""
        if self._time() < self._hardware_due_s:
            return
        event_loop = asyncio.get_running_loop()
        try:
            self._hardware = await event_loop.run_in_executor(self._thread, read_hardware, self._node.locator.tree)
        except (OSError, ParseError) as error:
            if str(error) != self._hardware_problem:
                _log.warning("%s: the node's hardware cannot be read: %s", _NAME, error)
            self._hardware_problem = str(error)
            self._hardware_due_s = self._time() + HARDWARE_RETRY_S
        else:
            self._hardware_problem, self._hardware_due_s = "", self._time() + HARDWARE_S

    async def _write(self, wanted: DesiredTopology) -> None:
        """Raises KubeError."""
        followed = self._informer.get(self._key)
        stored = followed if self._written is None else self._written[1]
        if stored is None:
            body = topologyobject.document(self._key.name, wanted)
            kind = {"apiVersion": NODE_RESOURCE_TOPOLOGY.api_version, "kind": _NAME}
            written = await self._client.create(NODE_RESOURCE_TOPOLOGY, {**kind, **body})
        else:
            body = topologyobject.patch(stored, wanted)
            if not body:
                self._count("unchanged")
                return
            written = await self._client.patch(NODE_RESOURCE_TOPOLOGY, self._key, body)
        if self._informer.get(self._key) is followed:
            self._written = followed, written
        self._count("written")
        _log.info("%s %s: %s", _NAME, self._key, "made" if stored is None else f"changed {_members(body)}")

    def _failed(self, error: KubeError) -> float:
        """Counts the failure. Returns the seconds until the next try."""
        if isinstance(error, APIError) and error.status == HTTPStatus.CONFLICT:
            return self._conflicted(error)
        self._conflicts = 0
        self._count("failed")
        self._fail(error)
        is_not_found = isinstance(error, APIError) and error.is_not_found
        is_deleted = is_not_found and self._informer.get(self._key) is not None  # the watch is about to tell
        backoff = REFUSED if error.is_refusal and not is_deleted else AWAY
        return backoff.delay_s(self._failures, self._random)

    def _conflicted(self, error: APIError) -> float:
        """Counts the conflict with another version, which the watch is about to bring. Returns the seconds until the
        next try.
        """
        self._conflicts += 1
        self._count("conflict")
        if self._conflicts >= MANY_CONFLICTS:
            self._fail(error)
        return max(GAP_S, AWAY.delay_s(self._conflicts, self._random))

    def _fail(self, error: KubeError) -> None:
        self._failures += 1
        if str(error) != self._says:
            _log.warning("%s %s cannot be written: %s", _NAME, self._key, error)
        self._says = str(error)

    def _count(self, result: str) -> None:
        self._node.metrics.cluster_reports[_NAME, result] += 1


def read_hardware(tree: Tree) -> Hardware:
    """Raises OSError or ParseError."""
    return Hardware(cpumodel.read(tree), numamemory.read(tree.sys, tree.proc))


def _members(patch: Mapping[str, Any]) -> str:
    metadata = patch.get("metadata", {})
    changed = [*metadata.get("annotations", {}), *metadata.get("labels", {}), *patch]
    return ", ".join(sorted({*changed, *metadata} - {"metadata", "annotations", "labels", "resourceVersion"}))
