"""The loop that carries out what `koord.tls.servingcerts` plans, on every replica.

Invariant: one pass after another reads what is and writes what differs, so a pass that was interrupted, lost a race or
failed half way is made good by the next one. It holds no state but the server's.
Fails with KubeError (the API server) and CertificateError (a certificate that TLS does not take); ``keep`` logs both
and tries again in a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NoReturn, Protocol

from koord.kube.errors import APIError, KubeError
from koord.tls.certificates import CertificateError, ServingCertificate
from koord.tls.servingcerts import (
    Action,
    CertificatePlan,
    ClusterWrite,
    ContextReload,
    Observation,
    Secret,
    SecretCreation,
    Service,
    WebhookConfiguration,
    plan,
)

log = logging.getLogger("koord.tls.servingloop")

RESYNC_S = 60.0
ROUNDS = 20
"""In which ``converge`` is done, however many replicas race: one alone needs five."""


class Cluster(Protocol):
    """The API server, as far as certificates need it. Each call raises KubeError."""

    async def read_configurations(self) -> Sequence[WebhookConfiguration]:
        """Reads those of our names that exist, from the API server."""

    async def read_secret(self) -> Secret | None:
        """Reads it from the API server; None if there is none."""

    async def write(self, action: ClusterWrite) -> None: ...


class Server(Protocol):
    @property
    def certificate(self) -> ServingCertificate | None: ...

    def load(self, certificate: ServingCertificate) -> None: ...


async def converge(
    cluster: Cluster, server: Server, service: Service, clock: Callable[[], datetime]
) -> CertificatePlan:
    """Writes until nothing is left to write, and returns the last plan, which is empty.

    Who loses a race reads again. A write that fails does not stop the others of its round. Raises KubeError or
    CertificateError.
    """
    for _ in range(ROUNDS):
        configurations = tuple(await cluster.read_configurations())  # before the Secret, as `servingcerts` demands
        observation = Observation(configurations, await cluster.read_secret())
        step = plan(observation, server.certificate, service, clock())
        if not step.actions:
            return step
        await _carry_out(step.actions, cluster, server)
    raise KubeError(f"the certificates are contested: still not in step after {ROUNDS} rounds: {step.why}")


async def keep(
    cluster: Cluster, server: Server, service: Service, clock: Callable[[], datetime], changed: asyncio.Event
) -> NoReturn:
    """Converges each minute, and whenever ``changed`` is set: the Secret or a configuration is another."""
    while True:
        changed.clear()
        try:
            await converge(cluster, server, service, clock)
        except (KubeError, CertificateError) as error:
            log.warning("certificates of %s: %s", service.names[0], error)
        with suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), RESYNC_S)


async def _carry_out(actions: Iterable[Action], cluster: Cluster, server: Server) -> None:
    errors: list[KubeError] = []
    for action in actions:
        if isinstance(action, ContextReload):
            server.load(action.certificate)
            continue
        try:
            await cluster.write(action)
        except KubeError as error:
            if not _is_lost_race(error, action):
                errors.append(error)
    if errors:
        raise KubeError("; ".join(map(str, errors))) from errors[0]


def _is_lost_race(error: KubeError, action: ClusterWrite) -> bool:
    """Returns whether another writer wrote, created or deleted the object since it was read."""
    if not isinstance(error, APIError):
        return False
    is_gone = error.is_not_found and not isinstance(action, SecretCreation)  # for that it is the namespace that lacks
    return error.is_conflict or error.is_already_exists or is_gone
