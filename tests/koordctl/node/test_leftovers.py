"""What koordctl doctor finds of another agent's values, on a node on which koord-qosd does not run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from koord.host.files import Target
from koord.host.layout import tiers_of
from koord.host.undo import UndoRecord
from koord.host.writer import Writer
from koordctl.node.files import NodeFiles
from koordctl.node.others import leftovers
from tests.fakes.cgroups import Cgroups
from tests.qosd.machine import Machine

TIER, POD = "/kubepods/besteffort", "/kubepods/besteffort/pod1"
QUOTA = {1: {"cpu.cfs_quota_us": "118100"}, 2: {"cpu.max": "118100 100000"}}
CPUS = {1: {"cpuset.cpus": "1"}, 2: {"cpuset.cpus": "1"}}
SHARES = {1: {"cpu.shares": "1024"}, 2: {"cpu.weight": "39"}}
NOTHING: Mapping[int, Mapping[str, str]] = {1: {}, 2: {}}


@pytest.fixture(params=[1, 2])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    made = Machine(tmp_path, request.param)
    made.kubepods()
    made.cgroups.make(f"{POD}/main")
    return made


def found(machine: Machine, has_memory_qos: bool | None = False) -> tuple[str, ...]:
    return leftovers(NodeFiles(machine.root), machine.locator().tree, tiers_of("/kubepods"), has_memory_qos)


@pytest.mark.parametrize(
    ("cgroup", "texts", "names"),
    [
        (TIER, NOTHING, ()),
        (TIER, QUOTA, ("cpu.cfs_quota_us holds 118100, and kubelet writes -1", "cpu.max holds 118100, and kubelet")),
        (TIER, CPUS, ("cpuset.cpus holds 1, and kubelet writes 0-3", "cpuset.cpus holds 1, and kubelet writes ")),
        (POD, SHARES, ("cpu.shares holds 1024, and kubelet writes 2", "cpu.weight holds 999, and kubelet writes 2")),
        (f"{POD}/main", QUOTA, ("cpu.cfs_quota_us holds 118100", "cpu.max holds 118100")),
    ],
    ids=["nothing", "a tier's quota", "a tier's CPUs", "a pod's shares", "a container's quota"],
)
def test_what_the_files_hold(
    machine: Machine, cgroup: str, texts: Mapping[int, Mapping[str, str]], names: tuple[str, ...]
) -> None:
    machine.cgroups.put(cgroup, texts[machine.version])
    said = found(machine)
    assert len(said) == bool(names)
    assert all(f"{cgroup}/{names[machine.version - 1]}" in sentence for sentence in said)


def test_what_the_record_speaks_of_is_koords(machine: Machine) -> None:
    target, writer = Target(TIER, "cpu_quota"), Writer(machine.locator().tree)
    (machine.root / "run/koord").mkdir(parents=True)
    with UndoRecord(machine.root / "run/koord/undo.jsonl", "6f1d") as record:
        reading = writer.look(target)
        assert reading is not None
        record.remember(target, reading, 118_100)
    writer.write(target, 118_100)
    assert found(machine) == ()


@pytest.mark.parametrize(("has_memory_qos", "count"), [(False, 1), (True, 0), (None, 0)])
def test_protected_memory_may_be_kubelets(tmp_path: Path, has_memory_qos: bool | None, count: int) -> None:
    machine = Machine(tmp_path, 2)
    machine.kubepods()
    machine.cgroups.put(TIER, {"memory.min": "4096"})
    assert len(found(machine, has_memory_qos)) == count


def test_a_node_without_kubelets_cgroups(tmp_path: Path) -> None:
    Cgroups(tmp_path / "cgroup").make("")
    machine = Machine(tmp_path)
    assert leftovers(NodeFiles(machine.root), machine.locator().tree, {}, False) == ()
