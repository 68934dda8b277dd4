"""Where a server's certificates live: a Secret, and the webhook configurations whose caBundle follows it, if any.

Invariant: of a configuration nothing is written but its bundles. Fails with KubeError.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import msgspec

from koord.kube.client import Client, PatchType, Selection
from koord.kube.errors import APIError, KubeError
from koord.kube.informer import Followed, Informer, as_read
from koord.kube.kind import SECRET, Key, Kind, T
from koord.kube.stream import EventStream
from koord.tls import servingloop
from koord.tls.servingcerts import ClusterWrite, Secret, SecretCreation, SecretUpdate, Service, WebhookConfiguration
from koord.tls.servingloop import Server

_log = logging.getLogger(__name__)
Configurations = Mapping[str, tuple[Kind[Any], str]]
"""Kind and name of webhook configurations, by the kind's name."""
_EVENTS = 16
Look = Callable[[Sequence[WebhookConfiguration]], None]


class CertificateStore:
    """``secret``: where it is. ``configurations``: those that follow it; ``look`` sees them whenever they are read,
    and those ``beside`` them, which are only looked at. ``may_be_provided``: whether somebody else may fill the Secret.

    Each call raises KubeError.
    """

    def __init__(
        self,
        client: Client,
        secret: Key,
        configurations: Configurations,
        look: Look = lambda found: None,
        beside: Configurations = MappingProxyType({}),
        may_be_provided: bool = True,
    ) -> None:
        self._client, self._key, self._configurations = client, secret, configurations
        self._look, self._beside, self._may_be_provided = look, beside, may_be_provided

    async def read_configurations(self) -> Sequence[WebhookConfiguration]:
        found = await self._read(self._configurations)
        try:
            beside = await self._read(self._beside)
        except KubeError as error:
            _log.debug("%s", error)  # no certificate waits for what is only looked at
            beside = []
        self._look([*found, *beside])
        return found

    async def _read(self, configurations: Configurations) -> list[WebhookConfiguration]:
        read = await asyncio.gather(*(self._configuration(*each) for each in configurations.values()))
        return [configuration for configuration in read if configuration is not None]

    async def _configuration(self, kind: Kind[Any], name: str) -> WebhookConfiguration | None:
        try:
            stored = await self._client.get(kind, Key("", name))
        except APIError as error:
            if error.is_not_found:
                return None
            raise
        configuration = msgspec.convert(stored.content, WebhookConfiguration)
        return msgspec.structs.replace(configuration, kind=kind.name)

    async def read_secret(self) -> Secret | None:
        try:
            stored = await self._client.get(SECRET, self._key)
        except APIError as error:
            if error.is_not_found:
                return None
            raise
        secret = msgspec.convert(stored.content, Secret)
        if secret.is_provided and not self._may_be_provided:
            raise KubeError(
                f"Secret {self._key} is filled by somebody else, such as cert-manager: whoever has a certificate of "
                "that authority could be a node here, so it is not used; delete it and make an empty one "
                f"({self._creation})"
            )
        return secret

    async def write(self, action: ClusterWrite) -> None:
        if isinstance(action, SecretCreation):
            await self._create(action)
        elif isinstance(action, SecretUpdate):
            await self._client.patch(SECRET, self._key, action.merge_patch)
        else:
            kind, _ = self._configurations[action.kind]
            patch = action.strategic_merge_patch
            await self._client.patch(kind, Key("", action.name), patch, PatchType.STRATEGIC)

    @contextlib.asynccontextmanager
    async def kept_in(self, server: Server, service: Service) -> AsyncIterator[None]:
        """Keeps the Secret's certificate, for ``service``, in ``server`` and its authority in the configurations,
        within the block, through all changes of Secret and configurations.
        """
        changed = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(servingloop.keep(self, server, service, lambda: datetime.now(UTC), changed)),
                group.create_task(self.watch(changed, time.monotonic)),
            ]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    async def watch(self, changed: asyncio.Event, clock: Callable[[], float]) -> None:
        """Sets ``changed`` whenever the Secret or a configuration is another, until it is cancelled."""
        stream = EventStream()

        def follow(kind: Kind[T], key: Key) -> Followed:
            selection = Selection(key.namespace, fields=f"metadata.name={key.name}")
            return Informer(self._client, kind, clock, selection, stream=stream, transform=as_read)

        informers = [
            follow(SECRET, self._key),
            *(follow(kind, Key("", name)) for kind, name in self._configurations.values()),
        ]
        async with asyncio.TaskGroup() as group:
            for informer in informers:
                group.create_task(informer.run())
            while await stream.take(_EVENTS):
                changed.set()

    async def _create(self, action: SecretCreation) -> None:
        data = {key: b64encode(value).decode() for key, value in action.data.items()}
        metadata = {"name": self._key.name, "namespace": self._key.namespace}
        body = {"apiVersion": "v1", "kind": SECRET.name, "metadata": metadata, "data": data}
        try:
            await self._client.create(SECRET, body, self._key.namespace)
        except APIError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            raise KubeError(f"{error}: Secret {self._key} is missing, make an empty one ({self._creation})") from error

    @property
    def _creation(self) -> str:
        return f"kubectl create secret generic -n {self._key.namespace} {self._key.name}"
