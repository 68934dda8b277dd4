"""Two versions of the package's own programs: the old process lives on while dpkg takes its files away."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.packaging import made
from release import tree
from release.wheels import Wheel

NEW = "99.0"


@pytest.fixture
def root(package: Path, wheel: Wheel, wheels: list[Wheel], tmp_path: Path) -> Path:
    """The package and beside it the next version; /usr/bin is as dpkg has it before it puts the new links in place."""
    root, following = tmp_path / "root", tmp_path / "following"
    subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
    others = [each for each in wheels if each.name != "koord"]
    tree.lay_out([made.renamed(wheel, NEW, tmp_path / "wheels"), *others], NEW, following)
    (following / "usr/lib/koord" / NEW).rename(root / "usr/lib/koord" / NEW)
    return root


class Manager:
    """What systemd is to the proxy: the socket that it tells."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))

    def told(self, wanted: str) -> dict[str, str]:
        while select.select([self.socket], [], [], 20)[0]:
            message = self.socket.recv(4096).decode()
            if wanted in message:
                return dict(line.split("=", 1) for line in message.splitlines())
        raise AssertionError(f"not told {wanted}")


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify")
    yield manager
    manager.socket.close()


def page(path: Path, name: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(f"GET {name} HTTP/1.0\r\n\r\n".encode())
        return b"".join(iter(lambda: client.recv(65536), b"")).decode()


def test_the_files_of_a_running_proxy_may_go(root: Path, wheel: Wheel, manager: Manager, tmp_path: Path) -> None:
    program, config = root / "usr/bin/koord-runtime-proxy", tmp_path / "config.yaml"
    config.write_text("bypass: false\n")
    argv = [
        str(program),
        f"--koord-runtimeproxy-endpoint={tmp_path}/proxy.sock",
        f"--config={config}",
        f"--remote-runtime-service-endpoint={tmp_path}/none.sock",
        f"--hookserver-dir={tmp_path}/hooks",
        f"--metrics-endpoint={tmp_path}/status.sock",
    ]
    with (tmp_path / "log").open("w") as log:
        old = subprocess.Popen(argv, stderr=log, env={"PATH": os.environ["PATH"], "NOTIFY_SOCKET": str(manager.path)})
    new = 0
    try:
        manager.told("READY=1")
        _until_it_answers(tmp_path / "status.sock")
        (root / "usr/bin/next").symlink_to(f"../lib/koord/{NEW}/bin/koord-runtime-proxy")
        (root / "usr/bin/next").rename(program)
        shutil.rmtree(root / "usr/lib/koord" / wheel.version)
        old.send_signal(signal.SIGHUP)
        manager.told("READY=1")
        assert "koord_runtimeproxy_bypass 0" in page(tmp_path / "status.sock", "/metrics")
        old.send_signal(signal.SIGUSR2)
        new = int(manager.told("MAINPID=")["MAINPID"])
        assert f"/usr/lib/koord/{NEW}/" in Path(f"/proc/{new}/maps").read_text()
        assert old.wait(20) == 0
        said = (tmp_path / "log").read_text()
        assert ("Error" in said, "cannot be imported" in said) == (False, False), said
    finally:
        old.kill()
        old.wait()
        if new:
            os.kill(new, signal.SIGKILL)


def _until_it_answers(path: Path) -> None:
    """The page is there once the proxy has imported what it may need later."""
    while True:
        try:
            if page(path, "/metrics").startswith("HTTP/1.0 200"):
                return
        except OSError:
            select.select([], [], [], 0.05)
