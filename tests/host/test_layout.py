"""Where kubelet's pods are: claims against trees, for every driver, cgroup version and cgroup root."""

from __future__ import annotations

from pathlib import Path

import pytest

from koord.host import cgroup, claims, layout
from koord.host.cgroup import Tree
from koord.host.claims import Claims
from koord.model.cgroup_parent import CgroupStyle
from koord.model.qos import KubeQoS

CONTAINERD_2 = """\
version = 3
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = 'fast'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.fast.options]
SystemdCgroup = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
"""
CRICTL_INFO = """\
{"config": {"containerd": {"defaultRuntimeName": "runc", "runtimes": {"runc": {"options": {"SystemdCgroup": true}}}}}}
"""
KIND = {
    "v1": lambda root: Tree(1, root, {"cpu": root / "cpu"}),
    "v2": lambda root: Tree(2, root, {}),
}


def tree_with(root: Path, version: str, groups: list[str]) -> Tree:
    tree = KIND[version](root)
    tree.directory("/").mkdir(parents=True, exist_ok=True)
    for path in groups:
        tree.directory(path).mkdir(parents=True, exist_ok=True)
    return tree


def said(driver: str = "", root: str = "") -> Claims:
    args = [f"--cgroup-driver={driver}"] * bool(driver) + [f"--cgroup-root={root}"] * bool(root)
    return claims.of_kubelet_args(args)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_nobody_knows(tmp_path: Path, version: str) -> None:
    found = layout.detect(tree_with(tmp_path, version, ["/system.slice"]), Claims())
    assert (found.driver, found.kubepods, found.tiers) == (None, "", {})
    assert "shows where pods are" in found.problems[0]


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize(
    ("driver", "root", "kubepods"),
    [
        ("cgroupfs", "", "/kubepods"),
        ("cgroupfs", "/", "/kubepods"),
        ("cgroupfs", "/nested/deep", "/nested/deep/kubepods"),
        ("systemd", "", "/kubepods.slice"),
        ("systemd", "/nested", "/nested.slice/nested-kubepods.slice"),
        ("systemd", "/my-node/deep", "/my_node.slice/my_node-deep.slice/my_node-deep-kubepods.slice"),
    ],
)
def test_claims_and_tree_agree(tmp_path: Path, version: str, driver: str, root: str, kubepods: str) -> None:
    found = layout.detect(tree_with(tmp_path, version, [kubepods]), said(driver, root))
    assert (found.driver, found.kubepods, found.problems) == (CgroupStyle(driver), kubepods, ())
    assert found == layout.detect(tree_with(tmp_path / "empty", version, []), said(driver, root))


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize(
    ("kubepods", "burstable"),
    [
        ("/kubepods", "/kubepods/burstable"),
        ("/a/b/kubepods", "/a/b/kubepods/burstable"),
        ("/kubepods.slice", "/kubepods.slice/kubepods-burstable.slice"),
        ("/a.slice/a-kubepods.slice", "/a.slice/a-kubepods.slice/a-kubepods-burstable.slice"),
    ],
)
def test_the_tree_alone_tells(tmp_path: Path, version: str, kubepods: str, burstable: str) -> None:
    found = layout.detect(tree_with(tmp_path, version, [burstable]), Claims())
    assert (found.kubepods, found.problems) == (kubepods, ())
    assert found.tiers[KubeQoS.GUARANTEED] == kubepods
    assert found.tiers[KubeQoS.BURSTABLE] == burstable
    assert found.tiers[KubeQoS.BEST_EFFORT] == burstable.replace("burstable", "besteffort")
    assert {fact.source for fact in found.facts} == {"the cgroup tree"}


@pytest.mark.parametrize(
    ("groups", "told", "kubepods", "problem"),
    [
        (["/kubepods", "/kubepods.slice"], Claims(), "/kubepods", "several candidates: /kubepods, /kubepods.slice"),
        (["/kubepods", "/kubepods.slice/kubepods-podab.slice"], Claims(), "/kubepods.slice", "several candidates"),
        (["/kubepods", "/kubepods.slice"], said("systemd"), "/kubepods.slice", ""),
        (["/other/kubepods"], said("cgroupfs"), "/other/kubepods", "makes it /kubepods, which does not exist"),
        (["/kubepods", "/n/kubepods"], said(root="/n"), "/n/kubepods", ""),
        (["/kubepods.slice"], said("cgroupfs") + claims.of_runtime_driver("CRI", "systemd"), "/kubepods.slice",
         "driver: kubelet's --cgroup-driver says cgroupfs, but CRI says systemd"),
    ],
)  # fmt: skip
def test_contradictions_are_said(tmp_path: Path, groups: list[str], told: Claims, kubepods: str, problem: str) -> None:
    found = layout.detect(tree_with(tmp_path, "v2", groups), told)
    assert found.kubepods == kubepods
    assert problem in "; ".join(found.problems)
    assert bool(problem) == bool(found.problems)


