"""Of which pods' files it is certain what kubelet writes there."""

from __future__ import annotations

import dataclasses
import errno
import mmap
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from koord.host.files import Target, Value
from koord.host.undo import UndoError, UndoRecord
from koord.host.writer import Writer
from koord.model.podtotal import Role
from koord.model.qos import KubeQoS
from koord.model.quantity import Bytes, MilliCPU
from koord.model.requirements import ContainerAmounts
from qosd.act.fileactor import FileActor
from qosd.act.leftovers import LOOK_FOR_S, NOTHING_SAID, KubeletSays, Leftovers
from qosd.decide.runner import Decisions
from qosd.model.pod import Resources, SpecContainer
from qosd.model.policy import CPUManagerPolicy
from qosd.model.snapshot import PodView
from tests.fakes.clock import S
from tests.qosd.act.rig import Recorded
from tests.qosd.contexts import policy
from tests.qosd.machine import Machine
from tests.qosd.podviews import on_v1, view

TIERS = {
    KubeQoS.GUARANTEED: "/kubepods",
    KubeQoS.BURSTABLE: "/kubepods/burstable",
    KubeQoS.BEST_EFFORT: "/kubepods/besteffort",
}
MIB = 1 << 20
TOLD = Resources(cpu_period_us=100_000, cpu_quota_us=50_000, cpu_shares=256, memory_limit_bytes=64 * MIB)
SPEC = ContainerAmounts("main", MilliCPU(250), MilliCPU(500), Bytes(0), Bytes(64 * MIB))
RESIZED = ContainerAmounts("main", MilliCPU(250), MilliCPU(800), Bytes(0), Bytes(64 * MIB))
TINY_TOLD = Resources(cpu_period_us=10_000, cpu_quota_us=1_000, cpu_shares=256, memory_limit_bytes=64 * MIB)
TINY_SPEC = ContainerAmounts("main", MilliCPU(250), MilliCPU(10), Bytes(0), Bytes(64 * MIB))
NO_QUOTA = Resources(cpu_shares=256, memory_limit_bytes=64 * MIB)


def pod(told: Resources, spec: ContainerAmounts | None, tier: str = "Burstable") -> PodView:
    containers = None if spec is None else (SpecContainer("main", Role.MAIN, spec),)
    request = None if spec is None else MilliCPU(250)
    made = view("web", "LS", tier, container_requested=told, requested=told, spec=containers)
    return replace(made, cpu_request_milli=request, phase="" if spec is None else "Running")


def with_pod_quota(one: PodView, quota_us: int) -> PodView:
    """With what kubelet tells of the pod's limit, which is of the kernel's period."""
    requested = Resources(cpu_period_us=100_000, cpu_quota_us=quota_us, memory_limit_bytes=64 * MIB)
    return replace(one, context=replace(one.context, request=replace(one.context.request, requested=requested)))


@pytest.fixture
def undo(tmp_path: Path) -> Iterator[UndoRecord]:
    with UndoRecord(tmp_path / "undo.jsonl", "6f1d") as record:
        yield record


def bases(machine: Machine, undo: UndoRecord, one: PodView, name: str) -> tuple[Value | None, Value | None]:
    """Of the pod's own file and of its container's, both of which hold 7."""
    left = Leftovers(Writer(machine.locator().tree), undo)
    left.follow((one,), TIERS, on_v1(policy()), NOTHING_SAID, 0)
    return left.base(Target(one.cgroup, name), 7), left.base(Target(f"{one.cgroup}/main", name), 7)


@pytest.mark.parametrize(
    ("one", "quota", "shares"),
    [
        (pod(TOLD, SPEC), (50_000, 50_000), (256, 256)),
        (with_pod_quota(pod(TINY_TOLD, TINY_SPEC), 1_000), (1_000, 1_000), (256, 256)),
        (pod(TOLD, None), (None, 50_000), (None, 256)),
        (pod(TOLD, RESIZED), (None, None), (None, None)),
        (pod(NO_QUOTA, SPEC), (None, None), (None, None)),
        (pod(Resources(), SPEC), (None, None), (None, None)),
        (pod(Resources(), None), (None, None), (None, None)),
        (pod(Resources(), None, "BestEffort"), (-1, -1), (2, 2)),
        (pod(TOLD, None, "BestEffort"), (-1, -1), (2, 2)),
    ],
    ids=[
        "both tell the same", "the least quota of a short period",
        "the runtime alone tells", "a resize", "kubelet, or an agent, asked for no quota",
        "kubelet alone tells", "nobody tells", "best-effort", "best-effort, edited by another agent",
    ],
)  # fmt: skip
def test_what_is_certain(
    tmp_path: Path,
    undo: UndoRecord,
    one: PodView,
    quota: tuple[Value | None, Value | None],
    shares: tuple[Value | None, Value | None],
) -> None:
    machine = Machine(tmp_path)
    machine.kubepods()
    assert (bases(machine, undo, one, "cpu_quota"), bases(machine, undo, one, "cpu_shares")) == (quota, shares)


