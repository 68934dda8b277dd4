"""The maintainer scripts, run by dpkg itself on a pretended machine: what is called, in which order, and what stays."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.packaging.machine import RECORD, Machine
from koordctl.install import record as records
from koordctl.install.disk import Before, NodeDisk
from koordctl.install.steps import RemoveLeavings

WIRE = "koordctl install --yes --package (with files)"
WIRE_PROXY = "koordctl install --yes --package --no-daemon (with files)"
GRANT = "koordctl install --yes --package --only-grants (with files)"
UNWIRE = "koordctl uninstall --yes --package (with files)"
RELOAD = "systemctl daemon-reload"
HAND_OVER = "systemctl kill --signal=USR2 --kill-whom=main koord-runtime-proxy.service"
RESTART_QOSD = "systemctl try-restart koord-qosd.service"
DEFAULTS = "etc/default/koord"
ENVIRONMENTS_UNIT = "etc/systemd/system/koord-qosd.service"
HOOK_FILE = "etc/runtime/hookserver.d/koord-qosd.json"
STEP = RemoveLeavings((), ())
RESCUE = [
    RELOAD,
    "systemctl try-restart kubelet.service",
    "systemctl stop koord-qosd.service koord-runtime-proxy.socket koord-runtime-proxy.service",
]

Package = Callable[[str], Path]


@pytest.fixture
def wired(machine: Machine, tiny_package: Package) -> Machine:
    """Version 1 is installed and has wired the node."""
    done = machine.dpkg("--install", tiny_package("1.0"))
    assert done.returncode == 0, done.stderr
    assert (machine.log(), machine.status()) == ([WIRE], "installed")
    return machine


def test_a_refused_node_leaves_a_configured_package_that_says_so(machine: Machine, tiny_package: Package) -> None:
    machine.on("refuse")
    done = machine.dpkg("--install", tiny_package("1.0"))
    assert (done.returncode, machine.status()) == (0, "installed")
    assert "no kubelet here" in done.stderr
    assert "koord: unpacked but not active, for the reason above" in done.stderr
    assert not machine.has("run/koord.new")
    machine.log()
    done = machine.dpkg("--install", tiny_package("2.0"))
    assert (done.returncode, machine.log()) == (0, [])
    assert "this node was not wired, and stays so" in done.stderr


@pytest.mark.parametrize(
    ("text", "called", "said"),
    [
        ("KOORDCTL_INSTALL='--no", [], "koord: unpacked but not active: /etc/default/koord is not understood"),
        ("KOORDCTL_INSTALL=--no-daemon", [WIRE_PROXY], "run: koordctl install --package --no-daemon"),
        ("# nothing\n", [WIRE], "run: koordctl install --package\n"),
    ],
    ids=["broken", "without the daemon", "none"],
)
def test_what_the_operator_wants_from_the_first_time_on(
    machine: Machine, tiny_package: Package, text: str, called: list[str], said: str
) -> None:
    """The package is configured in any case."""
    (machine.root / "etc/default").mkdir(parents=True)
    (machine.root / DEFAULTS).write_text(text)
    machine.on("refuse")
    done = machine.dpkg("--install", tiny_package("1.0"))
    assert (done.returncode, machine.status(), machine.log()) == (0, "installed", called)
    assert said in done.stderr
    assert machine.dpkg("--purge", "koord").returncode == 0
    assert not machine.has(DEFAULTS)


@pytest.mark.parametrize("version", ["0.9", "1.0", "2.0"], ids=["downgrade", "again", "upgrade"])
def test_another_version_takes_over_and_stops_nothing(wired: Machine, tiny_package: Package, version: str) -> None:
    done = wired.dpkg("--install", tiny_package(version))
    assert done.returncode == 0, done.stderr
    assert wired.log() == [RELOAD, GRANT, HAND_OVER, RESTART_QOSD]
    assert [path.name for path in (wired.root / "usr/lib/koord").iterdir()] == [version]
    assert (wired.root / "usr/bin/koordctl").resolve() == wired.root / f"usr/lib/koord/{version}/bin/koordctl"
    assert (wired.root / "usr/lib/systemd/system/koord-qosd.service").read_text() == f"# of {version}\n"


@pytest.mark.parametrize(
    ("lines", "cut_off"),
    [("", True), ("b", True), ("bc", False), ("bcb", True), ("bbc", False), ("bc{", True)],
    ids=["no step", "begun", "complete", "changed", "two steps", "torn"],
)
def test_an_upgrade_settles_what_was_cut_off_and_leaves_the_rest(
    wired: Machine, tiny_package: Package, lines: str, cut_off: bool
) -> None:
    """On koordctl's own record of begun and complete lines."""
    shutil.rmtree((wired.root / RECORD).parent)
    record = records.create(NodeDisk(wired.root), "1.0")
    for line in lines.removesuffix("{"):
        if line == "b":
            record.begin(STEP, Before())
        else:
            record.finish()
    if lines.endswith("{"):
        with (wired.root / RECORD).open("a") as file:
            file.write('{"type":"beg')
    done = wired.dpkg("--install", tiny_package("2.0"))
    assert (done.returncode, wired.status()) == (0, "installed")
    assert wired.log() == [RELOAD, WIRE if cut_off else GRANT, HAND_OVER, RESTART_QOSD]


