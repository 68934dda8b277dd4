"""Who may read the figures: addresses, tokens and certificates, and what is refused before anything is served."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from koord.service.config import ConfigError
from koord.service.statusserver import Page
from qosd import status
from qosd.options import Options

OPENSSL = shutil.which("openssl")
PAGES = {"/healthz": lambda: Page(200, b"ok\n"), "/metrics": lambda: Page(200, b"figures\n")}
ANYWHERE = "0.0.0.0:9316"


@dataclass(frozen=True)
class Certificate:
    chain: Path
    key: Path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Self-signed, for localhost."""
    if OPENSSL is None:
        pytest.skip("needs openssl to make a certificate")
    directory = tmp_path_factory.mktemp("tls")
    made = Certificate(directory / "cert.pem", directory / "key.pem")
    subprocess.run(
        [OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", str(made.key), "-out", str(made.chain)],
        check=True, capture_output=True,
    )  # fmt: skip
    return made


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class TestRefused:
    @pytest.mark.parametrize(
        "endpoint",
        [
            "m.sock",
            ":9316",
            "127.0.0.1",
            "127.0.0.1:",
            "localhost:x",
            "127.0.0.1:65536",
            "127.0.0.1:-1",
            "127.0.0.1:９",
        ],
    )
    def test_what_is_no_address(self, endpoint: str) -> None:
        with pytest.raises(ConfigError) as caught:
            status.address(endpoint)
        assert str(caught.value) == f"options: metrics-endpoint = {endpoint!r}: must be unix:///path or host:port"

    @pytest.mark.parametrize("endpoint", [ANYWHERE, "10.0.0.1:1", "[::]:1", "node7.example:9316"])
    def test_a_port_that_other_machines_reach_needs_a_token_or_tls(self, endpoint: str) -> None:
        with pytest.raises(ConfigError) as caught:
            status.server(Options(metrics_endpoint=endpoint), PAGES)
        assert str(caught.value) == (
            f"options: metrics-endpoint = {endpoint!r}: is reached from other machines: give --metrics-token-file or "
            "--metrics-cert-file too"
        )

    @pytest.mark.parametrize(
        ("content", "why"),
        [(None, "cannot be read: .*No such file"), (b" \n", "is empty"), (b"\xff\xfe", "cannot be read: .*utf-8")],
    )
    def test_a_token_file_that_holds_no_token(self, tmp_path: Path, content: bytes | None, why: str) -> None:
        file = tmp_path / "token"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(ConfigError, match=rf"metrics-token-file = '{file}': {why}"):
            status.server(Options(metrics_endpoint=ANYWHERE, metrics_token_file=str(file)), PAGES)

    @pytest.mark.parametrize(
        ("option", "file", "why"),
        [
            ("metrics_cert_file", "none.pem", "cannot be used: .*No such file"),
            ("metrics_cert_file", "junk.pem", "cannot be used"),
            ("metrics_key_file", "junk.pem", "is of no use without --metrics-cert-file"),
        ],
    )
    def test_a_certificate_that_is_none(self, tmp_path: Path, option: str, file: str, why: str) -> None:
        (tmp_path / "junk.pem").write_text("junk")
        given: dict[str, Any] = {option: f"{tmp_path}/{file}"}
        with pytest.raises(ConfigError, match=rf"{option.replace('_', '-')} = '.*{file}': {why}"):
            status.server(Options(**{"metrics_endpoint": ANYWHERE, **given}), PAGES)

    def test_a_key_that_is_another_certificates(self, certificate: Certificate, tmp_path: Path) -> None:
        other = tmp_path / "other.pem"
        assert OPENSSL is not None
        subprocess.run([OPENSSL, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(other)], check=True)
        options = Options(metrics_cert_file=str(certificate.chain), metrics_key_file=str(other))
        with pytest.raises(ConfigError, match=r"metrics-cert-file = .*cannot be used"):
            status.server(options, PAGES)


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("unix:///run/m.sock", "/run/m.sock"),
        ("/run/m.sock", "/run/m.sock"),
        ("127.0.0.1:9", "127.0.0.1:9"),
        ("[::1]:9", "[::1]:9"),
        ("localhost:65535", "localhost:65535"),
        (ANYWHERE, ANYWHERE),
    ],
)
def test_addresses(endpoint: str, address: str) -> None:
    assert status.address(endpoint) == address


@pytest.mark.parametrize("endpoint", ["unix:///run/m.sock", "127.0.0.1:9", "[::1]:9", "localhost:9"])
def test_the_node_itself_needs_neither_token_nor_tls(endpoint: str) -> None:
    status.server(Options(metrics_endpoint=endpoint), PAGES)


async def get(port: int, path: str, token: str = "", trusted: Path | None = None) -> bytes:
    """A page by HTTP, or by HTTPS where the server's certificate is ``trusted``."""
    context = ssl.create_default_context(cafile=str(trusted)) if trusted else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    bearer = f"Authorization: Bearer {token}\r\n" if token else ""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n".encode())
    try:
        return await asyncio.wait_for(reader.read(), 5)
    finally:
        writer.close()


async def served(**more: Any) -> tuple[Any, int]:
    port = free_port()
    options = Options(metrics_endpoint=f"0.0.0.0:{port}", **more)
    server = status.server(options, PAGES)
    await server.start(status.address(options.metrics_endpoint))
    return server, port


async def test_a_token_guards_the_figures_and_not_the_prober(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    server, port = await served(metrics_token_file=str(tmp_path / "token"))
    try:
        assert b" 401 " in await get(port, "/metrics")
        assert b" 401 " in await get(port, "/metrics", "wrong")
        assert (await get(port, "/metrics", "secret")).endswith(b"figures\n")
        assert (await get(port, "/healthz")).endswith(b"ok\n")
    finally:
        server.close()


async def test_tls(certificate: Certificate) -> None:
    files = {"metrics_cert_file": str(certificate.chain), "metrics_key_file": str(certificate.key)}
    server, port = await served(**files)
    try:
        assert (await get(port, "/metrics", trusted=certificate.chain)).endswith(b"figures\n")
        assert b"figures" not in await get(port, "/metrics")
    finally:
        server.close()


async def test_the_key_may_be_in_the_certificates_file(certificate: Certificate, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_text(certificate.chain.read_text() + certificate.key.read_text())
    server, port = await served(metrics_cert_file=str(both))
    try:
        assert (await get(port, "/metrics", trusted=certificate.chain)).endswith(b"figures\n")
    finally:
        server.close()
