"""The event loop of koord-manager, for the tests of what runs on it: its transports are other classes than asyncio's.

A test module or a conftest imports the fixture by its name.
"""

from __future__ import annotations

import asyncio

import pytest
import uvloop


@pytest.fixture(scope="session")
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    policy: asyncio.AbstractEventLoopPolicy = uvloop.EventLoopPolicy()
    return policy
