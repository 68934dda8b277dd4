"""One connection's life: a scheduler picks each next step among those that a `Profile` names.

A trace is the list of steps with the seeds of their own choices, so that it can be run again without some of them. A
step that was not possible is no step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.runtimeproxy.simulation.dice import Dice
from tests.runtimeproxy.simulation.end import described
from tests.runtimeproxy.simulation.profile import profile
from tests.runtimeproxy.simulation.steps import Steps, settings

Trace = list[tuple[str, int]]

_MASK = (1 << 64) - 1


class Life(Steps):
    """A client and a runtime that both speak HTTP/2. ``table``: the steps, each as often as it is likely."""

    def __init__(self, seed: int) -> None:
        super().__init__(profile(Dice(seed)), Dice(seed + 1))
        self.seed = seed
        self.table: tuple[str, ...] = self.profile.table
        self.length = self.profile.steps
        self.trace: Trace = []
        self.told: list[str] = []  # what was done, and sent by the ends, in a replay
        self._telling = False

    def run(self) -> None:
        """All of it, to the end of the connection. Raises Violation, or what the relay raised."""
        scheduler = Dice(self.seed + 2)
        table = self.table
        self.start()
        for _ in range(self.length):
            self._step(table[scheduler.roll() % len(table)], scheduler.roll())
        self.dice.state = self.seed
        self.end()

    def replay(self, trace: Trace) -> None:
        """Run these steps, where they are possible, and the end."""
        self._telling = True
        self.start()
        for name, seed in trace:
            self._step(name, seed)
        self.dice.state = self.seed
        self.end()

    def start(self) -> None:
        """The runtime is connected, and both ends have begun to speak."""
        self.far.connect(self.connection.answers)
        for end in (self.client, self.runtime):
            end.send_settings(settings(self.dice, self.profile) if self.profile.settings_first else {})

    def end(self) -> None:
        """Everything comes to rest, and the connection to its end."""
        self.finish()

    def _step(self, name: str, seed: int) -> None:
        self.dice.state = seed * 0x9E3779B97F4A7C15 & _MASK
        self.trace.append((name, seed))
        if self._telling:
            self._tell(name)
        elif getattr(self, name)():
            self.steps += 1
            self.counts[name] += 1
        else:
            self.trace.pop()

    def _tell(self, name: str) -> None:
        marks = [len(self.near.incoming), len(self.far.incoming)]
        self.told.append(name)
        did = getattr(self, name)()
        sent = [
            described(bytes(transport.incoming[mark:]))
            for mark, transport in zip(marks, (self.near, self.far), strict=True)
            if len(transport.incoming) > mark
        ]
        self.told[-1] = f"{name}{'' if did else ' (nothing)'} {' '.join(sent)}"


def guarded(life: Life, work: Callable[[], None]) -> Exception | None:
    """What ``work`` fails with: a Violation, or what the relay or an end raised."""
    before = asyncio._get_running_loop()
    try:
        asyncio._set_running_loop(life.loop)
        work()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the run's result
        return error
    finally:
        life.loop.abandon()
        asyncio._set_running_loop(before)
    return None
