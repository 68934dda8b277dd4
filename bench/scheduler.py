"""What one decision costs, without an API server: cases with scheduler_perf's names. ``python -m bench.scheduler``.

Each case fills a state of 5,000 nodes, places one pod after the other, and counts the CPU of the decisions. Another
process measures the memory of a state, with the pods as informers share them.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from bench.table import Line, summary
from koord.kube.interner import Interner
from koord.model import core
from koord.model.elasticquota import ElasticQuota as ElasticQuotaObject
from koord.model.gang import GangKey
from koord.model.nodemetric import NodeMetric
from koord.model.problem import Problem
from koord.model.scheduling.numa import LABEL_NUMA_TOPOLOGY_POLICY
from koord.model.scheduling.pods import Node, Pod
from koord.model.topologyannotations import LogicalCPU
from koord.quota import names
from koord.quota.forest import QuotaRules
from koord.scheduling import gangplacement, nodeusage
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework, WeightedPlugin
from koord.scheduling.gangplacement import Member, NoHolder
from koord.scheduling.numa.nodesettings import ReportedTopology
from koord.scheduling.numa.podrequest import RESOURCE_STATUS
from koord.scheduling.numa.topology import topology_of
from koord.scheduling.plugins.elasticquota import ElasticQuota
from koord.scheduling.plugins.loadaware import LoadAwareScheduling
from koord.scheduling.plugins.nodenumaresource import NodeNUMAResource
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.preemption import Preemptor
from koord.scheduling.state import ClusterState
from koord_scheduler.decisions import BEST

NODES = 5000
T = TypeVar("T", Node, Pod)
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_SMALL = {"cpu": "100m", "memory": "500Mi"}
_MIB = 1 << 20
_QUOTAS = 1000
_NOW_S = 1_767_225_630.0
"""Half a minute after the nodes were measured."""


def node(index: int, cpu: str = "4", memory: str = "32Gi") -> Node:
    name = f"node-{index}"
    document = {
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: f"zone-{index % 10}"}},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}},
    }
    return core.read(Node, msgspec.json.encode(document))


def pod(name: str, requests: dict[str, str], template: str = "basic", **spec: Any) -> Pod:
    """``template``: the value of its label ``app``."""
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "labels": {"app": template},
        "ownerReferences": [{"kind": "ReplicaSet", "name": template, "uid": template, "controller": True}],
    }
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}}
    return core.read(Pod, msgspec.json.encode({"metadata": metadata, "spec": {"containers": [container], **spec}}))


@dataclass
class Case:
    """``pods``: those that are placed, by their number; ``running``: how many basic ones there are already.
    ``aim``: decisions a second.
    """

    name: str
    make: Callable[[int], Pod]
    pods: int
    aim: int
    running: int = 5000
    is_measured: bool = False
    """Whether each node has a NodeMetric, and pods are placed by load, too."""

    def measure(self) -> Line:
        state = filled(self.running)
        plugins = default_plugins()
        if self.is_measured:
            measure_nodes(state)
            by_load = LoadAwareScheduling()
            plugins = (*plugins, WeightedPlugin(by_load))
            state.loads.of(by_load.settings)
        framework = Framework(state, plugins, best_count=BEST)
        waiting = [PodInfo.of(self.make(index)) for index in range(self.pods)]
        gc.collect()
        begin_s = time.process_time()
        for each in waiting:
            placement = framework.place(each)
            assert placement is not None, self.name
            state.assume(each, placement.node)
        used_s = time.process_time() - begin_s
        rate = self.pods / used_s
        return Line(self.name, f"{rate:,.0f} decisions/s", f">= {self.aim:,}", rate >= self.aim)


def filled(running: int, cpu: str = "100m") -> ClusterState:
    """5,000 nodes with so many basic pods on them, in turn."""
    state = ClusterState()
    for index in range(NODES):
        state.put_node(node(index))
    for index in range(running):
        made = pod(f"running-{index}", {"cpu": cpu, "memory": "500Mi"}, nodeName=f"node-{index % NODES}")
        state.put_pod(PodInfo.of(made))
    return state


def measure_nodes(state: ClusterState) -> None:
    """Each node uses a tenth to three tenths of what it has, and its pod is in what was measured."""
    state.loads.advance(_NOW_S)
    for index in range(NODES):
        cpu, memory = f"{400 + index * 7 % 800}m", f"{3 + index * 5 % 7}Gi"
        pods = [{"namespace": "default", "name": f"running-{index}", "podUsage": {"resources": _SMALL}}]
        document = {
            "metadata": {"name": f"node-{index}"},
            "status": {
                "updateTime": "2026-01-01T00:00:00Z",
                "nodeMetric": {"nodeUsage": {"resources": {"cpu": cpu, "memory": memory}}},
                "podsMetric": pods,
            },
        }
        metric = core.read(NodeMetric, msgspec.json.encode(document))
        state.loads.put_metric(f"node-{index}", nodeusage.of_metric(metric, problem_found))


def problem_found(problem: Problem) -> None:
    raise ValueError(str(problem))


def affinity(kind: str, key: str, app: str) -> dict[str, Any]:
    return {kind: {_REQUIRED: [{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}]}}


def preferred(kind: str, key: str, app: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {kind: {_PREFERRED: [{"weight": 1, "podAffinityTerm": term}]}}


def spread(when: str) -> list[dict[str, Any]]:
    selector = {"matchLabels": {"app": "spread"}}
    return [{"maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": when, "labelSelector": selector}]


def cases() -> Iterator[Case]:
    yield Case("SchedulingBasic", lambda index: pod(f"p{index}", _SMALL), 10_000, 5000)
    yield Case(
        "SchedulingBasic, all different",
        lambda index: pod(f"p{index}", {"cpu": f"{50 + index}m", "memory": "64Mi"}),
        2000,
        1000,
    )
    yield Case("SchedulingBasic, by load", lambda index: pod(f"p{index}", _SMALL), 10_000, 5000, is_measured=True)
    yield Case(
        "SchedulingBasic, all different, by load",
        lambda index: pod(f"p{index}", {"cpu": f"{50 + index}m", "memory": "64Mi"}),
        2000,
        1000,
        is_measured=True,
    )
    for name, made in (
        ("SchedulingPodAffinity", affinity("podAffinity", ZONE, "near")),
        ("SchedulingPreferredPodAffinity", preferred("podAffinity", ZONE, "near")),
        ("SchedulingPreferredPodAntiAffinity", preferred("podAntiAffinity", HOSTNAME, "near")),
    ):
        yield Case(name, lambda index, made=made: pod(f"p{index}", _SMALL, "near", affinity=made), 2000, 300)  # type: ignore[misc]
    apart = affinity("podAntiAffinity", HOSTNAME, "apart")
    yield Case("SchedulingPodAntiAffinity", lambda index: pod(f"p{index}", _SMALL, "apart", affinity=apart), 2000, 300)
    for name, when in (("TopologySpreading", "DoNotSchedule"), ("PreferredTopologySpreading", "ScheduleAnyway")):
        constraints = spread(when)
        yield Case(
            name,
            lambda index, constraints=constraints: pod(  # type: ignore[misc]
                f"p{index}", _SMALL, "spread", topologySpreadConstraints=constraints
            ),
            2000,
            1000,
        )


def unschedulable() -> Line:
    """Measures a pod that fits nowhere and finds no victims, among 20,000 that run: place, diagnose, search."""
    state = filled(20_000)
    framework = Framework(state, default_plugins(), best_count=BEST)
    return _costs(framework, "Unschedulable, 20,000 running", {"cpu": "9"}, 0, 2.0)


def preemption() -> Line:
    """Measures PreemptionAsync: each node has four pods, and three of them have to leave."""
    state = filled(20_000, "900m")
    return _costs(Framework(state, default_plugins(), best_count=BEST), "PreemptionAsync", {"cpu": "3"}, 10, 20.0)


def gang(fits: bool) -> Line:
    """Measures a gang of 1,000 among 5,000 pods that run: one transaction. Without room it is undone after a half."""
    samples = []
    for _ in range(5):
        state = filled(5000)
        framework = Framework(state, default_plugins(), best_count=BEST)
        requests = {"cpu": "1"} if fits else {"cpu": "3500m", "memory": "30Gi"}
        if not fits:
            for index in range(NODES - 500):
                state.put_pod(PodInfo.of(pod(f"full-{index}", {"cpu": "1"}, nodeName=f"node-{index}")))
        key = GangKey("default", "gang")
        members = [Member(PodInfo.of(pod(f"member-{index}", requests, "gang")), key) for index in range(1000)]
        framework.place(PodInfo.of(pod("earlier", _SMALL)))  # a scheduler that runs has met its nodes
        gc.collect()
        begin_s = time.process_time()
        found = gangplacement.place(state, lambda _, framework=framework: framework, members, {key: 1000}, NoHolder())  # type: ignore[misc]
        samples.append(time.process_time() - begin_s)
        assert found.is_whole is fits and len(state.assumed) == (1000 if fits else 0)
    worst_ms = max(samples) * 1e3
    what = "a gang of 1,000" if fits else "a gang of 1,000, room for 500"
    return Line(f"{what}, 5,000 nodes", f"{worst_ms:.0f} ms, the slowest of 5", "<= 200 ms", worst_ms <= 200)


def _costs(framework: Framework, name: str, requests: dict[str, str], priority: int, aim_ms: float) -> Line:
    samples = []
    for index in range(20):
        waiting = PodInfo.of(pod(f"w{index}", requests, "waiting", priority=priority))
        begin_s = time.process_time()
        assert framework.place(waiting) is None
        found = Preemptor(framework).choose(waiting, framework.diagnose(waiting))
        samples.append(time.process_time() - begin_s)
        assert (found is not None) == bool(priority)
    worst_ms = max(samples) * 1e3
    return Line(name, f"{worst_ms:.1f} ms, the slowest of {len(samples)}", f"<= {aim_ms:g} ms", worst_ms <= aim_ms)


def quotas(weights: int, is_told: bool = False) -> Line:
    """Measures one pod of one quota among 1,000: it comes, its quota lets it in, it is assumed, and it ends. All quotas
    are below one parent and more is requested than there is, by some less than their share. ``weights``: how many
    different ones. ``is_told``: the quota's runtime is worked out to the unit, too.
    """
    state = filled(0)
    state.quotas.follow(QuotaRules())
    draw = random.Random(0)
    for index in range(_QUOTAS):
        weight = 10_000 + index % weights
        shared = {names.ANNOTATION_WEIGHT: json.dumps({"cpu": weight, "memory": weight})}
        spec = {"min": {"cpu": 2, "memory": "2Gi"}, "max": {"cpu": 10_000, "memory": "100Ti"}}
        document = {"metadata": {"name": f"q{index}", "namespace": "default", "annotations": shared}, "spec": spec}
        state.quotas.put(core.read(ElasticQuotaObject, msgspec.json.encode(document)))
        big = {"cpu": f"{draw.choice((4, 12, 60))}", "memory": f"{draw.choice((40, 90, 500))}Gi"}
        state.quotas.put_pod(_of_quota(f"big-{index}", big, index))
    plugin, samples = ElasticQuota(), []
    waiting = [_of_quota(f"w{index}", _SMALL, draw.randrange(_QUOTAS)) for index in range(1000)]
    state.quotas.get("q0")
    gc.collect()
    for each in waiting:
        begin_s = time.process_time()
        state.quotas.put_pod(each)
        is_in = plugin.obstacle(state, each) is None
        if is_told and (quota := state.quotas.of(each)) and state.quotas.forest:
            state.quotas.forest.runtimes(quota)
        if is_in:
            state.assume(each, "node-0")
        state.forget(each.uid)
        state.quotas.remove_pod(each.uid)
        samples.append(time.process_time() - begin_s)
        assert is_in
    mean_ms, worst_ms = sum(samples) / len(samples) * 1e3, sorted(samples)[-10] * 1e3
    name = f"1,000 quotas, {weights:,} weight{'s' if weights > 1 else ''}, a pod{', runtime told' if is_told else ''}"
    return Line(name, f"{mean_ms:.3f} ms in the mean, {worst_ms:.3f} ms p99", "< 1 ms", mean_ms < 1)


def _of_quota(name: str, requests: dict[str, str], quota: int) -> PodInfo:
    made = pod(name, requests)
    labels = {names.LABEL_NAME: f"q{quota}"}
    return PodInfo.of(msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels)))


def with_labels(made: T, labels: dict[str, str]) -> T:
    """``made``: a node or a pod."""
    metadata = msgspec.structs.replace(made.metadata, labels={**made.metadata.labels, **labels})
    return msgspec.structs.replace(made, metadata=metadata)


def bound_cpus(name: str, aim: int, is_different: bool = False, policy: str = "") -> Line:
    """Measures pods with CPUs of their own, decided, reserved and said, on nodes of 64 CPUs that have some already."""
    state, plugin = ClusterState(), NodeNUMAResource()
    cpus = [LogicalCPU(cpu, cpu // 2, cpu // 32, cpu // 32) for cpu in range(64)]
    zones = tuple([(number, (("cpu", 32_000), ("memory", 128 << 30))) for number in (0, 1)])
    reported = ReportedTopology(topology_of(tuple(cpus)), zones=zones)
    for index in range(NODES):
        state.put_node(with_labels(node(index, "64", "256Gi"), {LABEL_NUMA_TOPOLOGY_POLICY: policy}))
        state.put_topology(f"node-{index}", reported)
        held = pod(f"running-{index}", {"cpu": "4"}, nodeName=f"node-{index}", priority=9500)
        status = {RESOURCE_STATUS: f'{{"cpuset":"{index % 8 * 4}-{index % 8 * 4 + 3}"}}'}
        metadata = msgspec.structs.replace(held.metadata, annotations=status)
        state.put_pod(PodInfo.of(msgspec.structs.replace(held, metadata=metadata)))
    framework = Framework(state, (*default_plugins(), WeightedPlugin(plugin)), best_count=BEST)
    waiting = []
    for index in range(1000):
        made = pod(f"p{index}", {"cpu": "4", "memory": f"{1024 + index * is_different}Mi"}, priority=9500)
        waiting.append(PodInfo.of(with_labels(made, {"koordinator.sh/qosClass": "LSR"})))
    gc.collect()
    begin_s = time.process_time()
    for each in waiting:
        placement = framework.place(each)
        assert placement is not None, name
        state.assume(each, placement.node)
        plugin.reserve(state, each, placement.node)
        assert plugin.pre_bind_patch(state, each, placement.node) is not None
    rate = len(waiting) / (time.process_time() - begin_s)
    return Line(name, f"{rate:,.0f} decisions/s", f">= {aim:,}", rate >= aim)


def memory(pods: int, aim_mib: float) -> Line:
    argv = [sys.executable, "-m", "bench.scheduler", f"--hold={pods}"]
    held_mib = float(json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout))
    name = f"memory with {pods:,} pods of 50 replicas each"
    return Line(name, f"{held_mib:.0f} MiB resident", f"<= {aim_mib:g} MiB", held_mib <= aim_mib)


@dataclass
class Holder:
    """A state with its pods as an informer has them."""

    state: ClusterState = field(default_factory=ClusterState)
    cache: list[Pod] = field(default_factory=list)

    def fill(self, pods: int) -> None:
        interner = Interner()
        for index in range(NODES):
            self.state.put_node(node(index, "64", "512Gi"))
        for index in range(pods):
            template = f"app-{index // 50}"
            made = interner.intern_like(template, pod(f"p{index}", _SMALL, template, nodeName=f"node-{index % NODES}"))
            self.cache.append(made)
            self.state.put_pod(PodInfo.of(made))


def resident_mib() -> float:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) * 1024 / _MIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hold", type=int, help="print what a process holds with so many pods, and end")
    options = parser.parse_args()
    if options.hold:
        holder = Holder()
        holder.fill(options.hold)
        gc.collect()
        print(resident_mib())
        assert len(holder.cache) == options.hold
        return
    lines = []
    for case in cases():
        lines.append(case.measure())
        print(lines[-1].text(), flush=True)
    others: tuple[Callable[[], Line], ...] = (
        lambda: bound_cpus("LSR pods", 300),
        lambda: bound_cpus("LSR pods, all different", 300, True),
        lambda: bound_cpus("LSR pods, one NUMA node each", 300, False, "SingleNUMANode"),
        unschedulable,
        preemption,
        lambda: gang(True),
        lambda: gang(False),
        lambda: quotas(1, True),
        lambda: quotas(20, True),
        lambda: quotas(_QUOTAS),
        lambda: memory(30_000, 250),
        lambda: memory(100_000, 600),
    )
    for measure in others:
        lines.append(measure())
        print(lines[-1].text(), flush=True)
    print(summary("bench.scheduler", lines))


if __name__ == "__main__":
    main()
