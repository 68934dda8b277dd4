"""Whose selectors say which pods belong together: Services of core/v1, and the controllers of core/v1 and apps/v1."""

from __future__ import annotations

from collections.abc import Mapping

from koord.model.core import ObjectMeta, Slim
from koord.model.selector import LabelSelector


class ServiceSpec(Slim, frozen=True):
    selector: Mapping[str, str] | None = None
    """None selects no pod."""


class Service(Slim, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class ReplicationControllerSpec(Slim, frozen=True):
    selector: Mapping[str, str] = {}


class ReplicationController(Slim, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class ControllerSpec(Slim, frozen=True):
    selector: LabelSelector = LabelSelector()


class ReplicaSet(Slim, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ControllerSpec = ControllerSpec()


class StatefulSet(Slim, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ControllerSpec = ControllerSpec()
