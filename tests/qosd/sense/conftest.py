"""The worlds that collectors are shown, on either cgroup version."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.qosd.sense.trees import World


@pytest.fixture(params=[1, 2])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, request.param)


@pytest.fixture
def v2(tmp_path: Path) -> World:
    return World(tmp_path, 2)
