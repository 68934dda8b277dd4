"""Every kind of node: Koord installs there, or is refused with exactly these sentences, and leaves no trace.

The nodes are recorded trees (``tests.nodes.cells``), and ``koordctl doctor`` says so; those that can be had are also
real ones, in ``integration/guest``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click import Command
from click.testing import CliRunner, Result

from koord.host.layout import tiers_of
from koord.model.qos import KubeQoS
from koordctl.commands.doctor import doctor
from koordctl.commands.install import install
from koordctl.exits import FAILED, OK, Refused
from tests.koordctl.conftest import Trees, everything
from tests.nodes.build import kubepods, lay_out
from tests.nodes.cells import CELLS, INSTALLS, REFUSED
from tests.nodes.parameters import (
    CGROUPFS,
    CONTAINERD_1_6,
    CONTAINERD_2,
    CONTAINERD_SOCKET,
    CRI_DOCKERD,
    HYBRID,
    SYSTEMD,
    V1,
    V2,
)


def run(command: Command, root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command, ["--root", str(root), "--offline", *arguments], standalone_mode=False)


@pytest.mark.parametrize("name", CELLS)
def test_doctor(trees: Trees, name: str) -> None:
    asked, root = CELLS[name], trees(name)
    before = everything(root)
    report = json.loads(run(doctor, root, "-o", "json").stdout)
    assert everything(root) == before
    findings = {each["check"]: f"{each['status']}: {each['sentence']}" for each in report["findings"]}
    assert tuple(each["sentence"] for each in report["blockers"]) == asked.refused
    assert {check: findings[check] for check in asked.found} == asked.found
    assert report["source"] == "recorded"
    assert all(each["remedy"] for each in report["blockers"])
    if not asked.refused:
        assert [each for each in findings.values() if each.startswith("fail")] == []


@pytest.mark.parametrize("name", CELLS)
def test_install(trees: Trees, name: str) -> None:
    """The plan names this node's own socket and cgroups; a refusal says the same as doctor's."""
    asked, root = CELLS[name], trees(name)
    before = everything(root)
    result = run(install, root, "--dry-run", "--package")
    assert everything(root) == before
    if asked.refused:
        said = [line.partition(": ")[2].partition(". To do: ")[0] for line in result.stderr.splitlines() if line]
        assert (tuple(said), type(result.exception)) == (asked.refused, Refused)
        return
    assert (result.return_value, result.exception) == (OK, None)
    assert "recorded" in result.stdout.splitlines()[1]
    tier = tiers_of(kubepods(asked.node))[KubeQoS.BEST_EFFORT]
    assert f"in cgroup {tier}/" in result.stdout
    assert ("--backend-runtime-mode=Docker" in result.stdout) == (asked.node.runtime is CRI_DOCKERD)
    endpoint = f"--remote-runtime-service-endpoint={asked.node.runtime.socket}"
    assert (endpoint in result.stdout) == (asked.node.runtime.socket != CONTAINERD_SOCKET)
    assert ("cpuManagerPolicy: static" in result.stdout) == (asked.node.cpu_manager == "static")


def test_the_table_says_recorded_and_whether_koord_can_be_installed(tmp_path: Path) -> None:
    good = run(doctor, lay_out(tmp_path / "good", INSTALLS["v2 systemd"].node))
    bad = run(doctor, lay_out(tmp_path / "bad", REFUSED["several reasons"].node))
    assert (good.return_value, bad.return_value) == (OK, FAILED)
    for result in (good, bad):
        assert result.stdout.startswith("recorded: these are the files of another node, or of another time\n")
    assert good.stdout.endswith("\ninstallation: possible\n")
    assert bad.stdout.splitlines()[-3:] == [
        "installation: refused",
        "  systemd: process 1 is not systemd, so nothing would start Koord before kubelet. To do: run koord-qosd as a "
        "DaemonSet, or start koord-runtime-proxy and koord-qosd by other means",
        "  runtime: see above",
    ]


def test_the_matrix_has_every_value_of_every_dimension_on_a_node_that_installs() -> None:
    nodes = [each.node for each in INSTALLS.values()]
    assert len(CELLS) >= 24
    assert {node.cgroup for node in nodes} == {V1, V2, HYBRID}
    assert {(node.cgroup, node.driver) for node in nodes} == {
        (c, d) for c in (V1, V2, HYBRID) for d in (CGROUPFS, SYSTEMD)
    }
    assert {node.cgroup_root for node in nodes} == {"", "/kubelet"}
    assert {node.runtime for node in nodes} >= {CONTAINERD_1_6, CONTAINERD_2, CRI_DOCKERD}
    assert {(bool(node.rdt), node.resctrl) for node in nodes} == {(False, False), (True, False), (True, True)}
    assert {node.release[0] for node in nodes} == {4, 5, 6}
    assert {node.psi for node in nodes} == {True, False}
    assert {node.cpu_manager for node in nodes} == {"none", "static"}
