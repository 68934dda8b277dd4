"""NodeMetric: one per node, with the policy that its agent measures by. The status is the agent's."""

from __future__ import annotations

import msgspec

from koord.kube.client import Client
from koord.kube.kind import NODE_METRIC, Key
from koord.model import mergepatch
from koord.model.nodemetric import NodeMetricSpec
from koord_manager.controllers import nodeobject
from koord_manager.view import ClusterView


class NodeMetricController:
    def __init__(self, client: Client, view: ClusterView) -> None:
        self._client, self._view = client, view

    async def reconcile(self, name: str) -> float | None:
        """Makes, mends or deletes the node's NodeMetric. Raises KubeError.

        A policy that was bad ever since this manager started is no reason to change one that is in force.
        """
        node, metric = self._view.nodes.get(Key("", name)), self._view.metrics.get(Key("", name))
        if node is None:
            if metric is not None:
                await nodeobject.delete(self._client, NODE_METRIC, name, metric.metadata.uid)
            return None
        policy = self._view.config.collect_policy(node.metadata.labels, node.metadata.annotations)
        desired = NodeMetricSpec(policy)
        if metric is None:
            await nodeobject.create(self._client, NODE_METRIC, name, _document(desired))
        elif not self._view.is_unread("colocation"):
            await nodeobject.change(self._client, NODE_METRIC, name, _document(metric.spec), _document(desired))
        return None


def _document(spec: NodeMetricSpec) -> mergepatch.Patch:
    return dict(msgspec.to_builtins(spec))
