"""CPU burst through the whole loop, on files of cgroup v1 and v2 that take no write which a kernel refuses."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from koord.host.files import Target
from koord.host.notes import KINDS
from koord.host.restoring import restore
from koord.host.undo import UndoRecord
from koord.host.writer import Writer
from qosd.act.ownership import OWNERS
from qosd.decide.runner import StrategyStatus
from qosd.tickscheduler import TickReason
from tests.fakes.kernelwriter import Killed
from tests.qosd.strategies.burst.nodes import GROUPS, QUOTAS_US, WEB, Node, resized
from tests.qosd.strategies.burst.scenes import limited
from tests.qosd.strategies.burst.test_steps import CLIMB, FALL

VERSIONS = pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
POD, MAIN, SIDE = (Target(cgroup, "cpu_quota") for cgroup in GROUPS)
BUFFERS = [200_000, 100_000, 100_000]


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    made = Node(tmp_path, getattr(request, "param", 2))
    yield made
    made.close()


BOTH = pytest.mark.parametrize("node", [1, 2], indirect=True, ids=["v1", "v2"])


@BOTH
def test_seven_seconds_up_and_five_down(node: Node) -> None:
    """The pod grows before its container and shrinks after it; the buffers are set once."""
    writes = node.hot("main")
    assert [write for write in writes if write[1] == "cpu_quota"] == [
        ("", "cpu_quota", 220_000), ("/main", "cpu_quota", 120_000)
    ]  # fmt: skip
    assert node.us("cpu.max.burst") == BUFFERS and len(writes) == 5
    for value in CLIMB[1:]:
        assert node.hot("main") == [("", "cpu_quota", 100_000 + value), ("/main", "cpu_quota", value)]
    assert node.hot("main") == []
    for value in FALL:
        assert node.overloaded() == [("/main", "cpu_quota", value), ("", "cpu_quota", 100_000 + value)]
    assert node.state() == {"cpu_quota": list(QUOTAS_US), "cpu.max.burst": BUFFERS}
    assert {target.name for target in node.actuator.files.report.owned} == {"cpu.max.burst"}
    switched_off(node)
    assert node.state() == node.before
    assert not any(node.undo.all(kind) for kind in KINDS)


def test_the_pool_is_judged_by_five_seconds(node: Node) -> None:
    """Of 4 CPUs 2 are the threshold: 3.5 in use are too much once three of the five seconds had them."""
    node.hot("main"), node.hot("main"), node.hot("main"), node.hot("main"), node.hot("main")
    node.meter.cores = 3.5
    found = []
    for _ in range(3):
        node.tick()
        found.append(node.us()[1])
    assert found == [CLIMB[5], CLIMB[6], FALL[0]]


def switched_off(node: Node) -> None:
    node.loop.switched_off = frozenset(OWNERS)
    node.tick()
    node.loop.switched_off = frozenset()
    assert node.actuator.files.report.owned == {}


@BOTH
def test_two_containers_at_a_time(node: Node) -> None:
    node.hot("main"), node.hot("main", "side")
    assert node.us() == [264_000, 144_000, 120_000]
    node.overloaded()
    assert node.us() == [215_200, 115_200, 100_000]


@BOTH
@pytest.mark.parametrize(
    "let_go",
    [
        lambda node: node.set_rules("none"),
        lambda node: node.set_rules("auto", {"features": {"CPUBurst": False}}),
        lambda node: setattr(node.loop, "switched_off", {"cpuBurst"}),
        lambda node: setattr(node, "pods", (limited("web", "LSR", 100_000, "main", "side"),)),
        lambda node: setattr(node, "pods", (limited("web", "LS", 100_000, "main", "side", burst={"policy": "none"}),)),
    ],
    ids=["policy", "feature gate", "koordctl disable", "another class", "annotation"],
)
def test_what_is_switched_off_leaves_no_difference(node: Node, let_go: Callable[[Node], None]) -> None:
    for _ in range(4):
        node.hot("main", "side")
    assert node.us() == [414_720, 207_360, 207_360]
    let_go(node)
    node.hot("main", "side")
    assert (node.state(), node.actuator.files.report.owned) == (node.before, {})
    assert not any(node.undo.all(kind) for kind in KINDS)


@BOTH
def test_a_quiet_node_costs_no_write_and_no_new_decision(node: Node) -> None:
    node.tick()
    decisions = set()
    for _ in range(50):
        assert node.tick() == []
        decisions.add(id(next(each for each in node.loop.report.decisions.results if each.name == "cpuBurst").decision))
    assert len(decisions) == 1


def test_between_two_beats_nothing_grows(node: Node) -> None:
    node.hot("main")
    for reason in (TickReason.CHANGE, TickReason.URGENT, TickReason.CHANGE, TickReason.URGENT):
        assert node.tick(reason) == []


class TestNormalization:
    """The ratio divides both quotas (on v2), the burst multiplies what it leaves."""

    def test_while_the_ratio_comes_changes_and_goes(self, node: Node) -> None:
        for _ in range(4):
            node.hot("main")
        assert node.us() == [307_360, 207_360, 100_000]
        for ratio, pod_us, main_us, side_us in (
            (1.2, 166_667, 83_334, 83_334),
            (1.5, 133_334, 66_667, 66_667),
            (None, 200_000, 100_000, 100_000),
        ):
            node.set_rules(node={} if ratio is None else {"cpuNormalizationRatio": ratio})
            node.tick(TickReason.CHANGE)
            quotas_us, node.meter.throttled = node.us(), {}
            assert node.tick() == [], "all of it at once"
            assert quotas_us == [pod_us + quotas_us[1] - main_us, quotas_us[1], side_us]
            assert node.us("cpu.max.burst") == [main_us + side_us, main_us, side_us]
            assert main_us <= quotas_us[1] <= 3 * main_us
        switched_off(node)
        assert node.state() == node.before

    @VERSIONS
    def test_up_and_down(self, tmp_path: Path, version: int) -> None:
        node, found = Node(tmp_path, version, cpuNormalizationRatio=1.2), []
        pod_us = 200_000 if version == 1 else 166_667
        for _ in range(7):
            node.hot("main")
            found.append(node.us())
        for _ in range(5):
            node.overloaded()
            found.append(node.us())
        assert [quotas_us[1] for quotas_us in found] == [
            100_000, 120_000, 144_000, 172_800, 207_360, 248_832, 250_002,
            200_001, 160_000, 128_000, 102_400, 83_334,
        ]  # fmt: skip
        assert all(quotas_us == [pod_us + quotas_us[1] - 83_334, quotas_us[1], 83_334] for quotas_us in found)
        switched_off(node)
        assert node.state() == node.before
        node.close()


class TestBounds:
    """The burst buffer follows the quota that all stages come to."""

    @BOTH
    def test_a_later_stage_bounds_the_quota_below_the_buffer(self, node: Node) -> None:
        for _ in range(3):
            node.hot("main")
        node.bound(main=40_000)
        bounded = [("/main", "cpu.max.burst", 40_000), ("/main", "cpu_quota", 40_000)]
        assert node.hot("main") == [("", "cpu_quota", 307_360), *bounded]
        for _ in range(5):
            assert node.hot("main") == [], "what is bounded does not grow"
        assert node.us("cpu.max.burst") == [200_000, 40_000, 100_000]
        node.bound()
        assert node.hot("main") == [("/main", "cpu_quota", 207_360), ("/main", "cpu.max.burst", 100_000)]
        assert node.hot("main")[-1] == ("/main", "cpu_quota", 248_832), "and then it grows on"

    @BOTH
    def test_both_are_let_go_in_one_tick(self, node: Node) -> None:
        node.hot("main")
        node.bound(main=40_000)
        node.set_rules("none")
        node.tick()
        assert node.state() == {"cpu_quota": [200_000, 40_000, 100_000], "cpu.max.burst": [0, 0, 0]}
        node.bound()
        node.tick()
        assert node.state() == node.before

    @BOTH
    def test_kubelets_own_value_is_never_in_the_buffers_way(self, node: Node) -> None:
        """The runtime applies again what kubelet asked for; it is put right as any foreign value."""
        for _ in range(3):
            node.hot("main")
        node.put(MAIN, 100_000)
        node.meter.throttled = {}
        assert node.tick() == [("/main", "cpu_quota", 172_800)]


@BOTH
def test_a_foreign_minus_one_is_left_alone(node: Node) -> None:
    """Nothing is added for it to the pod's quota, and what was is taken back."""
    for _ in range(3):
        node.hot("main")
    node.put(MAIN, -1)
    node.meter.throttled = {}  # nothing throttles it now
    for _ in range(5):
        node.tick()
    assert node.us() == [200_000, -1, 100_000]
    assert node.actuator.files.report.owned.keys().isdisjoint({MAIN, POD})


