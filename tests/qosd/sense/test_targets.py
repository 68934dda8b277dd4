"""Where groups are, and what limits them."""

from __future__ import annotations

import json
import math

import pytest

from koord.model.qos import QoSClass
from koord.model.slo import CgroupBase, CgroupPath, HostApplication
from qosd.model.metric import Scope
from qosd.sense.besteffort import BestEffortCollector, BestEffortRow
from qosd.sense.limits import LIMITS, LimitsCollector
from qosd.sense.targets import SampleTargets, Tiers, app_cgroup
from qosd.sense.tick import NotApplicable
from tests.qosd.sense.trees import TIERS, World, pod, run

NAN = math.nan
A, B = pod("a"), pod("b", QoSClass.BE, tier="/kubepods/besteffort")


def _at(base: CgroupBase | None, parent: str, relative: str = "") -> CgroupPath:
    return CgroupPath(base=base, parent_dir=parent, relative_path=relative)


@pytest.mark.parametrize(
    ("app", "expected"),
    [
        (HostApplication(name="a", qos="LSE"), "/host-latency-sensitive/a"),
        (HostApplication(name="a", qos="LSR"), "/host-latency-sensitive/a"),
        (HostApplication(name="a", qos="LS"), "/host-latency-sensitive/a"),
        (HostApplication(name="a", qos="BE"), "/host-best-effort/a"),
        (HostApplication(name="a", qos="SYSTEM"), "/a"),
        (HostApplication(name="a"), "/a"),
        (HostApplication(name="a", cgroup_path=_at(None, "x/", "y")), "/x/y"),
        (
            HostApplication(name="a", cgroup_path=_at(CgroupBase.KUBEPODS_BESTEFFORT, "x", "y")),
            "/kubepods/besteffort/x/y",
        ),
        (HostApplication(name="a", cgroup_path=_at(CgroupBase.KUBEPODS_BURSTABLE, "x")), ""),
    ],
)
def test_where_host_applications_are(app: HostApplication, expected: str) -> None:
    assert app_cgroup(app, Tiers("/kubepods", "", "/kubepods/besteffort")) == expected


def test_groups_that_leave_the_tree_or_have_no_path_are_not_measured() -> None:
    targets = SampleTargets.of((pod("x", tier="/kubepods/../.."),), Tiers(), ())
    assert not any(targets.cgroups.values())


def batch_pod(name: str, qos: QoSClass, milli: int) -> object:
    spec = {"containers": {"main": {"requests": {"kubernetes.io/batch-cpu": str(milli)}}}}
    key = "node.koordinator.sh/extended-resource-spec"
    return pod(name, qos, tier="/kubepods/besteffort", annotations={key: json.dumps(spec)})


def cpuset(world: World, cgroup: str, cpus: str) -> None:
    world.put(world.path(cgroup, "cpuset.cpus" if world.version == 1 else "cpuset.cpus.effective"), cpus + "\n")


def quota(world: World, cgroup: str, quota_us: int, period_us: int = 100_000) -> None:
    if world.version == 1:
        world.put(world.path(cgroup, "cpu.cfs_quota_us"), f"{quota_us}\n")
        world.put(world.path(cgroup, "cpu.cfs_period_us"), f"{period_us}\n")
    else:
        world.put(world.path(cgroup, "cpu.max"), f"{'max' if quota_us < 0 else quota_us} {period_us}\n")


@pytest.mark.parametrize(
    ("tier_set", "container_set", "quota_us", "limit"),
    [
        ("0-7", "0-3", -1, 4.0),
        ("0-7", "0-3", 250_000, 2.5),
        ("0-1", "0-1", 500_000, 2.0),
        ("0-7", None, -1, 8.0),
        ("", "", -1, NAN),
        ("", "", 150_000, 1.5),
    ],
)
def test_what_best_effort_can_get(
    world: World, tier_set: str, container_set: str | None, quota_us: int, limit: float
) -> None:
    be = pod("b", QoSClass.BE, tier="/kubepods/besteffort")
    world.targets = SampleTargets.of((be,), TIERS, ())
    cpuset(world, TIERS.besteffort, tier_set)
    quota(world, TIERS.besteffort, quota_us)
    if container_set is not None:
        cpuset(world, be.containers[1].cgroup, container_set)
    row = run(world, BestEffortCollector(world.host))[BestEffortRow.panel][""]
    assert list(row) == pytest.approx([NAN, 0.0, limit], nan_ok=True)


def test_best_effort_requests_count_for_labelled_pods(world: World) -> None:
    pods = (batch_pod("a", QoSClass.BE, 1500), batch_pod("b", QoSClass.BE, 250), batch_pod("c", QoSClass.LS, 4000))
    world.targets = SampleTargets.of(pods, TIERS, ())  # type: ignore[arg-type]
    assert run(world, BestEffortCollector(world.host))[BestEffortRow.panel][""][1] == 1.75


def test_a_node_without_the_tier_has_no_best_effort(world: World) -> None:
    with pytest.raises(NotApplicable):
        run(world, BestEffortCollector(world.host))


@pytest.mark.parametrize(
    ("memory", "quota_us", "expected"),
    [("1048576", 150_000, [1048576.0, 1.5]), ("unlimited", -1, [NAN, NAN]), ("4096", -1, [4096.0, NAN])],
)
def test_limits(world: World, memory: str, quota_us: int, expected: list[float]) -> None:
    world.targets = SampleTargets.of((A,), TIERS, ())
    unlimited = "9223372036854771712" if world.version == 1 else "max"
    text = unlimited if memory == "unlimited" else memory
    world.put(world.path(A.cgroup, "memory.limit_in_bytes" if world.version == 1 else "memory.max"), text + "\n")
    quota(world, A.cgroup, quota_us)
    row = run(world, LimitsCollector(world.host))[LIMITS[Scope.POD].panel][A.cgroup]
    assert list(row) == pytest.approx(expected, nan_ok=True)
