"""Binds all pods of one scheduler name to nodes in turn, and decides nothing: ``python -m bench.bindloop``.

A page of aiohttp: so many workers, each of which posts a binding and, with ``--events``, the Event that a scheduler
writes of it. It is what the API server allows a scheduler of this kind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import time
from collections.abc import Iterator
from typing import Any

import aiohttp
import msgspec
import uvloop

_JSON = {"Content-Type": "application/json"}


def _binding(pod: dict[str, Any], node: str) -> dict[str, Any]:
    metadata = {name: pod["metadata"][name] for name in ("namespace", "name", "uid")}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def _event(pod: dict[str, Any], node: str) -> dict[str, Any]:
    metadata = pod["metadata"]
    members = ("namespace", "name", "uid", "resourceVersion")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": metadata["namespace"], "name": f"{metadata['name']}.{time.time_ns():x}"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **{name: metadata[name] for name in members}},
        "type": "Normal",
        "reason": "Scheduled",
        "message": f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}",
        "count": 1,
        "source": {"component": "bindloop"},
    }


async def run(server: str, context: ssl.SSLContext, name: str, workers: int, events: bool) -> None:
    async with aiohttp.ClientSession(
        server, connector=aiohttp.TCPConnector(limit=workers, ssl=context), cookie_jar=aiohttp.DummyCookieJar()
    ) as session:

        async def call(method: str, path: str, body: Any = None) -> bytes:
            data = None if body is None else msgspec.json.encode(body)
            async with session.request(method, path, data=data, headers=_JSON) as answer:
                answer.raise_for_status()
                return await answer.read()

        nodes = [each["metadata"]["name"] for each in json.loads(await call("GET", "/api/v1/nodes"))["items"]]
        selected = f"/api/v1/pods?fieldSelector=spec.schedulerName={name},spec.nodeName="
        pods = json.loads(await call("GET", selected))["items"]
        waiting = iter(list(enumerate(pods)))

        async def work(waiting: Iterator[tuple[int, dict[str, Any]]]) -> None:
            for number, pod in waiting:
                node = nodes[number % len(nodes)]
                path = f"/api/v1/namespaces/{pod['metadata']['namespace']}"
                await call("POST", f"{path}/pods/{pod['metadata']['name']}/binding", _binding(pod, node))
                if events:
                    await call("POST", f"{path}/events", _event(pod, node))

        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(work(waiting))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.bindloop")
    parser.add_argument("--server", required=True)
    parser.add_argument("--authority", required=True)
    parser.add_argument("--certificate", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--scheduler-name", required=True)
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--events", action="store_true")
    options = parser.parse_args()
    context = ssl.create_default_context(cafile=options.authority)
    context.load_cert_chain(options.certificate, options.key)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(options.server, context, options.scheduler_name, options.workers, options.events))


if __name__ == "__main__":
    main()
