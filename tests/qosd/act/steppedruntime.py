"""A runtime's client of whose calls each begin and each end is a step, at which a test lets something happen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from qosd.pods.cri import Container, CRIClient, Detail, Sandbox

Answer = TypeVar("Answer")
Step = Callable[[], Awaitable[None]]


async def around(step: Step, call: Callable[[], Awaitable[Answer]]) -> Answer:
    """The call, with a step before it and one after it."""
    await step()
    answer = await call()
    await step()
    return answer


class SteppedRuntime(CRIClient):
    def __init__(self, endpoint: str, step: Step) -> None:
        super().__init__(endpoint, 2.0, asyncio.get_running_loop())
        self._step = step

    async def sandboxes(self, uid: str = "") -> list[Sandbox]:
        return await around(self._step, lambda: super(SteppedRuntime, self).sandboxes(uid))

    async def containers(self, sandbox_id: str = "") -> list[Container]:
        return await around(self._step, lambda: super(SteppedRuntime, self).containers(sandbox_id))

    async def container_detail(self, container_id: str) -> Detail | None:
        return await around(self._step, lambda: super(SteppedRuntime, self).container_detail(container_id))

    async def stop_container(self, container_id: str, grace_s: int, exit_s: float) -> None:
        await around(self._step, lambda: super(SteppedRuntime, self).stop_container(container_id, grace_s, exit_s))
