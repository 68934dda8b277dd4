"""What is found of the host, before and after kubelet has made its cgroups."""

from __future__ import annotations

from pathlib import Path

from qosd.policy import hostfacts
from tests.qosd.machine import Machine

TIERS = ("/kubepods", "/kubepods/besteffort")


def test_what_kubelets_cgroups_can_hold_is_unknown_until_there_is_one(tmp_path: Path) -> None:
    machine = Machine(tmp_path, version=2)
    tree = machine.locator().tree
    before = hostfacts.look(tree, TIERS, "MemTotal:       16384 kB\n", 4096)
    assert (before.files, before.memory_total_bytes) == (None, 16 << 20)
    machine.kubepods()
    after = hostfacts.look(tree, TIERS, "", 4096)
    assert after.files is not None
    assert after.files >= {"memory.high", "memory.low", "cpu.idle"}
    assert "cgroup.freeze" not in after.files, "of this kernel"


def test_files_outside_cgroups_are_known_before_kubelet_and_each_feature_of_the_scheduler(tmp_path: Path) -> None:
    machine = Machine(tmp_path, version=2)
    tree = machine.locator().tree
    assert hostfacts.look(tree, TIERS, "", 4096).system_files == frozenset()
    machine.put("proc/sys/vm/min_free_kbytes", "67584\n")
    machine.put("sys/kernel/debug/sched/features", "PLACE_LAG NO_NEXT_BUDDY\n")
    facts = hostfacts.look(tree, TIERS, "", 4096)
    features = {"sched_features", "sched_features@PLACE_LAG", "sched_features@NEXT_BUDDY"}
    assert (facts.files, facts.system_files) == (None, {"vm.min_free_kbytes", *features})
