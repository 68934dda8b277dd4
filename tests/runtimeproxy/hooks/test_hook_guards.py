"""What no hook server may do."""

from __future__ import annotations

import pytest

from runtimeproxy.hooks.edits import ANNOTATIONS, CGROUP_PARENT, ENVS, HUGEPAGE_LIMITS, LABELS, UNIFIED, Slot, Value
from runtimeproxy.hooks.guards import EditGuard

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
    assert EditGuard(frozenset(), CGROUPFS, hidden_envs=frozenset({"SECRET"})).refusal(slot, value) == reason


@pytest.mark.parametrize(
    ("tree", "parent", "reason"),
    [
        (CGROUPFS, "/elsewhere", None),
        ("", "/elsewhere", None),
        ("", "elsewhere.slice", None),
        (SYSTEMD, "elsewhere.slice", None),
        (CGROUPFS, "", "cgroup_parent"),
        (CGROUPFS, "/a/../b", "cgroup_parent"),
        (CGROUPFS, "elsewhere", "cgroup_parent"),
        (CGROUPFS, "elsewhere.slice", "cgroup_parent"),
        (SYSTEMD, "/elsewhere", "cgroup_parent"),
        (SYSTEMD, "/a.slice/b.slice", "cgroup_parent"),
    ],
)
def test_foreign_parents_if_the_configuration_says_so(tree: str, parent: str, reason: str | None) -> None:
    assert EditGuard(frozenset(), tree, foreign_parents=True).refusal(Slot(CGROUP_PARENT), parent) == reason
