"""The webhooks of koord-manager as a real API server calls them: past strangers' connections, and with its warnings."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from integration.cluster import controlplane, manager, objects
from integration.cluster.api import Api, ApiError
from integration.cluster.controlplane import ControlPlane
from integration.cluster.manager import Replica
from integration.harness.processes import wait_for
from koord.webhook.server import ServerLimits

PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
PODS = objects.pods_of("default")
BATCH, QOS = {"app-type": "batch"}, "koordinator.sh/qosClass"
SOON_S = 30.0
STRANGER, CONNECTIONS, AGAIN_S = "127.0.0.66", ServerLimits().connections + 28, 1.0
CUT_S = ServerLimits().head_s / 2
"""Of the API server's own network. A connection that the manager closes is made again after ``AGAIN_S``."""


@dataclass
class Served:
    plane: ControlPlane
    api: Api
    replica: Replica


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One replica, and a profile that makes batch pods."""
    with controlplane.private(tmp_path_factory.mktemp("webhooks") / "plane") as plane, plane.api() as api:
        manager.install(plane)
        manager.configure(api, {"colocation-config": '{"enable": true}'})
        create_profile(api, "batch", {"matchLabels": BATCH})
        with manager.asked_replica(plane, api, "manager-served") as replica:
            yield Served(plane, api, replica)


def create_profile(api: Api, name: str, selector: dict[str, object]) -> None:
    profile = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile"}
    spec = {"selector": selector, "labels": {QOS: "BE"}, "priorityClassName": "koord-batch"}
    api.create(PROFILES, {**profile, "metadata": {"name": name}, "spec": spec})


class Stranger:
    """Connections that ask for the manager's health and then stay, each again when it is closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self.answered = self.held = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self._hold())

    async def _hold(self) -> None:
        while True:
            with contextlib.suppress(OSError, EOFError):
                await self._one()
            await asyncio.sleep(AGAIN_S)

    async def _one(self) -> None:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=self._tls, local_addr=(STRANGER, 0), ssl_shutdown_timeout=1.0
        )
        try:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"ok\n")
            self.answered += 1
            self.held += 1
            try:
                await reader.read()
            finally:
                self.held -= 1
        finally:
            writer.close()


@contextlib.contextmanager
def stranger(port: int) -> Iterator[Stranger]:
    """In a thread."""
    holding, loop = Stranger(port), asyncio.new_event_loop()
    running = loop.create_task(holding.run())

    def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(running)
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield holding
    finally:
        loop.call_soon_threadsafe(running.cancel)
        thread.join()


def test_an_api_server_that_connects_anew_is_served_beside_a_stranger_who_holds_all_places(
    served: Served, figure: Callable[[str], None]
) -> None:
    """Its own connection ends with it."""
    with stranger(served.replica.webhook_port) as holding:
        wait_for(lambda: holding.answered >= CONNECTIONS, SOON_S, "a stranger in every place")
        wait_for(lambda: holding.held <= ServerLimits().connections, CUT_S, "those that are too many to be cut")
        served.plane.api_server.restart()
        wait_for(served.api.healthy, SOON_S, "the API server")
        held, longest_s = holding.held, 0.0
        for number in range(5):
            begun_s = time.monotonic()
            created = served.api.create(PODS, objects.pod(f"held-{number}", {"cpu": "1"}, labels=BATCH))
            longest_s = max(longest_s, time.monotonic() - begun_s)
            assert created["metadata"]["labels"].get(QOS) == "BE"
            amounts = {"cpu": "1500m"}
            with pytest.raises(ApiError, match="1500m"):
                served.api.create(
                    PODS, objects.pod(f"lse-{number}", amounts, amounts, {QOS: "LSE"}, priorityClassName="koord-prod")
                )
    assert held > CONNECTIONS / 2
    figure(f"beside {held} connections of a stranger a pod was created within {longest_s:.2f} s")


def test_a_profile_that_cannot_be_used_is_warned_of_when_a_pod_is_created(served: Served) -> None:
    create_profile(served.api, "odd", {"matchExpressions": [{"key": "app", "operator": "Near", "values": ["a"]}]})

    def warnings() -> list[str]:
        served.api.create(f"{PODS}?dryRun=All", objects.pod("warned", {"cpu": "1"}))
        return served.api.warnings

    wait_for(warnings, SOON_S, "the manager to know of it")
    (warning,) = warnings()
    assert warning.startswith("ClusterColocationProfile odd is not applied: spec.selector"), warning
    selector = "involvedObject.name=odd,reason=ProfileNotApplied"
    wait_for(lambda: served.api.items("/api/v1/events", fieldSelector=selector), SOON_S, "the Event")
