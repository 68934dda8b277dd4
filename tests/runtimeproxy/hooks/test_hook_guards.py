"""What no hook server may do."""

from __future__ import annotations

import pytest

from runtimeproxy.hooks.edits import ANNOTATIONS, CGROUP_PARENT, ENVS, HUGEPAGE_LIMITS, LABELS, UNIFIED, Slot, Value
from runtimeproxy.hooks.guards import Guard, within

CGROUPFS = "/kubepods/besteffort/pod1"
SYSTEMD = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice"


@pytest.mark.parametrize(
    ("slot", "value", "reason"),
    [
        (Slot(ANNOTATIONS, "io.kubernetes.container.hash"), "0", "key"),
        (Slot(ANNOTATIONS, "io.kubernetes.container.hash"), None, "key"),
        (Slot(LABELS, "io.kubernetes.pod.uid"), "x", "key"),
        (Slot(CGROUP_PARENT), "/kubepods/burstable/pod1", "cgroup_parent"),
        (Slot(ENVS, "SECRET"), b"x", "hidden_env"),
        (Slot(ENVS, "SECRET"), None, "hidden_env"),
        (Slot(ENVS, "A=B"), b"x", "value"),
        (Slot(ENVS, ""), b"x", "value"),
        (Slot(ENVS, "A"), b"x\0y", "value"),
        (Slot("oom_score_adj"), 1001, "value"),
        (Slot("cpu_quota"), -2, "value"),
        (Slot("memory_limit_in_bytes"), -7, "value"),
        (Slot("cpuset_cpus"), "all", "value"),
        (Slot("cpuset_mems"), "0\n1", "value"),
        (Slot(ANNOTATIONS, "kubernetes.io/x"), "y", None),
        (Slot(LABELS, "team"), None, None),
        (Slot(CGROUP_PARENT), f"{CGROUPFS}/koord", None),
        (Slot(ENVS, "A"), b"", None),
        (Slot("oom_score_adj"), -1000, None),
        (Slot("cpu_quota"), -1, None),
        (Slot("cpuset_cpus"), "0-3,8", None),
        (Slot("cpuset_cpus"), "", None),
        (Slot(HUGEPAGE_LIMITS, "2MB"), 0, None),
        (Slot(UNIFIED, "memory.high"), "max", None),
    ],
)
def test_refusals(slot: Slot, value: Value, reason: str | None) -> None:
    assert Guard(frozenset(), CGROUPFS, hidden_envs=frozenset({"SECRET"})).refusal(slot, value) == reason


@pytest.mark.parametrize(
    ("parent", "tree"),
    [
        ("", CGROUPFS),
        (CGROUPFS, ""),
        ("/", CGROUPFS),
        ("/kubepods/besteffort/pod12", CGROUPFS),
        ("/kubepods/besteffort", CGROUPFS),
        (f"{CGROUPFS}/../pod2", CGROUPFS),
        (f"{CGROUPFS}/./x", CGROUPFS),
        (f"{CGROUPFS}/x.slice", CGROUPFS),
        ("/kubepods.slice", SYSTEMD),
        (f"{SYSTEMD}/koord", SYSTEMD),
        ("kubepods-besteffort-pod12.slice", SYSTEMD),
        (CGROUPFS, SYSTEMD),
    ],
)
def test_outside_the_tree(parent: str, tree: str) -> None:
    assert not within(parent, tree)


@pytest.mark.parametrize(
    ("parent", "tree"),
    [
        (CGROUPFS, CGROUPFS),
        (f"{CGROUPFS}/", CGROUPFS),
        ("kubepods/besteffort/pod1/a/b", CGROUPFS),
        (SYSTEMD, SYSTEMD),
        (f"{SYSTEMD}/kubepods-besteffort-pod1-koord.slice", SYSTEMD),
        ("kubepods-besteffort-pod1.slice", SYSTEMD),
        ("kubepods-besteffort-pod1-koord.slice", SYSTEMD),
        ("kubepods-besteffort-pod1-koord.slice", "kubepods-besteffort-pod1.slice"),
        (f"/root.slice{SYSTEMD}/x.slice", f"/root.slice{SYSTEMD}"),
    ],
)
def test_inside_the_tree(parent: str, tree: str) -> None:
    assert within(parent, tree)


@pytest.mark.parametrize(
    ("parent", "reason"),
    [
        ("/elsewhere", None),
        ("", "cgroup_parent"),
        ("/a/../b", "cgroup_parent"),
    ],
)
def test_foreign_parents_if_the_configuration_says_so(parent: str, reason: str | None) -> None:
    assert Guard(frozenset(), CGROUPFS, foreign_parents=True).refusal(Slot(CGROUP_PARENT), parent) == reason
