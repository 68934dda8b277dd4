"""A component of a few lines has all of the frame: two replicas, one of which leads."""

from __future__ import annotations

import asyncio

from integration.cluster.toycomponent import NAME, PROGRAM, Toy
from koord.cluster.frame import Frame
from koord.kube.client import Client
from tests.kube.server import Server
from tests.kube.support import PODS, client
from tests.support.waiting import until


def made(api: Client, host: str) -> tuple[Frame, Toy]:
    options = PROGRAM.load(PROGRAM.parse(["--metrics-addr="]))
    frame = Frame(api, NAME, NAME, options, {"HOSTNAME": host})
    return frame, Toy(frame, options)


def greetings(server: Server) -> dict[str, str]:
    """Who greeted each pod."""
    events = server.objects.get(("/api/v1", "events"), {}).values()
    return {event["involvedObject"]["name"]: event["source"]["host"] for event in events}


async def test_the_leader_alone_acts_and_another_follows_it() -> None:
    server = Server()
    async with server.serving() as url, client(url) as api, asyncio.TaskGroup() as group:
        (first, first_stop), (second, second_stop) = [(made(api, host), asyncio.Event()) for host in "ab"]
        for (frame, toy), stop in ((first, first_stop), (second, second_stop)):
            group.create_task(frame.run(toy, stop))
            await until(lambda: first[0].leads)
        server.put(PODS, "shop", "web")
        await until(lambda: greetings(server) == {"web": "a"})
        first_stop.set()
        await until(lambda: second[0].leads)
        server.put(PODS, "shop", "job")
        await until(lambda: greetings(server).get("job") == "b")
        second_stop.set()
