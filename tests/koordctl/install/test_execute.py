"""Carrying out a plan: what fails is rolled back, what an operator edited stays, what is there is left alone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from koord.model.locations import PROXY_SOCKET
from koord.pb.cri import api_pb2 as cri
from koordctl.install import plan
from koordctl.install import record as records
from koordctl.install.execute import NotUndone, RolledBack
from koordctl.install.machine import InstallError
from koordctl.install.plan import Flavour
from koordctl.install.prepare import decide
from koordctl.node.units import UNITS
from tests.koordctl.install.runs import install, uninstall
from tests.koordctl.install.world import RUNTIME_SOCKET, Killed, Runtime, World, facts

DROP_IN = "etc/systemd/system/kubelet.service.d/90-koord.conf"
QOSD_UNIT = "etc/systemd/system/koord-qosd.service"
RULES = "etc/koord/qosd-rules.yaml"
ORDER = [
    "daemon-reload",
    "start koord-qosd.service",
    "start koord-runtime-proxy.socket",
    "start koord-runtime-proxy.service",
    "daemon-reload",
    "restart kubelet.service",
]


def installed(world: World, **changed: object) -> None:
    install(world.machine(), plan.steps(facts(world.root, **changed), with_kubelet=True))  # type: ignore[arg-type]


def test_the_order_of_things(world: World, runtime: Runtime) -> None:
    installed(world)
    assert world.commands == ORDER
    assert PROXY_SOCKET in world.kubelet_arguments()
    assert runtime.calls == [
        "Version",
        "Status",
        "RunPodSandbox",
        "PodSandboxStatus",
        "StopPodSandbox",
        "RemovePodSandbox",
    ]
    world.commands.clear()
    uninstall(world.machine())
    assert world.commands[:2] == ["daemon-reload", "restart kubelet.service"]
    assert world.commands.index("stop koord-runtime-proxy.socket") < world.commands.index("stop koord-qosd.service")
    assert world.kernel_restored == [RUNTIME_SOCKET]


@pytest.mark.parametrize("command", ORDER)
def test_a_command_that_fails_is_rolled_back(world: World, command: str) -> None:
    before = world.snapshot()
    world.fails[command] = "Job failed."
    machine = world.machine()
    with pytest.raises((RolledBack, NotUndone), match="Job failed"):
        installed(world)
    world.fails.clear()
    uninstall(machine)  # daemon-reload fails while rolling back as well; then the record is still there
    assert world.snapshot() == before
    assert world.active == {"kubelet.service", "containerd.service"}


def refuse(name: str) -> Callable[[World, Runtime], None]:
    return lambda world, runtime: runtime.refuses.update({name: "no room"})


def not_ready(world: World, runtime: Runtime) -> None:
    runtime.ready = False


def stopped_by_others(world: World, runtime: Runtime) -> None:
    runtime.state = cri.SANDBOX_NOTREADY


def elsewhere(world: World, runtime: Runtime) -> None:
    runtime.parent = "/system.slice"


def sick_kubelet(world: World, runtime: Runtime) -> None:
    world.sick_on_proxy = True


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        (refuse("Version"), "Version on .*: no room"),
        (not_ready, "does not call itself ready"),
        (refuse("RunPodSandbox"), "RunPodSandbox on .*: no room"),
        (refuse("PodSandboxStatus"), "no room"),
        (stopped_by_others, "another process stopped it"),
        (
            elsewhere,
            "it is not in cgroup /kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-koord_check_11_22.slice",
        ),
        (sick_kubelet, "kubelet.service is not well 5 s after its restart: it is failed; see journalctl"),
    ],
)
def test_what_does_not_work_is_rolled_back(
    world: World, runtime: Runtime, trouble: Callable[[World, Runtime], None], why: str
) -> None:
    before = world.snapshot()
    trouble(world, runtime)
    with pytest.raises(RolledBack, match=why):
        installed(world)
    runtime.forget()
    assert world.snapshot() == before
    assert runtime.sandboxes == {}
    assert world.active == {"kubelet.service", "containerd.service"}
    assert "koord" not in world.kubelet_arguments()


def test_an_interrupted_installation_is_rolled_back(world: World) -> None:
    def interrupted(line: str) -> None:
        if line.startswith("Point kubelet"):
            raise KeyboardInterrupt

    before = world.snapshot()
    with pytest.raises(KeyboardInterrupt):
        install(replace(world.machine(), say=interrupted), plan.steps(facts(world.root), with_kubelet=True))
    assert world.snapshot() == before


def test_a_stopped_kubelet_is_configured_and_not_started(world: World) -> None:
    world.stop_kubelet()
    before = world.snapshot()
    installed(world)
    assert (world.root / DROP_IN).exists()
    uninstall(world.machine())
    assert "restart kubelet.service" not in world.commands
    assert world.snapshot() == before


def test_a_kubelet_that_was_stopped_since_is_not_started(world: World) -> None:
    installed(world)
    world.stop_kubelet()
    world.commands.clear()
    uninstall(world.machine())
    assert "restart kubelet.service" not in world.commands


def test_the_proxy_is_not_stopped_under_a_kubelet_that_uses_it(world: World) -> None:
    install(world.machine(), plan.steps(facts(world.root), with_kubelet=False))
    config = world.root / "var/lib/kubelet/config.yaml"
    config.write_text(f"healthzPort: 0\ncontainerRuntimeEndpoint: unix://{PROXY_SOCKET}\n")
    with pytest.raises(NotUndone, match="kubelet still reaches the runtime by"):
        uninstall(world.machine())
    assert set(UNITS) <= world.active
    config.write_text("healthzPort: 0\n")
    assert uninstall(world.machine()) == ()


def test_what_could_not_be_put_back_into_the_kernel_stops_the_removal(world: World) -> None:
    installed(world)
    machine = replace(world.machine(), restore_kernel=lambda runtime: ("/sys/fs/cgroup/x: EIO",))
    with pytest.raises(NotUndone, match="not put back: /sys/fs/cgroup/x: EIO"):
        uninstall(machine)
    assert (world.root / "run/koord/undo.jsonl").exists()
    assert PROXY_SOCKET not in world.kubelet_arguments()
    assert uninstall(world.machine()) == ()


def test_a_busy_node_is_asked_again(world: World) -> None:
    installed(world)
    answers = iter([("busy",), ("busy",), ()])
    assert uninstall(replace(world.machine(), restore_kernel=lambda runtime: next(answers))) == ()
    assert next(answers, "all asked") == "all asked"


@pytest.mark.parametrize("purge", [False, True])
def test_edited_files(world: World, purge: bool) -> None:
    installed(world, node=facts_with_static_policy(world))
    before = world.snapshot()
    assert before[RULES][-1] == b"node:\n  cpuManagerPolicy: static\n"
    for path in (QOSD_UNIT, RULES, DROP_IN):
        (world.root / path).write_text("edited")
    notes = uninstall(world.machine(), purge)
    kept = [
        path for path in (f"{QOSD_UNIT}.koord-edited", RULES, f"{DROP_IN}.koord-edited") if (world.root / path).exists()
    ]
    assert kept == ([] if purge else [f"{QOSD_UNIT}.koord-edited", RULES, f"{DROP_IN}.koord-edited"])
    assert notes == (
        ()
        if purge
        else (
            f"/{DROP_IN} was edited: what it held is now /{DROP_IN}.koord-edited",
            f"/{RULES} stays: it was edited",
            f"/{QOSD_UNIT} was edited: what it held is now /{QOSD_UNIT}.koord-edited",
            "/etc/koord stays: it holds qosd-rules.yaml",
        )
    )
    assert not (world.root / QOSD_UNIT).exists()
    assert not (world.root / DROP_IN).exists()


def test_what_was_there_comes_back(world: World) -> None:
    """A by-hand link to another environment, rules and a hook server of the operator's own."""
    (world.root / "usr/bin/koordctl").symlink_to("/srv/koord/bin/koordctl")
    for name in ("etc/koord/qosd-rules.yaml", "etc/runtime/hookserver.d/other.json", QOSD_UNIT):
        (world.root / name).parent.mkdir(parents=True, exist_ok=True)
        (world.root / name).write_text("theirs")
    (world.root / QOSD_UNIT).chmod(0o600)
    before = world.snapshot()
    installed(world)
    assert (world.root / "usr/bin/koordctl").readlink() == Path("/opt/koord/bin/koordctl")
    assert uninstall(world.machine()) == ()
    assert world.snapshot() == before