@BOTH
def test_kubelet_makes_a_container_smaller_while_it_bursts(node: Node) -> None:
    """Its spec says so first: what kubelet and the runtime write then, container before pod, the kernel takes."""
    for _ in range(4):
        node.hot("main", "side")
    node.pods = (resized(500),)
    node.tick()
    burst_us = 100_000 if node.version == 1 else 248_832
    assert node.us() == [2 * burst_us, burst_us, burst_us]
    assert node.us("cpu.max.burst") == [150_000, 50_000, 100_000]
    node.put(MAIN, 50_000)
    node.put(POD, 150_000)
    node.meter.throttled = {}
    node.tick(), node.tick()
    if node.version == 1:
        assert node.us() == [150_000, 50_000, 100_000]
    else:
        assert node.us() == [150_000 + 74_416 + 148_832, 124_416, 248_832], "with the same factor"


@BOTH
def test_a_pods_quota_of_kubelets_that_changes_keeps_its_distance(node: Node) -> None:
    for _ in range(2):
        node.hot("main")
    node.put(POD, 500_000)
    node.meter.throttled = {}
    node.tick()
    assert node.us() == [544_000, 144_000, 100_000]
    for _ in range(4):
        node.overloaded()
    assert node.us() == [500_000, 100_000, 100_000]


