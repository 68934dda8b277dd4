"""The loop that keeps certificates in step: over years, with restarts and accidents, and when writes fail.

Whoever calls the API server waits there until the test lets it go on, so that passes of several replicas mix.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from koord.kube.errors import APIError, KubeError, Unreachable
from koord.model.core import ObjectMeta
from koord.tls import certificates
from koord.tls.certificates import CertificateError, KeyPair, ServingCertificate
from koord.tls.servingcerts import (
    PROVIDED_OVERLAP,
    CABundleUpdate,
    CertificatePlan,
    ClientConfig,
    ClusterWrite,
    Secret,
    SecretCreation,
    Webhook,
    WebhookConfiguration,
)
from koord.tls.servingloop import ROUNDS, converge, keep
from tests.support.waiting import until
from tests.tls.pki import DAY, KINDS, NOW, OURS, PLACEHOLDER, SERVICE, own_data, provided_data


class _Turn:
    """What a call waits for: the test's next step of its coroutine."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def conflict() -> APIError:
    return APIError(409, "Conflict", "the object has been modified")


@dataclass
class Cluster:
    """An API server with two configurations and a Secret. ``observe``: called after each write that was done."""

    data: dict[str, bytes] | None = None
    type: str = "Opaque"
    ca_bundles: list[bytes] = field(default_factory=lambda: [PLACEHOLDER, PLACEHOLDER])
    observe: Callable[[], None] = lambda: None
    waits: bool = False
    errors: dict[str, KubeError] = field(default_factory=dict)
    """What a write fails with, by its kind."""
    calls: list[str] = field(default_factory=list)
    version: int = 1
    versions: dict[str, int] = field(default_factory=dict)

    async def read_configurations(self) -> list[WebhookConfiguration]:
        self.calls.append("configurations")
        read = []
        for kind, index in zip(KINDS, range(2), strict=True):
            await self._turn()
            webhook = Webhook("webhook", ClientConfig(service=OURS, ca_bundle=self.ca_bundles[index]))
            metadata = ObjectMeta(name=kind, resource_version=str(self.versions.get(kind, 0)))
            read.append(WebhookConfiguration(kind, metadata, (webhook,)))
        return read

    async def read_secret(self) -> Secret | None:
        self.calls.append("secret")
        await self._turn()
        metadata = ObjectMeta(resource_version=str(self.versions.get("Secret", 0)))
        return None if self.data is None else Secret(metadata, self.type, dict(self.data))

    async def write(self, action: ClusterWrite) -> None:
        await self._turn()
        kind = action.kind if isinstance(action, CABundleUpdate) else "Secret"
        if kind in self.errors:
            raise self.errors[kind]
        if isinstance(action, SecretCreation):
            if self.data is not None:
                raise APIError(409, "AlreadyExists", "it exists")
            self.data = dict(action.data)
        elif action.resource_version != str(self.versions.get(kind, 0)):
            raise conflict()
        elif isinstance(action, CABundleUpdate):
            self.ca_bundles[KINDS.index(kind)] = action.ca_bundles["webhook"]
        elif self.data is None:
            raise APIError(404, "NotFound", "it is gone")
        else:
            merged = {**self.data, **action.data}
            self.data = {key: value for key, value in merged.items() if value is not None}
        self.touch(kind)
        self.observe()

    def touch(self, kind: str) -> None:
        self.version += 1
        self.versions[kind] = self.version

    async def _turn(self) -> None:
        if self.waits:
            await _Turn()


@dataclass
class Server:
    certificate: ServingCertificate | None = None
    observe: Callable[[], None] = lambda: None
    error: CertificateError | None = None

    def load(self, certificate: ServingCertificate) -> None:
        if self.error is not None:
            raise self.error
        self.certificate = certificate
        self.observe()


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


