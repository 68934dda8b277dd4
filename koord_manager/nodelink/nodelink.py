"""NodeLink as a replica runs it: the port on all of them, signing and listening to nodes on the one that leads."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime

from koord.kube.client import Client
from koord.kube.kind import Key
from koord.service import optionvalues
from koord.tls.certificatestore import CertificateStore
from koord_manager.freshusage import FreshFigures
from koord_manager.nodelink.server import SECRET_NAME, NodeLinkServer
from koord_manager.nodelink.service import Leadership, NodeLinkService
from koord_manager.nodelink.signer import Signer
from koord_manager.nodelink.signing import Agents
from koord_manager.nodelink.watching import StateWatcher
from koord_manager.nodestates import NodeStates
from koord_manager.options import Options
from koord_manager.view import ClusterView


class NodeLinkEndpoint:
    """Nothing at all without ``--nodelink-endpoint``. ``leaders``: the client that writes while this replica leads."""

    def __init__(
        self,
        client: Client,
        leaders: Client,
        view: ClusterView,
        fresh: FreshFigures,
        options: Options,
        leadership: Leadership,
    ) -> None:
        namespace = options.config_namespace
        states = NodeStates()
        self._service = NodeLinkService(leaders, view, fresh, leadership, time.time, states)
        self._watcher = StateWatcher(states, leadership, time.monotonic)
        store = CertificateStore(client, Key(namespace, SECRET_NAME), {}, may_be_provided=False)
        self._server = NodeLinkServer(self._service, store, namespace, self._watcher)
        agent, scheduler = (
            f"system:serviceaccount:{namespace}:{name}" if name else ""
            for name in (options.nodelink_service_account, options.scheduler_service_account)
        )
        agents = Agents(agent, view.pods.get, scheduler)
        self._signer = Signer(leaders, self._server.read_ca, agents, time.monotonic, lambda: datetime.now(UTC))
        self._endpoint = options.nodelink_endpoint

    @property
    def calls(self) -> Mapping[str, float]:
        """Calls of nodes, by what became of them."""
        return self._service.results

    @property
    def followers(self) -> int:
        """Schedulers that follow what nodes report."""
        return self._watcher.followers

    @property
    def requests(self) -> Mapping[str, float]:
        """Certificate requests, by what became of them."""
        return self._signer.results

    def annotations(self) -> Mapping[str, str]:
        """Returns the annotations of the leader's Lease."""
        return self._server.annotations()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Raises OSError."""
        if not self._endpoint:
            yield
            return
        async with self._server.serving(*optionvalues.listen_address(self._endpoint)):
            yield

    async def lead(self) -> None:
        """Leads, until it is cancelled; its nodes are refused then, and told who leads."""
        if self._endpoint:
            await self._signer.run()