def test_files_that_appeared_in_our_directories_are_named(world: World) -> None:
    installed(world)
    (world.root / "etc/runtime/hookserver.d/other.json").write_text("theirs")
    assert uninstall(world.machine()) == (
        "/etc/runtime/hookserver.d stays: it holds other.json",
        "/etc/runtime stays: it holds hookserver.d",
    )


def test_run_time_directories_that_were_there_stay(world: World) -> None:
    (world.root / "run/koord-runtimeproxy").mkdir()
    installed(world)
    assert uninstall(world.machine()) == ("/run/koord-runtimeproxy stays: it was there before",)
    assert not (world.root / "run/koord").exists()


def test_a_state_directory_that_was_there_stays(world: World) -> None:
    (world.root / "var/lib/koord").mkdir()
    installed(world)
    assert uninstall(world.machine()) == ("/var/lib/koord stays: it was there before",)
    assert [path.name for path in (world.root / "var/lib/koord").iterdir()] == ["journal.sqlite"]


def test_the_package_brings_programs_and_units(world: World) -> None:
    for name, text in facts(world.root).programs.units.items():
        (world.root / "usr/lib/systemd/system" / name).write_text(text)
    before = world.snapshot()
    install(world.machine(), plan.steps(facts(world.root, Flavour.PACKAGE), with_kubelet=True))
    assert not (world.root / "usr/bin/koordctl").exists()
    link = world.root / "etc/systemd/system/multi-user.target.wants/koord-qosd.service"
    assert link.readlink() == Path("/usr/lib/systemd/system/koord-qosd.service")
    assert uninstall(world.machine()) == ()
    assert world.snapshot() == before


