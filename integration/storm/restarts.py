"""containerd restarted under the proxy, with a direct client beside it as the measure of what may fail.

While the runtime is away calls fail for either client. How often is chance, so that the counts of every code are
compared over a fixed number of restarts: the proxy must add no kind of failure of its own, nor more of any. Once the
runtime has said RuntimeReady to a client, every call of that client succeeds at its first attempt.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import Message

from integration.harness.containerd import Containerd
from integration.harness.cri import IMAGE, RUNTIME
from integration.storm.client import IGNORED, UNAVAILABLE, Caller, Failed, Interrupted, calling
from koord.pb.cri import api_pb2 as pb

CALLERS = 3
PAUSE_S = 0.002
BACK_S = 20.0


@dataclass(slots=True)
class Side:
    """One client: how its calls ended, by code and restart; and those that failed although the runtime was ready."""

    name: str
    codes: Counter[int] = field(default_factory=Counter)
    failed: list[Counter[str]] = field(default_factory=list)
    calls: int = 0
    late: list[str] = field(default_factory=list)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    disturbed: bool = True  # a restart has begun and the runtime has not been ready since

    def count(self, code: int) -> None:
        """A call has ended."""
        self.codes[code] += 1
        if code and self.failed:
            self.failed[-1][f"code {code}"] += 1


async def restarted(runtime: Containerd, proxied: Path, times: int) -> tuple[Side, Side]:
    """Restart the runtime so many times under both clients: (direct, proxied)."""
    direct_side, proxied_side = Side("direct"), Side("proxied")
    sides = (direct_side, proxied_side)
    async with calling(runtime.socket) as direct, calling(proxied) as relayed, asyncio.TaskGroup() as cgroup:
        tasks = [
            cgroup.create_task(_call_for_ever(caller, side))
            for caller, side in ((direct, direct_side), (relayed, proxied_side))
            for _ in range(CALLERS)
        ]
        for _ in range(times):
            await _all_ready(sides)
            await asyncio.sleep(0.2)
            for side in sides:
                side.failed.append(Counter())
                side.disturbed = True
            await asyncio.to_thread(runtime.stop)
            for side in sides:
                side.ready.clear()
            await asyncio.to_thread(runtime.start)
        await _all_ready(sides)
        await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
    return direct_side, proxied_side


async def _all_ready(sides: tuple[Side, Side]) -> None:
    async with asyncio.timeout(BACK_S):
        for side in sides:
            await side.ready.wait()


async def _call_for_ever(caller: Caller, side: Side) -> None:
    while True:
        for method, request in (
            (RUNTIME + "Version", pb.VersionRequest()),
            (RUNTIME + "ListPodSandbox", pb.ListPodSandboxRequest()),
            (RUNTIME + "ListContainers", pb.ListContainersRequest()),
            (IMAGE + "ListImages", pb.ListImagesRequest()),
        ):
            undisturbed = not side.disturbed
            code = await _code(caller, method, request)
            side.calls += 1
            side.count(code)
            if code and undisturbed and not side.disturbed:
                side.late.append(f"{method}: {code}")
            await asyncio.sleep(PAUSE_S)
        await _look_at_status(caller, side)


async def _look_at_status(caller: Caller, side: Side) -> None:
    away = not side.ready.is_set()  # a Status that was asked for before the stop says nothing about the time after
    try:
        answer = await caller.call(RUNTIME + "Status", pb.StatusRequest(), pb.StatusResponse)
    except (Failed, Interrupted) as error:
        side.count(error.code if isinstance(error, Failed) else UNAVAILABLE)
        return
    if away and any(item.type == "RuntimeReady" and item.status for item in answer.status.conditions):
        side.disturbed = False
        side.ready.set()


async def _code(caller: Caller, method: str, request: Message) -> int:
    """gRPC status of one attempt; a connection that ended is what a gRPC client calls UNAVAILABLE."""
    try:
        await caller.call(method, request, IGNORED)
    except Failed as error:
        return error.code
    except Interrupted:
        return UNAVAILABLE
    return 0
