"""SIGKILL after SIGKILL: ``python -m integration.storm`` (environment: N=1000, RESTARTS=20, SEED=random).

The listening socket is held here, as systemd holds it on a node, and the proxy that serves it is killed N times at
random moments while pods come and go through it on a real containerd; each kill is followed by a new proxy after
systemd's ``RestartSec=50ms``. Then containerd is restarted under the proxy. What must hold:

* a call not in flight when its connection ended succeeds at its first attempt;
* what a call in flight was to make is absent, or present with edited values;
* at the end containers and cgroups equal the ledger;
* a restart of the runtime shows no kind of failure that a direct client does not see.

The last line holds the figures. Exits with 1 when something did not hold. Needs root.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from integration.harness import cgroups, containerd
from integration.harness.containerd import Containerd
from integration.harness.cri import IMAGE, RUNTIME
from integration.harness.holder import SocketHolder
from integration.harness.processes import Process
from integration.harness.proxy import start_qosd
from integration.storm.client import IGNORED, Caller, Failed, Interrupted, calling
from integration.storm.pods import RULES, Tally, Worker, disagreements
from integration.storm.restarts import Side, restarted
from koord.pb.cri import api_pb2 as pb

WORKERS = 3
RESTART_S = 0.05  # the unit's RestartSec
LONGEST_LIFE_S = 0.6  # of a proxy; some die while they start
POLLS = [  # kubelet's standing calls, some twenty times as often
    (RUNTIME + "Version", 0.05), (RUNTIME + "Status", 0.05), (RUNTIME + "ListPodSandbox", 0.02),
    (RUNTIME + "ListContainers", 0.02), (IMAGE + "ListImages", 0.2),
]  # fmt: skip
ROOT = f"/koord-storm-{os.getpid()}"


@dataclass(slots=True)
class Storm:
    """The outcome of the kills."""

    kills: int = 0
    calls: int = 0
    refused: int = 0
    seconds: float = 0.0
    waits_ms: list[float] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    disagreements: list[str] = field(default_factory=list)

    def wrong(self) -> list[str]:
        refused = [f"{self.refused} connections were refused by the held socket"] if self.refused else []
        failed = [f"not in flight, and failed: {text}" for text in self.tally.failures]
        ledger = [f"ledger: {text}" for text in self.disagreements]
        return [*refused, *failed, *self.tally.findings, *ledger]


class Proxies:
    """One proxy after the other on the same held socket."""

    def __init__(self, holder: SocketHolder, backend: Path, directory: Path) -> None:
        self._holder, self._backend, self._directory = holder, backend, directory
        self._process = self._spawn()

    def kill(self) -> None:
        self._process.kill()

    def start(self) -> None:
        self._process = self._spawn()

    def stop(self) -> None:
        self._process.stop()

    def _spawn(self) -> Process:
        files, log = self._directory / "hookserver.d", self._directory / "proxy.log"
        return self._holder.spawn_proxy(self._backend, files, log, ["--metrics-endpoint", ""])


async def storm(runtime: Containerd, proxies: Proxies, socket: Path, kills: int, chance: random.Random) -> Storm:
    """Kill the proxy so many times under the call mix."""
    found, over = Storm(kills=kills), asyncio.Event()
    started = time.monotonic()
    async with calling(socket) as proxied, calling(runtime.socket) as direct:
        workers = [
            Worker(proxied, direct, found.tally, f"{ROOT}/{n}/kubepods", random.Random(chance.random()))
            for n in range(WORKERS)
        ]
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(worker.work(over))
            for method, pause_s in POLLS:
                group.create_task(_poll(proxied, method, pause_s, found.tally, over))
            for number in range(kills):
                await asyncio.sleep(chance.uniform(0, LONGEST_LIFE_S))
                proxies.kill()
                proxied.expect_answer()
                await asyncio.sleep(RESTART_S)
                proxies.start()
                if (number + 1) % 100 == 0:
                    print(f"{number + 1} kills, {proxied.calls} calls, {found.tally.pods} pods", flush=True)
            over.set()
        found.disagreements = await disagreements(workers, direct)
        found.calls, found.refused, found.waits_ms = proxied.calls, proxied.refused, proxied.waits_ms
    found.seconds = time.monotonic() - started
    return found


async def _poll(caller: Caller, method: str, pause_s: float, tally: Tally, over: asyncio.Event) -> None:
    """kubelet's standing calls: an empty request, again and again."""
    while not over.is_set():
        try:
            await caller.call(method, pb.VersionRequest(), IGNORED)
        except Interrupted:
            tally.interrupted[method.rpartition("/")[2]] += 1
        except Failed as error:
            tally.failures.append(str(error))
        await asyncio.sleep(pause_s)


def restart_findings(direct: Side, proxied: Side) -> list[str]:
    """What the proxy added to the failures of a restart."""
    own = {code: count for code, count in proxied.codes.items() if code not in direct.codes}
    late = [f"after RuntimeReady: {text}" for text in proxied.late]
    return [*([f"codes that no direct call got: {own}"] if own else []), *late]


def summary(seed: int, found: Storm, sides: Sequence[Side]) -> str:
    """One line with the figures."""
    waits = sorted(found.waits_ms) or [0.0]
    tally, interrupted = found.tally, found.tally.interrupted.total()
    ledger = "DIFFERS" if found.disagreements else "equal"
    codes = "; ".join(f"{side.name} {dict(side.codes)}" for side in sides)
    return (
        f"storm: seed {seed}: {found.kills} kills in {found.seconds:.0f} s, {found.calls:,} calls, "
        f"{len(tally.failures)} not in flight failed; {interrupted} in flight "
        f"({tally.absent} absent, {tally.present} present and edited, {len(tally.findings)} otherwise); "
        f"{tally.pods} pods, {tally.wrecks} wrecked by the runtime alone, ledger {ledger}; "
        f"next answer after {statistics.median(waits):.0f} ms (p99 {waits[len(waits) * 99 // 100]:.0f}); "
        f"runtime restarts, calls by code: {codes}"
    )


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
    print(summary(seed, found, sides))
    return 1 if wrong else 0


def main() -> int:
    kills, restarts = int(os.environ.get("N") or 1000), int(os.environ.get("RESTARTS") or 20)
    seed = int(os.environ.get("SEED") or random.randrange(1 << 31))
    print(f"storm: seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="koord-storm-") as directory:
        return run(Path(directory), kills, restarts, seed)


if __name__ == "__main__":
    sys.exit(main())
