"""Suppression through the whole loop, on files of cgroup v1 and v2 that take no write which a kernel refuses."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from random import Random

import pytest

from koord.host.files import Target
from koord.host.notes import KINDS
from koord.host.restoring import restore
from koord.host.undo import UndoRecord
from koord.host.writer import Writer
from tests.fakes.kernelwriter import Killed
from tests.qosd.strategies.suppression.nodes import (
    BATCH,
    BESTEFFORT,
    BUSY,
    JOB,
    LIMITED,
    MID,
    QUIET,
    WEB,
    Load,
    Node,
)

POLICIES = ("cpuset", "cfsQuota", "pressure")
VERSIONS = pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
MAINS = [f"{pod.cgroup}/main" for pod in (BATCH, JOB)]
BUSY_S = {"cpuset": 6, "cfsQuota": 6, "pressure": 36}
QUIET_S = {"cpuset": 14, "cfsQuota": 14, "pressure": 50}
"""How long each takes to find its place, and the way back, and a second or two for a kill."""


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    made = Node(tmp_path, *request.param)
    yield made
    made.close()


EVERY = pytest.mark.parametrize(
    "node",
    [(version, policy) for version in (1, 2) for policy in POLICIES],
    indirect=True,
    ids=[f"v{version} {policy}" for version in (1, 2) for policy in POLICIES],
)


def busy(node: Node) -> None:
    node.seconds(2, QUIET)
    node.seconds(BUSY_S[node.policy], BUSY)


def busy_and_quiet(node: Node) -> None:
    busy(node)
    node.seconds(QUIET_S[node.policy], QUIET)


@EVERY
def test_while_the_service_is_busy_best_effort_work_has_less_and_nobody_else(node: Node) -> None:
    busy(node)
    assert 0.5 < node.best_effort_cores() <= 2.0
    assert {node.holds(f"{WEB.cgroup}/main", name) for name in ("cpu_quota", "cpu.idle")} == {-1, 0}
    assert node.holds(f"{MID.cgroup}/main", "cpu_quota") == 150_000, "as its limit says"
    tier_us = node.holds(BESTEFFORT, "cpu_quota")
    assert tier_us == -1 or int(tier_us or 0) >= 150_000 + int(node.holds(MAINS[1], "cpu_quota") or 0)


@EVERY
def test_the_tick_that_decides_writes_all_of_it_and_hooks_go_by_it_before(node: Node) -> None:
    changes = 0
    for load in (*[QUIET] * 2, *[BUSY] * BUSY_S[node.policy], *[QUIET] * 4):
        before, acts = node.source.limits, node.writer.acts
        node.tick(load)
        if node.source.limits is not before:
            changes += 1
            assert node.acts_when_limited == acts, "nothing is written before hooks have it"
            assert node.source.limits is node.loop.report.decisions.limits
        assert node.tick_between() == [], "nothing is left to the next tick"
    assert changes


@EVERY
def test_in_quiet_best_effort_work_has_what_the_formula_leaves_or_all_that_it_uses(node: Node) -> None:
    busy_and_quiet(node)
    assert node.best_effort_cores() == {"cpuset": 3.0, "cfsQuota": 2.1, "pressure": 3.0}[node.policy]


@EVERY
def test_quiet_seconds_write_nothing(node: Node) -> None:
    node.seconds(4, QUIET)
    assert [node.tick(QUIET) for _ in range(30)] == [[]] * 30


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("noise_cores", [0.002, 0.05, 0.15, 0.5])
@pytest.mark.parametrize("policy", POLICIES)
@VERSIONS
def test_where_the_allowance_moves_about_a_limit_of_1_cpu_rows_stay_few(
    tmp_path: Path, version: int, policy: str, noise_cores: float, seed: int
) -> None:
    """The service uses about 1.4 CPUs of 4, so that the formula leaves about 1 to a job with a limit of 1."""
    node, chance = Node(tmp_path, version, policy, pods=(WEB, LIMITED)), Random(seed)
    rows = [node.tick(Load(1.4 + chance.uniform(-noise_cores, noise_cores))) for _ in range(120)]
    node.close()
    quotas = [row for row in chain(*rows[10:]) if row[:2] == (f"{LIMITED.cgroup}/main", "cpu_quota")]
    assert len(quotas) <= 2
    assert sum(map(len, rows[10:])) <= 30


@EVERY
@pytest.mark.parametrize("let_go", ["koordctl disable", "NodeSLO", "feature gate"])
def test_what_is_switched_off_leaves_no_difference(node: Node, let_go: str) -> None:
    busy(node)
    assert node.state() != node.before
    if let_go == "koordctl disable":
        node.switched_off()
    else:
        node.stop_suppressing(by_gate=let_go == "feature gate")
        node.tick(), node.tick()
        assert node.source.limits.by_strategy == {}
        node.switched_off()
    assert node.state() == node.before
    assert not any(node.undo.all(kind) for kind in KINDS)


@EVERY
def test_a_restart_goes_on_from_what_the_kernel_holds(node: Node) -> None:
    """The first decision shrinks no less and grows no more than a second of the earlier run would have."""
    busy(node)
    node.seconds(8, BUSY)  # no step is on trial any more, which a restart would end
    had = node.best_effort_cores()
    node.close()
    node.start()
    assert node.tick(BUSY) == []
    node.tick(QUIET), node.tick(QUIET)
    assert had <= node.best_effort_cores() <= had + 1.0


# --- SIGKILL ---------------------------------------------------------------------------------------------------------


def recorded(
    directory: Path, version: int, policy: str, way: Callable[[Node], None]
) -> tuple[int, dict[object, object]]:
    """The writes of a run that nobody kills, and how it ends."""
    node = Node(directory, version, policy)
    way(node)
    node.close()
    return node.writer.acts, dict(node.state())


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_restored", [False, True], ids=["restart", "koordctl restore"])
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("policy", "way"),
    [("cpuset", busy), ("cpuset", busy_and_quiet), ("cfsQuota", busy), ("cfsQuota", busy_and_quiet),
     ("pressure", busy_and_quiet)],
)  # fmt: skip
@VERSIONS
def test_a_kill_at_every_write(
    tmp_path: Path, version: int, policy: str, way: Callable[[Node], None], is_after: bool, is_restored: bool,
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    """The next start ends where a run without the kill does; after ``restore``, or switched off, nothing differs."""
    count, end = recorded(tmp_path / "recorded", version, policy, way)
    when, then = "after" if is_after else "before", "restored" if is_restored else "restarted"
    said = f"suppression by {policy} on v{version}, {way.__name__}: killed {when} each of {count} writes, then {then}"
    record_property("count", said)
    for number in range(1, count + 1):
        node = Node(tmp_path / str(number), version, policy)
        node.writer.dies_at, node.writer.is_after = number, is_after
        with suppress(Killed):
            way(node)
        assert node.writer.acts == number, "it was killed there"
        node.close()
        if is_restored:
            with UndoRecord(node.root / "undo", "6f1d") as record:
                restore(Writer(node.tree), record)
                assert not any(record.all(kind) for kind in KINDS)
        else:
            node.start()
            way(node)
            assert node.state() == end, f"killed at write {number}"
            node.switched_off()
            assert not any(node.undo.all(kind) for kind in KINDS)
            node.close()
        assert node.state() == node.before, f"killed at write {number}"
        shutil.rmtree(node.root)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("policy", ["cfsQuota", "pressure"])
def test_what_another_agent_left_to_best_effort_pods_is_no_bound(tmp_path: Path, version: int, policy: str) -> None:
    node = Node(tmp_path, version, policy)
    tier = Target(BESTEFFORT, "cpu_quota")
    Writer(node.tree).write(tier, 2_000)
    for _ in range(5):
        node.tick(QUIET)
    quota = Writer(node.tree).read(tier)
    assert isinstance(quota, int) and (quota == -1 or quota > 100_000)
