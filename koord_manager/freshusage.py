"""What each node used when it last spoke on NodeLink, and whom that wakes.

A report is kept as it came and read when somebody looks at its node; what is computed at once is one sum, which wakes
the listener when it is above the ceiling that the last look has set. Invariants: of one run of a node's daemon no
report counts that is older than one that was taken; a figure that is older than ``STALE_S`` counts as none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from koord.model.nodelink import STALE_S
from koord.overcommit.amounts import ZERO, CPUMemory
from koord.overcommit.report import FreshPod, FreshUsage
from koord.pb.koord import nodelink_pb2 as pb


@dataclass(slots=True)
class _Latest:
    message: bytes
    instance: str
    sequence: int
    arrival_s: float
    ceiling: CPUMemory = ZERO


class FreshFigures:
    """``clock``: seconds that go on. ``listener``: called with the name of a node that is worth a look."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._latest: dict[str, _Latest] = {}
        self.listener: Callable[[str], None] | None = None

    def __len__(self) -> int:
        """Returns how many nodes have figures that count."""
        oldest_s = self._clock() - STALE_S
        return sum(latest.arrival_s >= oldest_s for latest in self._latest.values())

    def take(self, message: bytes, report: pb.NodeReport) -> bool:
        """Takes a report; False: a newer one of that run was taken. ``message``: the bytes that it was read from."""
        before = self._latest.get(report.node)
        if before is None:
            before = self._latest[report.node] = _Latest(message, report.instance, report.sequence, self._clock())
        elif report.instance == before.instance and report.sequence <= before.sequence:
            return False
        else:
            before.message, before.instance, before.sequence = message, report.instance, report.sequence
            before.arrival_s = self._clock()
        if self.listener is not None and _exceeds(report, before.ceiling):
            self.listener(report.node)
        return True

    def usage(self, node: str) -> FreshUsage | None:
        """Returns the node's use; None if it has reported nothing for ``STALE_S``."""
        latest = self._latest.get(node)
        if latest is None or self._clock() - latest.arrival_s > STALE_S:
            return None
        return read(pb.NodeReport.FromString(latest.message))

    def set_wake_threshold(self, node: str, ceiling: CPUMemory) -> None:
        """The node has been looked at: up to ``ceiling`` its use is not worth another look."""
        latest = self._latest.get(node)
        if latest is not None:
            latest.ceiling = ceiling

    def forget(self, node: str) -> None:
        self._latest.pop(node, None)


def read(report: pb.NodeReport) -> FreshUsage:
    return FreshUsage(
        _usage(report.node_usage),
        _usage(report.system_usage),
        tuple(FreshPod(pod.namespace, pod.name, pod.priority_class, _usage(pod.usage)) for pod in report.pods),
    )


def _usage(usage: pb.Usage) -> CPUMemory:
    return CPUMemory(usage.cpu_milli, usage.memory_bytes)


def _exceeds(report: pb.NodeReport, ceiling: CPUMemory) -> bool:
    usages = [report.system_usage, *(pod.usage for pod in report.pods)]
    return (
        sum(usage.cpu_milli for usage in usages) > ceiling.cpu_milli
        or sum(usage.memory_bytes for usage in usages) > ceiling.memory_bytes
    )
