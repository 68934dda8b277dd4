"""When kubelet counts as well: its unit, its process, its connection to the proxy, its healthz."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from koord.model.locations import PROXY_SOCKET
from koordctl.install import probes
from koordctl.install.machine import InstallError
from tests.koordctl.install.world import World

SICK, WELL = 500, 200


class Healthz(HTTPServer):
    """Answers with the codes it is given, the last one for ever."""

    def __init__(self, codes: list[int]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code = codes.pop(0) if len(codes) > 1 else codes[0]
                self.send_response(code if self.path == "/healthz" else 404)
                self.end_headers()
                self.wfile.write(b"ok" if code == WELL else b"syncloop")

            def log_message(self, *_: object) -> None:
                """Nothing."""

        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server_port}"


@pytest.fixture
def on_proxy(world: World) -> World:
    drop_in = world.root / "etc/systemd/system/kubelet.service.d/90-koord.conf"
    command = f"/usr/bin/kubelet --container-runtime-endpoint=unix://{PROXY_SOCKET}"
    drop_in.write_text(f"[Service]\nExecStart=\nExecStart={command}\n")
    world.systemctl(("systemctl", "restart", "kubelet.service"))
    return world


@pytest.fixture
def healthz(request: pytest.FixtureRequest) -> Iterator[str]:
    server = Healthz(list(request.param))
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01))
    thread.start()
    yield server.address
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("healthz", [[WELL], [SICK, SICK, WELL]], indirect=True)
def test_well_in_the_end(on_proxy: World, healthz: str) -> None:
    probes.wait_for_kubelet(on_proxy.machine(), "kubelet.service", healthz, proxied=True)


@pytest.mark.parametrize("healthz", [[SICK]], indirect=True)
def test_never_well(on_proxy: World, healthz: str) -> None:
    with pytest.raises(InstallError, match=f"not well 5 s after its restart: {healthz}/healthz answers 500: syncloop"):
        probes.wait_for_kubelet(on_proxy.machine(), "kubelet.service", healthz, proxied=True)


@pytest.mark.parametrize(
    ("proxied", "older", "why"),
    [
        (False, (), f"its process uses unix://{PROXY_SOCKET}"),
        (True, ("4001",), "it has no connection to /run/koord-runtimeproxy/runtimeproxy.sock"),
    ],
)
def test_the_other_endpoint(on_proxy: World, proxied: bool, older: tuple[str, ...], why: str) -> None:
    with pytest.raises(InstallError, match=why):
        probes.wait_for_kubelet(on_proxy.machine(), "kubelet.service", "", proxied, frozenset(older))


def test_nobody_answers_or_runs(on_proxy: World) -> None:
    with pytest.raises(InstallError, match=r"127\.0\.0\.1:1/healthz does not answer: .*refused"):
        probes.wait_for_kubelet(on_proxy.machine(), "kubelet.service", "127.0.0.1:1", proxied=True)
    on_proxy.stop_kubelet()
    with pytest.raises(InstallError, match="it is inactive; see journalctl -u kubelet"):
        probes.wait_for_kubelet(on_proxy.machine(), "kubelet.service", "", proxied=True)
    on_proxy.active.add("kubelet.service")
    with pytest.raises(InstallError, match="it has no process named kubelet"):
        probes.wait_for_kubelet(on_proxy.machine(), "kubelet.service", "", proxied=True)


def test_accepted_connections_only(world: World) -> None:
    lines = (
        "Num       RefCount Protocol Flags    Type St Inode Path",
        f"0: 00000002 00000000 00010000 0001 01 100 {PROXY_SOCKET}",
        f"0: 00000002 00000000 00000000 0001 02 101 {PROXY_SOCKET}",
        f"0: 00000003 00000000 00000000 0001 03 102 {PROXY_SOCKET}",
        "0: 00000003 00000000 00000000 0001 03 103 /run/other.sock",
        "0: 00000003 00000000 00000000 0001 03 104",
    )
    (world.root / "proc/net/unix").write_text("\n".join(lines))
    assert probes.connections(world.root) == {"102"}
