"""Fault after fault on this node, under kubelet's call mix: ``python -m integration.guest.inside.storm``.

Environment: CYCLES=30, SEED=random. systemd alone brings back what is killed. What must hold is in ``Outcome.wrong``:
what a storm of the proxy must hold, kubelet's 30 s rule, and at the end every unit active and a pod that comes through.
The last line is JSON. Exits with 1 when something did not hold.

How long a pod takes depends on the machine, so the time between faults is measured by it: with a fixed one, on
a slow machine no pod ever came through, and the storm showed little.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from integration.guest.inside import faults
from integration.guest.inside.faults import CONTAINERD, PROXY, QOSD, Fault, Kind
from integration.guest.inside.load import as_json, loaded
from integration.harness.cri import RUNTIME
from integration.storm.client import IGNORED, Failed, Interrupted
from integration.storm.mix import Outcome
from integration.storm.worker import Setting
from koord.pb.cri import api_pb2 as pb

HURRIED = 0.4  # of the faults follow the one before without waiting for its end
FROZEN_S = 3.0


@dataclass(slots=True)
class Tormentor:
    """Strikes ``cycles`` times, before and after which a pod comes through in peace.

    ``pod_s``: what the first pod took, and the longest time between faults; ``frozen_s``: from each SIGSTOP of the
    proxy to the next answer.
    """

    chance: random.Random
    cycles: int
    pod_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    frozen_s: list[float] = field(default_factory=list)

    async def __call__(self, found: Outcome, setting: Setting) -> None:
        began_s = time.monotonic()
        await _another_pod(found)
        self.pod_s = time.monotonic() - began_s
        for number, fault in enumerate(itertools.islice(faults.dealt(self.chance), self.cycles), start=1):
            await asyncio.sleep(self.chance.uniform(0, self.pod_s))
            self.counts[str(fault)] += 1
            print(f"{number}: {fault}; {setting.proxied.calls} calls, {found.tally.pods} pods", flush=True)
            await self._strike(fault, setting)
            if self.chance.random() >= HURRIED:
                await _all_back(setting)
        await _all_back(setting)
        try:
            await _another_pod(found)
        except TimeoutError:
            found.tally.findings.append(f"no pod came through within {faults.BACK_S:g} s after the last fault")

    async def _strike(self, fault: Fault, setting: Setting) -> None:
        with setting.runtime.disturbed() if CONTAINERD in fault.units else contextlib.nullcontext():
            await self._signal(fault, setting)

    async def _signal(self, fault: Fault, setting: Setting) -> None:
        if fault.kind is Kind.KILL:
            await faults.signal("KILL", *fault.units)
            if PROXY in fault.units and CONTAINERD not in fault.units and setting.runtime.is_ready:
                setting.proxied.expect_answer()
        elif fault.units == (PROXY,):
            await self._freeze_proxy(setting)
        else:
            await faults.signal("STOP", *fault.units)
            await asyncio.sleep(self.chance.uniform(0, FROZEN_S))
            await faults.signal("CONT", *fault.units)

    async def _freeze_proxy(self, setting: Setting) -> None:
        frozen, since = await faults.main_pid(PROXY), time.monotonic()
        await faults.signal("STOP", PROXY)

        async def replaced() -> bool:
            return await faults.main_pid(PROXY) not in (frozen, 0)

        await faults.until(replaced)
        await faults.until(lambda: _answered(setting))
        self.frozen_s.append(time.monotonic() - since)


async def _another_pod(found: Outcome) -> None:
    """Until one more has come through. Raises TimeoutError."""
    before = found.tally.pods

    async def came() -> bool:
        return found.tally.pods > before

    await faults.until(came)


async def _all_back(setting: Setting) -> None:
    await setting.runtime.ready()

    async def back() -> bool:
        return await faults.active(PROXY, QOSD, CONTAINERD) and await _answered(setting)

    await faults.until(back)


async def _answered(setting: Setting) -> bool:
    try:
        await setting.proxied.call(RUNTIME + "Version", pb.VersionRequest(), IGNORED)
    except (Failed, Interrupted):
        return False
    return True


def main() -> int:
    cycles = int(os.environ.get("CYCLES") or 30)
    seed = int(os.environ.get("SEED") or random.randrange(1 << 31))
    print(f"storm: seed {seed}", flush=True)
    chance = random.Random(seed)
    tormentor = Tormentor(chance, cycles)
    found = asyncio.run(loaded(chance, tormentor))
    print(as_json(found, seed=seed, faults=tormentor.counts, frozen_s=tormentor.frozen_s, pod_s=tormentor.pod_s))
    return 1 if found.wrong() else 0


if __name__ == "__main__":
    sys.exit(main())
