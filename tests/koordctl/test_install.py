"""``koordctl install`` and ``uninstall`` as commands: what they show of recorded nodes, and that they change none."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from koordctl.commands.install import install
from koordctl.commands.uninstall import uninstall
from koordctl.exits import OK, Refused
from koordctl.install import disk as disks
from koordctl.install import record as records
from koordctl.install.disk import NodeDisk, PlacedFile
from koordctl.install.steps import PutFiles
from tests.koordctl.conftest import Trees, everything
from tests.nodes.build import lay_out
from tests.nodes.cells import CELLS, INSTALLS, REFUSED

DROP_IN = "/etc/systemd/system/koord-qosd.service.d/50-koord-node.conf"
WRAPPER = "etc/systemd/system/kubelet.service.d/20-wrapper.conf"
FLAGS = (
    " --container-runtime-endpoint=unix:///run/koord-runtimeproxy/runtimeproxy.sock"
    " --image-service-endpoint=unix:///run/koord-runtimeproxy/runtimeproxy.sock"
)


def dry_run(root: Path, *arguments: str) -> Result:
    options = ["--dry-run", "--offline", "--root", str(root), *arguments]
    return CliRunner().invoke(install, options, standalone_mode=False)


@pytest.mark.parametrize("name", INSTALLS)
def test_a_plan_for_every_kind_of_node_that_installs(trees: Trees, name: str) -> None:
    root = trees(name)
    before = everything(root)
    result = dry_run(root)
    assert (result.exception, result.return_value) == (None, OK)
    assert everything(root) == before
    assert "   make /etc/systemd/system/kubelet.service.d/90-koord.conf" in result.stdout
    commands = [line for line in result.stdout.splitlines() if line.startswith("   | +ExecStart=/usr/bin/kubelet ")]
    assert len(commands) == 1
    assert commands[0].endswith(FLAGS)
    assert ("--backend-runtime-mode=Docker" in result.stdout) == ("dockerd" in name)
    assert ("cpuManagerPolicy: static" in result.stdout) == ("static" in name)


@pytest.mark.parametrize("name", REFUSED)
def test_every_reason_is_said_and_nothing_is_changed(trees: Trees, name: str) -> None:
    root = trees(name)
    before = everything(root)
    result = dry_run(root)
    assert isinstance(result.exception, Refused)
    assert everything(root) == before
    for sentence in CELLS[name].refused:
        assert f": {sentence}. To do: " in result.stderr


def test_a_wrapper_is_refused_unless_kubelet_is_left_alone(tmp_path: Path) -> None:
    root = lay_out(tmp_path, INSTALLS["v2 systemd"].node)
    (root / WRAPPER).parent.mkdir(parents=True)
    (root / WRAPPER).write_text("[Service]\nExecStart=\nExecStart=/bin/sh -c 'exec kubelet'\n")
    result = dry_run(root)
    assert isinstance(result.exception, Refused)
    assert "kubelet-unit: kubelet.service starts /bin/sh, not kubelet itself" in result.stderr
    result = dry_run(root, "--no-kubelet")
    assert result.exception is None
    assert "kubelet is left alone (--no-kubelet). To put it on the proxy, set both" in result.stdout
    assert "90-koord.conf" not in result.stdout


@pytest.mark.parametrize("complete", [True, False])
def test_what_the_record_calls_ours_and_nobody_wants_is_removed(tmp_path: Path, complete: bool) -> None:
    root = lay_out(tmp_path, INSTALLS["v2 systemd"].node)
    disk, step = NodeDisk(root), PutFiles("The units", (PlacedFile(DROP_IN, "[Service]\n"),))
    (root / "var/lib").mkdir(parents=True, exist_ok=True)
    record = records.create(disk, "1")
    record.begin(step, disks.before(disk, step.places))
    disks.put_places(disk, step.places)
    if complete:
        record.finish()
    result = dry_run(root)
    assert result.exception is None
    assert (f"   remove {DROP_IN}" in result.stdout) == complete


@pytest.mark.parametrize("recorded", [None, False, True])
def test_without_the_daemon_until_it_is_uninstalled(tmp_path: Path, recorded: bool | None) -> None:
    root = lay_out(tmp_path, INSTALLS["v2 systemd"].node)
    (root / "var/lib").mkdir(parents=True, exist_ok=True)
    if recorded is not None:
        records.create(NodeDisk(root), "1", recorded).finish()
    result = dry_run(root, "--no-daemon")
    if recorded:
        assert isinstance(result.exception, Refused)
        assert "daemon: Koord is installed with koord-qosd.service. To do: run koordctl uninstall" in result.stderr
        return
    again = dry_run(root) if recorded is False else result
    for shown in (result, again):
        assert shown.exception is None
        assert "   $ systemctl start koord-runtime-proxy.service" in shown.stdout
        assert "start koord-qosd.service" not in shown.stdout
        assert "multi-user.target.wants/koord-qosd.service" not in shown.stdout
        assert "koord-qosd.service is not started, now or at boot (--no-daemon)" in shown.stdout


def test_grants_alone_are_of_a_node_where_koord_is_installed(tmp_path: Path) -> None:
    result = dry_run(lay_out(tmp_path, INSTALLS["v2 systemd"].node), "--only-grants")
    assert isinstance(result.exception, Refused)
    assert "Koord is not installed here" in str(result.exception)


@pytest.mark.parametrize("arguments", [["--offline"], ["--root", "/proc"]])
def test_only_a_plan_is_made_for_another_tree(arguments: list[str]) -> None:
    result = CliRunner().invoke(install, [*arguments, "--yes"], standalone_mode=False)
    assert "--root and --offline are for --dry-run" in str(result.exception)


@pytest.mark.parametrize("command", [install, uninstall])
def test_help(command: object) -> None:
    shown = CliRunner().invoke(command, ["--help"]).stdout  # type: ignore[arg-type]
    assert "--dry-run" in shown