@pytest.mark.parametrize(("found", "base"), [("0-1", ""), ("0-3", None), ("", None)])
def test_a_cpu_set_of_all_cpus_is_as_good_as_kubelets_on_v2(
    tmp_path: Path, undo: UndoRecord, found: str, base: str | None
) -> None:
    """Whether it is found in the file or recorded as its base."""
    machine = Machine(tmp_path, 2)
    machine.kubepods()
    left, one = Leftovers(Writer(machine.locator().tree), undo), pod(TOLD, SPEC)
    left.follow((one,), TIERS, policy(), NOTHING_SAID, 0)
    assert left.base(Target(f"{one.cgroup}/main", "cpuset_cpus"), found) == base


@pytest.mark.parametrize(("found", "base"), [(-1, None), (150_000, 50_000)])
def test_a_limit_that_is_missing_is_no_leftover(tmp_path: Path, undo: UndoRecord, found: int, base: int | None) -> None:
    """A runtime leaves it out where an annotation says so."""
    machine, one = Machine(tmp_path), pod(TOLD, SPEC)
    machine.kubepods()
    left = Leftovers(Writer(machine.locator().tree), undo)
    left.follow((one,), TIERS, on_v1(policy()), NOTHING_SAID, 0)
    assert [left.base(Target(at, "cpu_quota"), found) for at in (one.cgroup, f"{one.cgroup}/main")] == [base, base]


@pytest.mark.parametrize(
    ("tier", "told", "requested_cpus", "says", "base"),
    [
        ("Burstable", TOLD, "", "", ""),
        ("Burstable", TOLD, "2-3", "", None),
        ("Burstable", TOLD, "none", "", None),
        ("Burstable", Resources(), "", "", None),
        ("BestEffort", TOLD, "2-3", "", ""),
        ("Burstable", TOLD, "0,1", "0-1", "0-1"),
        ("Burstable", TOLD, "2-3", "0-1", None),
        ("BestEffort", TOLD, "2-3", "0-1", "0-1"),
    ],
    ids=[
        "nobody asked", "an NRI plugin", "no CPU set", "nobody tells", "best-effort", "kubelet's CPU manager",
        "another than that", "best-effort beside a CPU manager",
    ],
)  # fmt: skip
def test_cpus_that_somebody_asked_the_runtime_for_are_no_leftover(
    tmp_path: Path, undo: UndoRecord, tier: str, told: Resources, requested_cpus: str, says: str, base: str | None
) -> None:
    """``says``: of kubelet's static CPU manager; "" = there is none."""
    machine, one = Machine(tmp_path, 2), pod(told, SPEC, tier)
    machine.kubepods()
    one = replace(one, containers=tuple(replace(each, requested_cpus=requested_cpus) for each in one.containers))
    manager = CPUManagerPolicy.STATIC if says else CPUManagerPolicy.NONE
    by = policy()
    by = dataclasses.replace(by, node=dataclasses.replace(by.node, cpu_manager_policy=manager))
    left = Leftovers(Writer(machine.locator().tree), undo)
    left.follow((one,), TIERS, by, KubeletSays(says), 0)
    assert left.base(Target(f"{one.cgroup}/main", "cpuset_cpus"), "1") == base


@pytest.mark.parametrize("is_ours", [False, True])
def test_what_an_earlier_run_of_ours_wrote_is_nobody_elses(tmp_path: Path, undo: UndoRecord, is_ours: bool) -> None:
    machine, low = Machine(tmp_path, 2), Target(TIERS[KubeQoS.BURSTABLE], "memory.low")
    machine.kubepods()
    writer, by = Writer(machine.locator().tree), policy()
    if is_ours:
        reading = writer.look(low)
        assert reading is not None
        undo.remember(low, reading, 64 * MIB)
    writer.write(low, 64 * MIB)
    left = Leftovers(writer, undo)
    left.follow((), TIERS, dataclasses.replace(by, host=dataclasses.replace(by.host, files=None)), NOTHING_SAID, 0)
    assert bool(left.kept) == (not is_ours)


