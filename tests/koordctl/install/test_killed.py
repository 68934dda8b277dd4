"""Whenever installing or uninstalling is killed, uninstalling afterwards leaves the node as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from koord.pb.cri import api_pb2 as cri
from koordctl.install import execute, plan
from koordctl.install import record as records
from koordctl.install.probes import LABEL
from koordctl.install.steps import CheckSandbox, Step
from koordctl.node.units import UNITS
from tests.koordctl.install.runs import changes, install, uninstall
from tests.koordctl.install.world import Hand, Killed, Runtime, World, facts

Worlds = Callable[[], World]
VENDOR = "etc/systemd/system/kubelet.service.d/10-kubeadm.conf"


def test_killed_while_installing(new_world: Worlds) -> None:
    world, all_of_them = new_world(), Hand()
    steps = plan.steps(facts(world.root), with_kubelet=True)
    install(world.machine(all_of_them), steps)
    assert all_of_them.moments > 60
    for moment in range(1, all_of_them.moments + 1):
        world = new_world()
        before = world.snapshot()
        with pytest.raises(Killed):
            install(world.machine(Hand(moment)), steps)
        assert uninstall(world.machine()) == ()
        assert (moment, world.snapshot()) == (moment, before)
        assert world.active == {"kubelet.service", "containerd.service"}
        assert "koord" not in world.kubelet_arguments()


def test_killed_while_uninstalling(new_world: Worlds) -> None:
    moments = 1
    while True:
        world = new_world()
        before = world.snapshot()
        install(world.machine(), plan.steps(facts(world.root), with_kubelet=True))
        hand = Hand(moments)
        try:
            uninstall(world.machine(hand))
        except Killed:
            uninstall(world.machine())
        assert (moments, world.snapshot()) == (moments, before)
        assert world.active == {"kubelet.service", "containerd.service"}
        if hand.moments < moments:
            break
        moments += 1
    assert moments > 30


def changed_twice(world: World) -> Sequence[Step]:
    """A node that was installed for another kubelet and another directory of its; what is left to do."""
    install(world.machine(), plan.steps(facts(world.root, root_dir="/srv/kubelet"), with_kubelet=True))
    vendor = world.root / VENDOR
    vendor.write_text(f"{vendor.read_text()}# newer\nExecStart=\nExecStart=/usr/bin/kubelet --v=4\n")
    return changes(world).steps


def without_vendors(world: World) -> dict[str, tuple[object, ...]]:
    return {path: found for path, found in world.snapshot().items() if path != VENDOR}


def test_killed_while_changing(new_world: Worlds) -> None:
    """What was begun goes back to the installation before, and that one can be undone."""
    moment, hand = 1, Hand()
    while hand.moments >= hand.at:
        world = new_world()
        before = without_vendors(world)
        steps = changed_twice(world)
        ran = dict(world.runs)
        hand = Hand(moment)
        with suppress(Killed):
            install(world.machine(hand), steps)
        record = records.load(world.machine().disk)
        if record is not None and record.unfinished:
            assert execute.roll_back(world.machine(), record) == ()
            assert (moment, world.runs) == (moment, ran)
            assert world.active == {"kubelet.service", "containerd.service", *UNITS}
        assert uninstall(world.machine()) == ()
        assert (moment, without_vendors(world)) == (moment, before)
        assert world.active == {"kubelet.service", "containerd.service"}
        moment += 1
    assert moment > 20


def test_killed_while_uninstalling_what_was_changed(new_world: Worlds) -> None:
    moment, hand = 1, Hand()
    while hand.moments >= hand.at:
        world = new_world()
        before = without_vendors(world)
        install(world.machine(), changed_twice(world))
        hand = Hand(moment)
        with suppress(Killed):
            uninstall(world.machine(hand))
        uninstall(world.machine())
        assert (moment, without_vendors(world)) == (moment, before)
        assert world.active == {"kubelet.service", "containerd.service"}
        moment += 1
    assert moment > 40


def test_installing_again_after_a_kill(new_world: Worlds) -> None:
    world = new_world()
    before = world.snapshot()
    steps = plan.steps(facts(world.root), with_kubelet=True)
    install(world.machine(), steps)
    after = world.snapshot()
    for moment in range(3, 60, 8):
        world = new_world()
        with pytest.raises(Killed):
            install(world.machine(Hand(moment)), steps)
        install(world.machine(), steps)
        assert world.snapshot() == after
        uninstall(world.machine())
        assert world.snapshot() == before


def test_killed_while_the_sandbox_is_there(world: World, runtime: Runtime) -> None:
    before = world.snapshot()
    machine = world.machine()
    check = next(step for step in plan.steps(facts(world.root), with_kubelet=True) if isinstance(step, CheckSandbox))
    records.create(machine.disk, "1").begin(check, check.look(machine))
    labels = {LABEL: check.uid}
    for each in (labels, {"app": "other"}):
        runtime.run(cri.PodSandboxConfig(labels=each, linux=cri.LinuxPodSandboxConfig(cgroup_parent=check.parent)))
    others = "sandbox1"
    assert uninstall(machine) == ()
    assert list(runtime.sandboxes) == [others]
    assert world.snapshot() == before
