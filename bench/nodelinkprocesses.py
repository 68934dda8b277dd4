"""The processes of the load on NodeLink, and what a process costs."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from koord.tls.certificates import KeyPair

PROCESSES = 2
_END_S = 30.0


@dataclass
class Load:
    processes: list[subprocess.Popen[bytes]]
    share: int
    prefix: str

    def say(self, line: str, node: int | None = None) -> None:
        """To the process that has the node, or to all."""
        chosen = self.processes if node is None else [self.processes[node // self.share]]
        for process in chosen:
            assert process.stdin is not None
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()

    def step(self, node: int, milli: int) -> None:
        self.say(f"step {self.prefix}{node} {milli}", node)

    def end(self) -> tuple[list[float], list[str]]:
        """Latencies in milliseconds, and failures."""
        latencies_ms: list[float] = []
        failures: list[str] = []
        for process in self.processes:
            output, _ = process.communicate(timeout=_END_S)
            outcome = json.loads(output)
            latencies_ms += [latency_ms for latency_ms, count in outcome["latencies_ms"] for _ in range(count)]
            failures += [why for why, count in outcome["failures"].items() for _ in range(count)]
        return latencies_ms, failures


@contextlib.contextmanager
def load(directory: Path, ca: KeyPair, port: int, nodes: int, pods: int, prefix: str = "node-") -> Iterator[Load]:
    """``nodes`` clients in ``PROCESSES`` processes; ``ca`` signs their certificates and the server's."""
    pki, share = directory / "pki", -(-nodes // PROCESSES)
    pki.mkdir(parents=True, exist_ok=True)
    (pki / "ca.key").write_bytes(ca.key)
    (pki / "ca.crt").write_bytes(ca.certificate)
    started = []
    try:
        for first in range(0, nodes, share):
            argv = [
                *(sys.executable, "-m", "bench.nodelinkload", f"--port={port}", f"--pki={pki}", f"--prefix={prefix}"),
                *(f"--first={first}", f"--count={min(share, nodes - first)}", f"--pods={pods}"),
            ]
            started.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        yield Load(started, share, prefix)
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def memory_mib(pid: int, of: str = "VmRSS") -> float:
    """Resident; ``of``: a line of the kernel's ``status``."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{of}:")) / 1024
