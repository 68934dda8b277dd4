"""A whole node with ``--kubelet-insecure-tls``: whom it tells its token, on a real port with real TLS."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from koord.kube.credentials import pem_file
from koord.tls import certificates
from koord.tls.certificates import KeyPair
from qosd.pods.kubelet import SERVING_CERTIFICATES
from tests.qosd.machine import Machine
from tests.qosd.test_node import Living, living

PODS = {"items": [{"metadata": {"uid": "u", "namespace": "default", "name": "web"}, "status": {"phase": "Running"}}]}


def issued() -> KeyPair:
    """Of an authority that nobody knows, as kubelet's own is."""
    return certificates.issue_serving(certificates.issue_ca(datetime.now(UTC)), ["localhost"], datetime.now(UTC))


@asynccontextmanager
async def serving(pair: KeyPair, asked: list[str]) -> AsyncIterator[str]:
    """Who shows ``pair``; ``asked`` takes what he is told."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pem_file(pair.certificate) as chain, pem_file(pair.key) as key:
        context.load_cert_chain(chain, key)

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps(PODS).encode())
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(converse, "127.0.0.1", 0, ssl=context) as server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.kubepods()
    made.cgroups.make("/kubepods/burstable/podu")
    (tmp_path / "token").write_text("secret\n")
    return made


@asynccontextmanager
async def asking(machine: Machine, url: str, *, insecure_tls: bool = True) -> AsyncIterator[Living]:
    token = str(machine.root / "token")
    async with living(
        machine,
        runtime_endpoint="",
        kubelet_endpoint=url,
        kubelet_token_file=token,
        kubelet_insecure_tls=insecure_tls,
    ) as node:
        yield node


@pytest.mark.parametrize("file", SERVING_CERTIFICATES)
async def test_who_shows_a_certificate_that_kubelet_keeps_is_told_the_token(machine: Machine, file: str) -> None:
    asked: list[str] = []
    kubelets = issued()
    machine.put(f"kubelet/{file}", kubelets.certificate.decode())
    async with serving(kubelets, asked) as url, asking(machine, url) as alive:
        await alive.until(lambda: [pod.name for pod in alive.node.pods.current] == ["web"], "kubelet's pod")
        assert alive.node.pods.problems == ()
    assert asked
    assert all("Authorization: Bearer secret" in request for request in asked)


@pytest.mark.parametrize("kept", [True, False], ids=["kubelet's is another", "kubelet's is not there"])
async def test_who_shows_another_certificate_is_told_nothing(machine: Machine, kept: bool) -> None:
    asked: list[str] = []
    if kept:
        machine.put(f"kubelet/{SERVING_CERTIFICATES[0]}", issued().certificate.decode())
    why = "another process may listen, and is told nothing" if kept else "kubelet's certificate is not known"
    async with serving(issued(), asked) as url, asking(machine, url) as alive:
        await alive.until(lambda: alive.node.pods.problems, "a refusal")
        assert why in alive.node.pods.problems[0]
        assert alive.node.pods.current == ()
    assert asked == []


async def test_without_the_option_kubelets_own_certificate_is_of_no_authority(machine: Machine) -> None:
    asked: list[str] = []
    kubelets = issued()
    machine.put(f"kubelet/{SERVING_CERTIFICATES[1]}", kubelets.certificate.decode())
    async with serving(kubelets, asked) as url, asking(machine, url, insecure_tls=False) as alive:
        await alive.until(lambda: alive.node.pods.problems, "a refusal")
        assert "CERTIFICATE_VERIFY_FAILED" in alive.node.pods.problems[0]
    assert asked == []
