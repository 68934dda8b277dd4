"""The cluster whose pod each test evicts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.qosd.cluster.apieviction.webpod import Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path)
    async with cluster.serving():
        yield cluster
