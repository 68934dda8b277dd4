"""Informers of what volumes are made of, which feed the volumes of the state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from koord.kube.client import Client
from koord.kube.informer import Followed, Informer, as_read
from koord.kube.kind import Key, Kind, T
from koord.kube.schedulingkinds import (
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    STORAGE_CLASS,
    VOLUME_ATTACHMENT,
)
from koord.kube.stream import EventStream, ObjectEvent
from koord.model.problem import Problem
from koord.scheduling.volumes import Volumes

_log = logging.getLogger(__name__)


def storage_informers(
    client: Client,
    volumes: Volumes,
    stream: EventStream,
    monotonic_s: Callable[[], float],
    changed: Callable[[], None],
) -> tuple[Followed, ...]:
    """Returns the informers, whose events go through ``stream``; ``changed`` is called after each event."""

    def followed(
        kind: Kind[T], put: Callable[[T], Iterable[Problem] | None], remove: Callable[[Key], None]
    ) -> Informer[T, T]:
        def take(event: ObjectEvent[T]) -> None:
            if event.after is None:
                remove(event.key)
            else:
                for problem in put(event.after) or ():
                    _log.warning("%s %s: %s", kind.name, event.key, problem)
            changed()

        return Informer(client, kind, monotonic_s, stream=stream, transform=as_read, handle=take)

    limits, attachments = volumes.limits, volumes.attachments
    return (
        followed(PERSISTENT_VOLUME_CLAIM, volumes.put_claim, lambda key: volumes.remove_claim(key.namespace, key.name)),
        followed(PERSISTENT_VOLUME, volumes.put_volume, lambda key: volumes.remove_volume(key.name)),
        followed(STORAGE_CLASS, volumes.put_class, lambda key: volumes.remove_class(key.name)),
        followed(CSI_NODE, limits.put, lambda key: limits.remove(key.name)),
        followed(VOLUME_ATTACHMENT, attachments.put, lambda key: attachments.remove(key.name)),
        followed(CSI_DRIVER, volumes.put_driver, lambda key: volumes.remove_driver(key.name)),
        followed(
            CSI_STORAGE_CAPACITY, volumes.put_capacity, lambda key: volumes.remove_capacity(key.namespace, key.name)
        ),
    )
