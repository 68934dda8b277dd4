"""The cluster that the manager's tests work on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.koord_manager.support import Cluster, running
from tests.kube.server import Server
from tests.support.managerloop import event_loop_policy  # noqa: F401 - a fixture


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Nothing is in it; nobody leads yet."""
    server = Server()
    async with running(server) as made:
        yield made
