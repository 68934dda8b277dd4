"""Informers of what volumes are made of, which feed the volumes of the state.

Whatever changes here may help any pod that waits for a volume; ``changed`` is called after each event.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from koord.kube.client import Client
from koord.kube.informer import Followed, Informer, as_read
from koord.kube.kind import Key, Kind, Object
from koord.kube.schedulingkinds import (
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    STORAGE_CLASS,
)
from koord.kube.stream import EventStream, ObjectEvent
from koord.model.problem import Problem
from koord.model.scheduling.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from koord.scheduling.volumes import Volumes

_log = logging.getLogger(__name__)


class StorageView:
    def __init__(
        self,
        client: Client,
        volumes: Volumes,
        stream: EventStream,
        monotonic_s: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self._volumes, self._changed, now = volumes, changed, monotonic_s
        claims = Informer(
            client, PERSISTENT_VOLUME_CLAIM, now, stream=stream, transform=as_read, handle=self._take_claim
        )
        taken = Informer(client, PERSISTENT_VOLUME, now, stream=stream, transform=as_read, handle=self._take_volume)
        classes = Informer(client, STORAGE_CLASS, now, stream=stream, transform=as_read, handle=self._take_class)
        nodes = Informer(client, CSI_NODE, now, stream=stream, transform=as_read, handle=self._take_node)
        drivers = Informer(client, CSI_DRIVER, now, stream=stream, transform=as_read, handle=self._take_driver)
        capacities = Informer(
            client, CSI_STORAGE_CAPACITY, now, stream=stream, transform=as_read, handle=self._take_capacity
        )
        self.informers: tuple[Followed, ...] = (claims, taken, classes, nodes, drivers, capacities)

    def _take_claim(self, event: ObjectEvent[PersistentVolumeClaim]) -> None:
        if event.after is None:
            self._volumes.remove_claim(event.key.namespace, event.key.name)
        else:
            _tell(event.kind, event.key, self._volumes.put_claim(event.after))
        self._changed()

    def _take_volume(self, event: ObjectEvent[PersistentVolume]) -> None:
        if event.after is None:
            self._volumes.remove_volume(event.key.name)
        else:
            _tell(event.kind, event.key, self._volumes.put_volume(event.after))
        self._changed()

    def _take_class(self, event: ObjectEvent[StorageClass]) -> None:
        if event.after is None:
            self._volumes.remove_class(event.key.name)
        else:
            self._volumes.put_class(event.after)
        self._changed()

    def _take_node(self, event: ObjectEvent[CSINode]) -> None:
        if event.after is None:
            self._volumes.limits.remove(event.key.name)
        else:
            self._volumes.limits.put(event.after)
        self._changed()

    def _take_driver(self, event: ObjectEvent[CSIDriver]) -> None:
        if event.after is None:
            self._volumes.remove_driver(event.key.name)
        else:
            self._volumes.put_driver(event.after)
        self._changed()

    def _take_capacity(self, event: ObjectEvent[CSIStorageCapacity]) -> None:
        if event.after is None:
            self._volumes.remove_capacity(event.key.namespace, event.key.name)
        else:
            _tell(event.kind, event.key, self._volumes.put_capacity(event.after))
        self._changed()


def _tell(kind: Kind[Object], key: Key, problems: Iterable[Problem]) -> None:
    for problem in problems:
        _log.warning("%s %s: %s", kind.name, key, problem)