class Years:
    """Three replicas, whose passes mix call by call; days lie between two passes of one of them."""

    def __init__(self, seed: int, cluster: Cluster, longest_gap: timedelta) -> None:
        self.random = random.Random(seed)
        self.clock, self.cluster, self.longest_gap = Clock(), cluster, longest_gap
        self.servers = [Server(observe=self.check) for _ in range(3)]
        self.passes: list[Iterator[None] | None] = [None] * 3
        self.trusted: set[tuple[int, int]] = set()
        self.served: list[bytes] = []
        self.checks = 0
        cluster.waits, cluster.observe = True, self.check

    def check(self) -> None:
        """The invariant: who was verified is verified still."""
        trusted = {
            (index, number)
            for index, ca_bundle in enumerate(self.cluster.ca_bundles)
            for number, server in enumerate(self.servers)
            if server.certificate
            and certificates.trusts(ca_bundle, server.certificate.pair.certificate, self.clock.now)
        }
        assert self.trusted <= trusted, f"at {self.clock.now} clients no longer verify {self.trusted - trusted}"
        self.trusted = trusted
        self.checks += 1
        for server in self.servers:
            if server.certificate and server.certificate.pair.certificate not in self.served:
                self.served.append(server.certificate.pair.certificate)

    def run(self, duration: timedelta, accident: Callable[[], None] | None = None) -> None:
        end = self.clock.now + duration
        while self.clock.now < end:
            self.settle()
            if accident is not None and self.random.random() < 0.05:
                accident()
            self.clock.now += self.random.random() * self.longest_gap
            self.check()
        self.settle()

    def settle(self) -> None:
        """One to three replicas make a pass, call by call in any order; some of them lose half an hour on the way."""
        numbers = self.random.sample(range(3), self.random.randint(1, 3))
        passes = {number: self.one_pass(number) for number in numbers}
        while passes:
            number = self.random.choice(list(passes))
            if next(passes[number], "end") == "end":
                del passes[number]
            if self.random.random() < 0.02:
                self.clock.now += timedelta(minutes=30)
                self.check()

    def one_pass(self, number: int) -> Iterator[None]:
        waiting = converge(self.cluster, self.servers[number], SERVICE, self.clock)
        while True:
            try:
                waiting.send(None)
            except StopIteration:
                return
            yield

    def restart(self) -> None:
        number = self.random.randrange(3)
        self.servers[number].certificate = None
        self.trusted = {pair for pair in self.trusted if pair[1] != number}

    def lose_secret(self) -> None:
        self.cluster.data = None
        self.cluster.touch("Secret")

    def spoil_secret(self) -> None:
        """Any value but the list of old authorities, of which there is no other copy."""
        assert self.cluster.data is not None
        key = self.random.choice(sorted(self.cluster.data.keys() - {"previous-ca-certs.pem"}))
        self.cluster.data[key] = b"nonsense"
        self.cluster.touch("Secret")

    def install_anew(self) -> None:
        """A chart puts its placeholder in a configuration."""
        index = self.random.randrange(2)
        self.cluster.ca_bundles[index] = PLACEHOLDER
        self.cluster.touch(KINDS[index])
        self.trusted = {pair for pair in self.trusted if pair[0] != index}


SEEDS = range(2)


@pytest.mark.parametrize("seed", SEEDS)
def test_nine_years_of_rotations(seed: int) -> None:
    years = Years(seed, Cluster(), timedelta(days=20))
    authorities: list[bytes] = []

    def note_authority() -> None:
        data = years.cluster.data or {}
        if data and data["ca-cert.pem"] not in authorities:
            authorities.append(data["ca-cert.pem"])

    years.run(timedelta(days=9 * 365), note_authority)
    note_authority()
    assert 4 <= len(authorities) <= 5  # one in two years
    assert 13 <= len(years.served) <= 18  # one in eight months, and one with each authority
    assert all(len(certificates.certificates(ca_bundle)) <= 3 for ca_bundle in years.cluster.ca_bundles)
    assert authorities[0] not in years.cluster.ca_bundles[0]
    years.settle()
    assert len(years.trusted) == 6


@pytest.mark.parametrize("accident", ["restart", "lose_secret", "spoil_secret", "install_anew"])
@pytest.mark.parametrize("seed", SEEDS)
def test_years_with_accidents(seed: int, accident: str) -> None:
    years = Years(seed, Cluster(), timedelta(days=10))
    years.run(timedelta(days=3 * 365), getattr(years, accident))
    for number in range(3):
        for _ in years.one_pass(number):
            pass
    years.check()
    assert len(years.trusted) == 6


