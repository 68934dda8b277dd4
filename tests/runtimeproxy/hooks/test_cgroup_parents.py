"""Which cgroup parents lie in a pod's own tree, by the rules of those who make the directories."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimeproxy.hooks.cgroupparents import components, within

CGROUPFS = "/kubepods/besteffort/pod1"
SYSTEMD = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice"
RUNTIME = "/system.slice/containerd.service"


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
        ("kubepods/besteffort/pod1", CGROUPFS),
        ("kubepods/besteffort/pod1/a/b", CGROUPFS),
        (CGROUPFS, CGROUPFS.removeprefix("/")),
        (f"{CGROUPFS}/a\nb", CGROUPFS),
        (f"{CGROUPFS}/a\0b", CGROUPFS),
        (f"{CGROUPFS}/{'a' * 256}", CGROUPFS),
        ("/kubepods.slice", SYSTEMD),
        (f"{SYSTEMD}/koord", SYSTEMD),
        (f"{SYSTEMD}/system.slice", SYSTEMD),
        (f"{SYSTEMD}/kubepods.slice", SYSTEMD),
        (f"{SYSTEMD}/kubepods-besteffort-pod1-a-b.slice", SYSTEMD),
        (f"{SYSTEMD}/-.slice", SYSTEMD),
        (f"{SYSTEMD}/kubepods-besteffort-pod1-.slice", SYSTEMD),
        (f"{SYSTEMD}/kubepods-besteffort-pod1--x.slice", SYSTEMD),
        (f"{SYSTEMD}/kubepods-besteffort-pod1-x y.slice", SYSTEMD),
        (SYSTEMD.removeprefix("/"), SYSTEMD),
        ("kubepods-besteffort-pod12.slice", SYSTEMD),
        (f"/root.slice{SYSTEMD}", SYSTEMD),
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
        (f"{CGROUPFS}//a/b", CGROUPFS),
        (SYSTEMD, SYSTEMD),
        (f"{SYSTEMD}/kubepods-besteffort-pod1-koord.slice", SYSTEMD),
        ("kubepods-besteffort-pod1.slice", SYSTEMD),
        ("kubepods-besteffort-pod1-koord.slice", SYSTEMD),
        ("kubepods-besteffort-pod1-koord.slice", "kubepods-besteffort-pod1.slice"),
    ],
)
def test_inside_the_tree(parent: str, tree: str) -> None:
    assert within(parent, tree)


def made_by_a_runtime(parent: str) -> str:
    """The directory in which containerd and runc make a container of this parent.

    systemd's driver: the path's last component, expanded as runc's ExpandSlice does. cgroupfs: joined to the runtime's
    own cgroup, which an absolute path leaves.
    """
    if parent.rstrip("/").endswith(".slice"):
        name = posixpath.basename(parent.rstrip("/")).removesuffix(".slice")
        path, prefix = "", ""
        for part in name.split("-"):
            path, prefix = f"{path}/{prefix}{part}.slice", f"{prefix}{part}-"
        return path
    return "/" + posixpath.normpath(posixpath.join(RUNTIME, parent)).lstrip("/")  # Go's Clean keeps no second slash


NESTED = ("kubepods.slice", "kubepods-besteffort.slice", "kubepods-besteffort-pod1.slice", "kubepods-a.slice")
PARTS = st.sampled_from(
    ("", ".", "..", "kubepods", "besteffort", "pod1", "a", "a.slice", "system.slice", "-.slice", "a-.slice", *NESTED)
)
ENDS = st.sampled_from(["", "/"])
PATHS = st.builds(
    lambda tree, start, parts, end: tree + start + "/".join(parts) + end,
    st.sampled_from(["", CGROUPFS, SYSTEMD]), ENDS, st.lists(PARTS, max_size=5), ENDS,
)  # fmt: skip


@given(PATHS, st.sampled_from([CGROUPFS, SYSTEMD, posixpath.basename(SYSTEMD)]))
def test_what_counts_as_inside_is_made_inside(parent: str, tree: str) -> None:
    if within(parent, tree):
        root = made_by_a_runtime(tree)
        assert (made_by_a_runtime(parent) + "/").startswith(root + "/")


@given(PATHS)
def test_components_are_the_directory_that_the_runtime_makes(parent: str) -> None:
    parts = components(parent)
    assert parts is None or "/" + "/".join(parts) == made_by_a_runtime(parent)
