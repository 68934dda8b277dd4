"""kubelet's pod list over loopback HTTP and TLS, and its CPU manager's state file."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import errno
import json
import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from koord.model import core
from koord.model.core import ObjectList
from koord.model.cpuset import CPUSet
from koord.model.podtotal import Role
from koord.model.qos import KubeQoS
from koord.service.inotify import FileWatch
from qosd.model.pod import Resources
from qosd.model.snapshot import Owner
from qosd.pods import cpumanager
from qosd.pods.cpumanager import UNNAMED, CPUManagerFile, CPUManagerState, read_state
from qosd.pods.http import FetchError, KubeletAccess, bracketed
from qosd.pods.kubelet import KubeletClient, KubeletContainer, read_pods

NONE = "{}: No such file or directory; {}: No such file or directory"


def answer(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.0 {status}\r\nContent-Length: {size}\r\n\r\n".encode() + body


class Server:
    """Answers every request with ``reply``; keeps what was asked."""

    def __init__(self, reply: bytes) -> None:
        self.reply = reply
        self.asked: list[str] = []

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[str]:
        server = await asyncio.start_server(self._converse, host, 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        try:
            yield f"{'https' if tls else 'http'}://{host}:{port}"
        finally:
            server.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
            if self.reply != b"hang":
                writer.write(self.reply)
                await writer.drain()
                writer.close()
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (b"hang", "no answer in 0.3 s"),
        (b"", "0 bytes read"),
        (b"SSH-2.0-x\r\n\r\n", "is no HTTP"),
        (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "transfer encoding"),
        (answer(b"Unauthorized", "401 Unauthorized"), "HTTP 401: Unauthorized"),
        (answer(b"{", length=9), "1 of 9 bytes came"),
        (answer(b"{"), "is no pod list"),
        (answer(b'{"items": 3}'), "is no pod list"),
        (b"HTTP/1.0 200 OK\r\nX: " + b"x" * 70_000, "Separator is not found"),
    ],
)
async def test_answers_that_are_none(reply: bytes, says: str) -> None:
    async with Server(reply).serving() as url:
        with pytest.raises(FetchError, match=says) as failed:
            await KubeletClient(KubeletAccess(url), 0.3).pods()
        assert url in str(failed.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "ftp://127.0.0.1", "127.0.0.1:10255", "http://127.0.0.1:x"])
async def test_addresses_where_nobody_is(url: str) -> None:
    with pytest.raises(FetchError):
        await KubeletClient(KubeletAccess(url), 1).pods()


@pytest.mark.parametrize(
    ("url", "read_as"),
    [
        ("https://fd00::1:10250/pods", "https://[fd00::1]:10250/pods"),
        ("http://::1:10255/configz?a=b:c", "http://[::1]:10255/configz?a=b:c"),
        ("https://2001:db8:0:0:0:0:0:1:10250", "https://[2001:db8:0:0:0:0:0:1]:10250"),
        *((url, url) for url in (
            "https://[fd00::1]:10250/pods", "https://[fd00::1]/pods", "https://10.0.0.7:10250/pods",
            "https://node-1:10250/pods", "https://node-1/a:b:c", "10.0.0.7:10255",
        )),
    ],
)  # fmt: skip
def test_an_ipv6_host_is_put_in_brackets(url: str, read_as: str) -> None:
    assert bracketed(url) == read_as


async def test_an_ipv6_address_is_connected_to() -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("needs IPv6 on the loopback")
    server = Server(answer(b'{"items": []}'))
    async with server.serving(host="::1") as url:
        assert await KubeletClient(KubeletAccess(url), 1).pods() == ObjectList(())
    assert "\r\nHost: [::1]:" in server.asked[0]


async def test_the_token_is_read_for_every_request(tmp_path: Path) -> None:
    context, certificate = _tls(tmp_path)
    server = Server(answer(b'{"items": []}'))
    (tmp_path / "token").write_text("first\n")
    async with server.serving(context) as url:
        client = KubeletClient(KubeletAccess(url, tmp_path / "token", ca_file=certificate), 2)
        assert await client.pods() == ObjectList(())
        (tmp_path / "token").write_text("second\n")
        await client.pods()
    assert server.asked[0].startswith("GET /pods HTTP/1.0\r\n")
    assert "Authorization: Bearer first\r\n" in server.asked[0]
    assert "Authorization: Bearer second\r\n" in server.asked[1]


async def test_the_read_only_port_gets_no_token(tmp_path: Path) -> None:
    server = Server(answer(b'{"items": []}'))
    (tmp_path / "token").write_text("first\n")
    async with server.serving() as url:
        assert await KubeletClient(KubeletAccess(url, tmp_path / "token"), 1).pods() == ObjectList(())
    assert "Authorization" not in server.asked[0]


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (answer(b'{"items": []}'), 200),
        (answer(b"{"), 200),
        (answer(b"Unauthorized", "401 Unauthorized"), 401),
        (b"SSH-2.0-x\r\n\r\n", 0),
        (b"hang", 0),
    ],
)
async def test_every_request_is_timed_with_its_status(reply: bytes, status: int) -> None:
    observed: list[tuple[str, int, float]] = []
    clock = iter([10.0, 10.25])
    async with Server(reply).serving() as url:
        client = KubeletClient(KubeletAccess(url), 0.3, lambda *request: observed.append(request), lambda: next(clock))
        with contextlib.suppress(FetchError):
            await client.pods()
    assert observed == [("/pods", status, 0.25)]


async def test_configz() -> None:
    server = Server(answer(b'{"kubeletconfig": {"cpuManagerPolicy": "static", "cgroupRoot": "/"}}'))
    async with server.serving() as url:
        assert (await KubeletClient(KubeletAccess(url), 1).config())["cpuManagerPolicy"] == "static"
        server.reply = answer(b"{}")
        with pytest.raises(FetchError, match="no kubelet configuration"):
            await KubeletClient(KubeletAccess(url), 1).config()


async def test_certificates_are_verified(tmp_path: Path) -> None:
    context, certificate = _tls(tmp_path)
    server = Server(answer(b'{"items": []}'))
    async with server.serving(context) as url:
        with pytest.raises(FetchError, match="certificate verify failed") as failed:
            await KubeletClient(KubeletAccess(url), 2).pods()
        assert (failed.value.is_untrusted, failed.value.status) == (True, 0)
        assert await KubeletClient(KubeletAccess(url, ca_file=certificate), 2).pods() == ObjectList(())
        with pytest.raises(FetchError, match="No such file") as failed:
            await KubeletClient(KubeletAccess(url, ca_file=tmp_path / "absent"), 2).pods()
        assert not failed.value.is_untrusted


async def test_who_listens_on_kubelets_port_is_told_nothing_but_with_kubelets_certificate(tmp_path: Path) -> None:
    """The certificate can be read by anybody, its key cannot. What kubelet keeps may change while the daemon runs."""
    (tmp_path / "other").mkdir()
    impostors_tls, _ = _tls(tmp_path / "other")
    kubelets_tls, certificate = _tls(tmp_path)
    (tmp_path / "token").write_text("secret")
    signed, own = (tmp_path / name for name in ("kubelet-server-current.pem", "kubelet.crt"))
    server = Server(answer(b'{"items": []}'))

    async def refusal(url: str) -> str:
        with pytest.raises(FetchError) as failed:
            await KubeletClient(KubeletAccess(url, tmp_path / "token", certificates=(signed, own)), 2).pods()
        assert (failed.value.is_untrusted, failed.value.status, failed.value.url) == (True, 0, f"{url}/pods")
        return failed.value.why

    async with server.serving(impostors_tls) as url:
        why = await refusal(url)
        assert why == f"kubelet's certificate is not known, so nobody there is asked ({NONE.format(signed, own)})"
        own.write_text("kubelet has just begun to write")
        assert "its certificate is not kubelet's" in await refusal(url)
        own.write_bytes(certificate.read_bytes())
        why = "another process may listen, and is told nothing"
        assert await refusal(url) == f"its certificate is not kubelet's ({own}): {why}"
    assert server.asked == []
    async with server.serving(kubelets_tls) as url:
        client = KubeletClient(KubeletAccess(url, tmp_path / "token", certificates=(signed, own)), 2)
        assert await client.pods() == ObjectList(())
        signed.write_bytes((tmp_path / "other" / "cert.pem").read_bytes())
        await client.pods()
        own.unlink()
        await refusal(url)
        signed.write_bytes(certificate.read_bytes() + (tmp_path / "key.pem").read_bytes())
        await client.pods()
    assert ["Bearer secret" in asked for asked in server.asked] == [True] * 3


async def test_a_client_certificate_is_shown_and_read_for_every_request(tmp_path: Path) -> None:
    context, certificate = _tls(tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificate)
    server = Server(answer(b'{"items": []}'))
    in_one = tmp_path / "current.pem"
    async with server.serving(context) as url:
        with pytest.raises(FetchError):
            await KubeletClient(KubeletAccess(url, ca_file=certificate), 2).pods()
        separate = KubeletAccess(url, cert_file=certificate, key_file=tmp_path / "key.pem", ca_file=certificate)
        assert await KubeletClient(separate, 2).pods() == ObjectList(())
        client = KubeletClient(KubeletAccess(url, cert_file=in_one, ca_file=certificate), 2)
        with pytest.raises(FetchError, match="No such file"):
            await client.pods()
        in_one.write_text(certificate.read_text() + (tmp_path / "key.pem").read_text())
        assert await client.pods() == ObjectList(())


def _tls(directory: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's context, and its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = _self_signed(directory)
    context.load_cert_chain(certificate, directory / "key.pem")
    return context, certificate


def _self_signed(directory: Path) -> Path:
    import subprocess  # noqa: PLC0415 - only here

    expires_days = str((datetime.date(2100, 1, 1) - datetime.date(2025, 1, 1)).days)
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(directory / "key.pem"), "-out", str(directory / "cert.pem"), "-days", expires_days]
    command += ["-subj", "/CN=kubelet", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return directory / "cert.pem"


def listed(spec: Mapping[str, Any], status: Mapping[str, Any] | None = None, **of_meta: Any) -> bytes:
    meta = {"uid": "u1", "namespace": "default", "name": "p", **of_meta}
    return json.dumps({"items": [{"metadata": meta, "spec": spec, "status": status or {}}]}).encode()


def wants(cpu: str = "", restart: str = "", memory: str = "", limit: str = "") -> dict[str, Any]:
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    resources: dict[str, Any] = {"requests": requests, "limits": {"cpu": limit} if limit else {}}
    return {"name": "c", "resources": resources, **({"restartPolicy": restart} if restart else {})}


@pytest.mark.parametrize(
    ("spec", "milli"),
    [
        ({}, 0),
        ({"containers": [{"name": "c"}]}, 0),
        ({"containers": [wants("1"), wants("500m")]}, 1500),
        ({"containers": [wants(limit="2")]}, 2000),
        ({"containers": [wants("1")], "initContainers": [wants("3"), wants("2")]}, 3000),
        ({"containers": [wants("1")], "initContainers": [wants("1", "Always"), wants("2")]}, 3000),
        ({"containers": [wants("4")], "initContainers": [wants("1", "Always"), wants("2")]}, 5000),
        ({"containers": [wants("1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [wants("1")], "resources": {"requests": {"cpu": "6"}}}, 6000),
        ({"containers": [wants("lots")]}, None),
    ],
)
def test_a_pod_s_request_is_what_the_scheduler_counts(spec: Mapping[str, Any], milli: int | None) -> None:
    (pod,) = read_pods(listed(spec)).items
    assert pod.cpu_request_milli == milli


@pytest.mark.parametrize(
    ("spec", "quota_us"),
    [
        ({}, None),
        ({"containers": [wants(limit="1"), wants("1")]}, None),
        ({"containers": [wants(limit="1"), wants(limit="500m")]}, 150_000),
        ({"containers": [wants(limit="1m")]}, 1000),
        ({"containers": [wants(limit="1")], "initContainers": [wants(limit="3")]}, 300_000),
        ({"containers": [wants("1")], "resources": {"limits": {"cpu": "6"}}}, 600_000),
        ({"containers": [wants(limit="lots")]}, None),
        ({"containers": [wants(limit="1"), wants(limit="0")]}, None),
        ({"containers": [wants(limit="1")], "initContainers": [wants("1")]}, None),
        ({"containers": [wants(limit="1")], "overhead": {"cpu": "250m"}}, 125_000),
    ],
)
def test_a_pod_s_quota_is_kubelet_s(spec: Mapping[str, Any], quota_us: int | None) -> None:
    (pod,) = read_pods(listed(spec)).items
    assert pod.requested.cpu_quota_us == quota_us


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({}, ()),
        ({"containers": [wants("1", memory="1Gi")]}, ((Role.MAIN, 1000, 0, 1 << 30),)),
        ({"containers": [wants(limit="2")]}, ((Role.MAIN, 2000, 2000, 0),)),
        (
            {"containers": [wants("1")], "initContainers": [wants("2", "Always"), wants("3")]},
            ((Role.SIDECAR, 2000, 0, 0), (Role.INIT, 3000, 0, 0), (Role.MAIN, 1000, 0, 0)),
        ),
        (
            {"containers": [wants("1")], "overhead": {"cpu": "250m", "memory": "1Mi"}},
            ((Role.SIDECAR, 250, 250, 1 << 20), (Role.MAIN, 1000, 0, 0)),
        ),
        ({"containers": [wants("1")], "resources": {"requests": {"cpu": "6"}}}, None),
        ({"containers": [wants("1"), wants("lots")]}, None),
        ({"containers": [wants("1")], "overhead": {"cpu": "lots"}}, None),
    ],
)
def test_every_container_of_the_spec_with_its_role(
    spec: Mapping[str, Any], found: tuple[tuple[Role, int, int, int], ...] | None
) -> None:
    (pod,) = read_pods(listed(spec)).items
    assert found == (
        None
        if pod.spec_containers is None
        else tuple(
            (one.role, one.native.cpu_request, one.native.cpu_limit, one.native.memory_request)
            for one in pod.spec_containers
        )
    )


def test_what_a_pod_says() -> None:
    status = {
        "phase": "Running",
        "qosClass": "Guaranteed",
        "containerStatuses": [{"name": "c", "containerID": "containerd://abc", "state": {"running": {}}}],
        "initContainerStatuses": [{"name": "i", "state": {"waiting": {"reason": "x"}}}],
    }
    (pod,) = read_pods(listed({"priority": 9100, "containers": [wants("1", memory="1Gi", limit="1")]}, status)).items
    assert (pod.priority, pod.phase, pod.kube_qos, pod.ended) == (9100, "Running", KubeQoS.GUARANTEED, False)
    assert (pod.cpu_request_milli, pod.memory_request_bytes) == (1000, 1 << 30)
    asked, nothing = Resources(100_000, 100_000, None, is_assumed=True), Resources(is_assumed=True)
    assert pod.containers == (
        KubeletContainer("i", "", "waiting", nothing),
        KubeletContainer("c", "abc", "running", asked),
    )


def batch(name: str, **amounts: str) -> dict[str, Any]:
    named = {f"kubernetes.io/batch-{resource}": amount for resource, amount in amounts.items()}
    return {"name": name, "resources": {"requests": {"memory": "1Gi", **named}, "limits": named}}


TWO = {"kubernetes.io/batch-cpu": "2k"}
STATIC, OF_THE_API = ({"annotations": {"kubernetes.io/config.source": source}} for source in ("file", "api"))


@pytest.mark.parametrize(
    ("spec", "meta", "amounts"),
    [
        ({}, {}, ({}, {})),
        ({"containers": [batch("a", cpu="2k"), batch("b")]}, {}, ({"a": TWO, "b": {}}, {})),
        ({"initContainers": [batch("i", cpu="2k")]}, {}, ({}, {"i": TWO})),
        ({"containers": [batch("a", cpu="2k")]}, OF_THE_API, ({"a": TWO}, {})),
        ({"containers": [batch("a", cpu="many"), batch("b")]}, {}, None),
        ({"containers": [batch("a")]}, STATIC, None),
    ],
    ids=["no containers", "of one container", "of an init container", "of the API", "no amount", "a static pod"],
)
def test_batch_amounts_of_the_spec(spec: Mapping[str, Any], meta: Mapping[str, Any], amounts: Any) -> None:
    (pod,) = read_pods(listed(spec, **meta)).items
    lists = () if pod.extended is None else (pod.extended.containers, pod.extended.init_containers)
    limits = [{name: each.limits for name, each in of_list.items()} for of_list in lists]
    read = [{name: {key: str(has) for key, has in of_one.items()} for name, of_one in each.items()} for each in limits]
    assert tuple(read) == (amounts or ())


JOB, SET = {"kind": "Job", "name": "j", "controller": True}, {"kind": "ReplicaSet", "name": "s"}


@pytest.mark.parametrize(
    ("spec", "status", "meta", "facts"),
    [
        ({}, {}, {}, {"owner": None, "started_unix_s": None, "deletion_unix_s": None, "host_network": False}),
        ({}, {}, {"ownerReferences": [SET, JOB]}, {"owner": Owner("Job", "j")}),
        ({}, {}, {"ownerReferences": [SET]}, {"owner": None}),
        ({}, {"startTime": "2026-11-23T09:00:00Z"}, {}, {"started_unix_s": 1_795_424_400.0}),
        ({}, {"startTime": "2026-11-23T10:00:00+01:00"}, {}, {"started_unix_s": 1_795_424_400.0}),
        ({}, {"startTime": "yesterday"}, {}, {"started_unix_s": None}),
        ({}, {}, {"deletionTimestamp": "2026-11-23T09:00:30Z"}, {"deletion_unix_s": 1_795_424_430.0}),
        ({"hostNetwork": True}, {}, {}, {"host_network": True}),
        ({"runtimeClassName": "kata"}, {}, {}, {"runtime_class": "kata"}),
        ({"restartPolicy": "OnFailure"}, {}, {}, {"restart_policy": "OnFailure"}),
        ({"hostNetwork": None, "runtimeClassName": None}, {}, {"ownerReferences": None}, {"runtime_class": ""}),
        ({}, {}, {}, {"pod_ips": (), "volumes": ()}),
        ({}, {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}, {}, {"pod_ips": ("10.0.0.1", "fd00::1")}),
        (
            {
                "volumes": [
                    {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
                    {"name": "x", "nfs": {}},
                ]
            },
            {},
            {},
            {"volumes": (core.Volume("shm", core.EmptyDir("Memory", "1Gi")), core.Volume("x", nfs=core.Source()))},
        ),
    ],
)
def test_what_evictions_and_networks_need_of_a_pod(
    spec: Mapping[str, Any], status: Mapping[str, Any], meta: Mapping[str, Any], facts: Mapping[str, Any]
) -> None:
    (pod,) = read_pods(listed(spec, status, **meta)).items
    assert {name: getattr(pod.facts, name) for name in facts} == facts


def test_one_strange_pod_costs_itself_only_and_is_named() -> None:
    good = json.loads(listed({}))["items"][0]
    strange = {"metadata": {"uid": 3, "namespace": "a", "name": "b"}}
    body = json.dumps({"items": [strange, {"metadata": {"namespace": "c", "name": "d"}}, good, "x"]}).encode()
    pods = read_pods(body)
    assert [pod.uid for pod in pods.items] == ["u1"]
    assert pods.problems == (
        "Pod a/b cannot be read: Expected `str`, got `int` - at `$.metadata.uid`",
        "Pod 3 of the list cannot be read: Expected `object`, got `str`",
        "Pod c/d has no UID",
    )


def test_a_list_without_any_pod() -> None:
    assert read_pods(b'{"kind": "PodList", "items": null}') == ObjectList(())
    with pytest.raises(ValueError, match="none of its 2 items is a pod: Pod 0 of the list cannot be read: Expected"):
        read_pods(b'{"items": [{"metadata": 7}, {}]}')


# --- cpu_manager_state -----------------------------------------------------------------------------------------------

STATE = (
    b'{"policyName":"static","defaultCpuSet":"0,3","entries":{"u1":{"a":"1","b":"2,4-5"},"u2":{"c":""}},"checksum":1}'
)


def test_the_state_file() -> None:
    state = read_state(STATE)
    assert (state.policy, state.default_cpus) == ("static", "0,3")
    assert state.exclusive == {"u1": "1-2,4-5", "u2": ""}


OTHER_MEMBER = (
    b'{"policyName":"static","defaultCpuSet":"0-1","podEntries":{"uid-db":{"cpuSet":"2-3"}},"checksum":0,"data":"{}",'
    b'"dataChecksum":1}'
)


@pytest.mark.parametrize(
    ("text", "owners", "problems"),
    [
        (OTHER_MEMBER, {UNNAMED: "2-3"}, 0),
        (b'{"policyName":"static","defaultCpuSet":"0","entries":{"u":{"c":"1"}},"pods":[]}',
         {"u": "1", UNNAMED: "2-3"}, 0),
        (b'{"policyName":"later","defaultCpuSet":"0-2"}', {UNNAMED: "3"}, 0),
        (b'{"policyName":"static","defaultCpuSet":"0-3"}', {}, 0),
        (b'{"policyName":"none","defaultCpuSet":""}', {}, 0),
        # an entry that is not understood costs the name of its owner, not the file
        (b'{"policyName":"static","defaultCpuSet":"0","entries":{"u":{"c":"9-1","d":"1"},"v":{"c":"2"}}}',
         {"u": "1", "v": "2", UNNAMED: "3"}, 1),
        (b'{"policyName":"static","defaultCpuSet":"0","entries":{"u":{"c":{"original":"1"}},"v":"2","w":{"c":"3"}}}',
         {"v": "2", "w": "3", UNNAMED: "1"}, 1),
        (b'{"policyName":"static","defaultCpuSet":"0","entries":[{"u":"1"}]}', {UNNAMED: "1-3"}, 1),
        (b'{"policyName":"static","defaultCpuSet":"","entries":{"u":{"c":"1"}}}', {"u": "1", UNNAMED: "0,2-3"}, 0),
    ],
)  # fmt: skip
def test_what_is_not_everybodys_has_an_owner(text: bytes, owners: dict[str, str], problems: int) -> None:
    state = read_state(text)
    assert (state.exclusive_on(CPUSet.of(range(4))), len(state.problems)) == (owners, problems)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "truncated"),
        (b"{}", "policyName"),
        (b'{"policyName":"static","defaultCpuSet":"a"}', "defaultCpuSet"),
        (b'{"policyName":"static","defaultCpuSet":""}', "neither defaultCpuSet nor entries name a CPU"),
    ],
)
def test_state_files_that_are_none(text: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_state(text)


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (errno.EMFILE, "Too many open files (raise fs.inotify.max_user_instances)"),
        (errno.ENOSPC, "No space left on device (raise fs.inotify.max_user_watches)"),
        (errno.EACCES, "Permission denied"),
    ],
)
async def test_a_file_that_cannot_be_watched_is_read_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int, why: str
) -> None:
    path = tmp_path / "cpu_manager_state"
    refusals = [OSError(number, os.strerror(number), "inotify") for _ in range(4)]

    def watch(*arguments: Any) -> FileWatch:
        if refusals:
            raise refusals.pop()
        return FileWatch(*arguments)

    monkeypatch.setattr(cpumanager, "FileWatch", watch)
    changes: list[CPUManagerState] = []
    file = CPUManagerFile(asyncio.get_running_loop(), path, lambda: changes.append(file.current))
    unwatched = f"{path} cannot be watched and is read from time to time: {why}"
    file.start()
    assert (file.watched, file.problem, file.current.policy) == (False, unwatched, "none")
    unread = f"{path}: Input data was truncated; kubelet's CPU manager counts as static, as before"
    for text, problem in ((STATE, unwatched), (b"{", f"{unread}; {unwatched}"), (STATE, unwatched)):
        path.write_bytes(text)
        file.look_again()
        assert (file.watched, file.current.policy, file.problem) == (False, "static", problem)
    assert [record.message for record in caplog.records] == [unwatched, unread]
    path.write_bytes(STATE.replace(b'"a":"1"', b'"a":"6"'))
    file.look_again()
    assert (file.watched, file.problem, file.current.exclusive["u1"]) == (True, "", "2,4-6")
    path.unlink()
    await asyncio.sleep(0.02)
    assert [state.policy for state in changes] == ["static", "static", "none"]
    file.close()


async def test_a_watched_file_is_not_read_again(tmp_path: Path) -> None:
    file = CPUManagerFile(asyncio.get_running_loop(), tmp_path / "cpu_manager_state", lambda: None)
    file.start()
    (tmp_path / "cpu_manager_state").write_bytes(STATE)
    file.look_again()
    assert file.current == CPUManagerState(), "its event has not been read yet"
    file.load()
    assert file.current.policy == "static"
    file.close()


async def test_the_file_is_watched_and_a_bad_one_keeps_the_last(tmp_path: Path) -> None:
    path = tmp_path / "cpu_manager_state"
    changes: list[CPUManagerState] = []
    file = CPUManagerFile(asyncio.get_running_loop(), path, lambda: changes.append(file.current))
    file.start()
    assert (file.current, file.problem, file.watched) == (CPUManagerState(), "", True)
    bad = f"{path}: Input data was truncated; kubelet's CPU manager counts as static, as before"
    for text, policy, problem in ((STATE, "static", ""), (b"{", "static", bad), (STATE, "static", "")):
        path.with_suffix(".new").write_bytes(text)
        path.with_suffix(".new").rename(path)  # as kubelet does
        await asyncio.sleep(0.02)
        assert file.current.policy == policy
        assert file.problem == problem
    path.unlink()
    await asyncio.sleep(0.02)
    assert [state.policy for state in changes] == ["static", "none"]
    file.close()
