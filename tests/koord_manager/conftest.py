"""The cluster that the manager's tests work on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from koord.kube.recorder import Recorder
from koord_manager.controllers.leading import Controllers
from koord_manager.freshusage import FreshFigures
from koord_manager.view import ClusterView
from tests.koord_manager.support import CONFIG, Cluster
from tests.kube.server import Server
from tests.kube.support import client


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Nothing is in it; nobody leads yet."""
    server = Server()
    async with server.serving() as url, client(url) as api:
        view = ClusterView(api, CONFIG, CONFIG.namespace, {}, time.monotonic, lambda: made.now_s)
        figures = FreshFigures(lambda: made.now_s)
        recorder = Recorder(api, "koord-manager", "test", time.time)
        controllers = Controllers(api, view, figures, recorder, CONFIG, lambda: made.now_s)
        made = Cluster(server, view, figures, controllers)
        made.tasks += [asyncio.create_task(view.run()), asyncio.create_task(recorder.run())]
        await view.synced()
        yield made
        for task in made.tasks:
            task.cancel()
        for task in made.tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
