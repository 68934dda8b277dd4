"""What each step does alone: whom it touches, and by how much."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from koord.host import files
from koord.host.files import Target
from koord.model import readable
from koord.model.formulas import FORMULA, recompute
from qosd.decide.decision import Op
from qosd.decide.reliefsteps import CPU_FLOOR_MILLI, MEMORY_FLOOR_BYTES, ROWS
from qosd.decide.shortage import Measure, Resource
from qosd.model.pod import Resources
from tests.qosd.decide.relief.threepods import CPU_USES, EVICT, FREEZE, RECLAIM, THROTTLE, USES, A, B, C, at
from tests.qosd.decide.scenes import CPU, FILES_V1, MEMORY, MIB, WHO, Run, be, bounds, evicted, lacks, node, orders
from tests.qosd.podviews import EXITED, RUNNING


@pytest.mark.parametrize(
    ("amount", "is_v1", "shots"),
    [
        (250 * MIB, False, [("a", "memory.reclaim", 250 * MIB)]),
        (400 * MIB, False, [("a", "memory.reclaim", 300 * MIB), ("b", "memory.reclaim", 100 * MIB)]),
        (300 * MIB, True, [("a", "memory.force_empty", 0)]),
        (301 * MIB, True, [("a", "memory.force_empty", 0), ("b", "memory.force_empty", 0)]),
    ],
)
def test_reclaim(amount: int, is_v1: bool, shots: list[tuple[str, str, int]]) -> None:
    there = at(1, files=FILES_V1, version=1) if is_v1 else at(1)
    relief = Run().tick(there, lacks(amount, MEMORY, RECLAIM))
    assert (orders(relief), dict(relief.opinions), relief.evictions) == (shots, {}, ())


@pytest.mark.parametrize(
    ("cache", "swap", "shots"),
    [
        ({}, 0, []),  # nothing but anonymous memory
        ({"a": 9 * MIB}, 0, []),  # less than an eighth of what lacks
        ({"a": 10 * MIB}, 0, [("a", "memory.reclaim", 10 * MIB)]),
        ({"a": 5 * MIB, "b": 5 * MIB}, 0, [("a", "memory.reclaim", 5 * MIB), ("b", "memory.reclaim", 5 * MIB)]),
        ({"a": 90 * MIB, "b": 70 * MIB}, 0, [("a", "memory.reclaim", 80 * MIB)]),
        ({"a": 90 * MIB, "b": 70 * MIB}, 4 * MIB, [("a", "memory.reclaim", 80 * MIB)]),
        ({}, 10 * MIB, [(name, "memory.reclaim", 10 * MIB) for name in "abc"]),
    ],
)
def test_reclaim_takes_what_the_kernel_can_give_and_is_passed_where_that_is_nothing(
    cache: Mapping[str, int], swap: int, shots: list[tuple[str, str, int]]
) -> None:
    there = node(1, [A, B, C], USES, cache=cache, swap_free=swap)
    assert orders(Run().tick(there, lacks(80 * MIB, MEMORY, RECLAIM))) == shots


@pytest.mark.parametrize("files_there", [FILES_V1, frozenset({"cgroup.freeze"})])
def test_without_memory_high_who_gives_memory_is_held_to_little_cpu(files_there: frozenset[str]) -> None:
    run, claim = Run(), lacks(301 * MIB, MEMORY, THROTTLE, EVICT)
    relief = run.tick(at(1, files=files_there, version=1), claim)
    assert bounds(relief) == {("a/main", "cpu_quota"): 10_000, ("b/main", "cpu_quota"): 10_000}
    assert {opinion.op for opinion in relief.opinions.values()} == {Op.AT_MOST}
    why = next(iter(relief.opinions.values())).why
    assert why.endswith("; without memory.high by its CPU, so that it grows slower")
    assert not run.tick(at(5, files=files_there, version=1), claim).evictions
    relief = run.tick(at(6, files=files_there, version=1), claim)
    assert evicted(relief) == ["a", "b"], "it has freed nothing"
    assert bounds(relief) == {("a/main", "cpu_quota"): 10_000, ("b/main", "cpu_quota"): 10_000}


def test_who_does_not_feel_little_cpu_is_not_held_to_it() -> None:
    there = node(1, [A, B], USES, {"a": CPU_FLOOR_MILLI, "b": CPU_FLOOR_MILLI + 1}, files=FILES_V1, version=1)
    relief = Run().tick(there, lacks(999 * MIB, MEMORY, THROTTLE))
    assert bounds(relief) == {("b/main", "cpu_quota"): 10_000}


@pytest.mark.parametrize(
    ("amount", "values"),
    [
        (50 * MIB, {("a", "memory.high"): 250 * MIB}),
        (284 * MIB, {("a", "memory.high"): MEMORY_FLOOR_BYTES}),
        (300 * MIB, {("a", "memory.high"): MEMORY_FLOOR_BYTES, ("b", "memory.high"): 184 * MIB}),
        (1, {("a", "memory.high"): 300 * MIB - 4096}),
        (9999 * MIB, {(name, "memory.high"): MEMORY_FLOOR_BYTES for name in "abc"}),
    ],
)
def test_throttle_of_memory(amount: int, values: Mapping[tuple[str, str], int]) -> None:
    relief = Run().tick(at(1), lacks(amount, MEMORY, THROTTLE))
    assert bounds(relief) == values
    assert {opinion.op for opinion in relief.opinions.values()} == {Op.AT_MOST}


PAIR = (("x", RUNNING), ("y", RUNNING), ("z", EXITED))


@pytest.mark.parametrize(
    ("amount", "containers", "quotas"),
    [
        (1000, {"p/x": 1500, "p/y": 500}, {"p/x": 75_000, "p/y": 25_000}),
        (1000, {}, {"p/x": 50_000, "p/y": 50_000}),
        (1000, {"p/x": 1500}, {"p/x": 50_000, "p/y": 50_000}),
        (1000, {"p/x": 2000, "p/y": 0}, {"p/x": 100_000, "p/y": 1000}),
        (9000, {"p/x": 1000, "p/y": 1000}, {"p/x": 5000, "p/y": 5000}),
    ],
)
def test_throttle_of_cpu_bounds_running_containers(
    amount: int, containers: Mapping[str, int], quotas: Mapping[str, int]
) -> None:
    there = node(1, [be("p", containers=PAIR)], cpu={"p": 2000}, containers=containers, files=frozenset())
    relief = Run().tick(there, lacks(amount, CPU, THROTTLE))
    assert bounds(relief) == {(cgroup, "cpu_quota"): value for cgroup, value in quotas.items()}


@pytest.mark.parametrize(
    ("period_us", "amount", "quota_us"),
    [(10_000, 1000, 10_000), (10_000, 1900, 1000), (50_000, 1000, 50_000), (None, 1000, 100_000)],
)
def test_throttle_of_cpu_counts_in_the_period_of_the_container(
    period_us: int | None, amount: int, quota_us: int
) -> None:
    pod = be("p", container_requested=Resources(cpu_period_us=period_us))
    relief = Run().tick(node(1, [pod], cpu={"p": 2000}), lacks(amount, CPU, THROTTLE))
    assert bounds(relief) == {("p/main", "cpu_quota"): quota_us}
    assert [recompute(opinion.inputs) for opinion in relief.opinions.values()] == [quota_us]


def test_a_bound_stays_while_its_pod_does_whatever_its_containers_use_now() -> None:
    run, claim = Run(), lacks(2500, CPU, THROTTLE)
    pods = [be(name, containers=PAIR) for name in "pq"]
    shares = {"p/x": 1500, "p/y": 500, "q/x": 1500, "q/y": 500}
    before = run.tick(node(1, pods, cpu={"p": 2000, "q": 2000}, containers=shares), claim)
    renewed = [pods[0], be("q", containers=PAIR)]
    after = run.tick(node(2, renewed, containers={"p/x": 1, "p/y": 1, "q/x": 1, "q/y": 1}), claim)
    assert (
        before.opinions[Target(f"{pods[0].cgroup}/x", "cpu_quota")]
        is after.opinions[Target(f"{pods[0].cgroup}/x", "cpu_quota")]
    )
    assert bounds(before)["q/x", "cpu_quota"] != bounds(after)["q/x", "cpu_quota"]


def test_throttle_follows_containers_that_come_and_go_and_forgets_pods() -> None:
    run = Run()
    claim = lacks(1000, CPU, THROTTLE)
    run.tick(node(1, [be("p")], cpu={"p": 2000}), claim)
    after = run.tick(node(2, [be("p", containers=(("new", RUNNING), ("main", EXITED)))], cpu={"p": 1000}), claim)
    assert bounds(after) == {("p/new", "cpu_quota"): 100_000}
    assert not run.tick(node(3, []), claim).opinions
    assert not run.state.episodes[claim.key].throttles


@pytest.mark.parametrize(
    ("resource", "amount", "frozen"), [(MEMORY, 300 * MIB, "a"), (MEMORY, 301 * MIB, "ab"), (CPU, 5500, "abc")]
)
def test_freeze(resource: Resource, amount: int, frozen: str) -> None:
    relief = Run().tick(at(1), lacks(amount, resource, FREEZE))
    assert bounds(relief) == {(name, "cgroup.freeze"): 1 for name in frozen}
    assert {opinion.op for opinion in relief.opinions.values()} == {Op.SET}


@pytest.mark.parametrize(
    ("amount", "victims"),
    [(1, "a"), (300 * MIB, "a"), (300 * MIB + 1, "ab"), (500 * MIB, "ab"), (9999 * MIB, "abc")],
)
def test_evict_is_the_shortest_prefix_that_covers(amount: int, victims: str) -> None:
    relief = Run().tick(at(1), lacks(amount, MEMORY, EVICT))
    assert "".join(evicted(relief)) == victims
    eviction = relief.evictions[0]
    assert (eviction.pod, eviction.cgroup, eviction.grace_s) == ("default/a", A.cgroup, 0)
    assert eviction.inputs == {"limit": 70}
    assert all(word in eviction.why for word in (WHO, "evict", "too much", readable.memory(amount), "300 MiB"))


def test_evict_by_request() -> None:
    pods = [be(name, cpu_request_milli=4000) for name in "abc"]
    claim = lacks(6000, CPU, EVICT, measure=Measure.REQUEST)
    assert evicted(Run().tick(node(1, pods, cpu=CPU_USES), claim)) == ["a", "b"]


def test_opinions_name_pod_and_reason_and_a_formula_that_makes_their_value() -> None:
    claims = (
        lacks(99 * MIB, MEMORY, THROTTLE),
        lacks(500, CPU, THROTTLE, strategy="cpuEvict"),
        lacks(9, MEMORY, FREEZE),
    )
    for claim in claims:
        relief = Run().tick(at(1), claim)
        for target, opinion in relief.opinions.items():
            assert target.name in ROWS
            assert opinion.pod == "default/a"
            said = claim.shortage.resource.said(claim.shortage.amount)
            assert all(word in opinion.why for word in (claim.strategy, "too much", said))
            assert opinion.inputs[FORMULA] and recompute(opinion.inputs) == opinion.value
            assert isinstance(opinion.value, int)
            files.row(target.name).check(opinion.value, 2)
