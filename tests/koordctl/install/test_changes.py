"""An installation that is brought up to date, repaired or moved: one that fails, and one that is undone in the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from koord.model.locations import PROXY_SOCKET
from koordctl.install import plan
from koordctl.install import record as records
from koordctl.install.disk import UnwantedFile
from koordctl.install.execute import RolledBack
from koordctl.install.plan import Flavour, Programs
from koordctl.install.steps import PutFiles, StartUnits, Step
from koordctl.node.facts import Facts, RuntimeFacts
from koordctl.node.units import UNITS
from koordctl.views import install as view
from tests.koordctl.install.runs import changes, install, uninstall
from tests.koordctl.install.world import Runtime, World, facts, node_facts

QOSD, SOCKET, PROXY = UNITS
VENDOR = "etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
RECORD = "var/lib/koord/install/record.jsonl"
PLAIN = {"kubelet.service", "containerd.service"}
WIRED = PLAIN | set(UNITS)


def installed(world: World, **changed: object) -> None:
    install(world.machine(), plan.steps(facts(world.root, **changed), with_kubelet=True))  # type: ignore[arg-type]
    world.commands.clear()


def command(world: World, flag: str) -> None:
    """kubelet's own command becomes one with ``flag``."""
    (world.root / VENDOR).write_text(f"[Service]\nExecStart=\nExecStart=/usr/bin/kubelet {flag}\n")


def of_crio() -> Facts:
    return replace(node_facts(), runtime=RuntimeFacts("cri-o", "1.31.0", "/run/crio/crio.sock", True))


def newer_units(world: World) -> Programs:
    texts = {name: f"{text}# newer\n" for name, text in facts(world.root).programs.units.items()}
    return Programs(Flavour.VENV, "/srv/koord-2/bin", "/etc/systemd/system", texts)


def drop_in(unit: str) -> str:
    return f"etc/systemd/system/{unit}.d/50-koord-node.conf"


# --- repairs ---------------------------------------------------------------------------------------------------------


