"""Support is looked for anew each time: absent, vendor, unknown, present."""

from __future__ import annotations

from pathlib import Path

import pytest

from koord.host import support
from koord.host.cgroup import Tree
from koord.host.files import ROWS
from koord.host.support import Support

GROUPS = ("/kubepods", "/kubepods/besteffort")


def v1(root: Path) -> Tree:
    return Tree(1, root, {"cpu": root / "cpu", "memory": root / "memory"}, proc=root / "proc", sys=root / "sys")


def v2(root: Path) -> Tree:
    return Tree(2, root, {}, proc=root / "proc", sys=root / "sys")


def test_before_kubelet_has_made_its_groups_nothing_is_known_and_nothing_is_remembered(tmp_path: Path) -> None:
    tree = v2(tmp_path)
    assert support.of(tree, "cpu.idle", GROUPS) is Support.UNKNOWN
    (tmp_path / "kubepods/besteffort").mkdir(parents=True)
    assert support.of(tree, "cpu.idle", GROUPS) is Support.ABSENT
    assert support.of(tree, "cpu.bvt_warp_ns", GROUPS) is Support.VENDOR
    (tmp_path / "kubepods/besteffort/cpu.idle").write_text("0\n")
    assert support.of(tree, "cpu.idle", GROUPS) is Support.PRESENT
    (tmp_path / "kubepods/besteffort/cpu.idle").unlink()
    assert support.of(tree, "cpu.idle", GROUPS) is Support.ABSENT


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("memory.high", Support.VENDOR),  # mainline has it on v2 only
        ("memory.reclaim", Support.OTHER_VERSION),
        ("cpu.idle", Support.ABSENT),
        ("net_cls.classid", Support.ABSENT),  # the group is there, the controller is not
        ("vm.min_free_kbytes", Support.ABSENT),
        ("kidled.use_hierarchy", Support.VENDOR),
        ("oom_score_adj", Support.UNKNOWN),
        ("sched_features", Support.ABSENT),
    ],
)
def test_on_v1(tmp_path: Path, name: str, found: Support) -> None:
    for controller in ("cpu", "memory"):
        (tmp_path / controller / "kubepods").mkdir(parents=True)
    assert support.of(v1(tmp_path), name, GROUPS) is found


def test_the_survey_covers_what_is_not_assumed(tmp_path: Path) -> None:
    (tmp_path / "io.cost.qos").write_text("")
    (tmp_path / "proc/sys/vm").mkdir(parents=True)
    (tmp_path / "proc/sys/vm/min_free_kbytes").write_text("1\n")
    found = support.survey(v2(tmp_path), GROUPS)
    assert set(found) <= set(ROWS)
    assert "cpu_quota" not in found
    assert found["io.cost.qos"] is Support.PRESENT
    assert found["vm.min_free_kbytes"] is Support.PRESENT
    assert found["cpu.max.burst"] is Support.UNKNOWN
