"""Extenders that run while a test does."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.koord_scheduler.extenderserver import ExtenderServer


@pytest.fixture
async def extender() -> AsyncIterator[ExtenderServer]:
    async with ExtenderServer().serving() as server:
        yield server


@pytest.fixture
async def second() -> AsyncIterator[ExtenderServer]:
    async with ExtenderServer().serving() as server:
        yield server
