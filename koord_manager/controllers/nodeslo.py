"""NodeSLO: one per node, with all of the policy that ``slo-controller-config`` has for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from koord.kube.client import Client
from koord.kube.kind import NODE_SLO, Key, Unstructured
from koord.kube.recorder import EventRecorder
from koord.model import mergepatch, nodestate, schema, slo, slo_extensions
from koord.model.schema import SchemaError
from koord.model.slo import NodeSLOSpec
from koord.sloconfig import nodeslo
from koord.sloconfig.rows import ROWS
from koord_manager.controllers import complaints, nodeobject
from koord_manager.controllers.complaints import Complaint
from koord_manager.view import ClusterView

_EXTENSIONS = "extensions"


class NodeSLOController:
    def __init__(self, client: Client, view: ClusterView, recorder: EventRecorder) -> None:
        self._client, self._view, self._recorder = client, view, recorder
        self._complaints: dict[str, frozenset[Complaint]] = {}

    async def reconcile(self, name: str) -> float | None:
        """Makes, mends or deletes the node's NodeSLO. Raises KubeError.

        A key that was bad ever since this manager started is no reason to change the sections that are made of it.
        """
        node, stored = self._view.nodes.get(Key("", name)), self._view.slos.get(Key("", name))
        if node is None:
            self._complaints.pop(name, None)
            if stored is not None:
                await nodeobject.delete(self._client, NODE_SLO, name, stored.metadata.uid)
            return None
        desired, problems = self._view.config.node_slo(node.metadata.labels, node.metadata.annotations)
        found = [Complaint("NodeSLOProblem", str(each)) for each in problems]
        before = self._complaints.get(name, frozenset())
        self._complaints[name] = complaints.tell(self._recorder, node, found, before)
        if stored is None:
            await nodeobject.create(self._client, NODE_SLO, name, document(desired))
        else:
            await self._mend(name, stored, desired)
        if stored is not None and nodestate.UNINSTALLED in stored.metadata.annotations:
            await self._client.patch(NODE_SLO, Key("", name), nodestate.mark(None))
        return None

    async def _mend(self, name: str, stored: Unstructured, desired: NodeSLOSpec) -> None:
        unread = [row for row in ROWS if row.node_slo_field and self._view.is_unread(row.section)]
        fields = {row.node_slo_field for row in unread}
        owned = nodeslo.owned(spec_of(stored))
        before = {field: section for field, section in owned.items() if field not in fields}
        after = msgspec.structs.replace(desired, **{row.section: None for row in unread})
        if not _means(before, after):
            await nodeobject.change(self._client, NODE_SLO, name, before, _in_form_of(before, document(after)))


def says(stored: Unstructured, desired: NodeSLOSpec) -> bool:
    """Returns whether the object means what it is to mean, whatever an API server or another encoder made of it."""
    return _means(nodeslo.owned(spec_of(stored)), desired)


def _means(spec: Mapping[str, Any], desired: NodeSLOSpec) -> bool:
    try:
        stated = slo.decode_spec(spec)
    except SchemaError:
        return False
    return nodeslo.normal(stated) == nodeslo.normal(desired)


def spec_of(stored: Unstructured) -> dict[str, Any]:
    spec = stored.content.get("spec")
    return dict(spec) if isinstance(spec, Mapping) else {}


def document(spec: NodeSLOSpec) -> mergepatch.Patch:
    return dict(json.loads(schema.encode(spec)))


def _in_form_of(stored: Mapping[str, Any], after: mergepatch.Patch) -> mergepatch.Patch:
    """Returns ``after`` with its extensions where ``stored`` has them, also if it has none: those of others stay."""
    before = stored.get(_EXTENSIONS)
    if not isinstance(before, Mapping):
        return after
    return {**after, _EXTENSIONS: slo_extensions.in_form_of(before, after.get(_EXTENSIONS, {}))}
