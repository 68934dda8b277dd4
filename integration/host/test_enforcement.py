"""Enforced one level up on the kernel's own files: the kernel takes the pod's bound, or the reason names its rule."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from integration.host.groups import Groups
from koord.host.files import Target, Value
from koord.host.undo import UndoRecord
from koord.model.podtotal import Role
from koord.model.quantity import Bytes, MilliCPU
from koord.model.requirements import ContainerAmounts
from qosd.act.actuator import Actuator
from qosd.act.plan import TickResult
from qosd.decide.decision import Decision, Opinion, Stage
from qosd.decide.runner import Decisions, StrategyResult, StrategyStatus
from qosd.model.pod import Resources, SpecContainer
from qosd.model.snapshot import NodeSnapshot
from qosd.strategies.enforcement import MEMORY, QUOTA, Enforcement
from tests.qosd.act.rig import Recorded, wants
from tests.qosd.contexts import V2, policy
from tests.qosd.podviews import RUNNING, on_v1, snapshot, view
from tests.support.opened import opened

MIB = 1 << 20
S = 1_000_000_000
LIMITS = {QUOTA: 20_000, MEMORY: 64 * MIB}
"""What kubelet requested of each container."""
WANTED = {QUOTA: 10_000, MEMORY: 32 * MIB}
AMOUNTS = ContainerAmounts(cpu_limit=MilliCPU(200), memory_limit=Bytes(64 * MIB))


class Node:
    """A pod of two containers as kubelet and the runtime leave it, and the strategies ``hooks`` and ``enforcement``."""

    def __init__(self, groups: Groups, directory: Path) -> None:
        self.groups = groups
        self.own, self.main, self.side = (f"{groups.top}/pod{name}" for name in ("", "/main", "/side"))
        for name, limit in LIMITS.items():
            self.put(Target(self.own, name), 2 * limit)
            for container in (self.main, self.side):
                self.put(Target(container, name), limit)
        self.pod = view(
            "p",
            "LS",
            containers=[("main", RUNNING), ("side", RUNNING)],
            container_requested=Resources(cpu_quota_us=LIMITS[QUOTA], memory_limit_bytes=LIMITS[MEMORY]),
            spec=tuple(SpecContainer(name, Role.MAIN, AMOUNTS) for name in ("main", "side")),
        )
        containers = [structs.replace(each, cgroup=f"{self.own}/{each.name or 'none'}") for each in self.pod.containers]
        self.pod = structs.replace(self.pod, cgroup=self.own, containers=tuple(containers))
        self.undo = opened(UndoRecord(directory / "undo", "boot"))
        self.actuator = Actuator(groups.writer, self.undo, Recorded())
        self.opinions: dict[Target, Opinion] = {}
        self.now_ns = S
        self.sentence = ""

    def put(self, target: Target, value: Value) -> None:
        self.groups.put(target, value)

    def holds(self, target: Target) -> Value | None:
        return self.groups.writer.read(target)

    def seen(self) -> NodeSnapshot:
        return structs.replace(snapshot(on_v1(policy(V2)), self.pod), files=self.actuator.files.report.states)

    def tick(self) -> TickResult:
        self.now_ns += S
        decision, _ = Enforcement().decide(self.seen(), None)
        self.sentence = decision.sentence
        results = (
            StrategyResult("hooks", Stage.SPEC, StrategyStatus.ACTIVE, Decision("", self.opinions)),
            StrategyResult("enforcement", Stage.ENFORCEMENT, StrategyStatus.ACTIVE, decision),
        )
        return self.actuator.tick(Decisions(0, self.now_ns, self.now_ns, results))

    def fight(self, target: Target, foreign: Value) -> None:
        """Somebody insists on ``foreign`` until the file is left to them."""
        self.opinions = {target: wants(WANTED[target.name])}
        for _ in range(3):
            self.tick()
            self.put(target, foreign)
            self.actuator.files.touched(str(self.groups.file(target)))
        self.tick()
        assert list(self.actuator.files.report.contested) == [target]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    groups = Groups(f"/koord-test-{os.getpid()}")
    with groups.made(*(f"{groups.top}/{name}" for name in ("pod", "pod/main", "pod/side"))):
        node = Node(groups, tmp_path)
        yield node
        node.undo.close()


@pytest.mark.parametrize(
    ("name", "foreign"), [(QUOTA, -1), (QUOTA, 30_000), (MEMORY, -1), (MEMORY, 96 * MIB), (MEMORY, 1 << 40)]
)
def test_the_pod_is_bounded_and_gets_its_own_back(node: Node, name: str, foreign: int) -> None:
    main, own = Target(node.main, name), Target(node.own, name)
    node.fight(main, foreign)
    result = node.tick()
    assert set(result.results) == {"done"}
    assert node.holds(own) == WANTED[name] + LIMITS[name]
    assert node.holds(main) == foreign
    node.opinions = {}
    node.tick(), node.tick()
    assert (node.holds(own), node.actuator.files.report.owned) == (2 * LIMITS[name], {})


def test_a_quota_that_v1_would_refuse_is_not_tried_and_said(node: Node) -> None:
    main, own = Target(node.main, QUOTA), Target(node.own, QUOTA)
    node.fight(main, 40_000)
    result = node.tick()
    assert (result.results, node.holds(own)) == ((), 40_000)
    assert "cgroup v1 takes no quota of 30000 above one of 40000, as main has it" in node.sentence
    with pytest.raises(OSError, match="Invalid argument"):
        node.put(own, 30_000)
