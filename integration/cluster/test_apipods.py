"""A node's pods by a real API server, where its kubelet does not list them: of its own node, and no other's."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from integration.cluster import controlplane, objects
from integration.cluster.controlplane import ControlPlane
from koord.kube import kubeconfig
from koord.kube.client import connected
from koord.kube.credentials import Credentials
from koord.model.core import ObjectList
from qosd.cluster.apipods import APIPods
from qosd.pods.http import FetchError
from qosd.pods.kubelet import KubeletPod

LONGEST_S = 20.0
PATH = objects.pods_of("default")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Two nodes with two pods each."""
    with controlplane.private(tmp_path_factory.mktemp("pods") / "plane") as plane, plane.api() as api:
        for node in ("n1", "n2"):
            api.create(objects.NODES, objects.node(node))
            for number in (1, 2):
                api.create(PATH, objects.pod(f"{node}-{number}", {"cpu": f"{number}"}, nodeName=node))
        yield plane


@contextlib.asynccontextmanager
async def listing(config: Path, node: str) -> AsyncIterator[APIPods]:
    credentials = Credentials(lambda: kubeconfig.read_kubeconfig([config]), {}, time.monotonic, time.time)
    async with connected(credentials, "koord-test/1") as client:
        pods = APIPods(client, node)
        task = asyncio.create_task(pods.run())
        try:
            yield pods
        finally:
            task.cancel()
            await asyncio.wait([task])


async def answer(pods: APIPods) -> ObjectList[KubeletPod] | str:
    """The list, or why there is none, once either is known."""
    says = "not known yet"
    async with asyncio.timeout(LONGEST_S):
        while "not known yet" in says:
            try:
                return await pods.pods()
            except FetchError as error:
                says = str(error)
            await asyncio.sleep(0.02)
    return says


async def test_a_nodes_own_pods_with_their_requests(plane: ControlPlane) -> None:
    async with listing(plane.node_kubeconfig("n1"), "n1") as pods:
        listed = await answer(pods)
        assert isinstance(listed, ObjectList)
        assert {pod.name: pod.cpu_request_milli for pod in listed.items} == {"n1-1": 1000, "n1-2": 2000}
        with plane.api() as admin:
            admin.delete(f"{PATH}/n1-2", gracePeriodSeconds="0")
        async with asyncio.timeout(LONGEST_S):
            while len((await pods.pods()).items) > 1:  # noqa: ASYNC110 - another process's work
                await asyncio.sleep(0.02)


async def test_another_nodes_pods_are_refused(plane: ControlPlane) -> None:
    async with listing(plane.node_kubeconfig("n1"), "n2") as pods:
        says = await answer(pods)
        assert isinstance(says, str)
        assert "403" in says
