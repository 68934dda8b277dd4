"""koord-scheduler beside kube-scheduler on a real API server, in turns. ``python -m bench.schedulercluster``.

In each turn the backlog is made first, then the scheduler starts, and what counts is the time from its first binding to
its last: before the first one either has read all nodes and pods. Both write their Events, and elect no leader. They
have the same rate limit, so wide that it never counts, and a credential that priority-and-fairness exempts, as in
scheduler_perf: kube-scheduler would run into 429. A bare bind loop (`bench.bindloop`) has its turn, too; it writes the
same and decides nothing. When the backlog is bound and nothing more is written, pods come one by one: their latency is
from the answer to the creation to the answer to the binding.
All figures of writes are from the API server's audit log; etcd, API server and bench share the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import auditlog, stats
from bench.auditlog import AuditLog, Write
from bench.nodelinkprocesses import cpu_s, memory_mib
from bench.table import Line, summary
from integration import build
from integration.cluster import arguments, controlplane, objects
from integration.cluster.api import Api
from integration.cluster.controlplane import ControlPlane, Options
from integration.cluster.ports import free_ports
from integration.harness.processes import HarnessError, Process, tail, wait_for

USER, GROUPS = "scheduler", controlplane.ADMINS
NAMESPACE = "default"
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
ROOM = {"cpu": "4", "memory": "32Gi", "pods": "110"}
SMALL = {"cpu": "100m", "memory": "500Mi"}
LARGE = {"cpu": "9", "memory": "500Mi"}
QPS = 5000
TRICKLE_PER_S, TRICKLE_S = 50, 6.0
UNSCHEDULABLE_PER_S = 5
SILENCE_S, TURN_S, POLL_S = 1.0, 300.0, 0.02
BACKLOG = "backlog"
BOUND, EVENT = "create pods/binding", "create events"
MADE = {"bench": "pods"}
RUNNING = 20_000
KUBE, KOORD, BARE = "kube-scheduler", "koord-scheduler", "bare bind loop"


@dataclass(frozen=True, slots=True)
class Contender:
    """``scheduler_name``: whose pods it binds. ``ends``: by itself, when there are no more."""

    name: str
    scheduler_name: str
    argv: Callable[[ControlPlane], list[str]]
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one turn. ``pods_per_s``: from the first binding to the last; ``with_events_per_s``: to the last Event.
    ``events``: the part of the Events that were written by the last binding.
    """

    pods_per_s: float
    with_events_per_s: float
    events: float
    writes_a_pod: float
    cpu_ms_a_pod: float
    memory_mib: float
    servers_ms_a_pod: float
    latencies_ms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """``make``: the pods, without their names and schedulers. ``unschedulable``: pods without room come as well."""

    name: str
    make: Callable[[], dict[str, Any]]
    trickle: bool = False
    unschedulable: bool = False


def kube_scheduler(plane: ControlPlane) -> list[str]:
    kubeconfig, ports = plane.kubeconfig(USER, GROUPS), arguments.Ports(*free_ports(5))
    document = json.loads(arguments.scheduler_configuration(kubeconfig, ["default-scheduler"]))
    document["clientConnection"] |= {"qps": QPS, "burst": QPS}
    configuration = plane.directory / "kube-scheduler.json"
    configuration.write_text(json.dumps(document))
    return [str(build.program("kube-scheduler")), *arguments.scheduler(ports, kubeconfig, configuration)]


def koord_scheduler(plane: ControlPlane) -> list[str]:
    return [
        *(sys.executable, "-m", "koord_scheduler", f"--kubeconfig={plane.kubeconfig(USER, GROUPS)}"),
        *("--enable-leader-election=false", "--metrics-addr=", f"--rest-config-qps={QPS}"),
        f"--rest-config-burst={QPS}",
    ]


def bind_loop(*flags: str) -> Callable[[ControlPlane], list[str]]:
    def argv(plane: ControlPlane) -> list[str]:
        pair = plane.identity(USER, GROUPS)
        return [
            *(sys.executable, "-m", "bench.bindloop", f"--server={plane.server_url}", f"--key={pair.key}"),
            *(f"--authority={plane.authority.certificate}", f"--certificate={pair.certificate}"),
            *("--scheduler-name=bare", *flags),
        ]

    return argv


