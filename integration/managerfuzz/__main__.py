"""koord-manager under each attack, beside 2,000 honest nodes and an API server's reviews.

``python -m integration.managerfuzz`` (``make fuzz-manager``).
Environment: SECONDS=60 of each attack, NODES=2000, ATTACK=a regular expression (all names), STALL_S=0.5. One row an
attack, in some of them with the longest wait of another client for the same service (`beside`). Broken bounds are
named, and the last line has the worst figure of each. The API server is one in memory; manager, TLS, nodes and
attackers are real processes on loopback. Attackers have a low priority (nice), since they stand for other machines. It
fails if the manager died, or a bound was passed in any row.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.nodelinkprocesses import Load, cpu_s, load, memory_mib
from bench.table import Line, summary
from integration.harness.processes import HarnessError, Process, tail, wait_for
from integration.managerfuzz.apiserver import NAMESPACE
from integration.managerfuzz.attacks import ATTACKS
from integration.managerfuzz.beside import FIGURES, PATIENCE_S
from koord.tls.certificates import CA_CERTIFICATE, CA_KEY, KeyPair
from koord_manager.options import CONFIG_MAP_VALIDATING

MOST_STALL_S = float(os.environ.get("STALL_S") or 0.5)
"""Half of the second within which a review is in time. On a machine that is busy with other work, such as one of a CI,
a process waits as long for a CPU alone: STALL_S sets a wider one there."""
MOST_MIB = 400.0
"""Less than half of the chart's limit of 1 GiB: a second attack beside the first must not end the manager."""
LEAST_PERCENT = 99.0
"""Of honest reviews, in time, of probes of the manager's health, and of honest nodes' reports: one in a hundred may be
lost with a connection."""
BEFORE_S, BETWEEN_S, SETTLE_S = 10.0, 3.0, 240.0
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/koordinator-manager"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/koordinator-nodelink-certs"
HEARD = "koord_manager_nodelink_nodes "
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {{}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
"""


@dataclass
class Cluster:
    """``ports``: of webhooks, NodeLink, metrics and health, by the attacks' names for them."""

    url: str
    manager: Process
    ports: dict[str, int]
    directory: Path

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)

    @property
    def holder(self) -> str:
        return str(self.get(LEASE)["spec"]["holderIdentity"])

    def heard(self) -> float:
        """Of how many nodes the manager knows fresh figures. Raises OSError."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['metrics']}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return next((float(line.split()[1]) for line in lines if line.startswith(HEARD)), 0.0)

    def authority(self) -> KeyPair:
        data = self.get(SECRET)["data"]
        return KeyPair(base64.b64decode(data[CA_KEY]), base64.b64decode(data[CA_CERTIFICATE]))


@contextlib.contextmanager
def child(module: str, *arguments: str, give_way: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    argv = [*(("nice", "-n", "15") if give_way else ()), sys.executable, "-m", module, *arguments]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])


@contextlib.contextmanager
def cluster(directory: Path, nodes: int) -> Iterator[Cluster]:
    with child("integration.managerfuzz.apiserver", f"--nodes={nodes}") as server:
        assert server.stdout is not None
        url = server.stdout.readline().decode().strip()
        (directory / "kubeconfig").write_text(KUBECONFIG.format(url=url))
        ports = {name: free_port() for name in ("webhooks", "nodelink", "metrics", "health")}
        argv = [
            *(sys.executable, "-m", "koord_manager", f"--kubeconfig={directory}/kubeconfig"),
            f"--feature-gates={CONFIG_MAP_VALIDATING}=true",
            *("--webhook-host=127.0.0.1", f"--webhook-port={ports['webhooks']}", "--webhook-linger=0.2"),
            *(f"--nodelink-endpoint=127.0.0.1:{ports['nodelink']}", "--rest-config-qps=400"),
            *(f"--advertise-address=127.0.0.1:{ports['nodelink']}", "--rest-config-burst=800"),
            *(f"--metrics-addr=127.0.0.1:{ports['metrics']}", f"--health-probe-addr=127.0.0.1:{ports['health']}"),
        ]
        manager = Process(argv, directory / "manager.log")
        try:
            made = Cluster(url, manager, ports, directory)
            wait_for(lambda: _is_ready(ports["health"]), SETTLE_S, "the manager")
            wait_for(lambda: _found(made.authority), SETTLE_S, "its authority")
            yield made
        finally:
            manager.stop()


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _found(read: Any) -> Any:
    with contextlib.suppress(OSError, KeyError):
        return read()
    return None


class Memory(threading.Thread):
    """The most that a process and its children have had, in MiB; libraries are counted once, with the process."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._ended = pid, threading.Event()
        self.most_mib = 0.0
        self.start()

    def run(self) -> None:
        while not self._ended.wait(0.1):
            self.most_mib = max(self.most_mib, _memory_mib(self._pid) + sum(map(_own_mib, _children(self._pid))))

    def end(self) -> float:
        self._ended.set()
        self.join()
        return self.most_mib


