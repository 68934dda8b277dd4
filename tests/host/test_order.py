"""The order of writes: the kernel's rules one by one, then any tree against a model of the kernel's refusals."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.host.files import Target, Value
from koord.host.order import CORE_SCHED, GROUP_IDENTITY, IDENTITY, Change, disturbed_by, order, reset_by
from tests.fakes.cgroupstates import Machine, Scene, scenes
from tests.fakes.kernel import KernelModel, ProtectionModel

POD, BOX, TIER = "/kubepods/pod1", "/kubepods/pod1/box", "/kubepods"
Told = tuple[str, str, Value | None, Value]

RULES: dict[str, tuple[int, list[Told], list[tuple[str, str, Value]]]] = {
    "a parent's quota is raised before its child's": (
        1,
        [(BOX, "cpu_quota", 100_000, 200_000), (POD, "cpu_quota", 150_000, 200_000)],
        [(POD, "cpu_quota", 200_000), (BOX, "cpu_quota", 200_000)],
    ),
    "a child's quota is lowered before its parent's": (
        1,
        [(POD, "cpu_quota", -1, 100_000), (BOX, "cpu_quota", -1, 100_000)],
        [(BOX, "cpu_quota", 100_000), (POD, "cpu_quota", 100_000)],
    ),
    "one pod grows before another shrinks": (
        1,
        [("/kubepods/pod2", "cpu_quota", 5000, 4000), (POD, "cpu_quota", 5000, 6000)],
        [(POD, "cpu_quota", 6000), ("/kubepods/pod2", "cpu_quota", 4000)],
    ),
    "a shorter period is a raise": (
        1,
        [(BOX, "cpu_quota", 1000, 2000), (POD, "cpu_period", 100_000, 50_000)],
        [(POD, "cpu_period", 50_000), (BOX, "cpu_quota", 2000)],
    ),
    "quota and period change together through no limit": (
        1,
        [(POD, "cpu_period", 200_000, 100_000), (POD, "cpu_quota", 200_000, 100_000)],
        [(POD, "cpu_quota", -1), (POD, "cpu_period", 100_000), (POD, "cpu_quota", 100_000)],
    ),
    "a limit comes after its period, when there was none": (
        1,
        [(POD, "cpu_quota", -1, 800_000), (POD, "cpu_period", 10_000, 100_000)],
        [(POD, "cpu_period", 100_000), (POD, "cpu_quota", 800_000)],
    ),
    "the burst goes down before the quota": (
        2,
        [(BOX, "cpu_quota", 200_000, 100_000), (BOX, "cpu.max.burst", 200_000, 100_000)],
        [(BOX, "cpu.max.burst", 100_000), (BOX, "cpu_quota", 100_000)],
    ),
    "the burst goes up after the quota": (
        2,
        [(BOX, "cpu.max.burst", 0, 200_000), (BOX, "cpu_quota", 100_000, 200_000)],
        [(BOX, "cpu_quota", 200_000), (BOX, "cpu.max.burst", 200_000)],
    ),
    "a larger burst survives the quota's way to no limit": (
        1,
        [(BOX, "cpu_quota", 100_000, -1), (BOX, "cpu.max.burst", 0, 300_000)],
        [(BOX, "cpu_quota", -1), (BOX, "cpu.max.burst", 300_000)],
    ),
    "overlapping CPU sets go through their union": (
        1,
        [(BOX, "cpuset_cpus", "0-1", "1-2"), (POD, "cpuset_cpus", "0-1", "1-2")],
        [
            (POD, "cpuset_cpus", "0-2"),
            (BOX, "cpuset_cpus", "0-2"),
            (BOX, "cpuset_cpus", "1-2"),
            (POD, "cpuset_cpus", "1-2"),
        ],
    ),
    "a CPU set that only shrinks is written once": (
        1,
        [(POD, "cpuset_cpus", "0-3", "0"), (BOX, "cpuset_cpus", "0-1", "0")],
        [(BOX, "cpuset_cpus", "0"), (POD, "cpuset_cpus", "0")],
    ),
    "who leaves a CPU goes before who takes it": (
        1,
        [(BOX, "cpuset_cpus", "1", "0"), ("/kubepods/pod2/b", "cpuset_cpus", "0-1", "1")],
        [("/kubepods/pod2/b", "cpuset_cpus", "1"), (BOX, "cpuset_cpus", "0-1"), (BOX, "cpuset_cpus", "0")],
    ),
    "nobody leaves before those below have come": (
        1,
        [(POD, "cpuset_cpus", "0-1", "1"), (BOX, "cpuset_cpus", "0", "1")],
        [(BOX, "cpuset_cpus", "0-1"), (BOX, "cpuset_cpus", "1"), (POD, "cpuset_cpus", "1")],
    ),
    "on v1 an empty CPU set is the smallest": (1, [(BOX, "cpuset_cpus", "", "2")], [(BOX, "cpuset_cpus", "2")]),
    "on v2 an empty CPU set is the parent's, so the largest": (
        2,
        [(POD, "cpuset_cpus", "", "2-3"), (BOX, "cpuset_cpus", "0", "")],
        [(BOX, "cpuset_cpus", ""), (POD, "cpuset_cpus", "2-3")],
    ),
    "shares wait for the end of cpu.idle, which sets them to 1024": (
        1,
        [(POD, "cpu_shares", 3, 512), (POD, "cpu.idle", 1, 0)],
        [(POD, "cpu.idle", 0), (POD, "cpu_shares", 512)],
    ),
    "shares that read 3 are written again after cpu.idle": (
        1,
        [(POD, "cpu_shares", 3, 3), (POD, "cpu.idle", 1, 0)],
        [(POD, "cpu.idle", 0), (POD, "cpu_shares", 3)],
    ),
    "shares of an idle group are not written": (
        1,
        [(POD, "cpu_shares", 3, 512), (POD, "cpu.idle", 1, 1), (BOX, "cpu.idle", 0, 1), (BOX, "cpu_shares", 2, 9)],
        [(BOX, "cpu.idle", 1)],
    ),
    "protection grows from the top and shrinks from below": (
        2,
        [
            (BOX, "memory.min", 0, 4096),
            (TIER, "memory.min", 0, 8192),
            (TIER, "memory.low", 8192, 0),
            (BOX, "memory.low", 4096, 0),
        ],
        [
            (TIER, "memory.min", 8192),
            (BOX, "memory.min", 4096),
            (BOX, "memory.low", 0),
            (TIER, "memory.low", 0),
        ],
    ),
    "protection grows tier, pod, container, and shrinks container, pod, tier, whatever the order told": (
        2,
        [
            (POD, "memory.min", 0, 4096),
            (BOX, "memory.min", 0, 4096),
            (TIER, "memory.min", 0, 4096),
            (TIER, "memory.low", 8192, 0),
            (POD, "memory.low", 8192, 0),
            (BOX, "memory.low", 8192, 0),
        ],
        [
            (TIER, "memory.min", 4096),
            (POD, "memory.min", 4096),
            (BOX, "memory.min", 4096),
            (BOX, "memory.low", 0),
            (POD, "memory.low", 0),
            (TIER, "memory.low", 0),
        ],
    ),
    "memory.high unlimited is a raise": (
        2,
        [(BOX, "memory.high", -1, 4096), (POD, "memory.high", 4096, -1)],
        [(POD, "memory.high", -1), (BOX, "memory.high", 4096)],
    ),
    "memory with swap is raised first": (
        1,
        [(BOX, "memory_limit_in_bytes", 4096, 8192), (BOX, "memory_swap_limit_in_bytes", 4096, 8192)],
        [(BOX, "memory_swap_limit_in_bytes", 8192), (BOX, "memory_limit_in_bytes", 8192)],
    ),
    "memory with swap is lowered last": (
        1,
        [(BOX, "memory_swap_limit_in_bytes", -1, 4096), (BOX, "memory_limit_in_bytes", -1, 4096)],
        [(BOX, "memory_limit_in_bytes", 4096), (BOX, "memory_swap_limit_in_bytes", 4096)],
    ),
    "unrelated files keep their order": (
        2,
        [(POD, "io.weight", 2, 9), (BOX, "io.weight", 3, 5), ("", "oom_score_adj@7", 0, 5), (POD, "pids.max", 1, 2)],
        [(POD, "io.weight", 9), (BOX, "io.weight", 5), ("", "oom_score_adj@7", 5), (POD, "pids.max", 2)],
    ),
    "what cannot be read is taken for a new group's": (
        1,
        [(BOX, "cpu_quota", None, 5000), (POD, "cpu_quota", None, -1), (POD, "cpuset_cpus", None, "1")],
        [(POD, "cpuset_cpus", "1"), (BOX, "cpu_quota", 5000), (POD, "cpu_quota", -1)],
    ),
    "group identity is on before any cgroup has one, and after core scheduling is off": (
        1,
        [(POD, IDENTITY, 0, 2), ("", GROUP_IDENTITY, 0, 1), ("", CORE_SCHED, 1, 0), (TIER, IDENTITY, 0, -1)],
        [("", CORE_SCHED, 0), ("", GROUP_IDENTITY, 1), (POD, IDENTITY, 2), (TIER, IDENTITY, -1)],
    ),
    "group identity is off after every cgroup has lost its own, and before core scheduling is on": (
        2,
        [("", CORE_SCHED, 0, 1), ("", GROUP_IDENTITY, 1, 0), (POD, IDENTITY, 2, 0), (TIER, IDENTITY, -1, 0)],
        [(POD, IDENTITY, 0), (TIER, IDENTITY, 0), ("", GROUP_IDENTITY, 0), ("", CORE_SCHED, 1)],
    ),
    "identities change while group identity stays on": (
        2,
        [(POD, IDENTITY, 2, -1), ("", GROUP_IDENTITY, 1, 1)],
        [(POD, IDENTITY, -1)],
    ),
    "nothing to do": (1, [(POD, "cpu_quota", 5000, 5000), (POD, "cpuset_cpus", "0", "0")], []),
}


@pytest.mark.parametrize("rule", RULES)
def test_rule(rule: str) -> None:
    version, told, expected = RULES[rule]
    steps = order([Change(Target(cgroup, name), old, new) for cgroup, name, old, new in told], version)
    assert [(step.target.cgroup, step.target.name, step.value) for step in steps] == expected


def test_two_changes_for_one_file_are_refused() -> None:
    change = Change(Target(POD, "cpu_quota"), -1, 5000)
    with pytest.raises(ValueError, match="two changes for cpu_quota of '/kubepods/pod1'"):
        order([change, change], 1)


def test_only_cpu_idle_disturbs_another_file() -> None:
    assert disturbed_by(Target(POD, "cpu.idle")) == (Target(POD, "cpu_shares"),)
    assert disturbed_by(Target(POD, "cpu_shares")) == ()


def test_only_the_switch_of_group_identity_sets_other_files_back() -> None:
    assert reset_by(Target("", GROUP_IDENTITY)) == IDENTITY
    assert reset_by(Target("", CORE_SCHED)) == reset_by(Target(POD, IDENTITY)) == ""


CHAIN = (TIER, f"{TIER}/burstable", POD, BOX, "/kubepods/burstable/pod2", "/kubepods/burstable/pod2/box")
PAGES = st.integers(0, 4).map(lambda pages: pages * 4096)


@settings(max_examples=100, deadline=None)
@given(
    st.fixed_dictionaries({cgroup: st.tuples(PAGES, PAGES) for cgroup in CHAIN}),
    st.permutations(CHAIN),
    st.sampled_from(["memory.min", "memory.low"]),
)
def test_no_cgroup_is_less_protected_on_the_way_than_before_or_after(
    states: dict[str, tuple[int, int]], told: list[str], row: str
) -> None:
    """A tier, its pods and their containers: each is protected only as far as all above it are."""
    kernel = ProtectionModel({cgroup: old for cgroup, (old, _) in states.items()})
    before = {cgroup: kernel.protected(cgroup) for cgroup in CHAIN}
    after = ProtectionModel({cgroup: new for cgroup, (_, new) in states.items()})
    least = {cgroup: min(before[cgroup], after.protected(cgroup)) for cgroup in CHAIN}
    changes = [Change(Target(cgroup, row), *states[cgroup]) for cgroup in told]
    for step in order(changes, 2):
        kernel.values[step.target.cgroup] = int(step.value)
        assert all(kernel.protected(cgroup) >= least[cgroup] for cgroup in CHAIN), step
    assert kernel.values == after.values


def carried_out(scene: Scene) -> KernelModel:
    kernel = scene.model()
    for step in order(scene.changes, scene.machine.version):
        kernel.write(step.target, step.value)
    return kernel


@settings(max_examples=50, deadline=None)
@given(scene=st.sampled_from([1, 2]).flatmap(lambda version: scenes(Machine(version, "0-5", "0-1"))))
def test_no_legal_change_of_any_tree_is_refused(scene: Scene) -> None:
    kernel = carried_out(scene)
    assert {target: kernel.read(target) for target in scene.desired} == scene.desired


@settings(max_examples=25, deadline=None)
@given(scene=st.sampled_from([1, 2]).flatmap(lambda version: scenes(Machine(version, "0-5", "0-1"))))
def test_each_changed_file_ends_with_its_one_final_step(scene: Scene) -> None:
    steps = order(scene.changes, scene.machine.version)
    last = {step.target: step for step in steps}
    assert all(step.final for step in last.values())
    assert all(count == 1 for count in Counter(step.target for step in steps if step.final).values())
    assert order(scene.changes, scene.machine.version) == steps


SWITCHES = st.sampled_from([(0, 0), (1, 0), (0, 1)])
IDENTITIES = st.fixed_dictionaries({cgroup: st.sampled_from([-1, 0, 2]) for cgroup in (TIER, POD, BOX)})


@st.composite
def identity_states(draw: st.DrawFn) -> dict[Target, Value]:
    """Group identity and core scheduling are not both on; without the former no cgroup has an identity."""
    core_sched, group_identity = draw(SWITCHES)
    own = draw(IDENTITIES)
    return {
        Target("", CORE_SCHED): core_sched,
        Target("", GROUP_IDENTITY): group_identity,
        **{Target(cgroup, IDENTITY): value if group_identity else 0 for cgroup, value in own.items()},
    }


@settings(max_examples=100, deadline=None)
@given(current=identity_states(), desired=identity_states(), version=st.sampled_from([1, 2]), data=st.data())
def test_no_change_of_group_identity_is_refused_or_lost(
    current: dict[Target, Value], desired: dict[Target, Value], version: int, data: st.DataObject
) -> None:
    kernel = KernelModel(version, (), "0", "0", current)
    told = data.draw(st.permutations([target for target in desired if current[target] != desired[target]]))
    for step in order([Change(target, current[target], desired[target]) for target in told], version):
        kernel.write(step.target, step.value)
    assert {target: kernel.read(target) for target in desired} == desired
