"""Hand-over after hand-over: ``python -m integration.handover`` (environment: N=1000, SEED=random).

The listening socket is held here, as systemd holds it on a node. The proxy that serves it is told N times, at random
moments, to hand over to a successor, while clients have calls held by a hook server; and at every step of it something
goes wrong: see ``integration.handover.events``. What must hold:

* a call is lost only if it was in flight when a process was killed or the runtime went away;
* no connection is accepted and cut off, none refused; every creation is edited; no client waits for ever;
* one process serves at the end of each event, and all others have ended;
* the last process comes to have as many descriptors as the first, and no process logged a fault of its own.

The last line holds the counts. Exits with 1 when something did not hold. Needs no root.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from integration.fuzz.hookfiles import good
from integration.handover.clients import Clients, Tally
from integration.handover.events import KINDS, Node
from integration.handover.manager import Manager, become_subreaper, until
from integration.handover.peers import Backend, holding
from integration.harness.holder import SocketHolder
from integration.harness.processes import descriptors

CALLERS = 6
OVERLAP = 0.3  # of the events begin while processes of the ones before still drain
LONGEST_PEACE_S = 0.3
REST_S = 1.0
NOTICED_S = 2.0  # within which a client has seen the end of a connection that was cut off
FAULTS = ("Traceback", "never retrieved", "cut off")


@dataclass(slots=True)
class Outcome:
    events: Counter[str] = field(default_factory=Counter)
    tally: Tally = field(default_factory=Tally)
    restarts: int = 0
    kills: int = 0
    descriptors: tuple[Sequence[str], Sequence[str]] = ((), ())
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)

    def wrong(self) -> list[str]:
        first, last = self.descriptors
        more = len(last) > len(first)
        grown = [f"{len(first)} descriptors at first, {len(last)} at last: {first}, {last}"] if more else []
        nothing = [] if self.tally.answered else ["not one call was answered"]
        return [*self.findings, *self.tally.lost, *self.tally.wrong, *grown, *nothing]

    def summary(self, seed: int) -> str:
        tally = self.tally
        return (
            f"handover: seed {seed}: {self.events.total()} in {self.seconds:.0f} s ({dict(self.events)}), "
            f"{self.kills} SIGKILLs, {self.restarts} restarts; {tally.answered:,} calls answered, {tally.fresh} on "
            f"fresh connections, slowest {tally.slowest_s:.1f} s; {tally.excused} in flight at a kill or without a "
            f"runtime, {len(tally.lost)} lost, {len(tally.wrong)} not edited; one process at the end, descriptors "
            f"{len(self.descriptors[0])} at first, {len(self.descriptors[1])} at last"
        )


async def hand_overs(directory: Path, holder: SocketHolder, number: int, seed: int, found: Outcome) -> None:
    """So many events, and the looks between them."""
    chance, over = random.Random(seed), asyncio.Event()
    hook_files, hooks, backend = (
        directory / "hookserver.d",
        directory / "hooks.sock",
        Backend(directory / "runtime.sock"),
    )
    await backend.come()
    async with holding(hooks, random.Random(f"{seed}/hooks")):
        hook_files.mkdir()
        (hook_files / "editor.json").write_text(json.dumps(good(hooks, ["PreCreateContainer"])))
        flags = ("--metrics-endpoint=", "--hook-timeout=30s")
        manager = Manager(holder, directory / "runtime.sock", hook_files, directory, *flags)

        def excuse(connected: float, ended: float) -> bool:
            struck = [(moment, moment) for moment in manager.struck]
            return any(connected <= to and since <= ended <= to + NOTICED_S for since, to in [*struck, *backend.away])

        clients = Clients(holder.path, found.tally, excuse)
        node = Node(manager, backend, clients, chance)
        manager.start()
        watching = asyncio.create_task(manager.run())
        try:
            await clients.one_on_a_fresh_connection(chance, 0.0)
            await asyncio.sleep(REST_S)
            first = descriptors(manager.main)
            async with asyncio.TaskGroup() as cgroup:
                for caller in range(CALLERS):
                    cgroup.create_task(clients.keep_calling(random.Random(f"{seed}/{caller}"), over))
                try:
                    await _all_events(node, number, found)
                finally:
                    over.set()
            await asyncio.sleep(REST_S)
            with contextlib.suppress(TimeoutError):
                await until(lambda: len(descriptors(manager.main)) <= len(first), "no more descriptors than at first")
            found.descriptors = (first, descriptors(manager.main))
            found.findings += await _end(manager, watching)
        finally:
            watching.cancel()
            found.restarts, found.kills = manager.restarts, len(manager.struck)
            manager.close()
            backend.go()
    found.findings += _faults(manager.log)


async def _all_events(node: Node, number: int, found: Outcome) -> None:
    for done in range(number):
        await node.some_time(LONGEST_PEACE_S)
        kind = node.chance.choice(list(KINDS))
        found.events[kind] += 1
        try:
            await KINDS[kind](node)
            if done + 1 == number or node.chance.random() >= OVERLAP:
                await until(lambda: node.manager.living() == {node.manager.main}, "one process that serves, no other")
        except TimeoutError as error:
            left = sorted(node.manager.living() - {node.manager.main})
            found.findings.append(f"event {done + 1}, {kind}: {error}; main {node.manager.main}, besides {left}")
            return
        if (done + 1) % 100 == 0:
            print(f"{done + 1} hand-overs, {found.tally.answered:,} calls", flush=True)


async def _end(manager: Manager, watching: asyncio.Task[None]) -> list[str]:
    """SIGTERM to the last one, as the unit's stop does: nothing may be left."""
    try:
        await until(lambda: manager.main != 0, "a main process")
        watching.cancel()
        manager.signal(manager.main, signal.SIGTERM)
        await until(lambda: not manager.living(), "no process is left")
    except TimeoutError as error:
        return [f"{error}; there are {sorted(manager.living())}"]
    return []


def _faults(log: Path) -> list[str]:
    return [
        f"logged: {line}" for line in log.read_text(errors="replace").splitlines() if any(f in line for f in FAULTS)
    ]


def main() -> int:
    number, seed = int(os.environ.get("N") or 1000), int(os.environ.get("SEED") or random.randrange(1 << 31))
    print(f"handover: seed {seed}", flush=True)
    become_subreaper()
    found, began_s = Outcome(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="koord-handover-") as name:
        directory = Path(name)
        with (
            SocketHolder(directory / "proxy.sock") as holder,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            runner.run(hand_overs(directory, holder, number, seed, found))
        wrong = found.wrong()
        if wrong:
            print("\n".join([*(directory / "proxy.log").read_text(errors="replace").splitlines()[-20:], *wrong]))
    found.seconds = time.monotonic() - began_s
    print(found.summary(seed))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