CONTENDERS = {
    each.name: each
    for each in (
        Contender(KUBE, "default-scheduler", kube_scheduler),
        Contender(KOORD, "koord-scheduler", koord_scheduler),
        Contender(BARE, "bare", bind_loop("--events"), ends=True),
    )
}


class Arena:
    """A control plane with nodes, in which one scheduler after the other has its turn."""

    def __init__(self, plane: ControlPlane, nodes: int) -> None:
        self._plane, self._nodes = plane, nodes
        made = [
            objects.node(f"node-{index}", ROOM, {HOSTNAME: f"node-{index}", ZONE: f"zone-{index % 10}"})
            for index in range(nodes)
        ]
        objects.for_each(plane.api, made, lambda api, node: api.create(objects.NODES, node))
        with plane.api() as api:
            api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 10})

    def run_pods(self, count: int) -> None:
        """Makes so many pods that are bound already."""
        running = [objects.pod(f"run-{index}", SMALL, nodeName=f"node-{index % self._nodes}") for index in range(count)]
        objects.create_pods(self._plane.api, NAMESPACE, running)

    def turn(self, case: Case, contender: Contender, pods: int) -> Outcome:
        self._create(BACKLOG, case, contender, pods)
        log = AuditLog(auditlog.log(self._plane.directory))
        process = Process(contender.argv(self._plane), self._plane.directory / f"{contender.name}.log")
        try:
            with self._without_room(contender, UNSCHEDULABLE_PER_S if case.unschedulable else 0):
                outcome = _backlog(log, process, contender, pods, self._servers_cpu_s)
            if case.trickle and not contender.ends:
                return replace(outcome, latencies_ms=self._trickle(case, contender))
            return outcome
        finally:
            process.stop()
            self._remove()

    def _servers_cpu_s(self) -> float:
        return sum(cpu_s(part.pid) for part in (self._plane.etcd, self._plane.api_server))

    def _trickle(self, case: Case, contender: Contender) -> tuple[float, ...]:
        log, count = AuditLog(auditlog.log(self._plane.directory)), int(TRICKLE_PER_S * TRICKLE_S)
        self._create("trickle", case, contender, count, TRICKLE_PER_S)
        time.sleep(SILENCE_S)
        log.read()
        created = {each.name: each.at_s for each in log.writes if each.what == "create pods"}
        bound = {each.name: each.at_s for each in log.writes if each.what == BOUND and each.is_done}
        if len(bound) < count:
            raise HarnessError(f"{contender.name} bound {len(bound)} of {count} pods that came one by one")
        return tuple((at_s - created[name]) * 1e3 for name, at_s in bound.items())

    def _create(self, prefix: str, case: Case, contender: Contender, count: int, per_s: float = math.inf) -> None:
        """Creates pods at their instants, whether or not earlier ones are bound."""
        begun_s = time.monotonic()

        def create(api: Api, index: int) -> None:
            made = case.make()
            made["metadata"] |= {"name": f"{prefix}-{index}"}
            made["spec"]["schedulerName"] = contender.scheduler_name
            time.sleep(max(0.0, begun_s + index / per_s - time.monotonic()))
            api.create(objects.pods_of(NAMESPACE), made)

        objects.for_each(self._plane.api, range(count), create)

    @contextlib.contextmanager
    def _without_room(self, contender: Contender, per_s: float) -> Iterator[None]:
        """Within the block there come so many pods a second that no node has room for."""
        stop = threading.Event()

        def create() -> None:
            spec: dict[str, Any] = {"priorityClassName": "high", "schedulerName": contender.scheduler_name}
            with self._plane.api() as api:
                for number in itertools.count():
                    if stop.wait(1 / per_s):
                        return
                    api.create(objects.pods_of(NAMESPACE), objects.pod(f"large-{number}", LARGE, labels=MADE, **spec))

        thread = threading.Thread(target=create)
        if per_s:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            if per_s:
                thread.join()

    def _remove(self) -> None:
        selected = {"labelSelector": ",".join(f"{key}={value}" for key, value in MADE.items())}
        with self._plane.api() as api:
            api.delete(objects.pods_of(NAMESPACE), gracePeriodSeconds="0", **selected)
            wait_for(lambda: not api.items(objects.pods_of(NAMESPACE), **selected), TURN_S, "the pods to be removed")


