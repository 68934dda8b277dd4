"""The kernel itself: it refuses nothing that is ordered, and the model of it that the unit tests use is right."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from integration.host.groups import Groups
from koord.host.files import Target, Value
from koord.host.order import order
from koord.model import cpuset
from tests.fakes.cgroupstates import MIB, Machine, Scene, scenes
from tests.fakes.kernel import NEW_GROUP, KernelModel

SLOW = settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
NUMBERS: Mapping[str, list[Value]] = {
    "cpu_quota": [-5, -1, 0, 999, 1000, 50_000, 100_000, 100_001, 200_000],
    "cpu_period": [999, 1000, 50_000, 100_000, 200_000, 1_000_000, 1_000_001],
    "cpu.max.burst": [0, 999, 1000, 50_000, 200_000],
    "cpu.idle": [-1, 0, 1, 2],
    "cpu_shares": [0, 1, 2, 1024, 262_144, 300_000],
    "memory_limit_in_bytes": [-1, 16 * MIB, 16 * MIB + 1, 64 * MIB],
    "memory_swap_limit_in_bytes": [-1, 16 * MIB, 64 * MIB - 1, 64 * MIB],
}
Write = tuple[Target, Value]


@pytest.fixture(scope="module")
def real() -> Groups:
    return Groups(f"/koord-test-{os.getpid()}")


@SLOW
@given(data=st.data())
def test_the_kernel_refuses_no_legal_change_that_is_ordered(real: Groups, data: st.DataObject) -> None:
    scene = data.draw(scenes(Machine(1, real.cpus, real.mems, real.top), with_processes=False))
    with real.made(*scene.groups):
        for target, value in scene.current.items():
            _prepare(real, target, value, scene.current)
        assert _held(real, scene) == scene.current
        for step in order(scene.changes, 1):
            real.writer.write(step.target, step.value)
        assert _held(real, scene) == scene.desired


def _prepare(real: Groups, target: Target, value: Value, state: Mapping[Target, Value]) -> None:
    """Into a new group, which has no limits yet. ``state`` comes parents first; a period precedes its quota."""
    if target.name == "cpu_quota":
        period = Target(target.cgroup, "cpu_period")
        real.put(period, state[period])
    if target.name != "cpu_shares" or state[Target(target.cgroup, "cpu.idle")] == 0:
        real.put(target, value)


def _held(real: Groups, scene: Scene) -> dict[Target, Value | None]:
    return {target: real.writer.read(target) for target in scene.desired}


@SLOW
@given(data=st.data())
def test_the_model_accepts_and_refuses_as_the_kernel_does(real: Groups, data: st.DataObject) -> None:
    tree = tuple(f"{real.top}{cgroup}" for cgroup in ("/a", "/a/b", "/a/b/c", "/a/d"))
    model = KernelModel(1, tree, real.cpus, real.mems)
    with real.made(*tree):
        for target, value in data.draw(_writes(real, tree)):
            assert _attempt(real, target, value) == _attempt(model, target, value), (target, value)
            for name in NEW_GROUP:
                held = Target(target.cgroup, name)
                assert real.writer.read(held) == model.read(held), (target, value)


def _writes(real: Groups, tree: tuple[str, ...]) -> st.SearchStrategy[list[Write]]:
    cpus = [str(cpu) for cpu in list(cpuset.parse(real.cpus))[:3]]
    values = {
        **{name: st.sampled_from(numbers) for name, numbers in NUMBERS.items()},
        "cpuset_cpus": st.sets(st.sampled_from(cpus)).map(lambda chosen: ",".join(sorted(chosen))),
        "cpuset_mems": st.sampled_from(["", real.mems]),
    }
    targets = st.builds(Target, st.sampled_from(tree), st.sampled_from(sorted(values)))
    return st.lists(
        targets.flatmap(lambda target: st.tuples(st.just(target), values[target.name])), min_size=20, max_size=60
    )


def _attempt(kernel: Groups | KernelModel, target: Target, value: Value) -> int:
    """errno; 0 if accepted."""
    try:
        if isinstance(kernel, Groups):
            kernel.put(target, value)
        else:
            kernel.write(target, value)
    except OSError as error:
        return error.errno or -1
    return 0
