"""An installation of the proxy alone: koord-qosd is a DaemonSet's pod, and what it keeps on the node is its own."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from koord.host import undo
from koord.model.locations import PROXY_SOCKET
from koordctl.install import plan
from koordctl.install import record as records
from koordctl.install.disk import NodeDisk
from koordctl.install.execute import NotUndone, RolledBack
from koordctl.install.machine import Systemd
from koordctl.install.plan import Flavour
from koordctl.install.prepare import Wishes, gather, remembered
from koordctl.install.steps import RemoveLeavings, RestoreKernel, StartUnits, Step
from koordctl.node.units import UNITS
from tests.koordctl.install.runs import changes, install, uninstall
from tests.koordctl.install.world import Hand, Killed, World, facts

QOSD, SOCKET, PROXY = UNITS
ENABLED = f"etc/systemd/system/multi-user.target.wants/{QOSD}"
PLAIN = {"kubelet.service", "containerd.service"}
WIRED = PLAIN | {SOCKET, PROXY}
ORDER = [
    "daemon-reload",
    f"start {SOCKET}",
    f"start {PROXY}",
    "daemon-reload",
    "restart kubelet.service",
]
POD = (
    "run/koord/undo.jsonl",
    "run/koord/undo.jsonl.lock",
    "run/koord/qosd-hooks.sock",
    "etc/runtime/hookserver.d/koord-qosd.json",
    "var/lib/koord/journal.db",
)
METRICS = "run/koord/runtime-proxy-metrics.sock"
LOCK = "run/koord/undo.jsonl.lock"


def steps_of(world: World, **changed: object) -> tuple[Step, ...]:
    return plan.steps(facts(world.root, **changed), with_kubelet=True, with_daemon=False)  # type: ignore[arg-type]


def installed(world: World, **changed: object) -> None:
    install(world.machine(), steps_of(world, **changed), with_daemon=False)
    put(world, METRICS)


def put(world: World, *paths: str) -> None:
    """What Koord's processes make."""
    for path in paths:
        (world.root / path).parent.mkdir(parents=True, exist_ok=True)
        (world.root / path).write_text(path)


def of_the_pod(world: World) -> set[str]:
    return {path for path in POD if (world.root / path).exists()}


# --- what is refused -------------------------------------------------------------------------------------------------


ACTS = f"a koord-qosd acts on this node that is not {QOSD}: the chart's DaemonSet, or one started by hand"


@pytest.mark.parametrize(
    ("acts", "wished", "recorded", "said"),
    [
        (True, None, None, (ACTS, "install with --no-daemon, or with --daemon to have the unit stand by")),
        (True, False, None, None),
        (True, True, None, None),
        (False, None, None, None),
        (True, None, True, None),
        (True, None, False, None),
        (False, False, False, None),
        (False, True, True, None),
        (
            False, False, True,
            (
                f"Koord is installed with {QOSD}",
                "run koordctl uninstall while no other koord-qosd is on this node, then koordctl install --no-daemon",
            ),
        ),
        (
            False, True, False,
            (f"Koord is installed without {QOSD}", "run koordctl uninstall, then koordctl install --daemon"),
        ),
    ],
)  # fmt: skip
def test_refusals(
    world: World, acts: bool, wished: bool | None, recorded: bool | None, said: tuple[str, str] | None
) -> None:
    found = replace(facts(world.root), acts_besides=acts)
    reasons = [(each.sentence, each.remedy) for each in plan.daemon_refusals(found, wished, recorded)]
    assert reasons == ([said] if said else [])


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize(
    ("running", "held", "acts"), [(set(), True, True), ({QOSD}, True, False), (set(), False, False)]
)
def test_whose_koord_qosd_acts(world: World, running: set[str], held: bool, acts: bool) -> None:
    assert not look(world)  # there is no lock at all
    put(world, LOCK)
    world.active |= running
    with locked(world.root / LOCK) if held else nullcontext():
        assert look(world) == acts
    assert undo.lock_file(world.root / "run/koord/undo.jsonl") == world.root / LOCK


def look(world: World) -> bool:
    return gather(world.root, Wishes(), Systemd(world.systemctl), None).acts_besides


# --- what is done ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ORDER)
def test_a_command_that_fails_is_rolled_back(world: World, command: str) -> None:
    before = world.snapshot()
    world.fails[command] = "Job failed."
    with pytest.raises((RolledBack, NotUndone), match="Job failed"):
        install(world.machine(), steps_of(world), with_daemon=False)
    world.fails.clear()
    uninstall(world.machine())
    assert (world.snapshot(), world.active) == (before, PLAIN)


