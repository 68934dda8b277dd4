"""The webhooks by their paths: ``judges`` with the manager's view of the cluster."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from koord.admission import UnknownNamespace
from koord.kube.client import Client
from koord.model.admissionreview import AdmissionRequest, AdmissionResponse
from koord.webhook.server import Handler, Verdict
from koord_manager.namespacelookup import NamespaceLookup
from koord_manager.options import (
    CONFIG_MAP_VALIDATING,
    NODE_MUTATING,
    NODE_VALIDATING,
    POD_MUTATING,
    POD_VALIDATING,
    Options,
)
from koord_manager.view import ClusterView
from koord_manager.webhooks import judges
from koord_manager.webhooks.judges import Grounds, judge
from koord_manager.webhooks.largereviews import ReviewProcesses

_GATES: Mapping[str, str] = {
    judges.MUTATE_POD: POD_MUTATING,
    judges.VALIDATE_POD: POD_VALIDATING,
    judges.MUTATE_NODE_STATUS: NODE_MUTATING,
    judges.VALIDATE_NODE: NODE_VALIDATING,
    judges.VALIDATE_CONFIG_MAP: CONFIG_MAP_VALIDATING,
}


class Webhooks:
    """The handlers of a `WebhookServer`, by path. ``large``: judges large reviews in processes of its own; it is closed
    after the server.
    """

    def __init__(self, client: Client, view: ClusterView, options: Options) -> None:
        self._view = view
        self._paths = frozenset(path for path, gate in _GATES.items() if options.is_on(gate))
        self._config_map = options.config_namespace, options.slo_config_name
        self._are_names_required = options.node_strategy_name_need_check
        self._namespaces = NamespaceLookup(client, time.monotonic)
        self.large = ReviewProcesses(self._grounds, self._namespaces.labels)

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {path: partial(self._handle, path) for path in _GATES}

    def _handle(
        self, path: str, request: AdmissionRequest
    ) -> AdmissionResponse | Callable[[str], Awaitable[AdmissionResponse | Verdict]]:
        """Judges the request at once. Where its namespace is not known yet, returns what the server calls with the
        client's address, and awaits: the namespace is looked up first.
        """
        try:
            return judge(path, request, self._grounds(path))
        except UnknownNamespace as unknown:
            return partial(self._handle_in, unknown.name, path, request)

    async def _handle_in(self, namespace: str, path: str, request: AdmissionRequest, client_address: str) -> Verdict:
        """Handles a request in a namespace that no event has told of yet. Raises OverloadedError."""
        labels = await self._namespaces.labels(namespace, client_address)
        return lambda: judge(path, request, self._grounds(path), {namespace: labels})

    def _grounds(self, path: str) -> Grounds:
        """Returns what requests are judged by now: settings, policy, namespaces, and, for ConfigMaps alone, nodes."""
        nodes = self._view.nodes.objects.items() if path == judges.VALIDATE_CONFIG_MAP else ()
        return Grounds(
            self._paths,
            self._view.admission(),
            self._view.config,
            self._config_map,
            self._are_names_required,
            [(key.name, node.metadata.labels) for key, node in nodes],
        )
