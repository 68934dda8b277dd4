"""The API server's release, and that pods are scored by it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from koord.scheduling.plugins.resources import NodeResourcesBalancedAllocation
from koord_scheduler import serverversion
from tests.koord_scheduler.rig import running
from tests.kube.support import client
from tests.scheduling.clusters import pod


@asynccontextmanager
async def saying(status: int, text: str) -> AsyncIterator[str]:
    """The address of a server that answers ``/version`` so."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=text, content_type="application/json")

    application = web.Application()
    application.router.add_get("/version", answer)
    async with TestServer(application) as server:
        yield str(server.make_url("/")).rstrip("/")


@pytest.mark.parametrize(
    ("status", "text", "minor", "said"),
    [
        (200, '{"major": "1", "minor": "34", "gitVersion": "v1.34.1"}', 34, ""),
        (200, '{"major": "1", "minor": "36+"}', 36, ""),
        (200, '{"major": "1", "minor": "28"}', 28, ""),
        (200, '{"major": "1", "minor": "27"}', 28, "is of 1.27, which is not known: pods are scored as by 1.28"),
        (200, '{"major": "1", "minor": "41"}', 36, "is of 1.41, which is not known: pods are scored as by 1.36"),
        (200, '{"major": "2", "minor": "0"}', 34, "'2.0' is not one of 1.x"),
        (200, '{"major": "1", "minor": "next"}', 34, "'1.next' is not one of 1.x"),
        (200, "none", 34, "does not say its version"),
        (200, '{"minor": 34}', 34, "does not say its version"),
        (403, '{"kind": "Status", "code": 403}', 34, "does not say its version"),
    ],
)
async def test_the_minor_version(
    status: int, text: str, minor: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with saying(status, text) as url, client(url, tries=1) as api:
        assert await serverversion.minor_of(api) == minor
    messages = [each.getMessage() for each in caplog.records]
    assert len(messages) == bool(said)
    assert not said or said in messages[0]


async def test_every_profile_scores_by_it() -> None:
    async with running() as rig:
        for minor in (36, 28):
            rig.view.score_as(minor)
            framework = rig.view.framework_of(pod("p", schedulerName="koord-scheduler"))
            assert [
                each.plugin.minor
                for each in framework.plugins
                if isinstance(each.plugin, NodeResourcesBalancedAllocation)
            ] == [minor]