def test_each_file_is_looked_at_once_and_only_at_first(tmp_path: Path, undo: UndoRecord) -> None:
    machine, one = Machine(tmp_path), pod(TOLD, SPEC)
    machine.kubepods()
    left, by = Leftovers(Writer(machine.locator().tree), undo), on_v1(policy())
    left.follow((), TIERS, by, NOTHING_SAID, 0)
    tiers = set(left.due)
    left.done(left.due)
    left.follow((one,), TIERS, by, NOTHING_SAID, 10**9)
    assert left.due and not tiers & set(left.due)
    left.done(left.due)
    left.follow((one, pod(TOLD, SPEC, "BestEffort")), TIERS, by, NOTHING_SAID, (LOOK_FOR_S + 1) * 10**9)
    assert left.due == ()
    left.follow((one,), TIERS, by, KubeletSays(has_memory_qos=False), (LOOK_FOR_S + 2) * 10**9)
    assert not left.due, "on cgroup v1 nothing of it depends on kubelet's word"


def test_what_kubelet_tells_late_counts_all_the_same(tmp_path: Path, undo: UndoRecord) -> None:
    machine = Machine(tmp_path, 2)
    machine.kubepods()
    left, by = Leftovers(Writer(machine.locator().tree), undo), policy()
    by = dataclasses.replace(by, host=dataclasses.replace(by.host, files=None))
    left.follow((), TIERS, by, NOTHING_SAID, 0)
    left.done(left.due)
    left.follow((), TIERS, by, KubeletSays(has_memory_qos=False), (LOOK_FOR_S + 1) * 10**9)
    assert {target.name for target in left.due} == {"memory.min", "memory.low"}


def test_what_kubelet_tells_later_starts_no_search_of_new_pods(tmp_path: Path, undo: UndoRecord) -> None:
    """Its CPU manager tells another thing with each allocation."""
    machine = Machine(tmp_path, 2)
    machine.kubepods()
    left, by = Leftovers(Writer(machine.locator().tree), undo), policy()
    early, late = view("early", "BE", "BestEffort"), view("late", "BE", "BestEffort")
    left.follow((early,), TIERS, by, KubeletSays("0-3"), 0)
    left.follow((early, late), TIERS, by, KubeletSays("0-2"), (LOOK_FOR_S + 1) * 10**9)
    assert {target.cgroup for target in left.due} - set(TIERS.values()) == {early.cgroup, f"{early.cgroup}/main"}
    left.done(left.due)
    for n, says in enumerate(("0-3", "0-2", "0-3")):
        left.follow(
            (view(f"later-{n}", "BE", "BestEffort"),), TIERS, by, KubeletSays(says), (LOOK_FOR_S + 2 + n) * 10**9
        )
        assert left.due == ()


def test_of_pods_that_are_gone_nothing_is_kept(tmp_path: Path, undo: UndoRecord) -> None:
    """One that comes back is looked at anew, like any that comes."""
    machine = Machine(tmp_path, 2)
    machine.kubepods()
    left, by, one = Leftovers(Writer(machine.locator().tree), undo), policy(), view("job", "BE", "BestEffort")
    left.follow((one,), TIERS, by, NOTHING_SAID, 0)
    of_pod = {target for target in left.due if one.cgroup in target.cgroup}
    left.done(left.due)
    left.follow((), TIERS, by, NOTHING_SAID, 10**9)
    left.follow((one,), TIERS, by, NOTHING_SAID, 2 * 10**9)
    assert of_pod and set(left.due) == of_pod


def test_what_cannot_be_noted_is_tried_again_ever_later_and_told_once(
    tmp_path: Path, undo: UndoRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a full disk the journal has one row for each attempt, and none of a takeover before it happened."""
    machine, quota = Machine(tmp_path, 2), Target(TIERS[KubeQoS.BEST_EFFORT], "cpu_quota")
    machine.kubepods()
    writer, journal, by = Writer(machine.locator().tree), Recorded(), policy()
    writer.write(quota, 50_000)
    actor = FileActor(writer, undo, journal, {}, mmap.PAGESIZE, None)

    def results(seconds: range) -> list[str]:
        journal.entries.clear()
        for second in seconds:
            actor.leftovers.follow((), TIERS, by, NOTHING_SAID, second * S)
            decisions = Decisions(second, second * S, second * S, ())
            actor.apply(decisions, actor.plan(decisions))
        return journal.results()

    def full(*_: object) -> None:
        raise UndoError(errno.ENOSPC, "undo record: No space left on device", "/run/undo")

    with monkeypatch.context() as patch:
        patch.setattr(undo, "rebase", full)
        assert results(range(1, 64)) == ["refused"] * 6  # after 1, 2, 4, 8, 16 and 32 seconds
        assert results(range(64, 3664)) == ["refused"] * 60
    assert results(range(3664, 3725)) == ["leftover", "done"]
    assert writer.read(quota) == -1
