"""koord-manager: what it is made of, and what each replica serves.

Every replica serves webhooks, keeps the configurations' caBundle, and answers nodes on NodeLink; one leads, and its
controllers write. On SIGTERM webhooks are served on until API servers have heard that this replica is no end point any
more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from koord.cluster import frame
from koord.cluster.frame import Component, Frame
from koord.kube.kind import Key
from koord.model.nodelink import LEASE_NAME
from koord.tls import certificates
from koord.tls.certificatestore import CertificateStore
from koord.tls.context import LiveContext
from koord.tls.servingcerts import Service
from koord.webhook.server import WebhookServer
from koord_manager.controllers.leading import Controllers
from koord_manager.controllers.profiles import ProfileController
from koord_manager.freshusage import FreshFigures
from koord_manager.installedcrds import InstalledCRDs
from koord_manager.installedwebhooks import CONFIGURATIONS, KOORDINATORS, SECRET_NAME, InstalledWebhooks
from koord_manager.metrics import Metrics
from koord_manager.nodelink.nodelink import NodeLinkEndpoint
from koord_manager.nodelink.service import Leadership
from koord_manager.options import COLOCATION_PROFILE_CONTROLLER, NAME, WEBHOOK_FRAMEWORK, Options
from koord_manager.view import ClusterView
from koord_manager.webhooks.webhooks import Webhooks

_log = logging.getLogger(__name__)
_DRAIN_S = 10.0


async def run(options: Options, environ: Mapping[str, str]) -> None:
    """Serves until SIGTERM or SIGINT. Raises KubeError or OSError if it cannot start."""
    address = options.advertise_address
    await frame.run(NAME, LEASE_NAME, options, environ, lambda made: Manager(made, options), address)


class Manager(Component):
    metrics: Metrics

    def __init__(self, frame: Frame, options: Options) -> None:
        self._frame, self._options = frame, options
        self._config_map = Key(options.config_namespace, options.slo_config_name)
        own, gates, users = options.config_namespace, options.feature_gates, options.scheduler_users
        self._view = ClusterView(frame.client, self._config_map, own, gates, time.monotonic, time.time, users)
        self._fresh = FreshFigures(time.monotonic)
        leaders = frame.leaders_client
        self._controllers = Controllers(leaders, self._view, self._fresh, frame.recorder, time.time, self._profiles())
        leadership = Leadership(lambda: frame.leads, lambda: frame.leader_address)
        self._nodelink = NodeLinkEndpoint(frame.client, leaders, self._view, self._fresh, options, leadership)
        frame.lease_annotations = self._nodelink.annotations
        self._crds = InstalledCRDs(frame.client)
        self._client_ca = _client_ca(options.webhook_client_ca_file)
        self._webhooks: WebhookServer | None = None
        super().__init__(self._view.needed, self._gauges())

    async def follow(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._view.run())
            group.create_task(self._crds.compare())

    async def synced(self) -> None:
        await self._view.synced()

    async def unready(self) -> str:
        if (sentence := await super().unready()) or not self._options.is_on(WEBHOOK_FRAMEWORK):
            return sentence
        return "webhooks are not served" if self._webhooks is None else await self._webhooks.unreadiness()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with self._served_webhooks(), self._nodelink.serving():
            yield

    async def lead(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodelink.lead())
            group.create_task(self._controllers.run())

    @contextlib.asynccontextmanager
    async def _served_webhooks(self) -> AsyncIterator[None]:
        options, client = self._options, self._frame.client
        if not options.is_on(WEBHOOK_FRAMEWORK):
            yield
            return
        names = tuple(filter(None, options.webhook_names.split(",")))
        service = Service(options.webhook_service, options.config_namespace, names)
        tls = LiveContext(self._client_ca)
        webhooks, durations = Webhooks(client, self._view, options), self.metrics.webhook_duration_seconds
        server = WebhookServer(
            webhooks.handlers,
            tls,
            service.names[0],
            durations,
            large=webhooks.large,
            client_names=options.webhook_client_names,
        )
        installed = InstalledWebhooks(service, options.is_on, self._frame.recorder, lambda: self._frame.leads)
        secret = Key(options.config_namespace, SECRET_NAME)
        store = CertificateStore(client, secret, CONFIGURATIONS, installed.look, KOORDINATORS)
        await server.start(options.webhook_host, options.webhook_port)
        self._webhooks = server
        _log.info("webhooks at %s:%d", *server.address)
        async with store.kept_in(tls, service):
            try:
                yield
            finally:
                await server.stop(options.webhook_linger, _DRAIN_S)
                await webhooks.large.close()

    def _profiles(self) -> ProfileController | None:
        options = self._options
        if not options.is_on(COLOCATION_PROFILE_CONTROLLER):
            return None
        rate = options.colocation_profile_update_pod_qps, options.colocation_profile_update_pod_qps_burst
        follows_all = options.colocation_profile_reconcile_by_default
        return ProfileController(self._frame.leaders_client, self._view, follows_all, *rate)

    def _gauges(self) -> Metrics:
        metrics = Metrics()
        metrics.policy_absent = lambda: float(bool(self._view.absence_of_policy))
        metrics.crd_faults = lambda: self._crds.faults
        queues = self._controllers.queues
        metrics.work_queue_length = lambda: {queue.name: len(queue) for queue in queues}
        metrics.work_handled = lambda: {queue.name: queue.handled for queue in queues}
        metrics.work_failed = lambda: {queue.name: queue.failed for queue in queues}
        metrics.nodelink_nodes = lambda: len(self._fresh)
        metrics.nodelink_followers = lambda: self._nodelink.followers
        metrics.nodelink_calls = lambda: self._nodelink.calls
        metrics.nodelink_certificate_requests = lambda: self._nodelink.requests
        return metrics


def _client_ca(file: str) -> bytes:
    """Returns the authorities that verify clients; b"" without a file. Raises OSError or ValueError."""
    pem = Path(file).read_bytes() if file else b""
    if file and not certificates.certificates(pem):
        raise ValueError(f"webhook-client-ca-file = {file!r}: holds no certificate")
    return pem