def test_an_upgrade_that_cannot_settle_says_so_and_hands_over(wired: Machine, tiny_package: Package) -> None:
    (wired.root / RECORD).write_text('{"type":"begun"}\n')
    wired.on("not-undone")
    done = wired.dpkg("--install", tiny_package("2.0"))
    assert (done.returncode, wired.status()) == (0, "installed")
    assert "kubelet does not start\nkoord: unpacked but not active, for the reason above" in done.stderr
    assert wired.log() == [RELOAD, WIRE, HAND_OVER, RESTART_QOSD]


def test_an_upgrade_that_cannot_grant_says_so_and_hands_over(wired: Machine, tiny_package: Package) -> None:
    wired.on("refuse")
    done = wired.dpkg("--install", tiny_package("2.0"))
    assert (done.returncode, wired.status()) == (0, "installed")
    assert "koord: what koord-qosd may do stays as it was, for the reason above" in done.stderr
    assert wired.log() == [RELOAD, GRANT, HAND_OVER, RESTART_QOSD]


def test_a_proxy_that_is_down_gets_no_signal(wired: Machine, tiny_package: Package) -> None:
    wired.off("active-koord-runtime-proxy.service")
    assert wired.dpkg("--install", tiny_package("2.0")).returncode == 0
    assert wired.log() == [RELOAD, GRANT, RESTART_QOSD]


def test_a_successor_that_does_not_serve_is_told_and_no_failure(wired: Machine, tiny_package: Package) -> None:
    wired.on("stuck")
    done = wired.dpkg("--install", tiny_package("2.0"))
    assert (done.returncode, wired.status()) == (0, "installed")
    assert "koord-runtime-proxy.service goes on with the old version" in done.stderr
    assert wired.log() == [RELOAD, GRANT, HAND_OVER, RESTART_QOSD]


def test_kubelet_has_its_runtime_back_before_the_files_go(wired: Machine) -> None:
    assert wired.dpkg("--remove", "koord").returncode == 0
    assert wired.log() == [UNWIRE, RELOAD]
    assert (wired.status(), wired.has("usr/lib/koord"), wired.has(RECORD)) == ("config-files", False, False)


def test_a_node_that_cannot_be_put_back_keeps_the_package(wired: Machine) -> None:
    wired.on("stay")
    done = wired.dpkg("--remove", "koord")
    assert done.returncode == 1
    assert "kubelet does not start" in done.stderr
    assert "koord: not removed, for the reason above" in done.stderr
    assert (wired.log(), wired.status(), wired.has("usr/bin/koordctl")) == ([UNWIRE], "installed", True)
    wired.off("stay")
    assert wired.dpkg("--remove", "koord").returncode == 0
    assert wired.log() == [UNWIRE, RELOAD]