def test_a_unit_that_hides_the_packages_is_in_the_way(world: World) -> None:
    (world.root / QOSD_UNIT).write_text("by hand")
    found = decide(world.machine().disk, facts(world.root, Flavour.PACKAGE), with_kubelet=True, installed=False)
    assert [each.sentence for each in found.reasons] == [f"/{QOSD_UNIT} is there and is not Koord's to replace"]


@pytest.mark.parametrize("path", ["usr/bin/koordctl", QOSD_UNIT, DROP_IN])
def test_what_is_no_file_of_ours_is_in_the_way(world: World, path: str) -> None:
    if path == "usr/bin/koordctl":
        (world.root / path).write_text("a program")
    else:
        (world.root / path).mkdir()
    found = decide(world.machine().disk, facts(world.root), with_kubelet=True, installed=False)
    assert [each.sentence for each in found.reasons] == [f"/{path} is there and is not Koord's to replace"]
    assert found.steps == ()


def running(world: World) -> dict[str, object]:
    """What a second look finds of an installed node."""
    found = facts(world.root).node
    kubelet = replace(found.kubelet, runtime_endpoint=f"unix://{PROXY_SOCKET}")
    return {"node": replace(found, kubelet=kubelet), "running": frozenset(UNITS)}


def test_a_second_installation_has_nothing_to_change(world: World) -> None:
    installed(world)
    found = decide(world.machine().disk, facts(world.root, **running(world)), with_kubelet=True, installed=True)  # type: ignore[arg-type]
    assert (found.reasons, found.steps) == ((), ())


def test_a_second_installation_brings_up_to_date_what_is_old(world: World) -> None:
    before = world.snapshot()
    installed(world)
    world.commands.clear()
    vendor = world.root / "etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
    vendor.write_text("[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --v=4\n")
    (world.root / QOSD_UNIT).write_text("[Service]\nExecStart=/usr/bin/old\n[Install]\nWantedBy=multi-user.target\n")
    found = decide(world.machine().disk, facts(world.root, **running(world)), with_kubelet=True, installed=True)  # type: ignore[arg-type]
    install(world.machine(), found.steps)
    assert world.commands == ["daemon-reload", "restart koord-qosd.service", "daemon-reload", "restart kubelet.service"]
    assert "--v=4\0--container-runtime-endpoint=" in world.kubelet_arguments()
    uninstall(world.machine())
    after = world.snapshot()
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} == {
        "etc/systemd/system/kubelet.service.d/10-kubeadm.conf",  # the vendor's own change
        f"{QOSD_UNIT}.koord-edited",
    }


def test_a_failed_change_goes_back_to_the_installation_before(world: World) -> None:
    installed(world)
    vendor = world.root / "etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
    vendor.write_text("[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --v=4\n")
    before = world.snapshot()
    found = decide(world.machine().disk, facts(world.root, **running(world)), with_kubelet=True, installed=True)  # type: ignore[arg-type]
    world.sick_on_proxy = True
    with pytest.raises((RolledBack, NotUndone)):
        install(world.machine(), found.steps)
    world.sick_on_proxy = False
    world.systemctl(("systemctl", "restart", "kubelet.service"))
    after = world.snapshot()
    assert {path for path in after if before.get(path) != after[path]} <= {"var/lib/koord/install/record.jsonl"}


def test_two_at_once(world: World) -> None:
    disk = world.machine().disk
    with records.alone(disk), pytest.raises(InstallError, match="another koordctl"), records.alone(disk):
        raise Killed
    assert not disk.exists("/run/koord-install.lock")


def test_who_may_only_read_the_state_s_directory_keeps_nobody_from_installing(world: World) -> None:
    disk = world.machine().disk
    others = [os.open(disk.at(directory), os.O_RDONLY) for directory in ("/var/lib", "/run")]
    for other in others:
        fcntl.flock(other, fcntl.LOCK_EX)
    with records.alone(disk):
        assert disk.exists("/run/koord-install.lock")
    for other in others:
        os.close(other)


def facts_with_static_policy(world: World) -> object:
    found = facts(world.root).node
    return replace(found, kubelet=replace(found.kubelet, cpu_manager_policy="static"))
