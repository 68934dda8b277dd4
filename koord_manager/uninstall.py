"""``koord-manager uninstall``: everything that the cluster side put on nodes is taken back, before its own objects go.

    policy     the ConfigMap's keys go, so that the defaults hold, by which everything is off; kept in an annotation.
               Where there is none, one without keys is made: managers go by the last that they have read
    node SLOs  each says the same; the managers, which still run, would write no other
    release    each node's agent gives back what it holds, and says so: waited for until a bound, the rest is named
    webhooks   no pod is asked about any more
    managers   none is left that could offer resources again, nor a pod of theirs
    nodes      batch and mid resources, and what goes with them, are removed, not zeroed
    agents     each NodeSLO says that its agent goes for good, which then takes along what it keeps on its node
    pods       each agent of the cluster's takes back what pods got from it, and says so: waited for likewise
    reports    what those who have gone said of themselves is taken off their NodeMetrics, for other agents to report on

In this order, because each step holds against what still runs: agents release by the policy of their NodeSLO, and a
cluster that does not enable colocation offers nothing again, whatever an entry or a node says. CRDs and their objects
stay. Invariant: every step is done again without harm, so after a failure the next run finishes. Fails with KubeError,
in the step that the log names.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import koord
from koord.kube import kubeconfig
from koord.kube.client import EVERYTHING, Client, Selection, connected
from koord.kube.credentials import Credentials
from koord.kube.errors import APIError, KubeError
from koord.kube.informer import Informer, as_read
from koord.kube.kind import CONFIG_MAP, DEPLOYMENT, LEASE, NODE, NODE_METRIC, NODE_SLO, POD, Key, Kind, Unstructured
from koord.kube.stream import EventStream
from koord.model import mergepatch, nodestate
from koord.model.core import Lease, Node, Pod, unix_s
from koord.model.nodelink import LEASE_NAME
from koord.model.nodemetric import NodeMetric
from koord.overcommit import amounts, nodeamounts, publish, ratios
from koord.overcommit.amounts import BATCH, MID, ZERO
from koord.sloconfig.config import SLOConfig
from koord.sloconfig.loading import texts
from koord.sloconfig.rows import ROWS
from koord_manager.controllers import nodeslo
from koord_manager.installedwebhooks import CONFIGURATIONS
from koord_manager.options import UninstallOptions

Reports = Informer[NodeMetric, NodeMetric]
_log = logging.getLogger(__name__)
ANNOTATION_BEFORE = "koord.sh/policy-before-uninstall"
"""Of the ConfigMap: its data as they were, as JSON."""
_NODE_ANNOTATIONS = (
    publish.ORIGINAL,
    ratios.NORMALIZATION,
    ratios.AMPLIFICATION,
    nodeamounts.RAW_ALLOCATABLE,
)
_QPS, _BURST, _WORKERS = 100.0, 200, 8
_EVENTS = 256
_LOOK_S = 1.0
_LEADER_S = 30.0
"""Twice the time after which a leader that cannot renew has stopped."""
_NAMED = 20
_ENDS = ": pods that request it may run there, and a kubelet that restarts ends them"
T = TypeVar("T")


async def run(options: UninstallOptions, environ: Mapping[str, str]) -> None:
    """Raises KubeError or OSError in the step that failed."""
    credentials = Credentials(
        lambda: kubeconfig.find(environ, options.kubeconfig, options.context), environ, time.monotonic, time.time
    )
    async with connected(credentials, f"koord-uninstall/{koord.__version__}", _QPS, _BURST) as client:
        await Uninstallation(client, options).run()


@dataclass(slots=True)
class Uninstallation:
    """``wall_s``: seconds since 1970. ``generations``: of the NodeSLO that disables everything, by node. ``late``: the
    nodes that were waited for in vain."""

    client: Client
    options: UninstallOptions
    leader_s: float = _LEADER_S
    wall_s: Callable[[], float] = time.time
    generations: dict[str, int] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)

    @property
    def steps(self) -> tuple[tuple[str, Callable[[], Awaitable[str]]], ...]:
        """The steps with their names; each returns a sentence."""
        return (
            ("policy", self.disable_policy),
            ("node SLOs", self.disable_nodes),
            ("release", self.await_release),
            ("webhooks", self.remove_webhooks),
            ("managers", self.stop_managers),
            ("nodes", self.clean_nodes),
            ("agents", self.dismiss_agents),
            ("pods", self.await_pods),
            ("reports", self.clean_reports),
        )

    async def run(self) -> None:
        for name, step in self.steps:
            try:
                _log.info("%s: %s", name, await step())
            except KubeError as error:
                _log.error("%s: failed: %s; run it again, it goes on from there", name, error)
                raise

    async def disable_policy(self) -> str:
        key = Key(self.options.config_namespace, self.options.slo_config_name)
        stored = await _found(self.client.get(CONFIG_MAP, key))
        if stored is None:
            return await self._make_empty_policy(key)
        data = texts(stored.content.get("data"))
        stated = [row.key for row in ROWS if row.key in data]
        if not stated:
            return f"ConfigMap {key} says nothing, so everything is off"
        annotations = {ANNOTATION_BEFORE: json.dumps(data, sort_keys=True)}
        patch = {"metadata": {"annotations": annotations}, "data": dict.fromkeys(stated)}
        await self.client.patch(CONFIG_MAP, key, patch)
        return f"took {', '.join(stated)} out of ConfigMap {key}, so everything is off; an annotation keeps it"

    async def _make_empty_policy(self, key: Key) -> str:
        metadata = {"name": key.name, "namespace": key.namespace}
        body = {"apiVersion": CONFIG_MAP.api_version, "kind": CONFIG_MAP.name, "metadata": metadata, "data": {}}
        if await _found(self.client.create(CONFIG_MAP, body, key.namespace)) is None:
            return f"there is no namespace {key.namespace}, so no manager has a policy"
        return f"made ConfigMap {key}, which says nothing, so everything is off; there was none"

    async def disable_nodes(self) -> str:
        nodes = {node.metadata.name: node for node in await self._listed(NODE)}
        stored = await self._listed(NODE_SLO)

        async def disable(slo: Unstructured) -> bool:
            name = slo.metadata.name
            patch = _disabling(slo, nodes.get(name))
            if patch:
                changed = await _found(self.client.patch(NODE_SLO, Key("", name), {"spec": patch}))
                slo = slo if changed is None else changed
            self.generations[name] = _generation(slo)
            return bool(patch)

        changed = await _each(stored, disable)
        return f"{changed} of {len(stored)} NodeSLOs written, all of them say that everything is off"

    async def await_release(self) -> str:
        took_s, metrics = await self._until(self._has_released)
        ours = [each for each in metrics.objects.values() if nodestate.ANNOTATION in each.metadata.annotations]
        done = f"all {len(ours)} nodes with an agent have given back what they held by the policy, after {took_s:.0f} s"
        left = f"of {len(ours)} nodes have not given back everything within {took_s:.0f} s"
        return self._said("release", metrics, self._has_released, done, left)

    async def await_pods(self) -> str:
        """Waits for the nodes' pods; a node that did not answer before is not waited for again."""
        took_s, metrics = await self._until(self._has_let_go)
        states = [_state(each) for each in metrics.objects.values()]
        ours = [each for each in states if each is not None and each.is_dismissed is not None]
        done = f"no kernel file of {len(ours)} nodes holds a value of Koord's any more, after {took_s:.0f} s"
        left = f"of {len(ours)} nodes hold values of Koord's after {took_s:.0f} s"
        units = sum(each is not None and each.is_dismissed is None for each in states)
        beside = f"; on {units} nodes the agent is a unit of the host: koordctl uninstall takes it off" if units else ""
        return self._said("pods", metrics, self._has_let_go, done, left) + beside

    async def _until(self, is_done: Callable[[NodeMetric], bool]) -> tuple[float, Reports]:
        """Follows the reports, so that a node is heard at once, until all say so, or for the time that there is."""
        began_s, stream = time.monotonic(), EventStream()
        metrics = Informer(self.client, NODE_METRIC, time.monotonic, stream=stream, transform=as_read)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(metrics.run())
            try:
                async with asyncio.timeout(self.options.timeout):
                    await metrics.synced.wait()
                    while any(
                        each.metadata.name not in self.late and not is_done(each) for each in metrics.objects.values()
                    ):
                        await stream.take(_EVENTS)
            except TimeoutError:
                pass
            finally:
                following.cancel()
        return time.monotonic() - began_s, metrics

    def _has_released(self, metric: NodeMetric) -> bool:
        """One whose agent is not ours never says anything of it."""
        state = _state(metric)
        generation = self.generations.get(metric.metadata.name)
        if state is None or generation is None:
            return True
        return state.held_files == 0 and state.slo_generation >= generation

    def _has_let_go(self, metric: NodeMetric) -> bool:
        """A unit of the host, and an agent of before, are not the cluster's to dismiss."""
        state = _state(metric)
        if state is None or state.is_dismissed is None or metric.metadata.name not in self.generations:
            return True
        return state.is_dismissed and state.held_files + state.pod_files == 0

    def _said(
        self,
        step: str,
        metrics: Reports,
        is_done: Callable[[NodeMetric], bool],
        done: str,
        left: str,
    ) -> str:
        """The first nodes that are not done are named; all of them are ``late`` from now on."""
        if not metrics.synced.is_set():
            return f"no node was heard: {metrics.error}; going on"
        waiting = [metric for metric in metrics.objects.values() if not is_done(metric)]
        for metric in waiting[:_NAMED]:
            _log.warning("%s: node %s", step, self._complaint(metric))
        self.late |= {metric.metadata.name for metric in waiting}
        return f"{len(waiting)} {left}; going on" if waiting else done

    def _complaint(self, metric: NodeMetric) -> str:
        name, state = metric.metadata.name, _state(metric)
        assert state is not None
        reported_s = unix_s(metric.status.update_time)
        age = "never reported" if reported_s is None else f"reported {self.wall_s() - reported_s:.0f} s ago"
        if state.slo_generation < self.generations[name]:
            follows = f"follows its NodeSLO's generation {state.slo_generation}, not {self.generations[name]} yet"
        elif state.is_dismissed is False and not state.held_files:
            follows = "has not heard that its agent goes, and keeps what pods got from it"
        else:
            follows = f"holds {state.held_files + state.pod_files} files"
        return f"{name} {follows} ({age}): that stays until it restarts, or koordctl restore --yes is run there"

    async def remove_webhooks(self) -> str:
        names = []
        for kind, name in CONFIGURATIONS.values():
            if await _was_there(self.client.delete(kind, Key("", name))):
                names.append(name)
        return f"removed {', '.join(names)}" if names else "there are none"

    async def stop_managers(self) -> str:
        """Until the last leader is gone, so that nothing is offered again behind the next step.

        Their pods are waited for as well: an agent that ends before a pod that it knows leaves what it keeps.
        """
        namespace = self.options.config_namespace
        key = Key(namespace, self.options.deployment)
        deployment = await _found(self.client.patch(DEPLOYMENT, key, {"spec": {"replicas": 0}}))
        said = f"there is no Deployment {key}" if deployment is None else f"Deployment {key} has no replicas"
        lease = Key(namespace, LEASE_NAME)
        deadline_s = time.monotonic() + self.leader_s
        while leader := _leader(await _found(self.client.get(LEASE, lease)), self.wall_s()):
            if time.monotonic() >= deadline_s:
                return f"{said}; {leader} still leads, and offers nothing by the policy"
            await asyncio.sleep(_LOOK_S)
        while pods := await self._pods_of(deployment):
            if time.monotonic() >= deadline_s:
                return f"{said}; nobody leads, {len(pods)} of their pods have not ended yet"
            await asyncio.sleep(_LOOK_S)
        return f"{said}; nobody leads"

    async def _pods_of(self, deployment: Unstructured | None) -> list[Pod]:
        if deployment is None:
            return []
        labels = deployment.content.get("spec", {}).get("selector", {}).get("matchLabels")
        if not labels:
            return []
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        return await self._listed(POD, Selection(self.options.config_namespace, labels=selector))

    async def clean_nodes(self) -> str:
        nodes = await self._listed(NODE)
        held = sum(map(_is_held, nodes))

        async def clean(node: Node) -> bool:
            patch = _cleaning(node)
            if patch:
                await _found(self.client.patch(NODE, Key("", node.metadata.name), patch, subresource="status"))
            return bool(patch)

        cleaned = await _each(nodes, clean)
        said = f"removed batch and mid resources and their annotations from {cleaned} of {len(nodes)} nodes"
        return f"{said}; {held} still offered some{_ENDS}" if held else said

    async def dismiss_agents(self) -> str:
        """Last, since a manager that runs takes the word back: it is there to stay."""
        stored = await self._listed(NODE_SLO)

        async def dismiss(slo: Unstructured) -> bool:
            if nodestate.UNINSTALLED in slo.metadata.annotations:
                return False
            patch = nodestate.mark("true")
            return await _found(self.client.patch(NODE_SLO, Key("", slo.metadata.name), patch)) is not None

        return f"told the agents of {await _each(stored, dismiss)} of {len(stored)} nodes that they go for good"

    async def clean_reports(self) -> str:
        """An agent that has said all of it does not say it again; what one still holds stays to be read."""
        stored = await self._listed(NODE_METRIC)
        done = [each for each in stored if nodestate.ANNOTATION in each.metadata.annotations and self._is_gone(each)]

        async def clean(metric: NodeMetric) -> bool:
            patch = {"metadata": {"annotations": {nodestate.ANNOTATION: None}}}
            return await _found(self.client.patch(NODE_METRIC, Key("", metric.metadata.name), patch)) is not None

        cleaned = await _each(done, clean)
        return f"took the annotation {nodestate.ANNOTATION} off {cleaned} of {len(stored)} NodeMetrics"

    def _is_gone(self, metric: NodeMetric) -> bool:
        """Returns whether the node's agent has nothing left to say, or there is no agent."""
        state = _state(metric)
        return state is None or (state.is_dismissed is True and self._has_let_go(metric))

    async def _listed(self, kind: Kind[Any], selection: Selection = EVERYTHING) -> list[Any]:
        page = await self.client.list(kind, selection)
        return [entry.object for entry in page.entries if entry.object is not None]


