"""The process: what is made of what, and in which order it starts and ends.

1. the caches fill; the pages answer, not ready
2. the webhooks are served, and the configurations get their caBundle: every replica does that
3. one replica leads, and its controllers write

On SIGTERM the leader's controllers end and its Lease is released at once, so another leads within seconds; webhooks
are served on until API servers have heard that this replica is no end point any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import koord
from koord.kube import kubeconfig
from koord.kube.client import Client, Limits, connected
from koord.kube.credentials import Credentials
from koord.kube.kind import Key
from koord.kube.lease import Election, Identity, Term, address_of
from koord.kube.recorder import Recorder
from koord.model.nodelink import LEASE_NAME
from koord.service import process
from koord.service.statuspages import StatusPages
from koord.service.statusserver import HEALTH_PAGES, Guard, StatusServer, read_token
from koord.tls import certificates, servingloop
from koord.tls.context import LiveContext
from koord.tls.servingcerts import Service
from koord.webhook.server import WebhookServer
from koord_manager.certificatestore import CONFIGURATIONS, KOORDINATORS, SECRET_NAME, CertificateStore
from koord_manager.controllers.leading import Controllers
from koord_manager.controllers.profiles import ProfileController
from koord_manager.freshusage import FreshFigures
from koord_manager.installedcrds import InstalledCRDs
from koord_manager.installedwebhooks import InstalledWebhooks
from koord_manager.metrics import Metrics, Pages
from koord_manager.nodelink.nodelink import NodeLink
from koord_manager.nodelink.service import Leadership
from koord_manager.options import COLOCATION_PROFILE_CONTROLLER, WEBHOOK_FRAMEWORK, Options
from koord_manager.view import ClusterView
from koord_manager.webhooks.webhooks import Webhooks

_log = logging.getLogger(__name__)
COMPONENT = "koord-manager"
_DRAIN_S = 10.0
_LAST_EVENTS_S = 2.0
_ONE_CALL = Limits(tries=1, timeout_s=3.0)


async def run(options: Options, environ: Mapping[str, str]) -> None:
    """Serves until SIGTERM or SIGINT. Raises KubeError or OSError if it cannot start."""
    credentials = Credentials(
        lambda: kubeconfig.find(environ, options.kubeconfig, options.context), environ, time.monotonic, time.time
    )
    agent = f"{COMPONENT}/{koord.__version__}"
    async with connected(credentials, agent, options.rest_config_qps, options.rest_config_burst) as client:
        with process.signals(lambda: None) as stop:
            await Manager(client, options, environ).run(stop)


class Manager:
    def __init__(self, client: Client, options: Options, environ: Mapping[str, str]) -> None:
        self._client, self._options = client, options
        self._config_map = Key(options.config_namespace, options.slo_config_name)
        self._host = environ.get("HOSTNAME") or socket.gethostname()
        own, gates, users = options.config_namespace, options.feature_gates, options.scheduler_users
        self._view = ClusterView(client, self._config_map, own, gates, time.monotonic, time.time, users)
        self._recorder = Recorder(client, COMPONENT, self._host, time.time)
        self._fresh = FreshFigures(time.monotonic)
        leaders = client.guarded(self._check_leads)
        self._controllers = Controllers(
            leaders, self._view, self._fresh, self._recorder, time.time, self._profiles(leaders)
        )
        leadership = Leadership(self._leads, lambda: address_of(self._election.leader))
        self._nodelink = NodeLink(client, leaders, self._view, self._fresh, options, leadership)
        self._election = Election(
            client.with_limits(_ONE_CALL),
            Key(options.lease_namespace, LEASE_NAME),
            Identity(f"{self._host}_{uuid.uuid4()}", options.advertise_address),
            annotations=self._nodelink.annotations,
        )
        self._crds = InstalledCRDs(client)
        self.figures = self._figures()
        self._client_ca = _client_ca(options.webhook_client_ca_file)
        self._webhooks: WebhookServer | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Serves until ``stop`` is set."""
        async with self._pages(), asyncio.TaskGroup() as group:
            following = group.create_task(self._view.run())
            recording = group.create_task(self._recorder.run())
            comparing = group.create_task(self._crds.compare())
            serving = group.create_task(self._serve(stop))
            await serving
            following.cancel()
            self._recorder.close()
            await asyncio.wait([recording], timeout=_LAST_EVENTS_S)
            recording.cancel()
            comparing.cancel()

    async def _serve(self, stop: asyncio.Event) -> None:
        """Until ``stop`` is set, or it is cancelled; it does not lead any more when it ends."""
        stopping, synced = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(self._view.synced())
        try:
            await asyncio.wait((synced, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not synced.done():
                return
            async with self._served_webhooks(), self._nodelink.serving():
                leading = asyncio.ensure_future(self._lead())
                try:
                    await asyncio.wait((leading, stopping), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    leading.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await leading
        finally:
            stopping.cancel()
            synced.cancel()

    async def _lead(self) -> None:
        """Until it is cancelled."""
        if not self._options.enable_leader_election:
            await self._work()
            return

        async def lead(_: Term) -> None:
            await self._work()

        await self._election.run(lead)

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodelink.lead())
            group.create_task(self._controllers.run())

    def _leads(self) -> bool:
        return not self._options.enable_leader_election or self._election.term is not None

    def _check_leads(self) -> None:
        """Raises NotLeader: a process that was stopped for a while goes on in the midst of its work."""
        if self._options.enable_leader_election:
            self._election.check()

    @contextlib.asynccontextmanager
    async def _served_webhooks(self) -> AsyncIterator[None]:
        options = self._options
        if not options.is_on(WEBHOOK_FRAMEWORK):
            yield
            return
        names = tuple(filter(None, options.webhook_names.split(",")))
        service = Service(options.webhook_service, options.config_namespace, names)
        tls = LiveContext(self._client_ca)
        webhooks, durations = Webhooks(self._client, self._view, options), self.figures.webhook_duration_seconds
        server = WebhookServer(
            webhooks.handlers,
            tls,
            service.names[0],
            durations,
            large=webhooks.large,
            client_names=options.webhook_client_names,
        )
        installed = InstalledWebhooks(service, options.is_on, self._recorder, self._leads)
        secret = Key(options.config_namespace, SECRET_NAME)
        store = CertificateStore(self._client, secret, CONFIGURATIONS, installed.look, KOORDINATORS)
        await server.start(options.webhook_host, options.webhook_port)
        self._webhooks = server
        _log.info("webhooks at %s:%d", *server.address)
        changed = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(servingloop.keep(store, tls, service, _now, changed))
            watching = group.create_task(store.watch(changed, time.monotonic))
            try:
                yield
            finally:
                await server.stop(options.webhook_linger, _DRAIN_S)
                await webhooks.large.close()
                keeping.cancel()
                watching.cancel()

    async def _unready(self) -> str:
        """Why this replica is no end point of webhooks yet; "" if it is."""
        if sentences := self._view.unsynced():
            return "; ".join(sentences)
        if not self._options.is_on(WEBHOOK_FRAMEWORK):
            return ""
        return "webhooks are not served" if self._webhooks is None else await self._webhooks.unreadiness()

    def _profiles(self, client: Client) -> ProfileController | None:
        options = self._options
        if not options.is_on(COLOCATION_PROFILE_CONTROLLER):
            return None
        rate = options.colocation_profile_update_pod_qps, options.colocation_profile_update_pod_qps_burst
        return ProfileController(client, self._view, options.colocation_profile_reconcile_by_default, *rate)

    def _figures(self) -> Metrics:
        figures = Metrics()
        figures.leader = lambda: float(self._leads())
        figures.policy_absent = lambda: float(bool(self._view.absence_of_policy))
        figures.api_retries = lambda: self._client.retries
        figures.cached_objects = lambda: {each.kind.name: len(each.objects) for each in self._view.needed}
        figures.crd_faults = lambda: self._crds.faults
        queues = self._controllers.queues
        figures.work_queue_length = lambda: {queue.name: len(queue) for queue in queues}
        figures.work_handled = lambda: {queue.name: queue.handled for queue in queues}
        figures.work_failed = lambda: {queue.name: queue.failed for queue in queues}
        figures.nodelink_nodes = lambda: len(self._fresh)
        figures.nodelink_calls = lambda: self._nodelink.counts.by_result
        figures.nodelink_certificate_requests = lambda: self._nodelink.requests
        return figures

    @contextlib.asynccontextmanager
    async def _pages(self) -> AsyncIterator[None]:
        token_file, by_path = self._options.metrics_token_file, Pages(self.figures, self._unready).by_path
        guard = Guard(read_token(token_file), HEALTH_PAGES) if token_file else None
        health = {path: by_path[path] for path in HEALTH_PAGES}
        servers = {
            self._options.metrics_addr: StatusServer(by_path, guard),
            self._options.health_probe_addr: StatusServer(health),
        }
        served = [StatusPages(server, endpoint) for endpoint, server in servers.items() if endpoint]
        for pages in served:
            await pages.open()
        try:
            yield
        finally:
            for pages in served:
                pages.close()


def _client_ca(file: str) -> bytes:
    """What verifies clients; b"" without a file. Raises OSError or ValueError."""
    pem = Path(file).read_bytes() if file else b""
    if file and not certificates.certificates(pem):
        raise ValueError(f"webhook-client-ca-file = {file!r}: holds no certificate")
    return pem


def _now() -> datetime:
    return datetime.now(UTC)
