"""The API server's pods of one node, as kubelet would list them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from qosd.cluster import apipods
from qosd.cluster.apipods import APIPods
from qosd.pods.http import FetchError
from tests.kube.server import Fault, Server
from tests.kube.support import PODS, client
from tests.support.waiting import HANG_S

SOURCE = "kubernetes.io/config.source"
RUNNING = {"phase": "Running", "qosClass": "Burstable"}


@asynccontextmanager
async def following(server: Server) -> AsyncGenerator[APIPods, None]:
    async with server.serving(), client(server.url, tries=1) as api:
        pods = APIPods(api, "n1")
        task = asyncio.create_task(pods.run())
        try:
            yield pods
        finally:
            task.cancel()
            await asyncio.wait([task])


async def known(pods: APIPods) -> dict[str, str]:
    """UID by name, once the server has told."""

    async def told() -> bool:
        try:
            await pods.pods()
        except FetchError:
            return False
        return True

    async with asyncio.timeout(HANG_S):
        while not await told():  # noqa: ASYNC110 - a list has no event
            await asyncio.sleep(0.002)
    return {pod.name: pod.uid for pod in (await pods.pods()).items}


async def test_nobody_is_asked_before_it_is_needed_and_then_the_answer_is_waited_for() -> None:
    server = Server()
    server.put(PODS, "default", "a", metadata={"uid": "a"}, spec={"nodeName": "n1"})
    async with following(server) as pods:
        await asyncio.sleep(0.05)
        assert server.requests == []
        assert [pod.name for pod in (await pods.pods()).items] == ["a"]
        assert server.count("list") == 1


async def test_an_answer_that_does_not_come_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apipods, "FIRST_S", 0.05)
    server = Server()
    server.faults = [Fault("list", hang=True)]
    async with following(server) as pods:
        with pytest.raises(FetchError, match="pods of node n1: are not known yet"):
            await pods.pods()


async def test_a_refusal_is_told() -> None:
    server = Server()
    server.faults = [Fault("list", status=403, reason="Forbidden")] * 9
    async with following(server) as pods:
        with pytest.raises(FetchError, match="403 Forbidden"):
            await pods.pods()


async def problem(pods: APIPods, text: str) -> str:
    """Why there is no list, as soon as ``text`` is in it: a watch that breaks may be told first."""
    async with asyncio.timeout(HANG_S):
        while True:
            try:
                await pods.pods()
            except FetchError as error:
                if text in str(error):
                    return str(error)
            await asyncio.sleep(0.002)


async def test_a_server_that_goes_is_told_and_its_return_brings_the_pods_again() -> None:
    server = Server()
    server.put(PODS, "default", "a", metadata={"uid": "a"}, spec={"nodeName": "n1"})
    async with following(server) as pods:
        assert await known(pods) == {"a": "a"}
        server.faults = [Fault("any", status=503, reason="ServiceUnavailable")] * 99
        server.cut_watches()
        assert await problem(pods, "503 ServiceUnavailable")
        server.faults.clear()
        assert await known(pods) == {"a": "a"}


async def test_a_server_that_says_nothing_any_more_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As over a connection that is half open."""
    monkeypatch.setattr(apipods, "SILENT_S", 0.2)
    server = Server()
    server.faults = [Fault("watch", silent=True)]
    async with following(server) as pods:
        assert await known(pods) == {}
        assert await problem(pods, "have not been told of for 0 s")
        server.cut_watches()
        assert await known(pods) == {}


async def test_the_pods_of_this_node_and_what_becomes_of_them() -> None:
    server = Server()
    server.put(PODS, "default", "a", metadata={"uid": "a"}, spec={"nodeName": "n1", "priority": 9000}, status=RUNNING)
    server.put(PODS, "default", "b", metadata={"uid": "b"}, spec={"nodeName": "n2"})
    mirror = {"uid": "m", "annotations": {"kubernetes.io/config.mirror": "of-the-file", SOURCE: "file"}}
    server.put(PODS, "kube-system", "static", metadata=mirror, spec={"nodeName": "n1"})
    async with following(server) as pods:
        assert await known(pods) == {"a": "a", "static": "of-the-file"}
        pod = next(pod for pod in (await pods.pods()).items if pod.name == "a")
        assert (pod.priority, pod.phase, pod.kube_qos) == (9000, "Running", "Burstable")
        server.delete(PODS, "default", "a")
        async with asyncio.timeout(HANG_S):
            while await known(pods) != {"static": "of-the-file"}:  # noqa: ASYNC110 - a list has no event
                await asyncio.sleep(0.002)


async def test_who_says_that_his_pod_is_static_is_not_believed() -> None:
    server = Server()
    forged = {"uid": "a", "annotations": {SOURCE: "file", "note": "x"}}
    server.put(PODS, "default", "a", metadata=forged, spec={"nodeName": "n1"})
    async with following(server) as pods:
        await known(pods)
        (pod,) = (await pods.pods()).items
        assert pod.annotations == {SOURCE: "api", "note": "x"} and pod.extended is not None


async def test_a_pod_that_cannot_be_read_is_named() -> None:
    server = Server()
    server.put(PODS, "default", "a", metadata={"uid": "a"}, spec={"nodeName": "n1", "priority": "high"})
    async with following(server) as pods:
        assert await known(pods) == {}
        (problem,) = (await pods.pods()).problems
        assert problem.startswith("Pod default/a: cannot be read")
