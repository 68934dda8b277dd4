"""What is read of a node: where its programs are, how kubelet is reached, whose the runtime's socket is."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from koord.model.locations import PROXY_SOCKET
from koordctl.install.machine import Systemd
from koordctl.install.plan import PROGRAMS, InstallFacts
from koordctl.install.prepare import Wishes, gather, programs
from koordctl.node.files import NodeFiles
from koordctl.node.units import UNIT_FILES
from tests.koordctl.install.world import KUBELET_PID, TIER, World

OF_THIS_NODE = Wishes()


def look(world: World, wishes: Wishes = OF_THIS_NODE) -> InstallFacts:
    return gather(world.root, wishes, Systemd(world.systemctl), None)


def environment(prefix: Path) -> None:
    for name in (*(f"bin/{each}" for each in PROGRAMS), *(f"share/koord/systemd/{each}" for each in UNIT_FILES)):
        (prefix / name).parent.mkdir(parents=True, exist_ok=True)
        (prefix / name).write_text(name)
    (prefix / "pyvenv.cfg").touch()


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        ("bin/koord-qosd", "/bin/koord-qosd"),
        ("share/koord/systemd/koord-qosd.service", "/share/koord/systemd/koord-qosd.service"),
        ("pyvenv.cfg", "neither from a virtual environment"),
    ],
)
def test_an_environment_that_lacks_something(tmp_path: Path, missing: str, problem: str) -> None:
    environment(tmp_path)
    (tmp_path / missing).unlink()
    found = programs(NodeFiles(tmp_path), False, tmp_path, python=Path("/usr/bin/python3"), hidden=("/home",))
    assert problem in found.problem


def test_an_environment_that_units_cannot_see(tmp_path: Path) -> None:
    environment(tmp_path)
    for python, hidden in ((Path("/usr/bin/python3"), str(tmp_path)), (Path("/srv/py/bin/python3"), "/srv")):
        found = programs(NodeFiles(tmp_path), False, tmp_path, python, (hidden,))
        assert found.problem.endswith("is where the units cannot see it")


def test_an_environment(tmp_path: Path) -> None:
    environment(tmp_path)
    found = programs(NodeFiles(tmp_path), False, tmp_path, python=Path("/usr/bin/python3"), hidden=("/home",))
    assert (found.problem, found.directory, found.units_directory) == ("", f"{tmp_path}/bin", "/etc/systemd/system")
    assert found.units["koord-qosd.service"] == "share/koord/systemd/koord-qosd.service"


def test_the_package(tmp_path: Path) -> None:
    assert programs(NodeFiles(tmp_path), True).problem == "the package's units are not there"
    directory = tmp_path / "usr/lib/systemd/system"
    directory.mkdir(parents=True)
    for name in UNIT_FILES:
        (directory / name).write_text("unit")
    found = programs(NodeFiles(tmp_path), True)
    assert (found.problem, found.units_directory) == ("", "/usr/lib/systemd/system")


@pytest.mark.parametrize(
    ("config", "flags", "address"),
    [
        ("", "", "127.0.0.1:10248"),
        ("healthzPort: 0\n", "", ""),
        ("healthzPort: 1\nhealthzBindAddress: 0.0.0.0\n", "", "127.0.0.1:1"),
        ("healthzBindAddress: '::1'\n", "", "[::1]:10248"),
        ("healthzPort: 0\n", "--healthz-port=7", "127.0.0.1:7"),
        ("", "--healthz-bind-address=::\0--healthz-port\0008", "[::1]:8"),
    ],
)
def test_healthz(world: World, config: str, flags: str, address: str) -> None:
    (world.root / "var/lib/kubelet/config.yaml").write_text(config)
    (world.root / f"proc/{KUBELET_PID}/cmdline").write_text(f"/usr/bin/kubelet\0{flags}\0")
    assert look(world).node.kubelet.healthz == address


def test_the_endpoint_without_our_drop_in(world: World) -> None:
    theirs, ours = (
        "--container-runtime-endpoint=unix:///run/x.sock",
        f"--container-runtime-endpoint=unix://{PROXY_SOCKET}",
    )
    (world.root / f"proc/{KUBELET_PID}/cmdline").write_text("\0".join(["/usr/bin/kubelet", theirs, ours, ""]))
    assert look(world).node.kubelet.own_endpoint == f"unix://{PROXY_SOCKET}"
    (world.root / "etc/systemd/system/kubelet.service.d/90-koord.conf").touch()
    assert look(world).node.kubelet.own_endpoint == "unix:///run/x.sock"


def test_units_tier_and_group(world: World) -> None:
    world.active.add("koord-qosd.service")
    (world.root / "etc/group").write_text(f"root:x:0:\ncri:x:{os.getegid() or 7}:\n")
    found = look(world)
    node = found.node
    running = frozenset({"koord-qosd.service"})
    assert (found.running, node.cgroup.best_effort, node.kubelet.root_dir) == (running, TIER, "")
    assert node.kubelet.unit_files is not None
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{world.root}/run/g.sock")
        if os.geteuid() == 0:
            os.chown(f"{world.root}/run/g.sock", 0, 7)
        for text, group in ((None, "cri"), ("", str(os.getegid() or 7))):
            if text is not None:
                (world.root / "etc/group").write_text(text)
            told = look(world, Wishes(runtime="/run/g.sock", offline=True))
            assert (told.node.runtime.socket_group, told.running) == (group, frozenset())
    assert node.runtime.socket_group == ("cri" if os.getegid() else ""), "root's needs none"
