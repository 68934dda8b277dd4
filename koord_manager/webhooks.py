"""The webhooks by their paths: ``koord.model.admission`` with the manager's view of the cluster.

A path whose gate is off is served all the same, and lets everything pass: an entry of a webhook configuration that
somebody forgot must not block the cluster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from koord.kube.client import Client
from koord.kube.webhookserver import Handler, Response, Review, allow
from koord.model.admission import (
    AdmissionContext,
    mutate_node_status,
    mutate_pod,
    unknown_namespace,
    validate_config_map,
    validate_node,
    validate_pod,
)
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


class Webhooks:
    def __init__(self, client: Client, view: ClusterView, options: Options) -> None:
        self._view, self._options = view, options
        self._namespaces = NamespaceLookup(client, time.monotonic)
        self._judging_config_map = asyncio.Lock()

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Those whose gate is on, and for the others one that allows."""
        rows: tuple[tuple[str, str, Handler], ...] = (
            ("/mutate-pod", POD_MUTATING, self._mutate_pod),
            ("/validate-pod", POD_VALIDATING, self._validate_pod),
            ("/mutate-node-status", NODE_MUTATING, _mutate_node_status),
            ("/validate-node", NODE_VALIDATING, self._validate_node),
            ("/validate-configmap", CONFIG_MAP_VALIDATING, self._validate_config_map),
        )
        return {path: handler if self._options.is_on(gate) else allow for path, gate, handler in rows}

    async def _mutate_pod(self, review: Review) -> Response:
        context = self._view.admission()
        namespace = unknown_namespace(review, context)
        if namespace is not None:
            context = await self._with_namespace(context, namespace)
        return _response(mutate_pod(review, context))

    def _validate_pod(self, review: Review) -> Response:
        return _response(validate_pod(review, self._view.admission()))

    def _validate_node(self, review: Review) -> Response:
        return _response(validate_node(review, self._view.config))

    async def _validate_config_map(self, review: Review) -> Response:
        """One at a time, in a thread: many entries take seconds, in which pods go on to be judged."""
        options = self._options
        nodes = [(key.name, node.metadata.labels) for key, node in self._view.nodes.objects.items()]
        key = (options.config_namespace, options.slo_config_name)
        needs_names = options.node_strategy_name_need_check
        async with self._judging_config_map:
            return _response(await asyncio.to_thread(validate_config_map, review, *key, nodes, needs_names))

    async def _with_namespace(self, context: AdmissionContext, name: str) -> AdmissionContext:
        """With the labels of a namespace that no event has told of yet. Raises KubeError."""
        labels = await self._namespaces.labels(name)
        return context if labels is None else replace(context, namespaces={**context.namespaces, name: labels})


def _mutate_node_status(review: Review) -> Response:
    return _response(mutate_node_status(review))


def _response(answer: Mapping[str, Any]) -> Response:
    """The server makes the envelope."""
    response: Response = answer["response"]
    return response
