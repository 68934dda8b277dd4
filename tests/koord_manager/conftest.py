"""The cluster that the manager's tests work on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import uvloop

from tests.koord_manager.support import Cluster, running
from tests.kube.server import Server


@pytest.fixture(scope="session")
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    """Of the loop that koord-manager runs on."""
    return uvloop.EventLoopPolicy()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Nothing is in it; nobody leads yet."""
    server = Server()
    async with running(server) as made:
        yield made