def _children(pid: int) -> list[int]:
    """Of its threads at this moment, but for those whose memory is still the parent's, before they begin a program."""
    found = list[int]()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return [child for child in found if _arguments(child) != _arguments(pid)]


def _arguments(pid: int) -> bytes:
    """Empty for one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _memory_mib(pid: int, of: str = "VmRSS") -> float:
    """0 of one that has ended."""
    try:
        return memory_mib(pid, of)
    except (OSError, StopIteration):
        return 0.0


def _own_mib(pid: int) -> float:
    """Without the files that it maps."""
    return _memory_mib(pid, "RssAnon")


@dataclass(frozen=True)
class Beside:
    """The longest wait of another client meanwhile."""

    name: str
    longest_s: float
    most_s: float


@dataclass
class Row:
    name: str
    stall_s: float
    probes_percent: float
    most_mib: float
    reviews_percent: float
    reports_percent: float
    leads: bool
    cores: float
    wrong: str
    beside: Beside | None = None

    @property
    def passed(self) -> list[str]:
        """The bounds that do not hold."""
        bounds = {
            f"stall > {MOST_STALL_S:g} s": self.stall_s > MOST_STALL_S,
            f"probes < {LEAST_PERCENT:g} %": self.probes_percent < LEAST_PERCENT,
            f"memory > {MOST_MIB:g} MiB": self.most_mib > MOST_MIB,
            f"reviews < {LEAST_PERCENT:g} %": self.reviews_percent < LEAST_PERCENT,
            f"reports < {LEAST_PERCENT:g} %": self.reports_percent < LEAST_PERCENT,
            "leadership lost": not self.leads,
        }
        if self.beside is not None:
            bounds[f"{self.beside.name} > {self.beside.most_s:g} s"] = self.beside.longest_s > self.beside.most_s
        return [bound for bound, is_passed in bounds.items() if is_passed]

    def text(self) -> str:
        beyond = f"  <- {', '.join(self.passed)} {self.wrong}" if self.passed else ""
        beside = f"  {self.beside.name} {self.beside.longest_s:.2f} s" if self.beside else ""
        return (
            f"{self.name:38} {self.stall_s:6.2f} s  probes {self.probes_percent:5.1f} % {self.most_mib:5.0f} MiB  "
            f"reviews {self.reviews_percent:5.1f} %  reports {self.reports_percent:5.1f} %  "
            f"{'leads' if self.leads else 'LOST'}  {self.cores:.2f} core{beside}{beyond}"
        )


def attacked(made: Cluster, clients: Load, honest: subprocess.Popen[bytes], name: str, seconds: float) -> Row:
    """``name`` "": no attack."""
    holder = made.holder
    clients.say("tell")
    told(clients)
    asked(honest)
    memory, begun_s, used_s = Memory(made.manager.pid), time.monotonic(), cpu_s(made.manager.pid)
    beside = None
    if name:
        beside = under_attack(made, name, seconds)
    else:
        time.sleep(seconds)
    if not made.manager.running:
        raise HarnessError(f"{name}: the manager ended: {tail(made.directory / 'manager.log')}")
    passed_s = time.monotonic() - begun_s
    cores = (cpu_s(made.manager.pid) - used_s) / passed_s
    most_mib, noticed = memory.end(), asked(honest)
    clients.say("tell")
    good, bad = told(clients)
    leads = made.holder == holder
    return Row(
        name or "nobody attacks",
        noticed["stall_s"],
        100 * noticed["answered"] / max(1, noticed["probes"]),
        most_mib,
        100 * noticed["in_time"] / max(1, noticed["reviews"]),
        100 * good / max(1, good + bad),
        leads,
        cores,
        json.dumps(noticed["wrong"]) if noticed["wrong"] else "",
        beside,
    )


def under_attack(made: Cluster, name: str, seconds: float) -> Beside | None:
    """Returns when the attack and what is done beside it have ended. Raises HarnessError if one of them failed."""
    ports = [f"--{each}={port}" for each, port in made.ports.items()]
    arguments = (name, *ports, f"--pki={made.directory / 'pki'}", f"--api={made.url}", f"--seconds={seconds}")
    figure = FIGURES.get(name)
    with contextlib.ExitStack() as ended:
        other = ended.enter_context(child("integration.managerfuzz.beside", *arguments)) if figure else None
        attacker = ended.enter_context(child("integration.managerfuzz.attacks", *arguments, give_way=True))
        with contextlib.suppress(subprocess.TimeoutExpired):
            if attacker.wait(seconds + PATIENCE_S):
                raise HarnessError(f"{name}: the attack failed")
        if figure is None or other is None:
            return None
        output, _ = other.communicate(timeout=seconds + 2 * PATIENCE_S)  # the attacker may be done already
        if other.returncode:
            raise HarnessError(f"{name}: what is done beside the attack failed")
        return Beside(figure.name, float(output), figure.most_s)


def told(clients: Load) -> tuple[int, int]:
    """Reports that were answered, and others, since the last time."""
    good = bad = 0
    for process in clients.processes:
        assert process.stdout is not None
        answered, failed = json.loads(process.stdout.readline())
        good, bad = good + answered, bad + failed
    return good, bad


def asked(honest: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert honest.stdin is not None and honest.stdout is not None
    honest.stdin.write(b"\n")
    honest.stdin.flush()
    noticed: dict[str, Any] = json.loads(honest.stdout.readline())
    return noticed


def main() -> int:
    seconds, nodes = float(os.environ.get("SECONDS") or 60), int(os.environ.get("NODES") or 2000)
    wanted = [name for name in ATTACKS if re.search(os.environ.get("ATTACK") or "", name)]
    with tempfile.TemporaryDirectory(prefix="koord-fuzz-") as directory, cluster(Path(directory), nodes) as made:
        ports = made.ports
        honest_arguments = f"--webhooks={ports['webhooks']}", f"--health={ports['health']}"
        with (
            load(Path(directory), made.authority(), ports["nodelink"], nodes, 30) as clients,
            child("integration.managerfuzz.honest", *honest_arguments) as honest,
        ):
            wait_for(lambda: (_found(made.heard) or 0) >= nodes, SETTLE_S, "every node's report")
            rows = []
            for name in ("", *wanted):
                time.sleep(BEFORE_S if not name else min(BETWEEN_S, seconds))
                rows.append(attacked(made, clients, honest, name, seconds))
                print(rows[-1].text(), flush=True)
    print(summary(f"fuzz-manager: {nodes} nodes, {len(rows) - 1} attacks of {seconds:g} s", figures(rows)))
    for row in rows:
        for bound in row.passed:
            print(f"{row.name}: {bound}", file=sys.stderr)
    return 1 if any(row.passed for row in rows) else 0


def figures(rows: list[Row]) -> list[Line]:
    """The worst of all rows, each with its bound."""
    stall_s, most_mib = max(row.stall_s for row in rows), max(row.most_mib for row in rows)
    probes = min(row.probes_percent for row in rows)
    reviews, reports = min(row.reviews_percent for row in rows), min(row.reports_percent for row in rows)
    kept, lost = sum(not row.passed for row in rows), sum(not row.leads for row in rows)
    least = f">= {LEAST_PERCENT:g} %"
    besides = [row.beside for row in rows if row.beside is not None]
    return [
        Line("longest stall", f"{stall_s:.2f} s", f"<= {MOST_STALL_S:g} s", stall_s <= MOST_STALL_S),
        Line("probes answered", f"{probes:.1f} %", least, probes >= LEAST_PERCENT),
        Line("memory", f"{most_mib:.0f} MiB", f"<= {MOST_MIB:g} MiB", most_mib <= MOST_MIB),
        Line("reviews in time", f"{reviews:.1f} %", least, reviews >= LEAST_PERCENT),
        Line("reports answered", f"{reports:.1f} %", least, reports >= LEAST_PERCENT),
        Line("leadership", "lost" if lost else "kept", "kept", not lost),
        *(
            Line(each.name, f"{each.longest_s:.2f} s", f"<= {each.most_s:g} s", each.longest_s <= each.most_s)
            for each in besides
        ),
        Line("rows within every bound", f"{kept} of {len(rows)}", "all", kept == len(rows)),
    ]


if __name__ == "__main__":
    sys.exit(main())
