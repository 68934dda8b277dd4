"""Finding cgroup files on v1 and v2, and what is said when they are not there."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from koord.host.cgroup import ReadError, Tree, detect, read_text
from koord.host.files import Target, UnknownRow
from koord.host.writer import Writer
from koord.model.slices import container_path, from_cgroups_path

V1_MOUNTS = """\
24 30 0:21 / {root}/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
25 30 0:22 / {root}/cpuset rw - cgroup cgroup rw,cpuset
26 30 0:23 / {root}/unified rw - cgroup2 cgroup2 rw
27 30 0:24 / /elsewhere/memory rw - cgroup cgroup rw,memory
28 30 0:25 / /proc rw - proc proc rw
"""


def test_v1_mounts_are_taken_from_mountinfo_and_the_rest_from_directories(tmp_path: Path) -> None:
    for name in ("cpu,cpuacct", "cpuset", "memory", "unified"):
        (tmp_path / name).mkdir()
    tree = detect(tmp_path, V1_MOUNTS.format(root=tmp_path))
    assert tree.version == 1
    assert tree.path(Target("/kubepods/p/c", "cpu_quota")) == tmp_path / "cpu,cpuacct/kubepods/p/c/cpu.cfs_quota_us"
    assert tree.path(Target("/kubepods/p/c", "cpuset_cpus")) == tmp_path / "cpuset/kubepods/p/c/cpuset.cpus"
    assert tree.path(Target("/a", "memory_limit_in_bytes")) == tmp_path / "memory/a/memory.limit_in_bytes"
    assert tree.path(Target("/a", "memory.swap.max")) is None


def test_v2_is_known_by_its_controllers_file(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    tree = detect(tmp_path, "")
    assert tree.version == 2
    assert tree.path(Target("/a/b", "cpuset_cpus")) == tmp_path / "a/b/cpuset.cpus.effective"
    assert tree.path(Target("/a/b", "memory.high")) == tmp_path / "a/b/memory.high"


@pytest.mark.parametrize("mountinfo", ["", "garbage", "1 2 3 - cgroup\n", "24 30 0:21 / /x rw - cgroup"])
def test_broken_mountinfo_and_a_missing_root_find_nothing(tmp_path: Path, mountinfo: str) -> None:
    tree = detect(tmp_path / "missing", mountinfo)
    assert (tree.version, dict(tree.controllers)) == (1, {})


def test_a_vanished_file_is_absent(tmp_path: Path) -> None:
    assert read_text(tmp_path / "gone" / "cpu.max") is None
    (tmp_path / "file").write_text("x")
    assert read_text(tmp_path / "file" / "cpu.max") is None


def test_another_refusal_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ReadError) as caught:
        read_text(tmp_path)
    assert (caught.value.errno, caught.value.filename) == (errno.EISDIR, str(tmp_path))


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/kubepods/besteffort/pod1/abc", "/kubepods/besteffort/pod1/abc"),
        (
            "kubepods-besteffort-pod1_2.slice:cri-containerd:abc",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice/cri-containerd-abc.scope",
        ),
        ("kubepods-pod1.slice:crio:abc", "/kubepods.slice/kubepods-pod1.slice/crio-abc.scope"),
        (":docker:abc", "/system.slice/docker-abc.scope"),
        ("", ""),
    ],
)
def test_oci_cgroups_paths(given: str, path: str) -> None:
    assert from_cgroups_path(given) == path


@pytest.mark.parametrize(
    ("parent", "path"),
    [
        ("/kubepods/pod1", "/kubepods/pod1/abc"),
        ("/kubepods.slice/kubepods-pod1.slice", "/kubepods.slice/kubepods-pod1.slice/cri-containerd-abc.scope"),
        ("kubepods-pod1.slice", "/kubepods.slice/kubepods-pod1.slice/cri-containerd-abc.scope"),
    ],
)
def test_container_below_its_pods_parent(parent: str, path: str) -> None:
    assert container_path(parent, "abc", "cri-containerd") == path


@pytest.mark.parametrize("cgroup", ["/..", "/kubepods/../../etc", "a/.."])
def test_no_group_leads_out_of_the_tree(tmp_path: Path, cgroup: str) -> None:
    with pytest.raises(ValueError, match="leaves the tree"):
        Tree(2, tmp_path, {}).path(Target(cgroup, "cpu_quota"))
    with pytest.raises(ValueError, match="leaves the tree"):
        Tree(1, tmp_path, {}).directory(cgroup)


def test_an_unknown_row_is_an_error_not_an_absent_file(tmp_path: Path) -> None:
    with pytest.raises(UnknownRow):
        Tree(2, tmp_path, {}).path(Target("/a", "cpu.max"))


@pytest.mark.parametrize(
    ("name", "for_write", "v1", "v2"),
    [
        ("cpu_quota", False, "cpu/a/cpu.cfs_quota_us", "a/cpu.max"),
        ("cpu_period", False, "cpu/a/cpu.cfs_period_us", "a/cpu.max"),
        ("cpu_period", True, "cpu/a/cpu.cfs_period_us", None),
        ("cpuset_cpus", False, "cpuset/a/cpuset.cpus", "a/cpuset.cpus.effective"),
        ("cpuset_cpus", True, "cpuset/a/cpuset.cpus", "a/cpuset.cpus"),
        ("memory_limit_in_bytes", True, "memory/a/memory.limit_in_bytes", "a/memory.max"),
        ("io.max.rbps@8:0", True, "blkio/a/blkio.throttle.read_bps_device", "a/io.max"),
        ("cpu.pressure", False, "unified/a/cpu.pressure", "a/cpu.pressure"),
        ("cgroup.freeze", True, "freezer/a/freezer.state", "a/cgroup.freeze"),
        ("memory.reclaim", False, None, "a/memory.reclaim"),
        ("net_cls.classid", True, "net_cls/a/net_cls.classid", None),
        ("vm.min_free_kbytes", True, "proc/sys/vm/min_free_kbytes", "proc/sys/vm/min_free_kbytes"),
        ("oom_score_adj@42", True, "proc/42/oom_score_adj", "proc/42/oom_score_adj"),
        ("oom_score_adj", True, None, None),
        ("resctrl.schemata@LS/L3", True, "resctrl/LS/schemata", "resctrl/LS/schemata"),
        ("resctrl.schemata@/L3", False, "resctrl/schemata", "resctrl/schemata"),
    ],
)
def test_which_file_a_target_is(tmp_path: Path, name: str, for_write: bool, v1: str | None, v2: str | None) -> None:
    for version, want in ((1, v1), (2, v2)):
        tree = Tree(
            version,
            tmp_path,
            {},
            unified=tmp_path / "unified" if version == 1 else None,
            proc=tmp_path / "proc",
            resctrl=tmp_path / "resctrl",
        )
        assert tree.path(Target("/a", name), for_write) == (None if want is None else tmp_path / want)


@pytest.mark.parametrize("mountinfo", ["", "26 30 0:23 / {root}/two rw - cgroup2 cgroup2 rw\n"])
def test_a_hybrids_v2_tree_is_found(tmp_path: Path, mountinfo: str) -> None:
    for name in ("cpu", "unified", "two"):
        (tmp_path / name).mkdir()
    assert detect(tmp_path, mountinfo.format(root=tmp_path)).unified is None
    for name in ("unified", "two"):
        (tmp_path / name / "cgroup.controllers").write_text("\n")
    found = detect(tmp_path, mountinfo.format(root=tmp_path))
    assert (found.version, found.unified) == (1, tmp_path / ("two" if mountinfo else "unified"))


def test_pressure_of_a_v1_node_without_a_v2_tree_is_the_vendors(tmp_path: Path) -> None:
    tree = Tree(1, tmp_path, {})
    assert tree.path(Target("/a", "cpu.pressure")) == tmp_path / "cpuacct/a/cpu.pressure"
    assert tree.path(Target("/a", "irq.pressure")) is None


def test_whether_a_group_exists(tmp_path: Path) -> None:
    (tmp_path / "cpu/kubepods").mkdir(parents=True)
    tree = Tree(1, tmp_path, {"cpu": tmp_path / "cpu"})
    assert (tree.exists("/kubepods"), tree.exists("/kubepods/pod1")) == (True, False)


@pytest.mark.parametrize(
    ("there", "used"),
    [
        (["sched/features"], "sched/features"),  # 5.13 and newer
        (["sched_features"], "sched_features"),
        (["sched/features", "sched_features"], "sched/features"),
        ([], "sched/features"),
    ],
)
def test_the_schedulers_features_are_where_the_kernel_has_them(tmp_path: Path, there: list[str], used: str) -> None:
    debug = tmp_path / "sys/kernel/debug"
    (debug / "sched").mkdir(parents=True)
    for name in there:
        (debug / name).write_text("GENTLE_FAIR_SLEEPERS NO_CORE_EXPEL\n")
    tree = replace(detect(tmp_path, ""), sys=tmp_path / "sys")
    target = Target("", "sched_features@CORE_EXPEL")
    assert tree.path(target) == debug / used
    assert Writer(tree).read(target) == (0 if there else None)
