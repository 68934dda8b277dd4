"""Sockets of our own: modes, live owners, abandoned files."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from koord.service import unixsocket


def test_a_file_that_is_no_socket_is_never_removed(tmp_path: Path) -> None:
    file = tmp_path / "x.sock"
    file.write_text("precious")
    with pytest.raises(unixsocket.SocketTaken, match="exists and is not a socket"):
        unixsocket.clear_abandoned(file)
    assert file.read_text() == "precious"


def test_a_live_owner_keeps_its_socket(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as owner:
        owner.bind(str(tmp_path / "x.sock"))
        owner.listen()
        with pytest.raises(unixsocket.SocketTaken, match="another process listens") as caught:
            unixsocket.clear_abandoned(tmp_path / "x.sock")
    assert caught.value.filename == str(tmp_path / "x.sock")


def test_an_abandoned_socket_is_cleared_and_none_is_fine(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as owner:
        owner.bind(str(tmp_path / "x.sock"))
    unixsocket.clear_abandoned(tmp_path / "x.sock")
    assert not (tmp_path / "x.sock").exists()


def test_the_directory_is_made_for_everybody_to_pass(tmp_path: Path, umask: int) -> None:
    unixsocket.prepare(tmp_path / "deep" / "er" / "x.sock")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "deep", tmp_path / "deep" / "er")] == [0o755] * 2


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [
        ("unix:///run/x.sock", "/run/x.sock"),
        ("unix:/run/x.sock", "/run/x.sock"),
        ("/run/x.sock", "/run/x.sock"),
    ],
)
def test_schemes(endpoint: str, path: str) -> None:
    assert unixsocket.without_scheme(endpoint) == path


@pytest.mark.parametrize("mode", [0o600, 0o660])
def test_sockets_have_their_mode_from_the_start(tmp_path: Path, mode: int) -> None:
    before = os.umask(0o022)
    os.umask(before)
    with socket.socket(socket.AF_UNIX) as owner, unixsocket.permissions(mode):
        owner.bind(str(tmp_path / "x.sock"))
        assert stat.S_IMODE((tmp_path / "x.sock").stat().st_mode) == mode
    after = os.umask(before)
    assert after == before