def of_an_older_koord(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Its records do not tell a repair."""
    return tuple(
        msgspec.structs.replace(step, repair=False) if isinstance(step, StartUnits) else step for step in steps
    )


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("stopped", [{PROXY}, {SOCKET, PROXY}, set(UNITS)])
def test_a_repaired_installation_is_uninstalled(world: World, stopped: set[str], older: bool) -> None:
    before = world.snapshot()
    installed(world)
    world.active -= stopped
    steps = changes(world).steps
    install(world.machine(), of_an_older_koord(steps) if older else steps)
    assert world.active == WIRED
    assert uninstall(world.machine()) == ()
    assert world.snapshot() == before
    assert world.active == PLAIN


def test_a_repair_that_fails_stops_nothing(world: World, runtime: Runtime) -> None:
    installed(world)
    world.active.discard(PROXY)
    runtime.refuses["RunPodSandbox"] = "no room"
    with pytest.raises(RolledBack, match="no room"):
        install(world.machine(), changes(world).steps)
    assert world.active == WIRED
    assert PROXY_SOCKET in world.kubelet_arguments()


def test_a_repair_in_words(world: World) -> None:
    installed(world)
    world.active.discard(PROXY)
    install(world.machine(), changes(world).steps)
    record = records.load(world.machine().disk)
    assert record is not None
    shown = view.undoing(record.steps, world.machine().disk.look)
    assert shown.count("systemctl stop koord-runtime-proxy.service") == 1


# --- kubelet's drop-in -----------------------------------------------------------------------------------------------


def test_a_refreshed_kubelet_never_gets_its_old_command_again(world: World) -> None:
    command(world, "--old")
    installed(world)
    command(world, "--new")
    install(world.machine(), changes(world).steps)
    world.commands.clear()
    world.sick_with = "--old"
    assert uninstall(world.machine()) == ()
    assert world.commands.count("restart kubelet.service") == 1
    assert world.kubelet_arguments() == "/usr/bin/kubelet\0--new\0"
    assert world.active == PLAIN


def test_a_refresh_that_fails_goes_back_to_the_former_drop_in(world: World) -> None:
    command(world, "--old")
    installed(world)
    command(world, "--new")
    world.sick_with = "--new"
    with pytest.raises(RolledBack, match=r"kubelet\.service is not well"):
        install(world.machine(), changes(world).steps)
    assert world.kubelet_arguments().startswith("/usr/bin/kubelet\0--old\0--container-runtime-endpoint=")
    assert world.active == WIRED


# --- units whose files change ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "changed"),
    [
        (of_crio(), {}),
        (node_facts(), {"root_dir": "/srv/kubelet"}),
        (node_facts(), {"socket_group": "cri"}),
        (node_facts(), {"programs": newer_units}),
    ],
)
@pytest.mark.parametrize("stopped", [set(), {PROXY}, set(UNITS)])
def test_a_change_that_fails_leaves_running_what_ran(
    world: World, runtime: Runtime, node: Facts, changed: dict[str, object], stopped: set[str]
) -> None:
    installed(world)
    before, ran = world.snapshot(), dict(world.runs)
    world.active -= stopped
    known = {name: value(world) if callable(value) else value for name, value in changed.items()}
    steps = changes(world, node, **known).steps
    runtime.refuses["RunPodSandbox"] = "no room"
    with pytest.raises(RolledBack, match="no room"):
        install(world.machine(), steps)
    after = world.snapshot()
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} <= {RECORD}
    assert (world.runs, world.active) == (ran, WIRED)


def test_a_unit_that_does_not_come_back_is_named(world: World) -> None:
    installed(world)
    world.fails[f"restart {QOSD}"] = "Job failed."
    with pytest.raises(RolledBack) as caught:
        install(world.machine(), changes(world, root_dir="/srv/kubelet").steps)
    said = f"{QOSD} does not run with its former files: systemctl restart {QOSD}: Job failed"
    assert caught.value.notes == (said,)
    world.fails.clear()
    assert changes(world).steps == ()


def test_what_is_to_be_stopped_is_not_restarted_before(world: World) -> None:
    before = world.snapshot()
    installed(world)
    install(world.machine(), changes(world, root_dir="/srv/kubelet", programs=newer_units(world)).steps)
    world.commands.clear()
    assert uninstall(world.machine()) == ()
    assert [line for line in world.commands if line.startswith("restart ")] == ["restart kubelet.service"]
    assert (world.snapshot(), world.active) == (before, PLAIN)


# --- drop-ins of a node that was another -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("former", "units"),
    [
        ({"node": of_crio()}, [QOSD, PROXY]),
        ({"root_dir": "/srv/kubelet"}, [QOSD]),
        ({"socket_group": "cri"}, [SOCKET]),
    ],
)
def test_a_drop_in_that_is_not_wanted_any_more_goes(world: World, former: dict[str, object], units: list[str]) -> None:
    before = world.snapshot()
    installed(world, **former)
    paths = [drop_in(unit) for unit in units]
    found = changes(world)
    shown = view.plan(found.steps, world.machine().disk.look, full=True)
    assert [line for line in shown.splitlines() if "50-koord" in line] == [f"   remove /{path}" for path in paths]
    install(world.machine(), found.steps)
    assert not [path for path in paths if (world.root / path).exists()]
    assert [line for line in world.commands if line.startswith("restart ")] == [f"restart {unit}" for unit in units]
    assert changes(world).steps == ()
    assert uninstall(world.machine()) == ()
    assert (world.snapshot(), world.active) == (before, PLAIN)


@pytest.mark.parametrize(("former", "now"), [(of_crio(), node_facts()), (node_facts(), of_crio())])
def test_containers_are_put_right_at_the_runtime_of_today(
    world: World, runtime: Runtime, former: Facts, now: Facts
) -> None:
    (world.root / "run/crio").mkdir()
    (world.root / "run/crio/crio.sock").symlink_to(runtime.socket)
    installed(world, node=former)
    world.active.discard(QOSD)
    install(world.machine(), changes(world, now).steps)
    assert uninstall(world.machine()) == ()
    assert world.kernel_restored == [now.runtime.socket]


def test_a_move_that_fails_puts_back_no_kernel_file(world: World, runtime: Runtime) -> None:
    installed(world)
    world.active.discard(QOSD)
    runtime.refuses["RunPodSandbox"] = "no room"
    with pytest.raises(RolledBack):
        install(world.machine(), changes(world, of_crio()).steps)
    assert world.kernel_restored == []
    assert uninstall(world.machine()) == ()
    assert world.kernel_restored == [node_facts().runtime.socket]


def test_a_drop_in_comes_and_goes_and_comes(world: World) -> None:
    before = world.snapshot()
    for root_dir in ("", "/srv/kubelet", "", "/srv/other"):
        steps = changes(world, root_dir=root_dir).steps
        install(world.machine(), steps)
        assert (world.root / drop_in(QOSD)).exists() == bool(root_dir)
        assert any("--kubelet-state-dir" in text for text in world.runs[QOSD]) == bool(root_dir)
    assert uninstall(world.machine()) == ()
    assert world.snapshot() == before


def test_a_drop_in_that_is_not_ours_stays(world: World) -> None:
    installed(world)
    path = Path(world.root / drop_in(QOSD))
    path.parent.mkdir()
    path.write_text("theirs")
    assert changes(world).steps == ()


def test_a_change_that_was_cut_off_made_nothing(world: World) -> None:
    installed(world, root_dir="/srv/kubelet")
    record = records.load(world.machine().disk)
    assert record is not None
    made = record.own_paths
    assert f"/{drop_in(QOSD)}" in made
    step = next(step for step in changes(world).steps if isinstance(step, PutFiles))
    assert UnwantedFile(f"/{drop_in(QOSD)}") in step.places
    record.begin(step, step.look(world.machine()))
    assert record.own_paths == made
    record.finish()
    assert record.own_paths == made - {f"/{drop_in(QOSD)}"}
