"""The nodes' ends of NodeLink, many in one process: ``python -m bench.nodelinkload``, for the benches.

Each simulated node has a certificate and a connection of its own, and reports every ``--interval`` seconds, at a phase
of its own. A line ``step NODE MILLI`` on standard input makes a node's system use so many thousandths of a CPU more,
and report that at once; ``tell`` asks how many reports were answered and failed since, as JSON. At the end of standard
input it stops and prints what came of the reports, as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import ssl
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvloop
from cryptography import x509

from koord.http2.client import UnaryError
from koord.http2.tlsclient import ALPN, TLSClient
from koord.kube.clientkey import key_and_request
from koord.kube.credentials import pem_file
from koord.model.nodelink import NODE_GROUP, NODE_USER, SERVER_NAME
from koord.overcommit.amounts import CPUMemory
from koord.overcommit.report import FreshPod, FreshUsage
from koord.tls import certificates
from koord.tls.certificates import KeyPair
from qosd.cluster.nodelink import CALL_S, encoded

REPORT = "/koord.nodelink.v1.NodeLink/Report"
BASE_MILLI, GIB = 1000, 1 << 30
_CONNECTS_PER_S = 100


@dataclass
class Outcome:
    latencies_ms: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class SimulatedNode:
    def __init__(self, name: str, link: TLSClient, pods: int, outcome: Outcome) -> None:
        self.name, self._link, self._outcome = name, link, outcome
        self._pods = tuple(
            FreshPod("shop", f"{name}-web-5d9c7b6f4-{index:05}", "koord-prod", CPUMemory(10, 20 << 20))
            for index in range(pods)
        )
        self.step_milli = 0
        self._sequence = 0

    async def report(self) -> None:
        self._sequence += 1
        noise_milli = random.randrange(20)
        system = CPUMemory(BASE_MILLI + self.step_milli + noise_milli, 2 * GIB)
        usage = FreshUsage(CPUMemory(2 * BASE_MILLI, 4 * GIB), system, self._pods)
        begun_s = time.monotonic()
        try:
            await self._link.call(REPORT, encoded(self.name, "bench", self._sequence, time.time_ns(), usage), CALL_S)
        except UnaryError as error:
            self._outcome.failures.append(error.message)
        else:
            self._outcome.latencies_ms.append((time.monotonic() - begun_s) * 1e3)

    async def run(self, interval_s: float, phase_s: float) -> None:
        await asyncio.sleep(phase_s)
        due_s = time.monotonic()
        while True:
            await self.report()
            due_s += interval_s
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))


def context(node: str, ca: KeyPair, bundle: bytes) -> ssl.SSLContext:
    key, request = key_and_request(f"{NODE_USER}{node}", NODE_GROUP)
    signed = certificates.issue_client(ca, x509.load_pem_x509_csr(request), datetime.now(UTC), timedelta(days=1))
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.load_verify_locations(cadata=bundle.decode())
    made.set_alpn_protocols([ALPN])
    with pem_file(signed) as chain, pem_file(key) as private:
        made.load_cert_chain(chain, private)
    return made


async def run(options: argparse.Namespace) -> Outcome:
    loop, outcome = asyncio.get_running_loop(), Outcome()
    ca = KeyPair((options.pki / "ca.key").read_bytes(), (options.pki / "ca.crt").read_bytes())
    nodes: dict[str, SimulatedNode] = {}
    for number in range(options.first, options.first + options.count):
        name = f"{options.prefix}{number}"
        link = TLSClient("127.0.0.1", options.port, context(name, ca, ca.certificate), SERVER_NAME, loop)
        nodes[name] = SimulatedNode(name, link, options.pods, outcome)
    spread_s = max(options.interval, options.count / _CONNECTS_PER_S)
    tasks = [
        asyncio.create_task(node.run(options.interval, spread_s * index / len(nodes)))
        for index, node in enumerate(nodes.values())
    ]
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        word, *arguments = line.decode().split()
        if word == "step":
            nodes[arguments[0]].step_milli += int(arguments[1])
            tasks.append(asyncio.create_task(nodes[arguments[0]].report()))
        elif word in ("forget", "tell"):
            if word == "tell":
                print(json.dumps([len(outcome.latencies_ms), len(outcome.failures)]), flush=True)
            outcome.latencies_ms.clear()
            outcome.failures.clear()
    for task in tasks:
        task.cancel()
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description="The nodes' ends of NodeLink.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pki", type=Path, required=True, help="a directory with ca.key and ca.crt")
    parser.add_argument("--prefix", default="node-")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--pods", type=int, default=30, help="of a report (default: 30)")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds (default: 5)")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        outcome = runner.run(run(parser.parse_args()))
    counts = Counter(round(latency_ms, 1) for latency_ms in outcome.latencies_ms)
    print(json.dumps({"latencies_ms": list(counts.items()), "failures": Counter(outcome.failures)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
