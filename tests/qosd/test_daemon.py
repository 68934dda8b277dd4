"""The process as systemd starts it: ready only when it serves, quick, reloadable, and gone without a trace of error."""

from __future__ import annotations

import json
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from koord.pb.hooks import api_pb2 as hooks
from koord.service.config import ConfigError
from qosd.daemon import metrics_address

START_S = 10.0  # patience of the test, not a promise


def command(tmp_path: Path, *more: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "qosd",
        "--rules-file",
        f"{tmp_path}/rules.yaml",
        "--hook-socket",
        f"{tmp_path}/h.sock",
        "--inspect-socket",
        f"{tmp_path}/i.sock",
        "--hookserver-dir",
        f"{tmp_path}/hookserver.d",
        "--runtime-endpoint",
        f"unix://{tmp_path}/cri.sock",
        "--cgroup-root",
        f"{tmp_path}/cgroup",
        "--metrics-endpoint",
        f"unix://{tmp_path}/m.sock",
        *more,
    ]


@contextmanager
def running(tmp_path: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """qosd after its READY=1, and the notify socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(tmp_path / "notify.sock"))
        notify.settimeout(START_S)
        environ = {"NOTIFY_SOCKET": f"{tmp_path}/notify.sock", "PATH": "/usr/bin:/bin"}
        with subprocess.Popen(command(tmp_path, *more), env=environ, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert notify.recv(4096).startswith(b"READY=1")
                yield process, notify
            finally:
                process.kill()


def create(tmp_path: Path) -> hooks.ContainerResourceHookResponse:
    with grpc.insecure_channel(f"unix:{tmp_path}/h.sock") as channel:
        call = channel.unary_unary(
            "/runtime.v1alpha1.RuntimeHookService/PreCreateContainerHook",
            request_serializer=hooks.ContainerResourceHookRequest.SerializeToString,
            response_deserializer=hooks.ContainerResourceHookResponse.FromString,
        )
        return call(hooks.ContainerResourceHookRequest(), timeout=5, metadata=(("koord-runtime-proxy", "1"),))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--log-level", "loud"], 2, "--log-level"),
        (["--config", "/nonexistent/qosd.yaml"], 2, "/nonexistent/qosd.yaml: does not exist"),
        (["--metrics-endpoint", "0.0.0.0:9"], 1, "must be unix:///path or a loopback host:port"),
    ],
)
def test_what_cannot_start_says_why(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    done = subprocess.run(command(tmp_path, *arguments), capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "hookserver.d").exists()


def test_life(tmp_path: Path) -> None:
    with running(tmp_path) as (process, notify):
        registered = json.loads((tmp_path / "hookserver.d" / "koord-qosd.json").read_text())
        assert (registered["remote-endpoint"], registered["failure-policy"]) == (f"{tmp_path}/h.sock", "Ignore")
        modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("h.sock", "i.sock")}
        assert modes == {"h.sock": 0o660, "i.sock": 0o600}
        assert not create(tmp_path).HasField("container_resources")

        (tmp_path / "rules.yaml").write_text('node: {sharedPools: {ls: [{cpuset: "0-3"}]}}')
        deadline = time.monotonic() + 5
        while not create(tmp_path).container_resources.cpuset_cpus and time.monotonic() < deadline:
            time.sleep(0.02)
        assert create(tmp_path).container_resources.cpuset_cpus == "0-3"

        process.send_signal(signal.SIGHUP)
        assert notify.recv(4096).startswith(b"RELOADING=1")
        assert notify.recv(4096).startswith(b"READY=1")
        process.terminate()
        assert notify.recv(4096).startswith(b"STOPPING=1")
        assert process.wait(10) == 0
    assert (tmp_path / "hookserver.d" / "koord-qosd.json").exists()  # stopping is not disabling


def test_a_second_one_leaves_the_first_alone(tmp_path: Path) -> None:
    with running(tmp_path):
        second = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=20, check=False)
        assert second.returncode == 1
        assert "another process listens on it" in second.stderr
        create(tmp_path)


def test_a_socket_left_by_a_killed_one_is_taken_over(tmp_path: Path) -> None:
    with running(tmp_path) as (process, _):
        process.kill()
        process.wait(10)
        assert (tmp_path / "h.sock").exists()
    (tmp_path / "notify.sock").unlink()
    with running(tmp_path):
        create(tmp_path)


def test_the_file_goes_with_it_if_so_configured(tmp_path: Path) -> None:
    with running(tmp_path, "--remove-hookserver-file") as (process, _):
        process.terminate()
        assert process.wait(10) == 0
    assert list((tmp_path / "hookserver.d").iterdir()) == []


def test_a_hookserver_directory_that_refuses_leaves_the_hooks_served(tmp_path: Path) -> None:
    (tmp_path / "hookserver.d").write_text("not a directory")
    with running(tmp_path) as (process, _):
        create(tmp_path)
        process.terminate()
        assert "no runtime proxy will find the hooks" in process.communicate(timeout=10)[1]


def test_metrics_are_served(tmp_path: Path) -> None:
    with running(tmp_path), socket.socket(socket.AF_UNIX) as scraper:
        create(tmp_path)
        scraper.connect(f"{tmp_path}/m.sock")
        scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        with scraper.makefile() as text:
            answer = text.read()
    assert 'koord_qosd_hook_calls_total{caller="koord",result="unchanged",stage="PreCreateContainer"} 1.0' in answer


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("unix:///run/m.sock", "/run/m.sock"),
        ("/run/m.sock", "/run/m.sock"),
        ("127.0.0.1:9", "127.0.0.1:9"),
        ("[::1]:9", "[::1]:9"),
    ],
)
def test_metrics_addresses(endpoint: str, address: str) -> None:
    assert metrics_address(endpoint) == address


@pytest.mark.parametrize(
    "endpoint", ["0.0.0.0:9100", ":9100", "127.0.0.1", "10.0.0.1:1", "[::]:1", "localhost:x", "m.sock"]
)
def test_metrics_stay_on_the_node(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="must be unix:///path or a loopback host:port"):
        metrics_address(endpoint)