@pytest.mark.parametrize("flavour", Flavour)
def test_the_unit_is_in_place_and_neither_started_nor_enabled(new_world: Callable[[], World], flavour: Flavour) -> None:
    world = new_world()
    if flavour is Flavour.PACKAGE:
        for name, text in facts(world.root).programs.units.items():
            (world.root / "usr/lib/systemd/system" / name).write_text(text)
    before = world.snapshot()
    installed(world, flavour=flavour)
    assert (world.commands, world.active) == (ORDER, WIRED)
    assert PROXY_SOCKET in world.kubelet_arguments()
    assert not (world.root / ENABLED).is_symlink()
    assert (world.root / "etc/systemd/system" / QOSD).exists() == (flavour is Flavour.VENV)
    assert uninstall(world.machine()) == ()
    assert (world.snapshot(), world.active, world.kernel_restored) == (before, PLAIN, [])


def test_nothing_of_a_koord_qosd_is_a_step(world: World) -> None:
    steps = steps_of(world)
    assert not [step for step in steps if isinstance(step, RestoreKernel)]
    assert [step.units for step in steps if isinstance(step, StartUnits)] == [(SOCKET, PROXY)]
    (leavings,) = (step for step in steps if isinstance(step, RemoveLeavings))
    assert set(POD).isdisjoint(path.lstrip("/") for path in leavings.trees)


# --- an installation that is there -----------------------------------------------------------------------------------


def test_a_repair_starts_the_proxy_alone(world: World) -> None:
    before = world.snapshot()
    installed(world)
    assert changes(world).steps == ()
    world.active -= {SOCKET, PROXY}
    world.commands.clear()
    install(world.machine(), changes(world, root_dir="/srv/kubelet").steps)
    assert not [line for line in world.commands if QOSD in line]
    assert world.active == WIRED
    assert uninstall(world.machine()) == ()
    assert (world.snapshot(), world.active) == (before, PLAIN)


@pytest.mark.parametrize("pod_was_first", [True, False])
def test_what_is_the_pods_outlives_the_proxy(world: World, pod_was_first: bool) -> None:
    if pod_was_first:
        put(world, *POD)
    installed(world)
    put(world, *POD)
    notes = uninstall(world.machine())
    assert of_the_pod(world) == set(POD)
    assert not (world.root / METRICS).exists()
    assert not (world.root / "var/lib/koord/install").exists()
    assert (world.active, world.kernel_restored) == (PLAIN, [])
    said = "it was there before" if pod_was_first else "it holds journal.db"
    assert f"/var/lib/koord stays: {said}" in notes
    assert records.load(world.machine().disk) is None


def test_killed_while_uninstalling_beside_the_pod(new_world: Callable[[], World]) -> None:
    moment, hand = 1, Hand()
    while hand.moments >= hand.at:
        world = new_world()
        installed(world)
        put(world, *POD)
        hand = Hand(moment)
        with suppress(Killed):
            uninstall(world.machine(hand))
        uninstall(world.machine())
        records.sweep(world.machine().disk)
        assert (moment, of_the_pod(world), world.active) == (moment, set(POD), PLAIN)
        assert not (world.root / "var/lib/koord/install").exists()
        moment += 1
    assert moment > 20


# --- what is remembered ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wished", "recorded", "expected"),
    [
        (None, None, None),
        (None, False, False),
        (None, True, None),
        (True, False, True),
        (False, True, False),
    ],
)
def test_what_the_record_tells(
    tmp_path: Path, wished: bool | None, recorded: bool | None, expected: bool | None
) -> None:
    """Of an installation that was cut off as well, which is undone before the next one."""
    (tmp_path / "var/lib").mkdir(parents=True)
    if recorded is not None:
        records.create(NodeDisk(tmp_path), "1", recorded)
    record = records.load(NodeDisk(tmp_path))
    assert remembered(Wishes(with_daemon=wished), record).with_daemon == expected


def test_an_older_record_is_of_an_installation_with_the_daemon(tmp_path: Path) -> None:
    (tmp_path / "var/lib/koord/install").mkdir(parents=True)
    header = '{"type":"koord-install","format":1,"version":"0.1.0","state_was_there":false}\n'
    (tmp_path / "var/lib/koord/install/record.jsonl").write_text(header)
    record = records.load(NodeDisk(tmp_path))
    assert record is not None
    assert record.with_daemon
