"""One replica of a component: what it is made of, and in which order it starts and ends.

1. the caches fill; the status pages answer, not ready
2. every replica serves what it serves, and stands by
3. one replica leads, and writes

On SIGTERM the leader's work ends and its Lease is released at once, so another leads within seconds; then what is
served drains, and the Events that wait are written, in bounded time. Invariant: whatever part fails, all others end in
that order, too. Fails with the KubeError, OSError or other exception of that part.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import koord
from koord.cluster import pages
from koord.cluster.options import ComponentOptions
from koord.cluster.pages import ComponentMetrics
from koord.kube import kubeconfig
from koord.kube.client import CallLimits, Client, connected
from koord.kube.credentials import Credentials
from koord.kube.informer import Followed
from koord.kube.kind import Key
from koord.kube.lease import Election, Identity, Term, address_of
from koord.kube.recorder import EventRecorder
from koord.service import process
from koord.service.statusserver import LocalMaker

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_LAST_EVENTS_S = 2.0
_ONE_CALL = CallLimits(tries=1, timeout_s=3.0)


class Component:
    """What a component does in its frame. As it is, it follows ``informers``, serves nothing and writes nothing.

    ``informers``: the caches without which it can say nothing; ``/readyz`` names those that are not complete. A
    component overrides the methods that are to do more. A method that raises ends the process with exit status 1.
    ``upstream``: what it counts under names of others, by the prefix of these. ``local_pages``: what else it serves for
    callers of its own machine.
    """

    def __init__(
        self,
        informers: Sequence[Followed],
        metrics: ComponentMetrics | None = None,
        upstream: Mapping[str, DataclassInstance] = MappingProxyType({}),
    ) -> None:
        self.informers, self.metrics, self.upstream = informers, metrics or ComponentMetrics(), upstream
        self.local_pages: Mapping[str, LocalMaker] = {}

    async def follow(self) -> None:
        """Fills the caches, until it is cancelled. Override it where other caches or tasks run in every replica."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run())

    async def synced(self) -> None:
        """Returns once the caches were complete; ``serving`` and ``lead`` begin after that."""
        for informer in self.informers:
            await informer.synced.wait()

    async def unready(self) -> str:
        """Why this replica cannot serve yet, in a sentence; "" if it can."""
        return "; ".join(
            f"{informer.kind.plural} are not known yet{f': {informer.error}' if informer.error else ''}"
            for informer in self.informers
            if not informer.synced.is_set()
        )

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Within the block every replica serves, whether it leads or not. The block ends after ``lead``, and when it
        has ended, the calls under way are answered. Raises OSError.
        """
        yield

    async def lead(self) -> None:
        """Leads, until it is cancelled; a call that returns ends the process.

        It is cancelled when leadership is lost, and called again when it is won: each call begins with every object
        that the caches have, since another replica has led meanwhile.
        """
        await asyncio.get_running_loop().create_future()


class Frame:
    """``name``: the program's; ``lease``: that of its replicas; ``address``: what the Lease says of this one if it
    leads, ``host:port`` or ""."""

    def __init__(
        self,
        client: Client,
        name: str,
        lease: str,
        options: ComponentOptions,
        environ: Mapping[str, str],
        address: str = "",
    ) -> None:
        self.client, self._name, self._options = client, name, options
        self.leaders_client = client.guarded(self._check_leads)
        """For all that ``lead`` writes: it sends a write only while this replica leads, and raises NotLeader else."""
        host = environ.get("HOSTNAME") or socket.gethostname()
        self.recorder = EventRecorder(client, name, host, time.time)
        """For ``lead``: every replica may record, so the same Event would be written by each of them."""
        self.lease_annotations: Callable[[], Mapping[str, str]] = dict
        """The annotations that the leader writes into its Lease; the component's to set."""
        self._election = Election(
            client.with_limits(_ONE_CALL),
            Key(options.lease_namespace, lease),
            Identity(f"{host}_{uuid.uuid4()}", address),
            annotations=self._annotations,
        )
        self._is_draining = False

    @property
    def leads(self) -> bool:
        return not self._options.enable_leader_election or self._election.term is not None

    @property
    def leader_address(self) -> str:
        """The address at which the leader answers, as its Lease says it; "" if that is not known."""
        return address_of(self._election.leader)

    async def run(self, component: Component, stop: asyncio.Event) -> None:
        """Until ``stop`` is set."""
        self._count(component)
        counted = {pages.metric_prefix(self._name): component.metrics, **component.upstream}
        by_path = pages.makers(counted, lambda: self._unready(component))
        async with pages.served(by_path, component.local_pages, self._options), asyncio.TaskGroup() as group:
            following = group.create_task(component.follow())
            recording = group.create_task(self.recorder.run())
            serving = group.create_task(self._serve(component, stop))
            await serving
            following.cancel()
            self.recorder.close()
            await asyncio.wait([recording], timeout=_LAST_EVENTS_S)
            recording.cancel()

    async def _serve(self, component: Component, stop: asyncio.Event) -> None:
        """Until ``stop`` is set, or it is cancelled; it does not lead any more when it ends."""
        stopping, synced = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(component.synced())
        try:
            await asyncio.wait((synced, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not synced.done():
                return
            async with component.serving():
                leading = asyncio.ensure_future(self._lead(component))
                try:
                    await asyncio.wait((leading, stopping), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    leading.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await leading
                    self._is_draining = True
        finally:
            stopping.cancel()
            synced.cancel()

    async def _lead(self, component: Component) -> None:
        """Until it is cancelled."""
        if not self._options.enable_leader_election:
            await component.lead()
            return

        async def lead(_: Term) -> None:
            await component.lead()

        await self._election.run(lead)

    async def _unready(self, component: Component) -> str:
        sentence = await component.unready()
        return sentence or (f"{self._name} is stopping" if self._is_draining else "")

    def _annotations(self) -> Mapping[str, str]:
        return self.lease_annotations()

    def _check_leads(self) -> None:
        """Raises NotLeader: a process that was stopped for a while goes on in the midst of its work."""
        if self._options.enable_leader_election:
            self._election.check()

    def _count(self, component: Component) -> None:
        metrics = component.metrics
        metrics.leader = lambda: float(self.leads)
        metrics.api_retries = lambda: self.client.retries
        metrics.cached_objects = lambda: {each.kind.name: len(each.objects) for each in component.informers}


async def run(
    name: str,
    lease: str,
    options: ComponentOptions,
    environ: Mapping[str, str],
    make: Callable[[Frame], Component],
    address: str = "",
) -> None:
    """Serves until SIGTERM or SIGINT. Arguments as of ``Frame``. Raises KubeError or OSError if it cannot start."""
    credentials = Credentials(
        lambda: kubeconfig.find(environ, options.kubeconfig, options.context), environ, time.monotonic, time.time
    )
    agent = f"{name}/{koord.__version__}"
    async with connected(credentials, agent, options.rest_config_qps, options.rest_config_burst) as client:
        with process.signals(lambda: None) as stop:
            frame = Frame(client, name, lease, options, environ, address)
            await frame.run(make(frame), stop)