def _backlog(
    log: AuditLog, process: Process, contender: Contender, pods: int, servers_cpu_s: Callable[[], float]
) -> Outcome:
    """Waits until all pods are bound and nothing more is written about them; others may go on waiting."""
    bound, cpu_before_s, cpu_after_s, mib = list[float](), 0.0, 0.0, 0.0
    servers_before_s = 0.0
    until_s, last_s = time.monotonic() + TURN_S, time.monotonic()
    while len(bound) < pods or time.monotonic() - last_s < SILENCE_S:
        silent_s = time.monotonic() - last_s
        if time.monotonic() > until_s or (silent_s > SILENCE_S and not process.running):
            raise HarnessError(f"{contender.name} bound {len(bound)} of {pods} pods: {tail(process.log)}")
        time.sleep(POLL_S)
        new = [each for each in log.read() if _is_about_backlog(each)]
        last_s = time.monotonic() if new else last_s
        bound += [each.at_s for each in new if each.what == BOUND and each.is_done]
        with contextlib.suppress(OSError, StopIteration):  # it has ended
            cpu_after_s, mib = cpu_s(process.pid), memory_mib(process.pid)
        if bound and not servers_before_s:  # what reading the cluster took is not a pod's
            cpu_before_s, servers_before_s = cpu_after_s, servers_cpu_s()
    writes = [each for each in log.writes if _is_about_backlog(each)]
    begin_s, end_s = min(bound), max(bound)
    return Outcome(
        pods_per_s=(pods - 1) / (end_s - begin_s),
        with_events_per_s=(pods - 1) / (max(each.at_s for each in writes) - begin_s),
        events=sum(each.what == EVENT and each.at_s <= end_s for each in writes) / pods,
        writes_a_pod=sum(each.user == USER for each in log.writes) / pods,
        cpu_ms_a_pod=(cpu_after_s - cpu_before_s) / pods * 1e3,
        memory_mib=mib,
        servers_ms_a_pod=(servers_cpu_s() - servers_before_s) / pods * 1e3,
    )


def _is_about_backlog(write: Write) -> bool:
    return write.user == USER and write.name.startswith(BACKLOG)


@contextlib.contextmanager
def arena(nodes: int) -> Iterator[Arena]:
    with tempfile.TemporaryDirectory(prefix="koord-bench-") as name:
        directory = Path(name, "plane")
        flags = (*auditlog.flags(directory), "--disable-admission-plugins=TaintNodesByCondition")
        with controlplane.private(directory, Options(api_server_flags=flags)) as plane:
            yield Arena(plane, nodes)


def basic() -> dict[str, Any]:
    return objects.pod("", SMALL, labels=MADE)