def test_units_that_somebody_started_by_hand_keep_the_package(machine: Machine, tiny_package: Package) -> None:
    machine.on("refuse")
    machine.dpkg("--install", tiny_package("1.0"))
    machine.on("active-koord-qosd.service")
    done = machine.dpkg("--remove", "koord")
    assert (done.returncode, machine.status()) == (1, "installed")
    assert "no record, but units are active" in done.stderr


def test_installed_again_after_a_removal_it_wires_again(wired: Machine, tiny_package: Package) -> None:
    wired.dpkg("--remove", "koord")
    wired.log()
    wired.dpkg("--install", tiny_package("2.0"))
    assert wired.log() == [WIRE]
    assert not wired.has("run/koord.new")


def test_purge_leaves_nothing(machine: Machine, tiny_package: Package) -> None:
    before = machine.files()
    machine.dpkg("--install", tiny_package("1.0"))
    for path in (
        "etc/koord/rules.yaml",
        "etc/runtime/hookserver.d/koord-qosd.json",
        "var/lib/koord/journal.db",
        "run/koord/qosd.sock",
        "run/koord-runtimeproxy/runtimeproxy.sock",
    ):
        (machine.root / path).parent.mkdir(parents=True, exist_ok=True)
        (machine.root / path).touch()
    assert machine.dpkg("--purge", "koord").returncode == 0
    assert machine.files() == before
    assert machine.status() == ""


def test_purge_leaves_what_others_put_beside_ours(wired: Machine) -> None:
    other = wired.root / "etc/runtime/hookserver.d/other.json"
    other.parent.mkdir(parents=True)
    other.touch()
    assert wired.dpkg("--purge", "koord").returncode == 0
    assert other.exists()


@pytest.mark.parametrize("acts", [True, False])
def test_purge_leaves_what_a_koord_qosd_that_acts_has_to_put_back(wired: Machine, acts: bool) -> None:
    theirs = {"run/koord/undo.jsonl", "run/koord/undo.jsonl.lock", "var/lib/koord/journal.db", HOOK_FILE}
    for path in theirs:
        (wired.root / path).parent.mkdir(parents=True, exist_ok=True)
        (wired.root / path).touch()
    with (wired.root / "run/koord/undo.jsonl.lock").open() as lock:
        if acts:
            fcntl.flock(lock, fcntl.LOCK_EX)
        done = wired.dpkg("--purge", "koord")
    assert (done.returncode, wired.status()) == (0, "")
    assert ("they are of the koord-qosd that acts here, and is not the package's" in done.stderr) == acts
    assert theirs & wired.files() == (theirs if acts else set())


def test_a_virtual_environments_node_refuses_the_package(machine: Machine, tiny_package: Package) -> None:
    unit = machine.root / ENVIRONMENTS_UNIT
    unit.parent.mkdir(parents=True)
    unit.touch()
    before = machine.files()
    done = machine.dpkg("--install", tiny_package("1.0"))
    assert (done.returncode, machine.log(), machine.status()) == (1, [], "not-installed")
    assert f"/{ENVIRONMENTS_UNIT} is there" in done.stderr
    assert "run koordctl uninstall first" in done.stderr
    assert machine.files() == before


def test_a_masked_unit_is_no_virtual_environment(machine: Machine, tiny_package: Package) -> None:
    unit = machine.root / ENVIRONMENTS_UNIT
    unit.parent.mkdir(parents=True)
    unit.symlink_to("/dev/null")
    assert machine.dpkg("--install", tiny_package("1.0")).returncode == 0
    assert machine.log() == [WIRE]


def test_purge_leaves_a_virtual_environments_files(wired: Machine) -> None:
    assert wired.dpkg("--remove", "koord").returncode == 0
    theirs = {ENVIRONMENTS_UNIT, RECORD, "etc/koord/rules.yaml", "run/koord/qosd.sock", "run/koord-runtimeproxy/p.sock"}
    for path in theirs:
        (wired.root / path).parent.mkdir(parents=True, exist_ok=True)
        (wired.root / path).touch()
    done = wired.dpkg("--purge", "koord")
    assert (done.returncode, wired.status()) == (0, "")
    assert "its configuration and history stay" in done.stderr
    assert theirs <= wired.files()


