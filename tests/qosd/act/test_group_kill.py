"""``memory.oom.group`` of a systemd unit: systemd makes it 0 whenever it writes the unit, and that is no contest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from koord.host.files import Target
from koord.host.restoring import restore
from koord.host.systemd_units import SyncOutcome, Units
from qosd.act.ownership import Ownership
from qosd.decide.decision import Stage
from tests.host.fakesystemd import FakeSystemd
from tests.qosd.act.rig import Rig, wants

SLICE, SCOPE = "kubepods-pod1.slice", "cri-containerd-01.scope"
POD = f"/kubepods.slice/{SLICE}"
BOX = f"{POD}/{SCOPE}"
PLAIN = "/kubepods/pod1/01"
GROUP, HIGH = "memory.oom.group", "memory.high"
OWNERS = {"hooks": Ownership(Stage.SPEC, frozenset({GROUP, HIGH}))}


class NodeUnits(Units):
    """Those of ``node``, whichever undo record it has open."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def tell(self, targets: Iterable[Target]) -> dict[Target, SyncOutcome]:
        node = self._node
        return Units(node.writer, node.undo, node.systemd, node.systemd.run).tell(targets)


class Node(Rig):
    """A pod's slice and its container's scope, with a systemd that writes both when it is told anything."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, 2, NodeUnits(self), OWNERS)
        for cgroup in (POD, BOX, PLAIN):
            self.put(Target(cgroup, GROUP), "0\n")
            self.put(Target(cgroup, HIGH), "max\n")
        directories = {SLICE: self.path(Target(POD, GROUP)).parent, SCOPE: self.path(Target(BOX, GROUP)).parent}
        self.systemd = FakeSystemd(directories, root / "run")

    def reload(self) -> None:
        self.systemd.reload()
        self.see(*(Target(cgroup, GROUP) for cgroup in (POD, BOX)))

    def want(self, *cgroups: str) -> None:
        self.say("hooks", *((Target(cgroup, GROUP), wants(1)) for cgroup in cgroups))

    def groups(self) -> list[object]:
        return [self.holds(Target(cgroup, GROUP)) for cgroup in (POD, BOX)]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_reload_each_second_for_a_minute_is_no_contest(node: Node) -> None:
    node.want(POD, BOX)
    node.tick()
    for _ in range(60):
        assert node.groups() == [1, 1], "put back at once"
        node.reload()
        assert node.groups() == [0, 0]
        node.tick()
    assert node.groups() == [1, 1]
    assert (node.actuator.files.report.contested, node.retried()) == ({}, [])
    assert Counter(node.journal.results()) == {"done": 2 * 61}, "and nobody else's write"
    node.want()
    node.tick()
    assert (node.groups(), node.undo.entries) == ([0, 0], ())


def test_what_systemd_is_told_of_the_unit_meanwhile_takes_nothing_away(node: Node) -> None:
    node.want(POD, BOX)
    node.tick()
    node.say("hooks", *((Target(cgroup, GROUP), wants(1)) for cgroup in (POD, BOX)), (Target(BOX, HIGH), wants(8192)))
    node.tick()
    assert (node.groups(), node.holds(Target(BOX, HIGH))) == ([1, 1], 8192)


def test_kubelets_own_value_is_the_base_until_systemd_has_lost_it(node: Node) -> None:
    node.put(Target(BOX, GROUP), "1\n")
    node.want(BOX)
    node.tick()
    node.want()
    node.tick()
    assert node.holds(Target(BOX, GROUP)) == 1
    node.want(BOX)
    node.tick()
    node.reload()
    node.tick()
    node.want()
    node.tick()
    assert node.holds(Target(BOX, GROUP)) == 0, "what systemd wrote last"


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_reload_while_nobody_runs(node: Node, is_restored: bool) -> None:
    node.want(POD, BOX)
    node.tick()
    node.systemd.reload()
    if is_restored:
        restore(node.writer, node.undo)
        assert (node.groups(), node.undo.entries) == ([0, 0], ())
        return
    node.crash()
    node.tick()
    assert node.groups() == [1, 1]
    node.want()
    node.tick()
    assert (node.groups(), node.undo.entries) == ([0, 0], ())


def test_of_a_cgroup_that_is_no_unit_another_writer_is_another_writer(node: Node) -> None:
    target = Target(PLAIN, GROUP)
    node.want(PLAIN)
    node.tick()
    for _ in range(3):
        node.put(target, "0\n")
        node.see(target)
        node.tick()
    assert list(node.actuator.files.report.contested) == [target]
