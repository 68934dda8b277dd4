"""The selectors of Services and controllers, by which pods are spread that have no constraints of their own.

Source: pkg/scheduler/framework/plugins/helper/spread.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from koord.model.selector import LabelSelector
from koord.scheduling.podinfo import PodInfo


class ControllerKey(NamedTuple):
    """``kind``: ``ReplicationController``, ``ReplicaSet`` or ``StatefulSet``."""

    kind: str
    namespace: str
    name: str


class ServicePods(NamedTuple):
    """The pods of ``namespace`` that have all ``labels``, which are a Service's selector."""

    namespace: str
    labels: frozenset[tuple[str, str]]


class Owners:
    def __init__(self) -> None:
        self._services: dict[str, dict[str, Mapping[str, str]]] = {}
        self._controllers: dict[ControllerKey, LabelSelector] = {}

    def put_service(self, namespace: str, name: str, selector: Mapping[str, str] | None) -> None:
        """A Service without a selector has no pods."""
        if selector is None:
            self.remove_service(namespace, name)
        else:
            self._services.setdefault(namespace, {})[name] = selector

    def remove_service(self, namespace: str, name: str) -> None:
        services = self._services.get(namespace, {})
        services.pop(name, None)
        if not services:
            self._services.pop(namespace, None)

    def put_controller(self, controller: ControllerKey, selector: LabelSelector) -> None:
        self._controllers[controller] = selector

    def remove_controller(self, controller: ControllerKey) -> None:
        self._controllers.pop(controller, None)

    def selector_of_controller(self, controller: ControllerKey) -> LabelSelector | None:
        return self._controllers.get(controller)

    def selector_of(self, pod: PodInfo) -> LabelSelector | None:
        """Returns what the pod's Services and its controller select together; None if it has neither."""
        labels: dict[str, str] = {}
        for selector in self._services.get(pod.namespace, {}).values():
            if selector.items() <= pod.labels.items():
                labels.update(selector)
        found = LabelSelector(match_labels=labels)
        owner = pod.pod.metadata.controller
        controller = owner and self._controllers.get(ControllerKey(owner.kind, pod.namespace, owner.name))
        if controller:
            found = LabelSelector(
                match_labels={**labels, **controller.match_labels}, match_expressions=controller.match_expressions
            )
        return None if found.is_empty else found
