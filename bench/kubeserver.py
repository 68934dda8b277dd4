"""An API server's side of ``bench.kube`` in a process of its own: ``python -m bench.kubeserver``.

Prints its URL, then serves until its standard input ends: pods in pages, as one body (``resourceVersion=0``) or
streamed (``sendInitialEvents``); watches, which say nothing until ``/changes/COUNT`` makes them say so many changes;
and the answer to a POST is what was sent, as a server's is that has created the object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from http import HTTPStatus

import uvloop
from aiohttp import web

from bench.kubepods import Pods

VERSION = 2_000_000
CHANGED = 10_000
"""Pods that change, spread over all."""

_CHUNK = 64
_INITIAL_EVENTS_END = (
    b'{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d",'
    b'"annotations":{"k8s.io/initial-events-end":"true"}}}}\n'
)
_INVALID = {"kind": "Status", "code": 422, "reason": "Invalid", "message": "sendInitialEvents: Forbidden"}


class Server:
    """``has_watch_list``: does it stream lists?"""

    def __init__(self, pods: Pods, has_watch_list: bool) -> None:
        self._pods, self._has_watch_list = pods, has_watch_list
        self._changes = asyncio.Queue[int]()

    async def get(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/changes/"):
            self._changes.put_nowait(int(request.path.rpartition("/")[2]))
        if not request.path.startswith("/api/v1/pods"):
            return web.json_response({})
        if request.query.get("watch") == "true":
            return await self._watch(request)
        limit, start = int(request.query.get("limit", 0)), int(request.query.get("continue", 0))
        if request.query.get("resourceVersion") == "0" or not limit:
            return await self._whole(request)
        end = min(start + limit, self._pods.count)
        body = self._pods.page(range(start, end), VERSION, str(end) if end < self._pods.count else "")
        return web.Response(body=body, content_type="application/json")

    async def _whole(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        head = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":['
        await answer.write(head % VERSION)
        for first in range(0, self._pods.count, _CHUNK):
            numbers = range(first, min(first + _CHUNK, self._pods.count))
            await answer.write((b"," if first else b"") + b",".join([self._pods.pod(number) for number in numbers]))
        await answer.write(b"]}\n")
        return answer

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        streams_list = request.query.get("sendInitialEvents") == "true"
        if streams_list and not self._has_watch_list:
            return web.json_response(_INVALID, status=HTTPStatus.UNPROCESSABLE_ENTITY)
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        if streams_list:
            for first in range(0, self._pods.count, _CHUNK):
                numbers = range(first, min(first + _CHUNK, self._pods.count))
                await answer.write(b"".join([self._pods.line("ADDED", number) for number in numbers]))
            await answer.write(_INITIAL_EVENTS_END % VERSION)
        self._changes = changes = asyncio.Queue[int]()  # those of the newest watch
        with contextlib.suppress(ConnectionResetError):
            while True:
                await self._change(answer, await changes.get())
        return answer

    async def _change(self, answer: web.StreamResponse, count: int) -> None:
        places = range(0, self._pods.count, max(1, self._pods.count // CHANGED))
        for first in range(0, count, _CHUNK):
            numbers = range(first, min(first + _CHUNK, count))
            changed = [(places[number % len(places)], VERSION + 1 + number) for number in numbers]
            await answer.write(b"".join([self._pods.line("MODIFIED", *change) for change in changed]))

    async def post(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=await request.read(), content_type="application/json", status=HTTPStatus.CREATED)


async def _serve(options: argparse.Namespace) -> None:
    server = Server(Pods(options.pods, options.null), options.watch_list)
    application = web.Application()
    application.router.add_get("/{path:.*}", server.get)
    application.router.add_post("/{path:.*}", server.post)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.kubeserver")
    parser.add_argument("pods", type=int)
    parser.add_argument("--watch-list", action="store_true")
    parser.add_argument("--null", default="", help="a member of each pod's metadata that is null")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
