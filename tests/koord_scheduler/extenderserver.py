"""An extender on a real socket that says what a test has it say, and keeps what it was asked."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from koord_scheduler.extendersettings import ExtenderSettings

GPU = "example.com/gpu"
WITH_GPU: dict[str, Any] = {"containers": [{"name": "main", "resources": {"limits": {GPU: "1"}}}]}
Answer = Callable[[dict[str, Any]], Any]
"""What it says to a question: JSON, bytes, an int as status, or what is awaited for one of these."""


class ExtenderServer:
    """``asked``: the questions of each verb. ``most``: so many came at once. As it is, it lets all nodes pass."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: dict[str, list[dict[str, Any]]] = {}
        self.answers: dict[str, Answer] = {}
        self.most = 0
        self._now = 0

    def settings(self, *verbs: str, is_node_cache_capable: bool = True, **others: Any) -> ExtenderSettings:
        named: dict[str, Any] = {f"{verb}_verb": verb for verb in verbs or ("filter",)}
        return ExtenderSettings(self.url, is_node_cache_capable=is_node_cache_capable, **named, **others)

    def names(self, verb: str = "filter") -> list[str]:
        """Of the pods that it was asked about, in order."""
        return [each["Pod"]["metadata"]["name"] for each in self.asked.get(verb, ())]

    def nodes(self, verb: str = "filter") -> list[list[str]]:
        return [sorted(each["NodeNames"]) for each in self.asked.get(verb, ())]

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[ExtenderServer]:
        application = web.Application(client_max_size=1 << 24)
        application.router.add_post("/base/{verb}", self._serve)
        silent = logging.Logger("aiohttp.server", logging.CRITICAL + 1)
        runner = web.AppRunner(application, shutdown_timeout=0.01, access_log=None, logger=silent)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/base"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        verb, question = request.match_info["verb"], await request.json()
        self.asked.setdefault(verb, []).append(question)
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            said = self.answers.get(verb, _everything)(question)
            said = await said if inspect.isawaitable(said) else said
        finally:
            self._now -= 1
        if isinstance(said, web.StreamResponse):
            return said
        if said is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if isinstance(said, int):
            return web.Response(status=said, headers={"Location": self.url})
        body = said if isinstance(said, bytes) else json.dumps(said).encode()
        return web.Response(body=body, content_type="application/json")


def _everything(question: dict[str, Any]) -> Any:
    return {"NodeNames": question.get("NodeNames"), "Nodes": question.get("Nodes")}


def names(*nodes: str, **members: Any) -> Answer:
    """Lets these nodes pass, as far as it was asked about them."""
    return lambda question: {"NodeNames": [each for each in question["NodeNames"] if each in nodes], **members}


def scores(by_node: Mapping[str, int]) -> Answer:
    said = [{"Host": name, "Score": score} for name, score in by_node.items()]
    return lambda _: said or b"null"


def held(answer: Answer, until: asyncio.Event) -> Answer:
    """Says it once ``until`` is set."""

    async def wait(question: dict[str, Any]) -> Any:
        await until.wait()
        return answer(question)

    return wait


def hang(_: dict[str, Any]) -> Any:
    return asyncio.get_running_loop().create_future()
