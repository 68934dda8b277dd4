"""The common ground of every question to this node's daemon: the node, the newest tick's report, and the clocks.

An answer is made of these, of the daemon's own state, and of kernel files and the journal, which are read in a thread,
so that no hook call waits for koordctl.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from koord.pb.koord import inspect_pb2 as inspect
from qosd.inspect import daemon
from qosd.node import Node
from qosd.report import TickReport


class Inspector:
    """``wall`` and ``monotonic`` are clocks in nanoseconds."""

    def __init__(
        self,
        node: Node,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.node, self.wall, self._monotonic, self._began_ns = node, wall, monotonic, monotonic()

    @property
    def report(self) -> TickReport:
        return self.node.loop.report

    @property
    def uptime_s(self) -> float:
        return (self._monotonic() - self._began_ns) / 1e9

    def loops(self) -> list[inspect.Loop]:
        return daemon.loops(self.node, self._monotonic())

    def policy(self) -> inspect.Policy:
        return daemon.policy(self.node, self.wall())

    def warnings(self) -> list[str]:
        return daemon.warnings(self.node)
