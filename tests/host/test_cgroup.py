"""Finding cgroup files on v1 and v2, and what is said when they are not there."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from koord.host import cgroup, paths

ROW = {row.field: row for row in cgroup.ROWS}

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
    tree = cgroup.detect(tmp_path, V1_MOUNTS.format(root=tmp_path))
    assert tree.version == 1
    assert tree.file(ROW["cpu_quota"], "/kubepods/p/c") == tmp_path / "cpu,cpuacct/kubepods/p/c/cpu.cfs_quota_us"
    assert tree.file(ROW["cpuset_cpus"], "/kubepods/p/c") == tmp_path / "cpuset/kubepods/p/c/cpuset.cpus"
    assert tree.file(ROW["memory_limit_in_bytes"], "/a") == tmp_path / "memory/a/memory.limit_in_bytes"
    assert tree.file(ROW["memory.high"], "/a") is None


def test_v2_is_known_by_its_controllers_file(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    tree = cgroup.detect(tmp_path, "")
    assert tree.version == 2
    assert tree.file(ROW["cpuset_cpus"], "/a/b") == tmp_path / "a/b/cpuset.cpus.effective"
    assert tree.file(ROW["memory.high"], "/a/b") == tmp_path / "a/b/memory.high"


@pytest.mark.parametrize("mountinfo", ["", "garbage", "1 2 3 - cgroup\n", "24 30 0:21 / /x rw - cgroup"])
def test_broken_mountinfo_and_a_missing_root_find_nothing(tmp_path: Path, mountinfo: str) -> None:
    tree = cgroup.detect(tmp_path / "missing", mountinfo)
    assert (tree.version, dict(tree.controllers)) == (1, {})


def test_a_vanished_file_is_absent(tmp_path: Path) -> None:
    assert cgroup.read_text(tmp_path / "gone" / "cpu.max") is None
    (tmp_path / "file").write_text("x")
    assert cgroup.read_text(tmp_path / "file" / "cpu.max") is None


def test_another_refusal_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(cgroup.ReadError) as caught:
        cgroup.read_text(tmp_path)
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
    assert paths.from_cgroups_path(given) == path


@pytest.mark.parametrize(
    ("parent", "path"),
    [
        ("/kubepods/pod1", "/kubepods/pod1/abc"),
        ("/kubepods.slice/kubepods-pod1.slice", "/kubepods.slice/kubepods-pod1.slice/cri-containerd-abc.scope"),
        ("kubepods-pod1.slice", "/kubepods.slice/kubepods-pod1.slice/cri-containerd-abc.scope"),
    ],
)
def test_container_below_its_pods_parent(parent: str, path: str) -> None:
    assert paths.container_path(parent, "abc", "cri-containerd") == path
