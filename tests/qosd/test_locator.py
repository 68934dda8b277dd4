"""Where kubelet's cgroups are: known late, in another root, or differently from what configuration says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from koord.host.weights import Weights
from koord.host.writer import Writer
from koord.model.qos import KubeQoS
from koord.service.config import ConfigError
from qosd.locator import CgroupLocator, weights_of
from qosd.model.pod import Resources
from qosd.model.snapshot import PodView
from qosd.sense.targets import Tiers
from tests.qosd.machine import Machine
from tests.qosd.podviews import view


@pytest.fixture(params=[1, 2])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    return Machine(tmp_path, request.param)


class TestWithout:
    def test_a_sysfs_without_cpus_is_a_config_error(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"sys-root = '.*/nowhere'.*names no CPU"):
            Machine(tmp_path).locator(sys_root=tmp_path / "nowhere")

    def test_no_cgroups_at_all_are_an_unknown_layout(self, tmp_path: Path) -> None:
        locator = Machine(tmp_path).locator(cgroup_root=tmp_path / "nowhere", proc_root=tmp_path / "nowhere")
        assert (locator.layout.kubepods, locator.tiers, locator.watched, locator.watched_roots()) == ("", {}, (), ())
        assert locator.layout.problems == (
            "neither kubelet, nor the runtime, nor the cgroup tree shows where pods are",
        )
        assert Tiers.of(locator.tiers) == Tiers()

    def test_a_claimed_place_may_have_no_hierarchy(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path)
        kubelet(machine, "--cgroup-driver=cgroupfs")
        locator = machine.locator(cgroup_root=tmp_path / "nowhere")
        assert (locator.layout.kubepods, locator.watched_roots()) == ("/kubepods", ())


def kubelet(machine: Machine, *arguments: str, config: str = "") -> None:
    """A process of that name, with its own root directory."""
    machine.put("proc/31/comm", "kubelet\n")
    machine.put("proc/31/cmdline", "\0".join(("/usr/bin/kubelet", *arguments)) + "\0")
    machine.put("proc/31/root/var/lib/kubelet/config.yaml", config)


def test_the_layout_appears_later(machine: Machine) -> None:
    locator = machine.locator()
    changes = []
    assert (locator.tiers, locator.holds(()), locator.watched) == ({}, False, ())
    assert locator.find(()) is False

    machine.kubepods()
    changes.append(locator.find(()))
    assert locator.tiers == {
        KubeQoS.GUARANTEED: "/kubepods",
        KubeQoS.BURSTABLE: "/kubepods/burstable",
        KubeQoS.BEST_EFFORT: "/kubepods/besteffort",
    }
    assert locator.watched == ("/kubepods", "/kubepods/burstable", "/kubepods/besteffort")
    assert Tiers.of(locator.tiers) == Tiers("/kubepods", "/kubepods/burstable", "/kubepods/besteffort")
    assert locator.holds(())
    changes.append(locator.find(()))
    assert changes == [True, False]


def test_what_the_runtime_answers_beats_kubelets_files(machine: Machine) -> None:
    kubelet(machine, config="cgroupDriver: cgroupfs\n")
    locator = machine.locator()
    assert locator.layout.kubepods == "/kubepods"
    locator.runtime_driver = "systemd"
    assert locator.find(()) is True
    assert locator.layout.kubepods == "/kubepods.slice"
    (problem,) = locator.layout.problems
    assert problem.startswith("driver: the runtime says systemd, but ")


def test_kubelets_cgroup_root_is_heeded(machine: Machine) -> None:
    machine.cgroups.make("/nested/kubepods/burstable")
    kubelet(machine, "--cgroup-driver=cgroupfs", config="cgroupRoot: /nested\n")
    assert machine.locator().tiers[KubeQoS.BEST_EFFORT] == "/nested/kubepods/besteffort"


def test_pods_outside_move_the_layout_and_leave_what_was_handed_out(machine: Machine) -> None:
    machine.kubepods()
    locator = machine.locator()
    tiers = locator.tiers
    moved = within(view("web"), "/other/kubepods/burstable/podweb")
    assert not locator.holds([moved])
    assert locator.find([moved.cgroup])
    assert tiers[KubeQoS.BURSTABLE] == "/kubepods/burstable"
    assert locator.tiers[KubeQoS.BURSTABLE] == "/other/kubepods/burstable"
    assert locator.holds([moved, within(view("unknown"), "")])


@pytest.mark.parametrize(
    ("parent", "explained"),
    [
        ("/kubepods/burstable/pod1", True),
        ("/nested/kubepods/burstable/pod1", False),
        ("kubepods-burstable-pod1.slice", False),
        ("/crictl/pod1", True),
        ("", True),
    ],
)
def test_an_announced_pod_tells_whether_to_look_again(tmp_path: Path, parent: str, explained: bool) -> None:
    machine = Machine(tmp_path)
    machine.kubepods()
    assert machine.locator().explains(parent) is explained


def test_an_announced_pod_shows_where_pods_are(machine: Machine) -> None:
    locator = machine.locator()
    assert not locator.explains("/nested/kubepods/burstable/pod1")
    assert locator.find(["/nested/kubepods/burstable/pod1"])
    assert locator.layout.kubepods == "/nested/kubepods"


@pytest.mark.parametrize(
    ("arguments", "config", "runtime", "said"),
    [
        (["--cgroup-driver=systemd"], "", "", "makes it /kubepods.slice, which does not exist; the tree has /kubepo"),
        ([], "cgroupDriver: systemd\n", "", "makes it /kubepods.slice, which does not exist"),
        (["--cgroup-driver=cgroupfs"], "cgroupDriver: systemd\n", "", "--cgroup-driver says cgroupfs, but"),
        ([], "cgroupDriver: cgroupfs\n", "SystemdCgroup = true\n", "says cgroupfs, but"),
    ],
)
def test_a_driver_that_contradicts_is_said_and_the_tree_wins(
    tmp_path: Path, arguments: list[str], config: str, runtime: str, said: str
) -> None:
    machine = Machine(tmp_path)
    machine.kubepods()
    kubelet(machine, *arguments, config=config)
    if runtime:
        section = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]\n'
        machine.put("host/etc/containerd/config.toml", f"version = 2\n{section}{runtime}")
    layout = machine.locator().layout
    assert layout.kubepods == "/kubepods"
    assert any(said in problem for problem in layout.problems), layout.problems


def test_on_v1_values_are_written_in_three_hierarchies(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.kubepods()
    root = machine.cgroup_root
    assert machine.locator().watched_roots() == (root / "cpu", root / "cpuset", root / "memory")
    assert Machine(tmp_path / "v2", 2).locator().watched_roots() == (tmp_path / "v2/cgroup",)


@dataclass
class Weighed:
    """Containers of a v2 node: shares that were asked for, and the weight that the runtime made of them."""

    machine: Machine
    pods: list[PodView] = field(default_factory=list)
    state: str = "CONTAINER_RUNNING"

    def container(self, name: str, shares: int | None, weight: str | None) -> None:
        pod = view(name, containers=[("main", self.state)], container_requested=Resources(cpu_shares=shares))
        self.pods.append(pod)
        self.machine.cgroups.make(pod.cgroup)
        if weight is not None:
            self.machine.cgroups.make(pod.containers[1].cgroup)
            self.machine.put(f"cgroup{pod.containers[1].cgroup}/cpu.weight", weight)

    def found(self, locator: CgroupLocator) -> Weights | None:
        return weights_of(Writer(locator.tree), self.pods)


@pytest.mark.parametrize(
    ("containers", "mapping"),
    [
        ({}, None),
        ({"a": (None, "100\n")}, None),
        ({"a": (1024, None)}, None),
        ({"a": (1024, "max\n")}, None),
        ({"a": (1024, "39\n")}, Weights.LINEAR),
        ({"a": (1024, "100\n")}, Weights.QUADRATIC),
        ({"gone": (1024, None), "a": (1024, "100\n"), "b": (None, "7\n")}, Weights.QUADRATIC),
    ],
)
def test_weights_are_learnt_from_containers_on_v2(
    tmp_path: Path, containers: Mapping[str, tuple[int | None, str | None]], mapping: Weights | None
) -> None:
    node = Weighed(Machine(tmp_path, 2))
    for name, (shares, weight) in containers.items():
        node.container(name, shares, weight)
    assert node.found(node.machine.locator()) is mapping


def test_a_weight_that_the_kernel_refuses_to_show_teaches_nothing(tmp_path: Path) -> None:
    node = Weighed(Machine(tmp_path, 2))
    node.container("a", 1024, "39\n")
    file = tmp_path / f"cgroup{node.pods[0].containers[1].cgroup}/cpu.weight"
    file.unlink()
    file.mkdir()
    assert node.found(node.machine.locator()) is None


def test_a_container_that_is_being_made_teaches_nothing(tmp_path: Path) -> None:
    node = Weighed(Machine(tmp_path, 2), state="CONTAINER_CREATED")
    node.container("a", 1024, "100\n")
    assert node.found(node.machine.locator()) is None


def test_v1_has_no_weights(tmp_path: Path) -> None:
    node = Weighed(Machine(tmp_path, 1))
    node.container("a", 1024, "39\n")
    assert node.found(node.machine.locator()) is None


def within(pod: PodView, cgroup: str) -> PodView:
    return replace(pod, cgroup=cgroup)


class TestCPUs:
    @pytest.mark.parametrize("text", ["", "x-y\n"])
    def test_a_list_that_cannot_be_read_changes_nothing(self, tmp_path: Path, text: str) -> None:
        machine = Machine(tmp_path)
        locator = machine.locator()
        before = locator.topology
        machine.put("sys/devices/system/cpu/online", text)
        assert (locator.count_cpus(), locator.topology) == (False, before)

    def test_a_cpu_that_goes_offline(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path)
        locator = machine.locator()
        before = locator.topology
        assert (locator.count_cpus(), locator.topology is before) == (False, True)
        machine.put("sys/devices/system/cpu/online", "0-2\n")
        assert (locator.count_cpus(), str(locator.topology.online)) == (True, "0-2")
