"""Free ports for servers that restart: below the range out of which the kernel gives ports to clients.

A port of that range could be taken by any outgoing connection while its server is down, and a client that reconnects
to it on loopback can even reach itself. Fails with HarnessError when there is no such range or nothing in it is free.
"""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

from integration.harness.processes import HarnessError

FIRST = 12_000
END = 30_000  # Kubernetes' node ports begin here
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int, first: int = FIRST, end: int = END) -> list[int]:
    """So many distinct TCP ports from ``first`` on and below ``end`` that are free now, on any address."""
    candidates = list(range(first, min(end, int(RANGE.read_text().split()[0]))))
    random.shuffle(candidates)
    free: list[int] = []
    for port in candidates:
        if len(free) == count:
            break
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            free.append(port)
    if len(free) < count:
        raise HarnessError(f"{len(free)} free ports of {count} below the clients' range ({RANGE})")
    return free
