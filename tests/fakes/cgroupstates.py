"""Any tree of groups in any two legal states: what the order of writes is tested with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import strategies as st

from koord.host.files import Target, Value
from koord.host.order import Change
from koord.model import cpuset
from tests.fakes.kernel import MIN_US, PAGE_BYTES, KernelModel, ancestors, parent

MIB = 1 << 20


@dataclass(frozen=True)
class Machine:
    """What the trees stand on. ``top``: the group that holds them all, with all CPUs and no limit."""

    version: int
    cpus: str
    mems: str
    top: str = ""


@dataclass(frozen=True)
class Scene:
    """A tree that is in one legal state and shall be in another."""

    machine: Machine
    groups: tuple[str, ...]
    populated: frozenset[str]
    current: Mapping[Target, Value]
    desired: Mapping[Target, Value]
    changes: tuple[Change, ...]

    def model(self) -> KernelModel:
        return KernelModel(
            self.machine.version, self.groups, self.machine.cpus, self.machine.mems, self.current, self.populated
        )


@st.composite
def scenes(draw: st.DrawFn, machine: Machine, max_groups: int = 6, with_processes: bool = True) -> Scene:
    groups = draw(_groups(machine.top, max_groups))
    populated = draw(st.frozensets(st.sampled_from(groups))) if with_processes else frozenset()
    current = _in_force(draw(_states(machine, groups, populated)))
    desired = draw(_states(machine, groups, populated))
    told = [
        Change(target, current[target], wanted)
        for target, wanted in desired.items()
        if current[target] != wanted or target.name in ("cpu.idle", "cpu_shares") or draw(st.booleans())
    ]
    return Scene(machine, groups, populated, current, _in_force(desired), tuple(draw(st.permutations(told))))


@st.composite
def _groups(draw: st.DrawFn, top: str, most: int) -> tuple[str, ...]:
    groups: list[str] = []
    for number in range(draw(st.integers(1, most))):
        groups.append(f"{draw(st.sampled_from([top, *groups]))}/g{number}")
    return tuple(groups)


@st.composite
def _states(
    draw: st.DrawFn, machine: Machine, groups: tuple[str, ...], populated: frozenset[str]
) -> dict[Target, Value]:
    """A legal state. Shares of an idle group are the wanted ones, not the 3 that its file reads."""
    state: dict[Target, Value] = {}
    for cgroup in groups:
        state |= draw(_bandwidth(machine.version, cgroup, state))
        state[Target(cgroup, "cpu.idle")] = draw(st.integers(0, 1))
        state[Target(cgroup, "cpu_shares")] = draw(st.sampled_from([2, 3, 1024]) | st.integers(2, 262_144))
        for name, everything in (("cpuset_cpus", machine.cpus), ("cpuset_mems", machine.mems)):
            above = state.get(Target(parent(cgroup), name), everything) if machine.version == 1 else everything
            state[Target(cgroup, name)] = draw(_subsets(str(above), may_be_empty=not populated))
        limit = draw(_sizes(16 * MIB))
        state[Target(cgroup, "memory_limit_in_bytes")] = limit
        state[Target(cgroup, "memory_swap_limit_in_bytes")] = -1 if limit == -1 else draw(_sizes(limit))
    return state


@st.composite
def _bandwidth(draw: st.DrawFn, version: int, cgroup: str, above: Mapping[Target, Value]) -> dict[Target, Value]:
    """Quota, period and burst, often exactly at what the nearest limited ancestor leaves."""
    period = draw(st.sampled_from([10_000, 100_000, 1_000_000]) | st.integers(1_000, 1_000_000))
    most = 8 * period
    limited = next((one for one in ancestors(cgroup) if above.get(Target(one, "cpu_quota"), -1) != -1), None)
    if version == 1 and limited is not None:
        quota, over = (int(above[Target(limited, name)]) for name in ("cpu_quota", "cpu_period"))
        most = (((quota << 20) // over + 1) * period - 1) >> 20
    quota = draw(st.sampled_from([-1, most]) | st.integers(MIN_US, most)) if most >= MIN_US else -1
    largest = 2 * period if quota == -1 else quota
    burst = draw(st.sampled_from([0, largest]) | st.integers(0, largest))
    return {
        Target(cgroup, "cpu_quota"): quota,
        Target(cgroup, "cpu_period"): period,
        Target(cgroup, "cpu.max.burst"): burst,
    }


@st.composite
def _subsets(draw: st.DrawFn, text: str, may_be_empty: bool) -> str:
    members = list(cpuset.parse(text))
    least = 0 if may_be_empty or not members else 1
    return str(cpuset.CPUSet.of(draw(st.sets(st.sampled_from(members), min_size=least)) if members else []))


def _sizes(least: int) -> st.SearchStrategy[int]:
    return (
        st.just(-1)
        | st.sampled_from([least, 64 * MIB, 1 << 40]).map(lambda size: max(size, least))
        | st.integers(least // PAGE_BYTES, (1 << 40) // PAGE_BYTES).map(lambda pages: pages * PAGE_BYTES)
    )


def _in_force(state: Mapping[Target, Value]) -> dict[Target, Value]:
    """The state as it reads: the shares of an idle group are 3."""
    return {
        target: 3 if target.name == "cpu_shares" and state[Target(target.cgroup, "cpu.idle")] == 1 else value
        for target, value in state.items()
    }
