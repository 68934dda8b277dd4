"""Pods that reach the API server by its Service address, without kube-proxy: one DNAT rule to the server on loopback.

The rule serves the bridge's pods and this machine's own processes (pods of the host network are such). No other Service
has an address that answers; the API server reaches webhooks with ``--enable-aggregator-routing``, by their pods.

Invariant: the rule is in a chain of its own; chain, bridge and the machine's IP forwarding are as before at the end. Of
all that comes from outside, only packets of this bridge may have loopback as their destination.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from integration.cluster.arguments import LOOPBACK, SERVICE_ADDRESS
from integration.harness import leftovers
from integration.harness.processes import HarnessError

FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
HOOKS = ("PREROUTING", "OUTPUT")  # from pods, from this machine


@contextlib.contextmanager
def api_service(bridge: str, port: int) -> Iterator[None]:
    """The Service ``kubernetes`` reaches the server on 127.0.0.1:``port``, from pods on ``bridge`` too; CNI uses the
    bridge as it is."""
    chain = f"KOORD-TEST-{os.getpid()}"
    forwarding = FORWARDING.read_text()
    with contextlib.ExitStack() as stack:
        stack.callback(FORWARDING.write_text, forwarding)
        stack.callback(leftovers.delete_interface, bridge)
        _run("ip", "link", "add", bridge, "type", "bridge")
        Path(f"/proc/sys/net/ipv4/conf/{bridge}/route_localnet").write_text("1")
        _nat("-N", chain)
        stack.callback(_nat, "-X", chain)
        stack.callback(_nat, "-F", chain)
        destination = ("-p", "tcp", "-d", SERVICE_ADDRESS, "--dport", "443")
        _nat("-A", chain, *destination, "-j", "DNAT", "--to-destination", f"{LOOPBACK}:{port}")
        for hook in HOOKS:
            _nat("-I", hook, "-j", chain)
            stack.callback(_nat, "-D", hook, "-j", chain)
        yield


def _nat(*arguments: str) -> None:
    _run("iptables", "-w", "-t", "nat", *arguments)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise HarnessError(f"{' '.join(argv)}: {done.stderr.strip()}")