def _state(metric: NodeMetric) -> nodestate.NodeState | None:
    return nodestate.decoded(metric.metadata.annotations.get(nodestate.ANNOTATION))


def _disabling(slo: Unstructured, node: Node | None) -> mergepatch.Patch:
    """Returns the patch that makes of ``slo`` what a manager would make of no ConfigMap; empty if it is that."""
    labels, annotations = ({}, {}) if node is None else (node.metadata.labels, node.metadata.annotations)
    desired, _ = SLOConfig.defaults().node_slo(labels, annotations)
    if nodeslo.says(slo, desired):
        return {}
    return mergepatch.diff(nodeslo.spec_of(slo), nodeslo.document(desired))


def _generation(slo: Unstructured) -> int:
    generation = slo.content.get("metadata", {}).get("generation", 0)
    return generation if isinstance(generation, int) else 0


def _cleaning(node: Node) -> mergepatch.Patch:
    """Empty if nothing is to go."""
    patch: mergepatch.Patch = dict(publish.status_patch(node, publish.RESET) or {})
    annotations = dict.fromkeys(name for name in _NODE_ANNOTATIONS if name in node.metadata.annotations)
    patch.pop("metadata", None)
    return {**patch, "metadata": {"annotations": annotations}} if annotations else patch


def _is_held(node: Node) -> bool:
    """Returns whether the Node shows any batch or mid resources. With everything off those are what its running pods
    request.
    """
    shown = (amounts.read(node.status.allocatable, names).filled() for names in (BATCH, MID))
    return any(each != ZERO for each in shown)


def _leader(lease: Lease | None, now_s: float) -> str:
    """Returns the holder of the Lease; "" if it has none any more."""
    if lease is None or not lease.spec.holder_identity:
        return ""
    renewed_s = unix_s(lease.spec.renew_time)
    if renewed_s is None or renewed_s + (lease.spec.lease_duration_seconds or 0) < now_s:
        return ""
    return lease.spec.holder_identity


async def _each(items: Iterable[T], action: Callable[[T], Awaitable[bool]]) -> int:
    """Returns how many of ``items`` were dealt with. Raises the first KubeError, when all that had begun have ended."""
    turns = asyncio.Semaphore(_WORKERS)

    async def act(item: T) -> bool:
        async with turns:
            return await action(item)

    results = await asyncio.gather(*map(act, items), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return sum(result is True for result in results)


async def _found(call: Awaitable[T]) -> T | None:
    """Returns the object; None if there is none."""
    try:
        return await call
    except APIError as error:
        if error.is_not_found:
            return None
        raise


async def _was_there(call: Awaitable[None]) -> bool:
    try:
        await call
    except APIError as error:
        if error.is_not_found:
            return False
        raise
    return True
