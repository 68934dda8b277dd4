"""SIGKILL after SIGKILL: ``python -m integration.storm`` (environment: N=1000, RESTARTS=20, SEED=random).

The listening socket is held here, as systemd holds it on a node, and the proxy that serves it is killed N times at
random moments while pods come and go through it on a real containerd; each kill is followed by a new proxy after
systemd's ``RestartSec=50ms``. Then containerd is restarted under the proxy. What must hold:

* a call not in flight when its connection ended succeeds at its first attempt;
* what a call in flight was to make is absent, or present with edited values;
* at the end containers and cgroups equal the ledger;
* no connection ends, and none is accepted and cut off, but those that a killed proxy had;
* the runtime, which sees its client vanish in mid-call, wrecks no more than a pod in ``KILLS_PER_WRECK`` kills;
* calls fail at restarts of the runtime no more often than a direct client's.

The last line holds the figures. Exits with 1 when something did not hold. Needs root.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from integration.harness import cgroups, containerd
from integration.harness.containerd import Containerd
from integration.harness.holder import SocketHolder
from integration.harness.processes import Process
from integration.harness.proxy import start_qosd
from integration.harness.rates import compare_counts
from integration.storm.client import Caller, calling
from integration.storm.groups import Cgroupfs
from integration.storm.ledger import RULES
from integration.storm.mix import Outcome, under_load
from integration.storm.restarts import Side, restarted
from integration.storm.runtime import Runtime
from integration.storm.worker import Setting, Terms

RESTART_S = 0.05  # the unit's RestartSec
NOTICED_S = 2.0  # within which a client has seen that a killed proxy's connection has ended
KILLS_PER_WRECK, FEW_WRECKS = 50, 3
LONGEST_LIFE_S = 0.6  # of a proxy; some die while they start
ROOT = f"/koord-storm-{os.getpid()}"


class Proxies:
    """One proxy after the other on the same held socket."""

    def __init__(self, holder: SocketHolder, backend: Path, directory: Path) -> None:
        self.kills: list[float] = []  # by time.monotonic
        self._holder, self._backend, self._directory = holder, backend, directory
        self._process = self._spawn()

    def kill(self) -> None:
        self.kills.append(time.monotonic())
        self._process.kill()

    def start(self) -> None:
        self._process = self._spawn()

    def stop(self) -> None:
        self._process.stop()

    def _spawn(self) -> Process:
        files, log = self._directory / "hookserver.d", self._directory / "proxy.log"
        return self._holder.spawn_proxy(self._backend, files, log, ["--metrics-endpoint", ""])


async def storm(runtime: Containerd, proxies: Proxies, socket: Path, kills: int, chance: random.Random) -> Outcome:
    """Kill the proxy so many times under the call mix."""
    async with calling(socket) as proxied, calling(runtime.socket) as direct:

        async def torment(found: Outcome) -> None:
            pods = 0
            for number in range(kills):
                await asyncio.sleep(chance.uniform(0, LONGEST_LIFE_S))
                proxies.kill()
                proxied.expect_answer()
                await asyncio.sleep(RESTART_S)
                proxies.start()
                if (number + 1) % 100 == 0:
                    print(f"{number + 1} kills, {proxied.calls} calls, {found.tally.pods} pods", flush=True)
                    if found.tally.pods == pods:
                        found.tally.findings.append(f"no pod came through in 100 kills, up to number {number + 1}")
                    pods = found.tally.pods

        setting = Setting(proxied, direct, Runtime(direct), Cgroupfs(), Terms(), f"{ROOT}/kubepods")
        found = await under_load(setting, chance, torment)
        found.tally.findings += unexplained(proxied, proxies.kills) + too_many_wrecks(found.tally.wrecks, kills)
        return found


def restart_findings(direct: Side, proxied: Side) -> list[str]:
    """What the proxy added to the failures of a restart."""
    compared = compare_counts(direct.failed, proxied.failed)
    alarms = [each for each in compared if each.alarm]
    more = [f"{each.kind}: {each.direct} direct, {each.proxied} proxied, p={each.p:.2g}" for each in alarms]
    late = [f"after RuntimeReady: {text}" for text in proxied.late]
    return [*(f"calls fail more often through the proxy: {text}" for text in more), *late]


def unexplained(caller: Caller, kills: Sequence[float]) -> list[str]:
    """Connections that ended, or never began, though no proxy was killed since they were made."""

    def explained(connected: float, ended: float) -> bool:
        return any(connected <= moment <= ended <= moment + NOTICED_S for moment in kills)

    spans = [*caller.interrupted, *((*span, "accepted and cut off") for span in caller.cut_off)]
    return [f"no proxy was killed: {what}" for connected, ended, what in spans if not explained(connected, ended)]


def too_many_wrecks(wrecks: int, kills: int) -> list[str]:
    """A runtime seldom leaves a wreck when its client vanishes; a proxy that damages requests would leave many."""
    most = max(FEW_WRECKS, kills // KILLS_PER_WRECK)
    return [f"{wrecks} pods wrecked in {kills} kills, {most} are allowed"] if wrecks > most else []


def summary(seed: int, kills: int, found: Outcome, sides: Sequence[Side]) -> str:
    """One line with the figures."""
    codes = "; ".join(f"{side.name} {dict(side.codes)}" for side in sides)
    return f"storm: seed {seed}: {kills} kills: {found.summary()}; runtime restarts, calls by code: {codes}"


def run(directory: Path, kills: int, restarts: int, seed: int) -> int:
    chance = random.Random(seed)
    with (
        containerd.private(containerd.installed(), directory / "c") as runtime,
        cgroups.root(ROOT),
        SocketHolder(directory / "proxy.sock") as holder,
    ):
        hook_files = directory / "hookserver.d"
        hook_files.mkdir()
        qosd = start_qosd(runtime.socket, directory, hook_files, RULES)
        proxies = Proxies(holder, runtime.socket, directory)
        try:
            found = asyncio.run(storm(runtime, proxies, holder.path, kills, chance))
            sides = asyncio.run(restarted(runtime, holder.path, restarts))
        finally:
            proxies.stop()
            qosd.stop()
            runtime.remove_pods()
    wrong = [*found.wrong(), *restart_findings(*sides)]
    for text in wrong:
        print(text)
    print(summary(seed, kills, found, sides))
    return 1 if wrong else 0


def main() -> int:
    kills, restarts = int(os.environ.get("N") or 1000), int(os.environ.get("RESTARTS") or 20)
    seed = int(os.environ.get("SEED") or random.randrange(1 << 31))
    print(f"storm: seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="koord-storm-") as directory:
        return run(Path(directory), kills, restarts, seed)


if __name__ == "__main__":
    sys.exit(main())