@pytest.mark.parametrize("seed", SEEDS)
def test_weeks_of_provided_certificates(seed: int) -> None:
    """cert-manager renews every few days, each time with another authority."""
    years = Years(seed, Cluster(provided_data(NOW), "kubernetes.io/tls"), PROVIDED_OVERLAP / 4)
    renewed = NOW

    def renew() -> None:
        nonlocal renewed
        if years.clock.now - renewed > 5 * DAY:
            renewed = years.clock.now
            years.cluster.data = provided_data(renewed)
            years.cluster.touch("Secret")

    before = dict(years.cluster.data or {})
    years.run(30 * DAY, renew)
    assert renewed > NOW and years.cluster.data != before
    years.run(2 * DAY)
    assert years.cluster.ca_bundles == [(years.cluster.data or {})["ca.crt"]] * 2
    assert (years.cluster.data or {}).keys() == before.keys()  # nothing of ours in it


# one pass


async def test_a_pass_brings_all_in_step() -> None:
    cluster, server = Cluster(), Server()
    step = await converge(cluster, server, SERVICE, Clock())
    assert step == CertificatePlan((), step.why) and step.why.startswith("tls.crt is valid until")
    assert cluster.data and server.certificate
    assert cluster.ca_bundles == [cluster.data["ca-cert.pem"]] * 2
    assert server.certificate.pair == KeyPair(cluster.data["tls.key"], cluster.data["tls.crt"])
    written = cluster.version
    await converge(cluster, server, SERVICE, Clock())
    assert cluster.version == written


async def test_the_configurations_are_read_before_the_secret() -> None:
    """`test_servingraces` shows why."""
    cluster = Cluster()
    await converge(cluster, Server(), SERVICE, Clock())
    assert cluster.calls == ["configurations", "secret"] * (len(cluster.calls) // 2)


async def test_a_write_that_fails_does_not_stop_the_others() -> None:
    cluster, server = Cluster(own_data(NOW), errors={KINDS[0]: APIError(403, "Forbidden", "no")}), Server()
    with pytest.raises(KubeError, match="403 Forbidden: no"):
        await converge(cluster, server, SERVICE, Clock())
    assert cluster.data and server.certificate
    assert cluster.ca_bundles == [PLACEHOLDER, cluster.data["ca-cert.pem"]]


@pytest.mark.parametrize(
    ("data", "kind", "error", "raised"),
    [
        (None, "Secret", APIError(404, "NotFound", "no namespace"), "404 NotFound: no namespace"),
        (None, "Secret", Unreachable("no route", True), "no route"),
        ({}, "Secret", conflict(), f"contested: still not in step after {ROUNDS} rounds: ca-cert.pem is missing"),
        (own_data(NOW), KINDS[1], conflict(), f"contested: still not in step after {ROUNDS} rounds"),
    ],
)
async def test_what_stays_out_of_step_is_said(
    data: dict[str, bytes] | None, kind: str, error: KubeError, raised: str
) -> None:
    with pytest.raises(KubeError, match=raised):
        await converge(Cluster(data, errors={kind: error}), Server(), SERVICE, Clock())


async def test_a_secret_that_is_deleted_before_it_is_written() -> None:
    class Vanishing(Cluster):
        async def write(self, action: ClusterWrite) -> None:
            if self.data == {}:
                self.data = None
                raise APIError(404, "NotFound", "it is gone")
            await super().write(action)

    cluster = Vanishing({})
    await converge(cluster, Server(), SERVICE, Clock())
    assert cluster.data


async def test_the_loop_goes_on_after_errors_and_when_it_is_woken(caplog: pytest.LogCaptureFixture) -> None:
    cluster, server, changed = Cluster(errors={"Secret": APIError(403, "Forbidden", "no")}), Server(), asyncio.Event()
    task = asyncio.create_task(keep(cluster, server, SERVICE, Clock(), changed))
    await asyncio.sleep(0)
    assert "403 Forbidden: no" in caplog.text and caplog.records[0].levelno == logging.WARNING
    cluster.errors.clear()
    server.error = CertificateError("tls.crt", "cannot be served: too small a key")
    changed.set()
    await until(lambda: "too small a key" in caplog.text)
    server.error = None
    changed.set()
    await until(lambda: server.certificate is not None)
    assert not task.done()
    task.cancel()
