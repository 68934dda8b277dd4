"""kubelet's call mix on one node: polls, pods that come and go, the events stream; while faults strike the node.

The caller gives a coroutine that makes the faults: it gets the storm, and the storm ends when it ends.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from integration.harness.cri import IMAGE, RUNTIME
from integration.storm.client import IGNORED, Failed, Interrupted
from integration.storm.ledger import Tally, disagreements
from integration.storm.worker import Setting, Worker
from koord.pb.cri import api_pb2 as pb

NOT_READY_S = 30.0  # kubelet reports NotReady after so long without a good Status
STATUS = RUNTIME + "Status"
Poll = tuple[str, float]  # method, pause in s
POLLS: Sequence[Poll] = (  # kubelet's standing calls, some twenty times as often
    (RUNTIME + "Version", 0.05),
    (STATUS, 0.05),
    (RUNTIME + "ListPodSandbox", 0.02),
    (RUNTIME + "ListContainers", 0.02),
    (IMAGE + "ListImages", 0.2),
)
WORKERS = 3


@dataclass(slots=True)
class Streams:
    """The events stream of containerd 1.7 and later; ``endings`` counts how it ended, by status or "cut"."""

    opened: int = 0
    events: int = 0
    endings: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Outcome:
    """What a storm did. ``gap_s``: the longest time between two good answers to Status, or from when the runtime was
    ready again to the first: what it takes to come back itself is no proxy's."""

    calls: int = 0
    refused: int = 0
    seconds: float = 0.0
    gap_s: float = 0.0
    waits_ms: list[float] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    streams: Streams = field(default_factory=Streams)
    disagreements: list[str] = field(default_factory=list)

    def wrong(self) -> list[str]:
        refused = [f"{self.refused} connections were refused by the held socket"] if self.refused else []
        not_ready = [f"no good Status for {self.gap_s:.1f} s: kubelet reports NotReady"]
        failed = [f"not in flight, and failed: {text}" for text in self.tally.failures]
        ledger = [f"ledger: {text}" for text in self.disagreements]
        return [*refused, *(not_ready if self.gap_s > NOT_READY_S else []), *failed, *self.tally.findings, *ledger]

    def summary(self) -> str:
        waits = sorted(self.waits_ms) or [0.0]
        tally, interrupted = self.tally, self.tally.interrupted.total()
        return (
            f"{self.calls:,} calls in {self.seconds:.0f} s, {len(tally.failures)} not in flight failed; {interrupted} "
            f"in flight ({tally.absent} absent, {tally.present} present and edited, {len(tally.findings)} otherwise); "
            f"{tally.pods} pods, {tally.wrecks} wrecked by the runtime alone, ledger "
            f"{'DIFFERS' if self.disagreements else 'equal'}; next answer after {statistics.median(waits):.0f} ms "
            f"(p99 {waits[len(waits) * 99 // 100]:.0f}), longest without a good Status {self.gap_s:.1f} s"
        )


async def under_load(
    setting: Setting,
    chance: random.Random,
    torment: Callable[[Outcome], Awaitable[None]],
    polls: Sequence[Poll] = POLLS,
    workers: int = WORKERS,
) -> Outcome:
    """Run the mix for as long as ``torment`` takes, and compare the node with the ledger afterwards."""
    found, over = Outcome(), asyncio.Event()
    started = time.monotonic()
    crew = [Worker(setting, found.tally, random.Random(chance.random())) for _ in range(workers)]
    async with asyncio.TaskGroup() as cgroup:
        for worker in crew:
            cgroup.create_task(worker.work(over))
        for method, pause_s in polls:
            cgroup.create_task(_poll(setting, method, pause_s, found, over))
        events = cgroup.create_task(_events(setting, found.streams))
        await torment(found)
        over.set()
        events.cancel()
    await setting.runtime.ready()
    living = [entry for worker in crew for entry in worker.living]
    wrecked = {uid for worker in crew for uid in worker.wrecked}
    patience_s = setting.terms.edited_within_s
    found.disagreements = await disagreements(living, wrecked, setting.groups, setting.direct, patience_s)
    proxied = setting.proxied
    found.calls, found.refused, found.waits_ms = proxied.calls, proxied.refused, proxied.waits_ms
    found.seconds = time.monotonic() - started
    return found


async def _poll(setting: Setting, method: str, pause_s: float, found: Outcome, over: asyncio.Event) -> None:
    """kubelet's standing calls: an empty request, again and again."""
    name = method.rpartition("/")[2]
    good = time.monotonic()
    while not over.is_set():
        moment = setting.runtime.moment
        try:
            await setting.proxied.call(method, pb.VersionRequest(), IGNORED)
        except Interrupted:
            found.tally.interrupted[name] += 1
        except Failed as error:
            if setting.runtime.undisturbed_since(moment):
                found.tally.failures.append(str(error))
            else:
                found.tally.refused[name] += 1
        else:
            now = time.monotonic()
            if method == STATUS and setting.runtime.is_ready:
                found.gap_s = max(found.gap_s, now - max(good, setting.runtime.ready_s))
            good = now
        await asyncio.sleep(pause_s)


async def _events(setting: Setting, streams: Streams) -> None:
    """Hold the events stream open, and open it again when it ends, as kubelet does."""
    while True:
        streams.opened += 1
        ending = "cut"
        try:
            async for _ in setting.proxied.stream(RUNTIME + "GetContainerEvents", pb.GetEventsRequest()):
                streams.events += 1
        except Failed as error:
            ending = str(error.code)
        except Interrupted:
            pass
        streams.endings[ending] = streams.endings.get(ending, 0) + 1
        if ending == UNIMPLEMENTED:
            return
        await asyncio.sleep(0.1)


UNIMPLEMENTED = "12"
