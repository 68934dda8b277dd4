"""The webhooks' certificates on an API server: made, given to the configurations, and put back."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import pytest

from koord.kube.errors import KubeError
from koord.kube.kind import Key
from koord.tls import servingloop
from koord.tls.certificatestore import CertificateStore
from koord.tls.context import LiveContext
from koord.tls.servingcerts import Service
from koord_manager import installedwebhooks
from tests.kube.server import Fault, Server
from tests.kube.support import client
from tests.support.waiting import until

NAMESPACE = "koordinator-system"
SECRET_NAME = "koordinator-webhook-certs"  # a name, not a password
SECRET = Key(NAMESPACE, SECRET_NAME)
SERVICE = Service("koordinator-webhook-service", NAMESPACE)
GROUP = "/apis/admissionregistration.k8s.io/v1"
CONFIGURATIONS = {
    f"{GROUP}/mutatingwebhookconfigurations": "koord-mutating-webhook-configuration",
    f"{GROUP}/validatingwebhookconfigurations": "koord-validating-webhook-configuration",
}


def put_configuration(server: Server, path: str) -> None:
    """One entry that calls the Service and has no caBundle, as a chart renders it."""
    config = {"service": {"name": SERVICE.name, "namespace": NAMESPACE, "path": "/mutate-pod"}}
    server.put(path, "", CONFIGURATIONS[path], webhooks=[{"name": "a", "clientConfig": config}])


def bundle(server: Server, path: str) -> str | None:
    root, _, plural = path.rpartition("/")
    stored = server.objects[root, plural]["", CONFIGURATIONS[path]]
    (webhook,) = stored["webhooks"]
    ca_bundle: str | None = webhook.get("clientConfig", {}).get("caBundle")
    return ca_bundle


async def test_made_once_and_given_to_each_configuration() -> None:
    server, tls = Server(), LiveContext()
    async with server.serving() as url, client(url) as api:
        for path in CONFIGURATIONS:
            put_configuration(server, path)
        store = CertificateStore(api, SECRET, installedwebhooks.CONFIGURATIONS)
        await servingloop.converge(store, tls, SERVICE, lambda: datetime.now(UTC))
        assert (NAMESPACE, SECRET_NAME) in server.objects["/api/v1", "secrets"]
        bundles = {bundle(server, path) for path in CONFIGURATIONS}
        assert len(bundles) == 1 and None not in bundles
        assert tls.certificate is not None
        version = server.version
        await servingloop.converge(store, tls, SERVICE, lambda: datetime.now(UTC))
        assert server.version == version, "nothing is left to write"


@pytest.mark.parametrize("is_readable", [True, False])
async def test_koordinators_are_looked_at_and_never_written(is_readable: bool) -> None:
    server, seen = Server(), list[str]()
    async with server.serving() as url, client(url) as api:
        for path, name in CONFIGURATIONS.items():
            put_configuration(server, path)
            server.put(path, "", name.replace("koord-", "koordinator-"), webhooks=[{"name": "melasticquota"}])
        if not is_readable:
            server.faults = [Fault("any")] * 2 + [Fault("get", 403, "Forbidden")]
        store = CertificateStore(
            api,
            SECRET,
            installedwebhooks.CONFIGURATIONS,
            lambda found: seen.extend(each.metadata.name for each in found),
            installedwebhooks.KOORDINATORS,
        )
        found = await store.read_configurations()
        assert {each.metadata.name for each in found} == set(CONFIGURATIONS.values())
        assert any(name.startswith("koordinator-") for name in seen) == is_readable
        await servingloop.converge(store, LiveContext(), SERVICE, lambda: datetime.now(UTC))
        for path, name in CONFIGURATIONS.items():
            root, _, plural = path.rpartition("/")
            theirs = server.objects[root, plural]["", name.replace("koord-", "koordinator-")]
            assert (bundle(server, path) is None, theirs["webhooks"]) == (False, [{"name": "melasticquota"}])


async def test_without_configurations_there_is_a_certificate_all_the_same() -> None:
    server, tls = Server(), LiveContext()
    async with server.serving() as url, client(url) as api:
        await servingloop.converge(
            CertificateStore(api, SECRET, installedwebhooks.CONFIGURATIONS), tls, SERVICE, lambda: datetime.now(UTC)
        )
        assert tls.certificate is not None


async def test_a_secret_that_it_may_not_make_is_asked_for() -> None:
    """The chart makes it; a cluster's rights to create Secrets know no names."""
    server, tls = Server(), LiveContext()
    server.faults = [Fault("create", status=403, reason="Forbidden")]
    async with server.serving() as url, client(url) as api:
        store = CertificateStore(api, SECRET, installedwebhooks.CONFIGURATIONS)
        with pytest.raises(KubeError) as failure:
            await servingloop.converge(store, tls, SERVICE, lambda: datetime.now(UTC))
        assert f"kubectl create secret generic -n {NAMESPACE} {SECRET_NAME}" in str(failure.value)
        assert tls.certificate is None
        server.put("/api/v1/secrets", NAMESPACE, SECRET_NAME)
        await servingloop.converge(store, tls, SERVICE, lambda: datetime.now(UTC))
        assert tls.certificate is not None


async def test_a_configuration_that_somebody_resets_is_noticed_at_once() -> None:
    server, changed = Server(), asyncio.Event()
    async with server.serving() as url, client(url) as api:
        store = CertificateStore(api, SECRET, installedwebhooks.CONFIGURATIONS)
        watching = asyncio.create_task(store.watch(changed, time.monotonic))
        try:
            await until(lambda: server.count("watch") == 3)
            changed.clear()
            for path in CONFIGURATIONS:
                put_configuration(server, path)
                await until(changed.is_set)
                changed.clear()
        finally:
            watching.cancel()
