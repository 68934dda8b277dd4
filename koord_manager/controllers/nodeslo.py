"""NodeSLO: one per node, with all of the policy that ``slo-controller-config`` has for it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from koord.kube.client import Client
from koord.kube.kind import NODE_SLO, Key, Unstructured
from koord.model import mergepatch, nodestate, schema, slo
from koord.model.schema import SchemaError
from koord.model.slo import NodeSLOSpec
from koord.model.sloconfig import nodeslo
from koord_manager.controllers import nodeobject
from koord_manager.view import ClusterView

_log = logging.getLogger(__name__)


class NodeSLOController:
    def __init__(self, client: Client, view: ClusterView) -> None:
        self._client, self._view = client, view

    async def reconcile(self, name: str) -> float | None:
        """Makes, mends or deletes the node's NodeSLO. Raises KubeError."""
        node, stored = self._view.nodes.get(Key("", name)), self._view.slos.get(Key("", name))
        if node is None:
            if stored is not None:
                await nodeobject.delete(self._client, NODE_SLO, name, stored.metadata.uid)
            return None
        desired, faults = self._view.config.node_slo(node.metadata.labels, node.metadata.annotations)
        for fault in faults:
            _log.warning("node %s: %s", name, fault.message)
        if stored is None:
            await nodeobject.create(self._client, NODE_SLO, name, document(desired))
        elif not says(stored, desired):
            await nodeobject.change(self._client, NODE_SLO, name, spec_of(stored), document(desired))
        if stored is not None and nodestate.UNINSTALLED in stored.metadata.annotations:
            await self._client.patch(NODE_SLO, Key("", name), nodestate.mark(None))
        return None


def says(stored: Unstructured, desired: NodeSLOSpec) -> bool:
    """Does the object mean what it is to mean, whatever an API server or another encoder made of it?"""
    try:
        spec = slo.decode_spec(spec_of(stored))
    except SchemaError:
        return False
    return nodeslo.normal(spec) == nodeslo.normal(desired)


def spec_of(stored: Unstructured) -> dict[str, Any]:
    spec = stored.content.get("spec")
    return dict(spec) if isinstance(spec, Mapping) else {}


def document(spec: NodeSLOSpec) -> mergepatch.Patch:
    return dict(json.loads(schema.encode(spec)))