def spread() -> dict[str, Any]:
    constraint = {"maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    selector = {"labelSelector": {"matchLabels": MADE}}
    return objects.pod("", SMALL, labels=MADE, topologySpreadConstraints=[constraint | selector])


Turns = dict[str, list[Outcome]]
"""By contender; equal indices were measured next to each other."""


def compared(arena: Arena, case: Case, names: Sequence[str], pods: int, rounds: int) -> Turns:
    """Gives each contender a turn in each round, in an order drawn by lot, and prints what each did."""
    turns: Turns = {name: [] for name in names}
    for number in range(rounds):
        for name in random.Random(number).sample(names, len(names)):
            turns[name].append(arena.turn(case, CONTENDERS[name], pods))
    for name in names:
        print(Line(f"{case.name}: {name}", _described(turns[name])).text(), flush=True)
    return turns


def _described(outcomes: Sequence[Outcome]) -> str:
    def median(figure: Callable[[Outcome], float]) -> float:
        return statistics.median(map(figure, outcomes))

    rates = ", ".join(f"{each.pods_per_s:.0f}" for each in outcomes)
    said = f"{median(lambda each: each.pods_per_s):.0f} pods/s ({rates}), "
    said += f"{median(lambda each: each.with_events_per_s):.0f} to the last Event "
    said += f"({median(lambda each: each.events):.0%} by the last binding); "
    said += f"{median(lambda each: each.writes_a_pod):.2f} API writes a pod, "
    said += f"{median(lambda each: each.servers_ms_a_pod):.2f} ms of etcd's and the API server's CPU a pod"
    if cpu_ms := median(lambda each: each.cpu_ms_a_pod):
        said += f", {cpu_ms:.2f} ms of its own, {median(lambda each: each.memory_mib):.0f} MiB"
    if latencies_ms := [each for outcome in outcomes for each in outcome.latencies_ms]:
        p50, p99 = (stats.percentile(latencies_ms, percent) for percent in (50.0, 99.0))
        said += f"; at {TRICKLE_PER_S}/s p50 {p50:.1f} p99 {p99:.1f} ms"
    return said


def rate(outcome: Outcome) -> float:
    return outcome.pods_per_s


def rate_with_events(outcome: Outcome) -> float:
    return outcome.with_events_per_s


def times(turns: Turns, name: str, other: str, rate: Callable[[Outcome], float] = rate) -> float:
    """Returns how many times as fast as the other it was: the median over the rounds."""
    return statistics.median(rate(ours) / rate(theirs) for ours, theirs in zip(turns[name], turns[other], strict=True))


def beside(turns: Turns) -> str:
    """What is for the row only."""
    part = times(turns, KOORD, BARE)
    return f"to the last Event {times(turns, KOORD, KUBE, rate_with_events):.2f} ×; {part:.2f} × a bare bind loop"


def small(pods: int, rounds: int) -> Iterator[Line]:
    case = Case("SchedulingBasic, 100 nodes", basic, trickle=True)
    with arena(100) as made:
        turns = compared(made, case, (KUBE, KOORD, BARE), pods, rounds)
    ratio = times(turns, KOORD, KUBE)
    yield Line(case.name, f"{ratio:.2f} × kube-scheduler; {beside(turns)}", ">= 1.2 ×", ratio >= 1.2)


def large(pods: int, rounds: int) -> Iterator[Line]:
    with arena(5000) as made:
        case = Case("SchedulingBasic, 5000Nodes", basic, trickle=True)
        turns = compared(made, case, (KUBE, KOORD, BARE), pods, rounds)
        ratio, part = times(turns, KOORD, KUBE), times(turns, KOORD, BARE)
        yield Line(
            case.name,
            f"{ratio:.2f} × kube-scheduler; {beside(turns)}",
            ">= 2 ×, or 0.9 × the loop",
            ratio >= 2 or part >= 0.9,
        )
        case = Case("TopologySpreading, 5000Nodes", spread)
        turns = compared(made, case, (KUBE, KOORD), pods, 1)
        yield Line(case.name, f"{times(turns, KOORD, KUBE):.2f} × kube-scheduler")
        made.run_pods(RUNNING)
        yield unschedulable(made, pods, rounds)


def unschedulable(arena: Arena, pods: int, rounds: int) -> Line:
    """koord-scheduler with and without pods that no node has room for, in turns."""
    quiet = Case("SchedulingBasic, 5000Nodes/20000Pods", basic)
    busy = Case("Unschedulable, 5000Nodes/20000Pods", basic, unschedulable=True)
    turns: Turns = {quiet.name: [], busy.name: []}
    for number in range(rounds):
        for case in random.Random(number).sample((quiet, busy), 2):
            turns[case.name].append(arena.turn(case, CONTENDERS[KOORD], pods))
    for name, outcomes in turns.items():
        print(Line(f"{name}: {KOORD}", _described(outcomes)).text(), flush=True)
    part = times(turns, busy.name, quiet.name)
    return Line(busy.name, f"{part:.2f} × without them", ">= 0.9 ×", part >= 0.9)


def main() -> int:
    parser = argparse.ArgumentParser(description="koord-scheduler beside kube-scheduler on a real API server.")
    parser.add_argument("--pods", type=int, default=1000, help="in each backlog (default: 1000)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each scheduler (default: 3)")
    parser.add_argument("--nodes", type=int, choices=PARTS, help="measure with so many nodes alone")
    options = parser.parse_args()
    lines = []
    for nodes, part in PARTS.items():
        if options.nodes in (None, nodes):
            for line in part(options.pods, options.rounds):
                lines.append(line)
                print(line.text(), flush=True)
    print(summary("bench-scheduler", lines))
    return 0


PARTS: Mapping[int, Callable[[int, int], Iterator[Line]]] = {100: small, 5000: large}

if __name__ == "__main__":
    sys.exit(main())