def test_pods_that_run_are_the_strongest_witness(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, "v2", ["/kubepods", "/n/kubepods/besteffort/pod1"])
    found = layout.detect(tree, said("cgroupfs"), ["/n/kubepods/besteffort/pod1", "/system.slice"])
    assert (found.kubepods, found.facts[1].source) == ("/n/kubepods", "the pods that run")
    several = layout.detect(tree, said("cgroupfs"), ["/n/kubepods/pod1", "/kubepods/burstable/pod2"])
    assert "several roots: /kubepods, /n/kubepods" in several.problems[0]


def test_pods_that_run_elsewhere_than_kubelet_says(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, "v1", ["/kubepods"])
    found = layout.detect(tree, said("systemd"), ["/kubepods/burstable/pod1"])
    why = "kubelet's --cgroup-driver makes it /kubepods.slice, but pods run below /kubepods"
    assert (found.kubepods, found.problems) == ("/kubepods", (why,))


@pytest.mark.parametrize(
    ("parent", "kubepods"),
    [
        ("", ""),
        ("/system.slice/x", ""),
        ("/kubepods/podabc/", "/kubepods"),
        ("/n/kubepods/burstable/podabc", "/n/kubepods"),
        ("kubepods-besteffort-podab_c.slice", "/kubepods.slice"),
        ("/n.slice/n-kubepods.slice/n-kubepods-podab_c.slice", "/n.slice/n-kubepods.slice"),
    ],
)
def test_kubepods_above_a_pod(parent: str, kubepods: str) -> None:
    assert layout.kubepods_above(parent) == kubepods


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cgroupDriver: [", "c.yaml: not YAML"),
        ("- a", "c.yaml: not a kubelet configuration"),
        ("cgroupDriver: openrc", "c.yaml: unknown cgroup driver 'openrc'"),
    ],
)
def test_kubelet_configurations_that_say_nothing(text: str, problem: str) -> None:
    told = claims.of_kubelet_config("c.yaml", text)
    assert told.claims == ()
    assert told.problems[0].startswith(problem)


@pytest.mark.parametrize(
    ("text", "claimed"),
    [
        ("cgroupDriver: systemd\ncgroupRoot: ''\n", {"driver": "systemd"}),
        ('{"kubeletconfig": {"cgroupRoot": "/n", "cgroupsPerQOS": false}}',
         {"cgroup root": "/n", "cgroups per QoS": "false"}),
    ],
)  # fmt: skip
def test_kubelet_configurations(text: str, claimed: dict[str, str]) -> None:
    told = claims.of_kubelet_config("c.yaml", text)
    assert {claim.name: claim.value for claim in told.claims} == claimed


@pytest.mark.parametrize(
    ("text", "drivers"),
    [
        (CONTAINERD_2, ["systemd"]),
        (CRICTL_INFO, ["systemd"]),
        ('[crio.runtime]\ncgroup_manager = "cgroupfs"\n', ["cgroupfs"]),
        ('[plugins.x.containerd.runtimes.runc.options]\nBinaryName = "runc"\n', ["cgroupfs"]),
        ("version = 2\n", []),
        ("[containerd\n", []),
        ("{", []),
    ],
)
def test_runtime_configurations(text: str, drivers: list[str]) -> None:
    told = claims.of_runtime("config.toml", text)
    assert [claim.value for claim in told.claims] == drivers
    assert all(problem.startswith("config.toml: ") for problem in told.problems)


@pytest.mark.parametrize(
    ("args", "value"),
    [
        ([], None),
        (["--cgroup-root"], ""),
        (["--cgroup-root", "/a", "--cgroup-root=/b"], "/b"),
        (["-cgroup-root=/a"], "/a"),
        (["cgroup-root=/a", "--cgroup-root-x=/b"], None),
    ],
)
def test_flags(args: list[str], value: str | None) -> None:
    assert claims.flag(args, "cgroup-root") == value


def test_without_tiers_it_says_so(tmp_path: Path) -> None:
    told = said("cgroupfs") + claims.of_kubelet_config("c.yaml", "cgroupsPerQOS: false")
    assert "without cgroups per QoS" in layout.detect(tree_with(tmp_path, "v2", ["/kubepods"]), told).problems[0]


def test_a_real_detected_tree(tmp_path: Path) -> None:
    (tmp_path / "cpu/kubepods/burstable").mkdir(parents=True)
    assert layout.detect(cgroup.detect(tmp_path, ""), Claims()).kubepods == "/kubepods"
