"""Credentials that rotate under a client: tokens, certificates, plugins; against servers that want them."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from koord.kube import credentials as subject
from koord.kube.client import CallLimits, Client
from koord.kube.credentials import CHECK_S, SHORTEST_PAUSE_S, Credentials, CredentialsError
from koord.kube.errors import APIError, KubeError, Unreachable
from koord.kube.execplugin import PluginError, run
from koord.kube.kind import POD, Key
from koord.kube.kubeconfig import ExecPlugin, RESTConfig, read_kubeconfig
from koord.kube.transport import Transport
from tests.kube.authority import Authority
from tests.kube.server import Server
from tests.kube.support import PODS

WEB = Key("default", "web")


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def client(settings: RESTConfig, clock: Clock) -> AsyncIterator[Client]:
    credentials = Credentials(lambda: settings, {"PATH": os.environ["PATH"]}, clock, time.time)
    async with Transport(credentials, "test/1") as transport:
        yield Client(transport, CallLimits(tries=1))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    async with server.serving():
        server.put(PODS, "default", "web")
        yield server


def replace(path: Path, content: bytes) -> None:
    path.with_suffix(".new").write_bytes(content)
    path.with_suffix(".new").rename(path)


async def test_a_token_that_is_replaced_is_read_again(server: Server, tmp_path: Path) -> None:
    token, clock = tmp_path / "token", Clock()
    token.write_text("first\n")
    server.tokens = {"first"}
    async with client(RESTConfig(server.url, token="inline", token_file=token), clock) as api:
        await api.get(POD, WEB)
        replace(token, b"second")
        server.tokens = {"first", "second"}
        await api.get(POD, WEB)
        clock.now_s += CHECK_S
        await api.get(POD, WEB)
        used = [headers["Authorization"] for *_, headers in server.requests]
        assert used == ["Bearer first", "Bearer first", "Bearer second"]


async def test_a_refused_token_is_read_again_at_once(server: Server, tmp_path: Path) -> None:
    token, clock = tmp_path / "token", Clock()
    token.write_text("first")
    server.tokens = {"first"}
    async with client(RESTConfig(server.url, token_file=token), clock) as api:
        await api.get(POD, WEB)
        server.tokens = {"second"}
        replace(token, b"second")
        clock.now_s += SHORTEST_PAUSE_S
        await api.get(POD, WEB)
        assert server.count("get") == 3


async def test_a_token_that_is_refused_for_ever_makes_no_storm(server: Server) -> None:
    server.tokens = {"other"}
    clock = Clock()
    credentials = Credentials(lambda: RESTConfig(server.url, token="revoked"), {}, clock, time.time)
    async with Transport(credentials, "test/1") as transport:
        api = Client(transport, CallLimits(tries=1))
        for _ in range(10):
            with pytest.raises(APIError, match="401 Unauthorized"):
                await api.get(POD, WEB)
        assert (credentials.loads, server.count("get")) == (1, 10)
        clock.now_s += SHORTEST_PAUSE_S
        with pytest.raises(APIError):
            await api.get(POD, WEB)
        assert credentials.loads == 2


@pytest.mark.parametrize("content", [b"", b"\n", None], ids=["empty", "blank", "gone"])
async def test_a_token_that_cannot_be_read(server: Server, tmp_path: Path, content: bytes | None) -> None:
    token, clock = tmp_path / "token", Clock()
    settings = RESTConfig(server.url, token_file=token)
    if content is not None:
        token.write_bytes(content)
    async with client(settings, clock) as api:
        with pytest.raises(CredentialsError):
            await api.get(POD, WEB)
        replace(token, b"good")
        await api.get(POD, WEB)
        if content is None:
            token.unlink()
        else:
            replace(token, content)
        clock.now_s += CHECK_S
        await api.get(POD, WEB)
        assert server.requests[-1][3]["Authorization"] == "Bearer good"
        replace(token, b"better")
        clock.now_s += CHECK_S
        await api.get(POD, WEB)
        assert server.requests[-1][3]["Authorization"] == "Bearer better"


async def test_a_kubeconfig_that_changes_is_read_again(tmp_path: Path) -> None:
    config, clock = tmp_path / "config", Clock()

    def write(server: str) -> None:
        cluster = {"name": "c", "cluster": {"server": server}}
        context = {"name": "x", "context": {"cluster": "c"}}
        replace(config, json.dumps({"current-context": "x", "contexts": [context], "clusters": [cluster]}).encode())

    write("http://first")
    credentials = Credentials(lambda: read_kubeconfig([config]), {}, clock, time.time)
    servers = []
    for change in (None, "http://second", "nonsense", "http://third"):
        if change is not None:
            write(change)
        servers.append((await credentials.access()).server)
        clock.now_s += CHECK_S
    servers.append((await credentials.access()).server)
    assert servers == ["http://first", "http://second", "http://second", "http://third", "http://third"]


# certificates


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "files"])
async def test_a_server_that_wants_certificates(tmp_path: Path, authority: Authority, inline: bool) -> None:
    server = Server()
    pair = authority.issue("node")
    if inline:
        settings: dict[str, Any] = {"ca": authority.pem, "certificate": pair, "key": pair}
    else:
        (tmp_path / "ca").write_bytes(authority.pem)
        (tmp_path / "pair").write_bytes(pair)
        settings = {"ca": tmp_path / "ca", "certificate": tmp_path / "pair"}
    async with server.serving(authority.server_context(tmp_path)) as url:
        server.put(PODS, "default", "web")
        async with client(RESTConfig(url, **settings), Clock()) as api:
            await api.get(POD, WEB)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"certificate": b"pair"}, CredentialsError),
        ({"ca": b"nonsense"}, CredentialsError),
        ({"ca": Path("/nonexistent/ca")}, CredentialsError),
        ({"ca": "other", "certificate": "node"}, Unreachable),
        ({"ca": "right", "certificate": "node", "server_name": "elsewhere"}, Unreachable),
        ({"ca": "right"}, Unreachable),
    ],
    ids=["no certificate", "no authority", "no file", "another authority", "another name", "no client"],
)
async def test_certificates_that_do_not_fit(
    tmp_path: Path, authority: Authority, settings: dict[str, Any], error: type[KubeError]
) -> None:
    server = Server()
    pem = {"other": Authority().pem, "right": authority.pem, "node": authority.issue("node")}
    settings = {name: pem.get(value, value) for name, value in settings.items()}
    tls = authority.server_context(tmp_path)
    async with server.serving(tls) as url, client(RESTConfig(url, **settings), Clock()) as api:
        with pytest.raises(error):
            await api.get(POD, WEB)


@pytest.mark.parametrize(
    ("settings", "works"),
    [({"ca": "right", "server_name": "server"}, True), ({"verify": False}, True), ({"ca": "right"}, True)],
    ids=["by name", "unverified", "by address"],
)
async def test_servers_that_are_believed(
    tmp_path: Path, authority: Authority, settings: dict[str, Any], works: bool
) -> None:
    server = Server()
    if "ca" in settings:
        settings = settings | {"ca": authority.pem}
    async with server.serving(authority.server_context(tmp_path)) as url:
        server.put(PODS, "default", "web")
        async with client(RESTConfig(url, certificate=authority.issue("node"), **settings), Clock()) as api:
            await api.get(POD, WEB)


async def test_a_certificate_that_is_replaced_is_used_for_new_connections(tmp_path: Path, authority: Authority) -> None:
    clock, pair, token = Clock(), tmp_path / "pair", tmp_path / "token"
    pair.write_bytes(authority.issue("first"))
    token.write_text("first")
    settings = RESTConfig("https://127.0.0.1:1", ca=authority.pem, certificate=pair, token_file=token)
    credentials = Credentials(lambda: settings, {}, clock, time.time)
    before = await credentials.access()
    clock.now_s += CHECK_S
    assert (await credentials.access()).tls is before.tls
    assert credentials.loads == 1
    replace(token, b"second")
    clock.now_s += CHECK_S
    after = await credentials.access()
    assert (after.token, after.tls) == ("second", before.tls)
    replace(pair, authority.issue("second")[:100])
    clock.now_s += CHECK_S
    assert (await credentials.access()).tls is before.tls
    replace(pair, authority.issue("second"))
    clock.now_s += CHECK_S
    assert (await credentials.access()).tls is not before.tls


def test_a_key_never_reaches_a_disk() -> None:
    with subject.pem_file(b"secret") as path:
        assert path.startswith("/proc/self/fd/")
        assert Path(path).read_bytes() == b"secret"
        descriptor = int(path.rpartition("/")[2])
        assert os.stat(descriptor).st_nlink == 0


# plugins


def plugin(tmp_path: Path, code: str, **members: Any) -> ExecPlugin:
    program, script = tmp_path / "plugin", tmp_path / "plugin.py"
    script.write_text(f"import json, os, sys, time\n{code}\n")
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(script))} "$@"\n')
    program.chmod(0o755)
    return ExecPlugin("client.authentication.k8s.io/v1", str(program), **members)


def says(**status: Any) -> str:
    return f"print({json.dumps(json.dumps({'kind': 'ExecCredential', 'status': status}))})"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("sys.exit('no ticket')", "exited with 1: no ticket"),
        ("time.sleep(60)", "took more than 0.5 s"),
        ("print('hello')", "printed no ExecCredential: "),
        ("print('{}')", "without credential"),
        (says(token=""), "without credential"),
        (says(token=3), "printed no ExecCredential: "),
        ("print(' ' * (2 << 20))", "printed 2097153 bytes"),
    ],
    ids=range(7),
)
async def test_plugins_that_fail(tmp_path: Path, code: str, why: str) -> None:
    with pytest.raises(PluginError) as caught:
        await run(plugin(tmp_path, code), {}, timeout_s=0.5 if "sleep" in code else 30.0)
    assert why in str(caught.value)


async def test_a_plugin_that_takes_too_long_is_dead_afterwards(tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    with pytest.raises(PluginError):
        await run(plugin(tmp_path, code), {}, timeout_s=1.0)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_a_plugin_that_is_not_there() -> None:
    with pytest.raises(PluginError, match=r"cannot be run: No such file or directory \(get it\)"):
        await run(ExecPlugin("v1", "/nonexistent/plugin", install_hint="get it\n"), {})


async def test_what_a_plugin_is_told(tmp_path: Path) -> None:
    code = """
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
told = [info["apiVersion"], info["spec"], os.environ["A"], os.environ["B"], sys.argv[1:], sys.stdin.read()]
print(json.dumps({"status": {"token": json.dumps(told)}}))
"""
    told = plugin(tmp_path, code, args=("x",), env=(("A", "a"),), cluster={"server": "https://api"})
    status = await run(told, {"A": "other", "B": "b"})
    spec = {"interactive": False, "cluster": {"server": "https://api"}}
    assert json.loads(status.token) == ["client.authentication.k8s.io/v1", spec, "a", "b", ["x"], ""]


async def test_a_plugins_token_is_kept_until_it_ends(server: Server, tmp_path: Path) -> None:
    count = tmp_path / "count"
    count.write_text("")
    code = f"""
with open({str(count)!r}, "a") as file: file.write("x")
end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(5000))
print(json.dumps({{"status": {{"token": f"t{{os.path.getsize({str(count)!r})}}", "expirationTimestamp": end}}}}))
"""
    settings, clock, wall = RESTConfig(server.url, plugin=plugin(tmp_path, code)), Clock(), Clock()
    credentials = Credentials(lambda: settings, {}, clock, wall)
    tokens = []
    for moment_s in (1000, 1001, 2000, 4939, 4940, 4940.5, 4941):
        clock.now_s = wall.now_s = moment_s
        tokens.append((await credentials.access()).token)
    assert tokens == ["t1", "t1", "t1", "t1", "t2", "t2", "t3"]


async def test_a_plugins_certificate(tmp_path: Path, authority: Authority) -> None:
    server = Server()
    pair = authority.issue("user").decode()
    code = says(clientCertificateData=pair, clientKeyData=pair)
    async with server.serving(authority.server_context(tmp_path)) as url:
        server.put(PODS, "default", "web")
        async with client(RESTConfig(url, ca=authority.pem, plugin=plugin(tmp_path, code)), Clock()) as api:
            await api.get(POD, WEB)
