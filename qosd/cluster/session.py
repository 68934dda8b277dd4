"""The connection to the cluster: one client, and the parts that use it, in the daemon's event loop.

It follows this node's objects for the policy, reports, and evicts by the API where it can. Each part is kept running by
itself (``supervision``). Invariants: few requests, at most ``QPS`` a second in the long run, whatever goes wrong; the
credentials are those that the files say now, so a rotation needs no restart. It fails with nothing: a cluster that
cannot be reached, or credentials that are not there yet, are an input that grows old.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from math import nan
from pathlib import Path

import koord
from koord.kube import kubeconfig
from koord.kube.client import CallLimits, Client
from koord.kube.credentials import Credentials
from koord.kube.kubeconfig import RESTConfig
from koord.kube.ratelimit import RateLimit
from koord.kube.recorder import EventRecorder
from koord.kube.transport import Transport
from koord.model import locations
from qosd.cluster.apieviction import evicting_by_api
from qosd.cluster.apipods import APIPods
from qosd.cluster.feed import ClusterFeed
from qosd.cluster.nodelink import NodeLinkClient, NodeLinkEvictions
from qosd.cluster.reporter import Reporter
from qosd.cluster.supervision import keep_running
from qosd.cluster.topologyreporter import TopologyReporter
from qosd.clusterstatus import ClusterStatus
from qosd.node import Node
from qosd.options import IN_CLUSTER, Options, node_name

COMPONENT = "koordlet"
"""The source of Events, by the name that users know the node's agent by."""

QPS, BURST = 5.0, 10
Part = tuple[str, Callable[[], Awaitable[None]]]


class ClusterSession:
    """Lives in the running event loop. ``policy``: the cluster's layer of the node's policy."""

    def __init__(self, node: Node, options: Options, environ: Mapping[str, str]) -> None:
        self._node = node
        self.node_name = node_name(options, environ)
        self._is_pod = options.kubeconfig == IN_CLUSTER
        self.policy = node.cluster_policy
        self._credentials = Credentials(
            lambda: _settings(options.kubeconfig, environ), environ, time.monotonic, time.time
        )
        self._transport = Transport(self._credentials, f"koord-qosd/{koord.__version__}")
        self.client = Client(self._transport, CallLimits(RateLimit(QPS, BURST, time.monotonic)))
        self.recorder = EventRecorder(self.client, COMPONENT, self.node_name, time.time)
        self.feed = ClusterFeed(self.client, self.node_name, self.policy, time.monotonic)
        self._reporter = Reporter(self.client, self.node_name, node, self.feed.node_metric)
        self._topology_reporter = TopologyReporter(self.client, self.node_name, node)
        self._pods = APIPods(self.client, self.node_name)
        if node.pod_lists is not None:
            node.pod_lists.substitute = self._pods
        self.link = self._node_link(environ)
        node.cluster_status = self.status
        node.is_uninstalled = lambda: self.feed.is_uninstalled
        node.is_dismissed = lambda: self.feed.is_uninstalled if self._is_pod else None
        node.metrics.cluster_reachable = lambda: float(self.feed.is_reachable)
        node.metrics.cluster_silence_seconds = lambda: nan if self.feed.silent_s is None else self.feed.silent_s

    async def run(self) -> None:
        """Runs until it is cancelled."""
        api = NodeLinkEvictions(self.link, self.client) if self._is_pod else self.client
        try:
            with evicting_by_api(self._node.actuator.evictions, api, self.recorder):
                async with asyncio.TaskGroup() as group:
                    for name, run in self._parts():
                        group.create_task(keep_running(name, run, self._node.metrics.cluster_crashes), name=name)
        finally:
            await self.close()

    async def close(self) -> None:
        """Closes the connections of a session that does not run."""
        await self._transport.close()

    def status(self) -> ClusterStatus:
        feed = self.feed
        reports = [reporter.status() for reporter in (self._reporter, self._topology_reporter)]
        parts = (*feed.status(), *(replace(part, name=f"{part.name} report") for part in reports), self.link.status())
        return ClusterStatus(self._credentials.server, self.node_name, feed.is_reachable, feed.silent_s, parts)

    def _node_link(self, environ: Mapping[str, str]) -> NodeLinkClient:
        """Returns the link to the manager; the manager of a pod is in the pod's own namespace."""
        namespace = _own_namespace(environ) if self._is_pod else locations.NAMESPACE
        return NodeLinkClient(self.client, self.node_name, self._node, self.feed.node_metric, namespace)

    def _parts(self) -> list[Part]:
        return [
            *((informer.kind.name, informer.run) for informer in self.feed.informers),
            ("policy", self.feed.run),
            ("reports", self._reporter.run),
            ("topology", self._topology_reporter.run),
            ("pods", self._pods.run),
            ("NodeLink", self.link.run),
            ("events", self.recorder.run),
        ]


def _settings(kubeconfig_option: str, environ: Mapping[str, str]) -> RESTConfig:
    """Raises kubeconfig.ConfigError or OSError."""
    if kubeconfig_option == IN_CLUSTER:
        return kubeconfig.in_cluster(environ)
    return kubeconfig.read_kubeconfig([Path(kubeconfig_option)])


def _own_namespace(environ: Mapping[str, str]) -> str:
    """Returns the namespace of the agent's pod."""
    try:
        return kubeconfig.in_cluster(environ).namespace or locations.NAMESPACE
    except (kubeconfig.KubeconfigError, OSError):
        return locations.NAMESPACE
