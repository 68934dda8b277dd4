"""Sockets and gRPC servers: modes, live owners, sizes."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import grpc
import pytest

from koord.pb.cri import api_pb2 as cri
from koord.service import rpc, unixsocket


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
    unixsocket.prepare(tmp_path / "deep" / "er" / "x.sock")
    assert (tmp_path / "deep" / "er").is_dir()


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


async def _version(request: cri.VersionRequest, context: rpc.Context) -> cri.VersionResponse:
    if request.version == "bug":
        raise ZeroDivisionError
    return cri.VersionResponse(version=request.version)


def _service() -> grpc.GenericRpcHandler:
    return rpc.service("x.S", {"Version": rpc.Unary(_version, cri.VersionRequest, cri.VersionResponse)})


@pytest.mark.parametrize("mode", [0o600, 0o660])
async def test_round_trip_with_the_mode_asked_for(tmp_path: Path, mode: int) -> None:
    before = os.umask(0o022)
    os.umask(before)
    server = await rpc.listen(tmp_path / "x.sock", mode, [_service()])
    assert stat.S_IMODE((tmp_path / "x.sock").stat().st_mode) == mode
    after = os.umask(before)
    async with rpc.connect(f"unix://{tmp_path}/x.sock") as channel:
        call = rpc.caller(channel, "/x.S/Version", cri.VersionRequest, cri.VersionResponse)
        text = "v" * (15 << 20)
        assert (await call(cri.VersionRequest(version=text))).version == text
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(cri.VersionRequest(version="bug"))
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        assert (await call(cri.VersionRequest(version="alive"))).version == "alive"
    await server.stop(None)
    assert after == before


async def test_a_path_that_cannot_be_bound(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot listen on"):
        await rpc.listen(tmp_path / ("x" * 120), 0o600, [_service()])
