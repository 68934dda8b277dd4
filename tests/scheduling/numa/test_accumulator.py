"""Which CPUs a pod gets: the worked examples, the edges, and every choice against a search through all sets."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import pytest

from koord.model import cpuset
from koord.model.cpuset import CPUSet
from koord.model.scheduling.numa import CPUBindPolicy, CPUExclusivePolicy
from koord.model.topologyannotations import LogicalCPU
from koord.scheduling.numa import accumulator
from koord.scheduling.numa.accumulator import Binding, HeldCPUs
from koord.scheduling.numa.topology import CPUTopology
from tests.scheduling.numa.accumulatororacle import Oracle
from tests.scheduling.numa.numaclusters import machine

FULL, SPREAD = CPUBindPolicy.FULL_PCPUS, CPUBindPolicy.SPREAD_BY_PCPUS
CORES, NUMA_NODES = CPUExclusivePolicy.PCPU_LEVEL, CPUExclusivePolicy.NUMA_NODE_LEVEL


def taken(
    cpus: Sequence[LogicalCPU], available: str, count: int, binding: Binding, held: HeldCPUs | None = None
) -> str:
    topology, free = CPUTopology(cpus), cpuset.parse(available).mask
    left = accumulator.allowed(topology, free, binding)
    return str(CPUSet(accumulator.take(topology, left, count, binding, held or HeldCPUs())))


@pytest.mark.parametrize(
    ("count", "policy", "least", "most"),
    [
        (4, FULL, "8-11", "4-7"),
        (4, SPREAD, "8,10,12,14", "8,10,12,14"),
        (6, SPREAD, "8-12,14", "8-12,14"),
        (6, FULL, "8-13", "8-13"),
        (10, FULL, "4-5,8-15", "4-5,8-15"),
        (12, FULL, "4-15", "4-15"),
    ],
)
def test_worked_examples(count: int, policy: CPUBindPolicy, least: str, most: str) -> None:
    """Two sockets of one NUMA node each with 4 cores of 2 threads; 0-3 are held."""
    cpus = machine(2, 1, 4, 2)
    assert taken(cpus, "4-15", count, Binding(policy)) == least
    assert taken(cpus, "4-15", count, Binding(policy, prefers_full=True)) == most


TWO = machine(2, 1, 4, 2)
OTHERS_CORES = HeldCPUs(frozenset({1 << 16 | 4, 1 << 16 | 5}))
OTHERS_NUMA_NODE = HeldCPUs(exclusive_numa_nodes=frozenset({1}))


@pytest.mark.parametrize(
    ("available", "count", "binding", "held", "expected"),
    [
        pytest.param("4-15", 4, Binding(SPREAD, exclusive=CORES), OTHERS_CORES, "8,10,12,14", id="weaker than a node"),
        pytest.param("0-15", 2, Binding(SPREAD, exclusive=CORES), OTHERS_CORES, "0,2", id="cores of others avoided"),
        pytest.param("8-15", 2, Binding(SPREAD, exclusive=CORES), OTHERS_CORES, "12,14", id="on the same NUMA node"),
        pytest.param("0-15", 2, Binding(SPREAD), OTHERS_CORES, "0,2", id="who is not exclusive does not mind"),
        pytest.param("4-15", 2, Binding(FULL, exclusive=NUMA_NODES), OTHERS_NUMA_NODE, "4-5", id="a NUMA node avoided"),
        pytest.param("8-15", 2, Binding(FULL, exclusive=NUMA_NODES), OTHERS_NUMA_NODE, "8-9", id="or not, if need be"),
        pytest.param("0-15", 2, Binding(FULL), OTHERS_NUMA_NODE, "0-1", id="equal NUMA nodes: the lower"),
        pytest.param("1-15", 1, Binding(FULL), None, "8", id="one CPU of whole cores"),
        pytest.param("0,2,4,6,8", 2, Binding(FULL), None, "0,2", id="no whole core left: where most is free"),
        pytest.param("0,2,8-9", 3, Binding(FULL), None, "0,8-9", id="the whole core first"),
        pytest.param("0-3,8,10", 4, Binding(SPREAD), None, "0-3", id="one NUMA node before one of each core"),
        pytest.param("0-15", 4, Binding(FULL, True), None, "0-3", id="required whole cores"),
        pytest.param("0-15", 9, Binding(SPREAD), None, "0-2,4,6,8,10,12,14", id="more than a socket"),
        pytest.param("0-3", 2, Binding(SPREAD, True), None, "0,2", id="required one of each"),
        pytest.param("0-15", 0, Binding(FULL), None, "", id="none"),
    ],
)
def test_choices(available: str, count: int, binding: Binding, held: HeldCPUs | None, expected: str) -> None:
    assert taken(TWO, available, count, binding, held) == expected


def test_an_odd_number_of_whole_cores_of_three_sockets_is_exactly_that() -> None:
    """Upstream takes a whole core of a third socket for the last CPU, and the pod has one more than it requests."""
    cpus = machine(3, 1, 4, 2)
    assert taken(cpus, "0-5,8-13,16-21", 9, Binding(FULL)) == "0-5,8-10"


def test_a_core_with_a_thread_that_is_offline_is_no_whole_one() -> None:
    """Upstream has one CPU a core for such a machine, by its mean, and gives halves of cores as whole ones."""
    cpus = [cpu for cpu in machine(1, 1, 3, 2) if cpu.id != 1]
    assert taken(cpus, "0,2-5", 2, Binding(FULL)) == "2-3"
    assert taken(cpus, "0,2-5", 3, Binding(SPREAD)) == "0,2,4"
    with pytest.raises(ValueError, match="6 CPUs of 4"):
        taken(cpus, "0,2-5", 6, Binding(FULL, True))


@pytest.mark.parametrize(
    ("policy", "counts", "expected"),
    [
        (FULL, {}, "0-1"),
        (FULL, {0: 1}, "2-3"),
        (FULL, {0: 1, 2: 2, 4: 1, 6: 1}, "0-1"),
        (SPREAD, {0: 1, 2: 1, 4: 1}, "1,3"),
        (SPREAD, {0: 1, 1: 1, 3: 1}, "2,4"),
    ],
)
def test_shared_cpus_are_those_that_fewest_pods_have(
    policy: CPUBindPolicy, counts: dict[int, int], expected: str
) -> None:
    assert taken(machine(1, 1, 4, 2), "0-7", 2, Binding(policy), HeldCPUs(counts=counts)) == expected


@pytest.mark.parametrize(
    ("available", "policy", "expected"),
    [("0-3,5,6,8-10", FULL, "0-3,8-9"), ("0-3,5,6,8-10", SPREAD, "0,2,5-6,8,10"), ("", FULL, ""), ("", SPREAD, "")],
)
def test_what_a_required_policy_allows(available: str, policy: CPUBindPolicy, expected: str) -> None:
    topology, free = CPUTopology(TWO), cpuset.parse(available).mask
    assert str(CPUSet(accumulator.allowed(topology, free, Binding(policy, True)))) == expected
    assert accumulator.allowed(topology, free, Binding(policy)) == free


def drawn_machine(draw: random.Random, most: int) -> list[LogicalCPU]:
    """A small machine whose CPUs are numbered in one of the ways that there are, some of them offline."""
    while True:
        sockets, numa_nodes, cores, threads = (
            draw.choice(choice) for choice in ((1, 2, 2, 3), (1, 1, 2), (1, 2, 3), (1, 2, 2))
        )
        count = sockets * numa_nodes * cores * threads
        if 1 < count <= most:
            break
    cpus = machine(sockets, numa_nodes, cores, threads)
    numbers = [cpu.id for cpu in cpus]
    match draw.randrange(3):
        case 0:
            numbers = [cpu.id % threads * (count // threads) + cpu.id // threads for cpu in cpus]
        case 1:
            draw.shuffle(numbers)
    found = [LogicalCPU(number, cpu.core, cpu.socket, cpu.node) for number, cpu in zip(numbers, cpus, strict=True)]
    return draw.sample(found, count - (draw.random() < 0.15))


def compare(seed: int, most: int) -> None:
    """Compares a choice with the best of all."""
    draw = random.Random(seed)
    cpus = drawn_machine(draw, most)
    topology = CPUTopology(cpus)
    binding = Binding(
        draw.choice([FULL, SPREAD]), draw.random() < 0.2, draw.choice(list(CPUExclusivePolicy)), draw.random() < 0.5
    )
    likely = draw.choice([0.5, 0.8, 1.0])
    free = CPUSet.of([cpu.id for cpu in cpus if draw.random() < likely])
    held = HeldCPUs(
        frozenset([core.number for core in topology.cores if draw.random() < 0.4]),
        frozenset([number for number in topology.numa_nodes if draw.random() < 0.4]),
        {cpu.id: draw.randrange(3) for cpu in cpus} if draw.random() < 0.2 else {},
    )
    available = accumulator.allowed(topology, free.mask, binding)
    allowed = frozenset(CPUSet(available))
    if binding.is_required and binding.policy is FULL:
        assert allowed == Oracle(cpus, frozenset(free), binding, held).whole
    elif binding.is_required:
        assert allowed == Oracle(cpus, frozenset(free), binding, HeldCPUs()).firsts(frozenset(free))
    if not allowed:
        return
    count = draw.randint(1, len(allowed))
    found = CPUSet(accumulator.take(topology, available, count, binding, held))
    best = Oracle(cpus, allowed, binding, held).best(count)
    assert frozenset(found) == best, (seed, cpus, str(free), count, binding, held)


def test_every_choice_is_the_best_one_of_all() -> None:
    for seed in range(200):
        compare(seed, 8)


@pytest.mark.exhaustive
def test_10000_choices_are_the_best_ones_of_all() -> None:
    count, first = int(os.environ.get("N", "10000")), int(os.environ.get("SEED", "1000"))
    for seed in range(first, first + count):
        compare(seed, 14)