def test_where_no_systemd_runs_nothing_is_wired(machine: Machine, tiny_package: Package) -> None:
    (machine.root / "run/systemd/system").rmdir()
    (machine.root / "run/systemd").rmdir()
    before = machine.files()
    done = machine.dpkg("--install", tiny_package("1.0"))
    assert (done.returncode, machine.log()) == (0, [])
    assert "On the running node: koordctl install" in done.stderr
    assert machine.dpkg("--purge", "koord").returncode == 0
    assert (machine.log(), machine.files()) == ([UNWIRE], before)


def test_dpkg_killed_while_it_wires_is_finished_by_configure(machine: Machine, tiny_package: Package) -> None:
    machine.on("kill-dpkg")
    assert machine.dpkg("--install", tiny_package("1.0")).returncode == -9
    assert (machine.log(), machine.status()) == ([WIRE], "half-configured")
    machine.off("kill-dpkg")
    assert machine.dpkg("--configure", "--pending").returncode == 0
    assert (machine.log(), machine.status()) == ([WIRE], "installed")


def test_dpkg_killed_while_it_wires_can_be_removed(machine: Machine, tiny_package: Package) -> None:
    before = machine.files()
    machine.on("kill-dpkg")
    machine.dpkg("--install", tiny_package("1.0"))
    (machine.root / RECORD).parent.mkdir(parents=True)
    (machine.root / RECORD).touch()
    machine.off("kill-dpkg")
    machine.log()
    assert machine.dpkg("--purge", "koord").returncode == 0
    assert machine.log() == [UNWIRE, RELOAD]
    assert machine.files() == before


def test_dpkg_killed_while_it_removes_can_remove_again(wired: Machine) -> None:
    wired.on("kill-dpkg")
    assert wired.dpkg("--remove", "koord").returncode == -9
    assert (wired.log(), wired.has("usr/bin/koordctl")) == ([UNWIRE], True)
    wired.off("kill-dpkg")
    assert wired.dpkg("--remove", "koord").returncode == 0
    assert (wired.log(), wired.has("usr/bin/koordctl")) == ([UNWIRE, RELOAD], False)


def test_an_upgrade_that_was_cut_short_is_finished_by_configure(wired: Machine, tiny_package: Package) -> None:
    wired.dpkg("--unpack", tiny_package("2.0"))
    assert (wired.log(), wired.status()) == ([], "unpacked")
    assert wired.dpkg("--configure", "--pending").returncode == 0
    assert wired.log() == [RELOAD, GRANT, HAND_OVER, RESTART_QOSD]


def test_removed_in_the_middle_of_an_upgrade_kubelet_still_gets_its_runtime(
    wired: Machine, tiny_package: Package
) -> None:
    """The one case in which dpkg asks no prerm."""
    etc = wired.root / "etc/systemd/system"
    for path in (
        "kubelet.service.d/90-koord.conf",
        "sockets.target.wants/koord-runtime-proxy.socket",
        "sockets.target.wants/other.socket",
        "koord-qosd.service.d/50-koord-node.conf",
        "koord-qosd.service.d/50-koord-grants.conf",
        "koord-runtime-proxy.service.d/50-koord-node.conf",
        "koord-runtime-proxy.service.d/override.conf",
    ):
        (etc / path).parent.mkdir(parents=True, exist_ok=True)
        (etc / path).touch()
    wired.dpkg("--unpack", tiny_package("2.0"))
    done = wired.dpkg("--remove", "koord")
    assert done.returncode == 0
    assert "removed in the middle of an upgrade" in done.stderr
    assert wired.log() == [*RESCUE, RELOAD]
    assert {str(path.relative_to(etc)) for path in etc.rglob("*")} == {
        "koord-runtime-proxy.service.d",
        "koord-runtime-proxy.service.d/override.conf",
        "sockets.target.wants",
        "sockets.target.wants/other.socket",
    }
    assert not wired.has(RECORD)
