"""Measures network traffic and TCP retransmissions of each pod, as its own network namespace counts them.

The files of a namespace are read through a process in it: the sandbox's, or a container's if the sandbox has none. They
are opened for each reading, since an open file would keep the namespace of a pod that has gone. Invariants: a rate is
between two readings of the same namespace; a pod in the host's network, or without a process, has no row.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from koord.host import proc
from koord.host.cgroup import GONE
from qosd.model.metric import Kind, Scope
from qosd.model.snapshot import PodView
from qosd.sense.host import CollectorHost
from qosd.sense.meters import path_of
from qosd.sense.rates import per_second
from qosd.sense.row import NO_SAMPLE, SLOW_S, Column, Row
from qosd.sense.tick import Batch, NotApplicable, Tick

_LOOPBACK = "lo"


class PodNetworkRow(Row, source="pod_network", scope=Scope.POD, period_s=SLOW_S):
    network_received_bytes_per_s: Column = Column(
        "bytes/s", "Received by the pod's interfaces but loopback.", Kind.RATE
    )
    network_sent_bytes_per_s: Column = Column("bytes/s", "Sent by the pod's interfaces but loopback.", Kind.RATE)
    network_received_packets_per_s: Column = Column("1/s", "Packets received.", Kind.RATE, history=False)
    network_sent_packets_per_s: Column = Column("1/s", "Packets sent.", Kind.RATE, history=False)
    network_drops_per_s: Column = Column("1/s", "Packets dropped by the pod's interfaces, both ways.", Kind.RATE)
    tcp_segments_sent_per_s: Column = Column("1/s", "TCP segments sent, loopback included.", Kind.RATE)
    tcp_segments_retransmitted_per_s: Column = Column("1/s", "TCP segments that had to be sent again.", Kind.RATE)


_row = PodNetworkRow.in_order(
    [
        "network_received_bytes_per_s",
        "network_sent_bytes_per_s",
        "network_received_packets_per_s",
        "network_sent_packets_per_s",
        "network_drops_per_s",
        "tcp_segments_sent_per_s",
        "tcp_segments_retransmitted_per_s",
    ]
)
_NO_RATES = (NO_SAMPLE,) * len(PodNetworkRow.columns)


@dataclass(frozen=True, slots=True)
class _Reading:
    """``namespace``: such as ``net:[4026531840]``; ``counts`` in the order of the columns of ``_row``."""

    at_ns: int
    namespace: str
    texts: tuple[bytes, bytes]
    counts: Sequence[int]


class PodNetworkCollector:
    """The collector ``pod_network``."""

    name = "pod_network"
    period_s = SLOW_S
    panels = (PodNetworkRow.panel,)

    def __init__(self, host: CollectorHost) -> None:
        self._host = host
        self._before: dict[str, _Reading] = {}

    def collect(self, tick: Tick) -> Batch:
        before, self._before = self._before, {}
        try:
            host_namespace = self._namespace("self")
            for cgroup in tick.targets.cgroups[Scope.POD]:
                reading = self._reading(cgroup.pod, host_namespace, before.get(cgroup.subject))
                if reading is not None:
                    self._before[cgroup.subject] = reading
        except OSError as error:
            raise NotApplicable(f"no network namespace is to be seen (CAP_SYS_PTRACE?): {error}") from error
        rows = {subject: _row(_rates(before.get(subject), now)) for subject, now in self._before.items()}
        return [(PodNetworkRow.panel, rows)]

    def close(self) -> None:
        self._before = {}

    def _reading(self, pod: PodView | None, host_namespace: str, before: _Reading | None) -> _Reading | None:
        """Reads a pod's counters; None if it has no network of its own, or none can be read. Raises PermissionError."""
        if pod is None or pod.facts.host_network:
            return None
        try:
            pid = self._process(pod)
            namespace = self._namespace(pid) if pid else host_namespace
            return None if namespace == host_namespace else self._counted(pid, namespace, before)
        except PermissionError:
            raise
        except (OSError, ValueError):
            return None

    def _process(self, pod: PodView) -> str:
        """Returns the number of a process in the pod's network namespace; "" if there is none."""
        for container in sorted(pod.containers, key=lambda container: not container.is_sandbox):
            pids = _listed(path_of(self._host.tree, container.cgroup, "cgroup.procs")) if container.cgroup else []
            if pids:
                return pids[0]
        return ""

    def _namespace(self, pid: str) -> str:
        return os.readlink(f"{self._host.proc}/{pid}/ns/net")

    def _counted(self, pid: str, namespace: str, before: _Reading | None) -> _Reading:
        """Reads the counters. Texts that did not change are not parsed again."""
        directory = f"{self._host.proc}/{pid}/net"
        texts = _read(f"{directory}/dev"), _read(f"{directory}/snmp")
        counts = before.counts if before is not None and before.texts == texts else _counts(*texts)
        return _Reading(self._host.clock(), namespace, texts, counts)


def _counts(dev: bytes, snmp: bytes) -> Sequence[int]:
    """Returns the counters in the order of the columns. Raises ParseError."""
    interfaces = [one for one in proc.interfaces(dev) if one.name != _LOOPBACK]
    tcp = proc.tcp(snmp)
    return (
        sum(one.rx_bytes for one in interfaces),
        sum(one.tx_bytes for one in interfaces),
        sum(one.rx_packets for one in interfaces),
        sum(one.tx_packets for one in interfaces),
        sum(one.rx_dropped + one.tx_dropped for one in interfaces),
        tcp.sent_segments,
        tcp.retransmitted_segments,
    )


def _rates(before: _Reading | None, now: _Reading) -> Sequence[float]:
    if before is None or before.namespace != now.namespace:
        return _NO_RATES
    elapsed_ns = now.at_ns - before.at_ns
    return [per_second(was, count, elapsed_ns) for was, count in zip(before.counts, now.counts, strict=True)]


def _listed(path: str) -> Sequence[str]:
    """Returns the visible processes of a cgroup; [] if it is gone."""
    try:
        return [pid for pid in _read(path).decode().split() if pid != "0"]
    except OSError as error:
        if error.errno in GONE:
            return []
        raise


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()
