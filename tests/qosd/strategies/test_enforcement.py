"""What a contested file is bounded by one level up, and when it cannot be; and that it holds through act and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from koord.host.files import Target, Value
from koord.host.reconcile.state import FileState, Phase
from koord.host.reconcile.step import FORGIVEN_AFTER_NS
from koord.model.podtotal import Role
from koord.model.quantity import Bytes, MilliCPU
from koord.model.requirements import ContainerAmounts
from qosd.act.ownership import OWNERS
from qosd.decide.decision import Decision, Opinion
from qosd.decide.runner import StrategyResult, StrategyStatus
from qosd.model.pod import OVERHEAD, Resources, SpecContainer
from qosd.model.snapshot import ContainerView, NodeSnapshot, PodView
from qosd.strategies.enforcement import CPUS, MEMORY, QUOTA, Enforcement, NotEnforced, bound_above
from qosd.strategies.reconciler import HookReconciler
from tests.qosd.act.rig import Rig, wants
from tests.qosd.contexts import V2, policy
from tests.qosd.podviews import EXITED, RUNNING, on_v1, snapshot, view

ON_V2 = policy(V2)
ON_V1 = on_v1(ON_V2)
LIMITED = Resources(cpu_quota_us=20_000, memory_limit_bytes=1 << 20)


def spec(name: str, cpu: int = 0, memory: int = 0, role: Role = Role.MAIN) -> SpecContainer:
    amounts = ContainerAmounts(name, cpu_limit=MilliCPU(cpu) or None, memory_limit=Bytes(memory) or None)
    return SpecContainer(name, role, amounts)


def of(pod: PodView, container: str, name: str) -> Target:
    return Target(pod.cgroup if not container else f"{pod.cgroup}/{container}", name)


def seen(
    pod: PodView, *states: tuple[Target, Phase, Value], is_v1: bool = False, foreign: Value = 90_000
) -> NodeSnapshot:
    files = {target: FileState(phase, base=foreign, written=value) for target, phase, value in states}
    return structs.replace(snapshot(ON_V1 if is_v1 else ON_V2, pod), files=files)


TWO = view(
    "p",
    "LS",
    containers=[("main", RUNNING), ("side", RUNNING)],
    container_requested=LIMITED,
    spec=(spec("main", 200, 1 << 20), spec("side", 200, 1 << 20)),
)
RESTARTS = view(
    "p",
    "LS",
    containers=[("main", RUNNING), ("side", EXITED)],
    container_requested=LIMITED,
    spec=(spec("main", 200, 1 << 20), spec("side", 300, 3 << 20)),
)
WITH_INIT = view(
    "p",
    "LS",
    containers=[("main", RUNNING)],
    container_requested=LIMITED,
    spec=(spec("mesh", 100, role=Role.SIDECAR), spec("load", 500, role=Role.INIT), spec("main", 200)),
)
WITH_OVERHEAD = view(
    "p",
    "LS",
    containers=[("main", RUNNING)],
    container_requested=LIMITED,
    spec=(spec(OVERHEAD, 100, role=Role.SIDECAR), spec("main", 200, 1 << 20)),
)
UNLISTED = view("p", "LS", containers=[("main", RUNNING)], container_requested=LIMITED)
DEBUGGED = view(
    "p",
    "LS",
    containers=[("main", RUNNING), ("debugger", RUNNING)],
    container_requested=LIMITED,
    spec=(spec("main", 200),),
)
OPEN = view("p", "LS", containers=[("main", RUNNING)], spec=(spec("main", 200), spec("free")))
HELD, CONTESTED, FREE = Phase.HELD, Phase.CONTESTED, Phase.FREE


@pytest.mark.parametrize(
    ("pod", "name", "main", "side", "bound"),
    [
        (TWO, QUOTA, 50_000, None, 70_000),
        (TWO, QUOTA, 50_000, (HELD, 30_000), 80_000),
        (TWO, QUOTA, 50_000, (CONTESTED, 30_000), 80_000),
        (TWO, QUOTA, 50_000, (FREE, 0), 70_000),
        (TWO, MEMORY, 3 << 20, None, 4 << 20),
        (TWO, CPUS, "0-1", (HELD, "1-3"), "0-3"),
        (RESTARTS, QUOTA, 50_000, None, 80_000),
        (RESTARTS, MEMORY, 1 << 20, None, 4 << 20),
        (RESTARTS, CPUS, "0-1", None, "0-1"),
        (WITH_INIT, QUOTA, 20_000, None, 60_000),
        (WITH_OVERHEAD, QUOTA, 20_000, None, 30_000),
        (WITH_OVERHEAD, MEMORY, 1 << 20, None, 1 << 20),
        (UNLISTED, CPUS, "0-1", None, "0-1"),
        (DEBUGGED, QUOTA, 50_000, None, 70_000),
    ],
)
def test_bound(pod: PodView, name: str, main: Value, side: tuple[Phase, Value] | None, bound: Value) -> None:
    states = [(of(pod, "main", name), CONTESTED, main)]
    if side is not None:
        states.append((of(pod, "side", name), *side))
    found = bound_above(seen(pod, *states), of(pod, "main", name))
    assert (found.target, found.value, found.pod) == (of(pod, "", name), bound, "default/p")


@pytest.mark.parametrize(
    ("pod", "container", "name", "value", "is_v1", "why"),
    [
        (TWO, "main", CPUS, "0-1", True, "cgroup v1 gives no cgroup fewer CPUs than one of its children has"),
        (TWO, "main", QUOTA, 50_000, True, "cgroup v1 takes no quota of 70000 above one of 90000, as main has it"),
        (TWO, "main", CPUS, "0-1", False, "container side has no limit"),
        (TWO, "main", QUOTA, -1, False, "container main has no limit"),
        (TWO, "main", "cpu_shares", 512, False, "cpu_shares has no sum over a pod"),
        (TWO, "", QUOTA, 50_000, False, "no container's file"),
        (TWO, "s-p", QUOTA, 50_000, False, "no container's file"),
        (TWO, "gone", QUOTA, 50_000, False, "no container's file"),
        (RESTARTS, "side", QUOTA, 50_000, False, "its container has ended"),
        (UNLISTED, "main", QUOTA, 50_000, False, "only the runtime tells of the pod"),
        (OPEN, "main", QUOTA, 50_000, False, "container free has no limit"),
        (structs.replace(TWO, cgroup=""), "main", QUOTA, 50_000, False, "nobody tells the pod's own cgroup"),
    ],
)
def test_no_bound(pod: PodView, container: str, name: str, value: Value, is_v1: bool, why: str) -> None:
    target = of(TWO, container, name)
    node = seen(pod, (target, CONTESTED, value), is_v1=is_v1)
    with pytest.raises(NotEnforced, match=why):
        bound_above(node, target)
    decision, _ = Enforcement().decide(node, None)
    assert decision.opinions == {}
    assert why in decision.sentence
    assert decision.sentence.startswith("1 contested, 0 enforced one level up; ")


@pytest.mark.parametrize("foreign", [-1, 60_000, 70_000])
def test_v1_bounds_a_pod_that_no_child_exceeds(foreign: int) -> None:
    target = of(TWO, "main", QUOTA)
    assert bound_above(seen(TWO, (target, CONTESTED, 50_000), is_v1=True, foreign=foreign), target).value == 70_000


def test_what_is_not_contested_is_not_bounded() -> None:
    held = seen(TWO, (of(TWO, "main", QUOTA), HELD, 50_000))
    decision, memory = Enforcement().decide(held, None)
    assert (decision.sentence, decision.opinions) == ("0 contested, 0 enforced one level up", {})
    assert Enforcement().decide(held, memory)[0] is decision
    assert Enforcement().decide(structs.replace(held, files={}), memory)[0] is decision


def test_many_problems_are_counted() -> None:
    files = [(Target(f"/kubepods/x{number}", QUOTA), CONTESTED, 5000) for number in range(8)]
    decision, _ = Enforcement().decide(seen(TWO, *files), None)
    assert decision.sentence.count("is not enforced") == 5
    assert decision.sentence.endswith("; and 3 more")


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1000, 100_000), st.integers(10, 1000)), min_size=1, max_size=6),
    st.integers(1000, 100_000),
)
def test_no_other_container_gets_less_than_it_may_have(others: list[tuple[bool, int, int]], wanted: int) -> None:
    """``others``: (is it there, what it holds if so, its limit in the spec)."""
    named = {f"c{number}": other for number, other in enumerate(others)}
    pod = view(
        "p",
        "LS",
        containers=[("main", RUNNING), *((name, RUNNING if other[0] else EXITED) for name, other in named.items())],
        spec=(spec("main", 100), *(spec(name, other[2]) for name, other in named.items())),
    )
    states = [(of(pod, "main", QUOTA), CONTESTED, wanted)]
    states += [(of(pod, name, QUOTA), HELD, other[1]) for name, other in named.items() if other[0]]
    bound = bound_above(seen(pod, *states), of(pod, "main", QUOTA))
    assert bound.value == wanted + sum(other[1] if other[0] else other[2] * 100 for other in others)


class Node:
    """The strategies ``hooks`` (its opinions said by hand) and ``enforcement`` over plain files, one tick at a time."""

    def __init__(self, directory: Path) -> None:
        self.rig = Rig(directory, owners=OWNERS)
        self.pod = structs.replace(TWO, cgroup="/kubepods/podp", containers=tuple(map(_below, TWO.containers)))
        self.main, self.side, self.own = (of(self.pod, name, QUOTA) for name in ("main", "side", ""))
        for target, quota in ((self.own, "40000"), (self.main, "20000"), (self.side, "20000")):
            self.rig.make(target.cgroup, cpu_quota=quota)
        self.opinions: dict[Target, Opinion] = {self.main: wants(10_000)}
        self.is_off = False
        self.rig.results = self.results

    def results(self) -> tuple[StrategyResult, ...]:
        node = structs.replace(snapshot(ON_V2, self.pod), files=self.rig.actuator.files.report.states)
        decision, _ = Enforcement().decide(node, None)
        bounds = StrategyResult(Enforcement.name, Enforcement.stage, StrategyStatus.ACTIVE, decision)
        if self.is_off:
            bounds = StrategyResult(
                Enforcement.name, Enforcement.stage, StrategyStatus.DISABLED, Decision("disabled by the operator")
            )
        hooks = StrategyResult(
            HookReconciler.name, HookReconciler.stage, StrategyStatus.ACTIVE, Decision("", self.opinions)
        )
        return (hooks, bounds)

    def fight(self) -> None:
        """Another writer insists, until the file is left to it."""
        for _ in range(3):
            self.rig.tick()
            self.rig.put(self.main, "90000")
            self.rig.see(self.main)
        self.rig.tick()
        assert self.rig.holds(self.main) == 90_000
        assert list(self.rig.actuator.files.report.contested) == [self.main]


def _below(container: ContainerView) -> ContainerView:
    return structs.replace(container, cgroup=f"/kubepods/podp/{container.cgroup.rpartition('/')[2]}")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


class TestThroughAct:
    def test_a_contested_quota_is_the_pods_from_the_next_tick_on(self, node: Node) -> None:
        node.fight()
        node.rig.tick()
        assert node.rig.holds(node.own) == 30_000
        entry = node.rig.journal.entries[-1]
        assert (entry.owner, entry.cgroup, entry.before, entry.after) == (
            "enforcement",
            node.own.cgroup,
            40_000,
            30_000,
        )
        assert "cpu_quota of /kubepods/podp/main is contested" in entry.why

    def test_another_wanted_value_is_enforced_at_once(self, node: Node) -> None:
        node.fight()
        node.rig.tick()
        node.opinions = {node.main: wants(5_000)}
        node.rig.tick(), node.rig.tick()
        assert node.rig.holds(node.own) == 25_000

    def test_once_nothing_is_wanted_the_pod_has_its_own_back(self, node: Node) -> None:
        node.fight()
        node.rig.tick()
        node.opinions = {}
        node.rig.tick(), node.rig.tick()
        assert (node.rig.holds(node.own), node.rig.actuator.files.report.owned) == (40_000, {})

    def test_once_the_other_writer_gives_up_the_file_is_held_and_the_pod_free(self, node: Node) -> None:
        node.fight()
        node.rig.tick(FORGIVEN_AFTER_NS / 1e9)
        node.rig.tick()
        assert (node.rig.holds(node.main), node.rig.holds(node.own)) == (10_000, 40_000)
        assert node.rig.actuator.files.report.contested == {}

    def test_disabling_gives_the_pod_its_own_back(self, node: Node) -> None:
        node.fight()
        node.rig.tick()
        node.is_off = True
        node.rig.tick()
        assert node.rig.holds(node.own) == 40_000
        assert node.rig.journal.entries[-1].why == "back to its base: enforcement is disabled by the operator"

    def test_a_restart_in_between_leaves_the_bound_until_it_is_known_whether_it_is_needed(self, node: Node) -> None:
        node.fight()
        node.rig.tick()
        node.rig.crash()
        node.rig.tick()
        node.rig.tick(60)
        assert (node.rig.holds(node.main), node.rig.holds(node.own)) == (10_000, 40_000)
        node.fight()
        node.rig.tick()
        assert node.rig.holds(node.own) == 30_000


def test_the_files_are_one_mapping_while_nothing_changes(node: Node) -> None:
    node.rig.tick()
    before = node.rig.actuator.files.report.states
    node.rig.tick(0.1)
    assert node.rig.actuator.files.report.states is before
    node.opinions = {node.main: wants(11_000)}
    node.rig.tick()
    assert node.rig.actuator.files.report.states is not before
    assert before[node.main].written == 10_000
