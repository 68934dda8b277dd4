"""Whose failure a failed call of a storm is: the runtime's, if it was away at any time while the call was under way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from integration.storm.client import Caller
from integration.storm.runtime import Runtime
from koord.pb.cri import api_pb2 as pb

READY = pb.StatusResponse(status=pb.RuntimeStatus(conditions=[pb.RuntimeCondition(type="RuntimeReady", status=True)]))


class Direct:
    """A connection to a runtime that says that it is ready."""

    async def call(self, *_: object) -> pb.StatusResponse:
        return READY


async def _before(runtime: Runtime) -> int:
    """A call begins, and then the runtime is killed and comes back."""
    moment = runtime.moment
    with runtime.disturbed():
        pass
    await runtime.ready()
    return moment


async def _while_it_is_killed(runtime: Runtime) -> int:
    with runtime.disturbed():
        moment = runtime.moment
    await runtime.ready()
    return moment


async def _while_it_comes_back(runtime: Runtime) -> int:
    """The answer "not initialized yet" may arrive after the news that it is initialized."""
    with runtime.disturbed():
        pass
    moment = runtime.moment
    await asyncio.gather(runtime.ready(), runtime.ready())
    return moment


async def _after(runtime: Runtime) -> int:
    with runtime.disturbed():
        pass
    await runtime.ready()
    return runtime.moment


async def _never(runtime: Runtime) -> int:
    return runtime.moment


@pytest.mark.parametrize(
    ("began", "is_the_proxys"),
    [(_before, False), (_while_it_is_killed, False), (_while_it_comes_back, False), (_after, True), (_never, True)],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
async def test_whose_failure(began: Callable[[Runtime], Awaitable[int]], is_the_proxys: bool) -> None:
    runtime = Runtime(cast(Caller, Direct()))
    moment = await began(runtime)
    assert runtime.is_ready
    assert runtime.undisturbed_since(moment) is is_the_proxys