def test_a_report_tells_what_is_scaled_and_to_what(node: Node) -> None:
    """For metrics: the targets of the strategy's opinions, with the values held and their owners."""
    node.hot("main")
    report = node.loop.report
    result = next(each for each in report.decisions.results if each.name == "cpuBurst")
    assert (result.state, set(result.opinions)) == (
        StrategyStatus.ACTIVE, {POD, MAIN, *(Target(cgroup, "cpu.max.burst") for cgroup in GROUPS)}
    )  # fmt: skip
    held = {target: report.files.states[target] for target in result.opinions}
    assert {target: state.written for target, state in held.items() if target.name == "cpu_quota"} == {
        POD: 220_000, MAIN: 120_000
    }  # fmt: skip
    assert {(state.by, state.pod) for state in held.values()} == {("cpuBurst", WEB.key)}
    composed = report.files.composed(MAIN)
    assert composed is not None
    assert (composed.value, composed.by, [step.value for step in composed.trail]) == (
        120_000, "cpuBurst", [100_000, 120_000]
    )  # fmt: skip


# --- SIGKILL ---------------------------------------------------------------------------------------------------------

HOT, COOL = 9, 7
"""Beats; with one or two lost to a kill it still reaches ceiling and base."""


def transition(node: Node, is_down: bool) -> None:
    for _ in range(HOT):
        node.hot("main", "side")
    for _ in range(COOL if is_down else 0):
        node.overloaded()


def ended(directory: Path, version: int, is_down: bool) -> tuple[int, dict[str, object]]:
    """The writes of a run that nobody kills, and how it ends."""
    node = Node(directory, version)
    transition(node, is_down)
    node.close()
    assert node.us() == ([200_000, 100_000, 100_000] if is_down else [600_000, 300_000, 300_000])
    return node.writer.acts, dict(node.state())


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_restored", [False, True], ids=["restart", "koordctl restore"])
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("is_down", [False, True], ids=["up", "up and down"])
@VERSIONS
def test_a_kill_at_every_write(
    tmp_path: Path, version: int, is_down: bool, is_after: bool, is_restored: bool,
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    """The next start ends where a run without the kill does; after ``restore``, or switched off, nothing differs."""
    count, end = ended(tmp_path / "recorded", version, is_down)
    way, when = "up and down" if is_down else "up", "after" if is_after else "before"
    then = "restored" if is_restored else "restarted"
    record_property("count", f"cpuBurst on v{version}, {way}: killed {when} each of {count} writes, then {then}")
    for number in range(1, count + 1):
        node = Node(tmp_path / str(number), version)
        node.writer.dies_at, node.writer.is_after = number, is_after
        with suppress(Killed):
            transition(node, is_down)
        assert node.writer.acts == number, "it was killed there"
        node.close()
        if is_restored:
            with UndoRecord(node.root / "undo", "6f1d") as record:
                restore(Writer(node.tree), record)
                assert not any(record.all(kind) for kind in KINDS)
        else:
            node.start()
            transition(node, is_down)
            assert node.state() == end, f"killed at write {number}"
            switched_off(node)
            assert not any(node.undo.all(kind) for kind in KINDS)
            node.close()
        assert node.state() == node.before, f"killed at write {number}"
        shutil.rmtree(node.root)
