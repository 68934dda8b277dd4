"""The webhooks by their paths: ``judges`` with the manager's view of the cluster.

A quota is judged by others, of which events may be late: one that is to be refused is judged again ``LATE_S`` later,
and none before the quotas are known.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from koord.admission import UnknownNamespace
from koord.kube.client import Client
from koord.model.admissionreview import AdmissionRequest, AdmissionResponse
from koord.webhook.reviews import OverloadedError
from koord.webhook.server import Handler, Verdict
from koord_manager.namespacelookup import NamespaceLookup
from koord_manager.options import (
    CONFIG_MAP_VALIDATING,
    ELASTIC_MUTATING,
    ELASTIC_VALIDATING,
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
    judges.MUTATE_QUOTA: ELASTIC_MUTATING,
    judges.VALIDATE_QUOTA: ELASTIC_VALIDATING,
    judges.MUTATE_NODE_STATUS: NODE_MUTATING,
    judges.VALIDATE_NODE: NODE_VALIDATING,
    judges.VALIDATE_CONFIG_MAP: CONFIG_MAP_VALIDATING,
}


_OF_QUOTAS = (judges.MUTATE_QUOTA, judges.VALIDATE_QUOTA)
LATE_S = 0.5


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
        self.large = ReviewProcesses(self._grounds_elsewhere, self._namespaces.labels)

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {path: partial(self._handle, path) for path in _GATES}

    def _handle(
        self, path: str, request: AdmissionRequest
    ) -> AdmissionResponse | Callable[[str], Awaitable[AdmissionResponse | Verdict]]:
        """Judges the request at once. Where its namespace is not known yet, returns what the server calls with the
        client's address, and awaits: the namespace is looked up first.
        """
        if path in _OF_QUOTAS and path in self._paths:
            return self._handle_quota(path, request)
        try:
            return judge(path, request, self._grounds(path))
        except UnknownNamespace as unknown:
            return partial(self._handle_in, unknown.name, path, request)

    def _handle_quota(
        self, path: str, request: AdmissionRequest
    ) -> AdmissionResponse | Callable[[str], Awaitable[AdmissionResponse | Verdict]]:
        is_known = self._view.elastic_quotas.synced.is_set()
        response = self._judged(path, request) if is_known else None
        if response is not None and response.is_allowed:
            return response

        async def wait(client_address: str) -> Verdict:
            """Raises OverloadedError."""
            await asyncio.sleep(LATE_S)
            if not self._view.elastic_quotas.synced.is_set():
                raise OverloadedError("the ElasticQuotas that there are, are not known yet")
            return lambda: self._judged(path, request)

        return wait

    def _judged(self, path: str, request: AdmissionRequest) -> AdmissionResponse:
        response = judge(path, request, self._grounds(path))
        if path == judges.VALIDATE_QUOTA and response.is_allowed:
            self._view.quotas.take_passed(request)
        return response

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
            self._view.pods_in if path == judges.VALIDATE_QUOTA else judges.no_pods,
        )

    def _grounds_elsewhere(self, path: str) -> Grounds:
        """Returns the same for another process, which sees nothing of the view."""
        grounds = self._grounds(path)
        if path != judges.VALIDATE_QUOTA:
            return grounds
        return replace(grounds, pods_in=self._view.pods_now())
