"""Who a node is on NodeLink: requests of certificates, and all that may become of them."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from koord.model.nodelink import CERTIFICATE_LIFETIME_S, SIGNER
from koord_manager.nodelink.signer import Signer
from koord_manager.nodelink.signing import Agents
from qosd.cluster import nodeidentity
from qosd.cluster.nodeidentity import RETRY_S, NodeIdentity, NoIdentity
from tests.koord_manager.nodelink.rig import AGENT, Rig, rig
from tests.support.waiting import HANG_S, until

CERTIFICATE_REQUESTS = ("/apis/certificates.k8s.io/v1", "certificatesigningrequests")


def requests(made: Rig) -> dict[tuple[str, str], dict[str, Any]]:
    return made.server.objects.get(CERTIFICATE_REQUESTS, {})


def answer(made: Rig, status: dict[str, Any]) -> None:
    """To each request that has none."""
    for key, request in list(requests(made).items()):
        if "status" not in request:
            made.server.write(CERTIFICATE_REQUESTS, key, {**request, "status": status})


@asynccontextmanager
async def signing(made: Rig) -> AsyncIterator[None]:
    """Somebody signs, however long that takes a busy machine."""
    made.server.requester = {"username": "system:node:n1", "groups": ["system:nodes"]}
    agents = Agents(AGENT, made.view.pods.get)
    signer = Signer(made.api, made.link.read_ca, agents, time.monotonic, lambda: datetime.now(UTC))
    task = asyncio.create_task(signer.run())
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nodeidentity, "SIGNED_WITHIN_S", HANG_S)
            yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodeidentity, "SIGNED_WITHIN_S", 0.2)
    monkeypatch.setattr(nodeidentity, "RENEWED_WITHIN_S", 2.0)


async def test_the_key_stays_in_the_process() -> None:
    """The request is what the signer's rules want, and no file is left."""
    async with rig() as made, signing(made):
        now_s = [0.0]
        identity = NodeIdentity(made.api, "n1", lambda: now_s[0])
        assert identity.is_due()
        context = await identity.context(made.ca)
        assert context.cert_store_stats()["x509_ca"] == 1
        assert not identity.is_due()
        now_s[0] = CERTIFICATE_LIFETIME_S * 2 / 3
        assert identity.is_due()
        (request,) = made.server.objects["/apis/certificates.k8s.io/v1", "certificatesigningrequests"].values()
        assert request["spec"]["signerName"] == SIGNER
        assert request["spec"]["usages"] == ["digital signature", "client auth"]
        assert not [file for file in open_files() if "pem" in file]


def open_files() -> list[str]:
    """Where the descriptors of this process lead."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(os.readlink(descriptor))
    return found


@pytest.mark.usefixtures("impatient")
async def test_nobody_signs_and_there_is_one_request() -> None:
    """Which is made again where the server has forgotten it, and answered at last."""
    async with rig() as made:
        made.server.requester = {"username": "system:node:n1", "groups": ["system:nodes"]}
        identity = NodeIdentity(made.api, "n1", time.monotonic)
        for _ in range(3):
            with pytest.raises(NoIdentity, match=r"nodelink-n1-.* is not signed in 0\.2 s"):
                await identity.context(made.ca)
        (key,) = requests(made)
        made.server.write(CERTIFICATE_REQUESTS, key, None)
        with pytest.raises(NoIdentity, match="is not signed"):
            await identity.context(made.ca)
        async with signing(made):
            await until(lambda: "certificate" in requests(made)[key].get("status", {}))
        await identity.context(made.ca)
        assert not identity.is_due()
        assert list(requests(made)) == [key]


DENIED = {"conditions": [{"type": "Denied", "message": "not this node"}]}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("status", "why"),
    [
        (DENIED, "not this node"),
        ({"certificate": b64encode(b"no PEM").decode()}, "the certificate cannot be used"),
        ({"certificate": 5}, "cannot be read"),
    ],
    ids=["denied", "no certificate", "no status"],
)
async def test_an_answer_of_no_use_is_told_and_another_request_is_made_later(status: dict[str, Any], why: str) -> None:
    """However often the link wants a certificate meanwhile."""
    async with rig() as made:
        now_s = 0.0
        identity = NodeIdentity(made.api, "n1", lambda: now_s)
        for tries in (1, 2):
            with pytest.raises(NoIdentity, match="is not signed"):
                await identity.context(made.ca)
            answer(made, status)
            for pause_s in (0, 299):
                now_s += pause_s
                with pytest.raises(NoIdentity, match=rf"{why}.* \(another one is requested after 300 s\)"):
                    await identity.context(made.ca)
                assert identity.is_due()
            assert len(requests(made)) == tries
            now_s += 1


@pytest.mark.usefixtures("impatient")
async def test_a_good_certificate_is_used_until_there_is_another_or_it_expires() -> None:
    life_s = CERTIFICATE_LIFETIME_S
    async with rig() as made:
        now_s = [0.0]
        identity = NodeIdentity(made.api, "n1", lambda: now_s[0])
        async with signing(made):
            await identity.context(made.ca)
        for at_s in (life_s * 5 / 7, life_s * 5 / 7 + 300, life_s - 1):
            now_s[0] = at_s
            assert identity.is_due()
            await identity.context(made.ca)
            assert not identity.is_due(), "it is tried again after some minutes"
        assert len(requests(made)) == 2
        now_s[0] = life_s
        with pytest.raises(NoIdentity, match="is not signed"):
            await identity.context(made.ca)
        async with signing(made):
            await identity.context(made.ca)
        assert len(requests(made)) == 2


@pytest.mark.usefixtures("impatient")
async def test_a_certificate_that_is_refused_is_not_used_again() -> None:
    async with rig() as made:
        now_s = [0.0]
        identity = NodeIdentity(made.api, "n1", lambda: now_s[0])
        async with signing(made):
            await identity.context(made.ca)
        now_s[0] = RETRY_S
        identity.reject()
        with pytest.raises(NoIdentity, match="is not signed"):
            await identity.context(made.ca)


async def test_a_manager_that_refuses_every_certificate_is_asked_for_one_in_some_minutes() -> None:
    """Each request is an object that the API server keeps for an hour."""
    async with rig() as made:
        now_s = [0.0]
        identity = NodeIdentity(made.api, "n1", lambda: now_s[0])
        async with signing(made):
            for at_s in range(0, 2 * int(RETRY_S) + 1, 30):
                now_s[0] = at_s
                await identity.context(made.ca)
                identity.reject()
        assert len(requests(made)) == 3


async def test_a_key_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    async with rig() as made:
        with pytest.raises(NoIdentity, match=r"no key could be made: .*No such file"):
            await NodeIdentity(made.api, "n1", time.monotonic).context(made.ca)


async def test_who_makes_the_key_imports_nothing_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "qosd").mkdir()
    (tmp_path / "qosd/__init__.py").write_text("raise SystemExit('a stranger')")
    monkeypatch.chdir(tmp_path)
    key, request = await nodeidentity._key_and_request("system:node:n1", "system:nodes")
    assert key.startswith(b"-----BEGIN PRIVATE KEY") and b"CERTIFICATE REQUEST" in request


async def test_who_makes_the_key_imports_from_where_we_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a package's program does, which adds its own directory to the path."""
    (tmp_path / "maker.py").write_text("import sys; sys.stdout.write(sys.argv[1])")
    monkeypatch.setattr(nodeidentity, "_PROGRAM", "maker")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert (await nodeidentity._key_and_request("key", "group"))[0] == b"key"
