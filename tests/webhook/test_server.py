"""The webhook server on real TLS sockets: answers, faults, hostile clients, the end."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress

import aiohttp
import pytest

from koord.model.admissionreview import AdmissionRequest, AdmissionResponse
from koord.tls import certificates
from koord.tls.certificates import ServingCertificate
from koord.tls.context import LiveContext
from koord.webhook.reviews import OverloadedError
from koord.webhook.server import ServerLimits, WebhookServer, allow, deadline_s
from tests.support.managerloop import event_loop_policy  # noqa: F401 - a fixture
from tests.support.waiting import until
from tests.tls.pki import NAMES
from tests.webhook.rig import (
    CA,
    FIRST,
    HANDLERS,
    IMPATIENT,
    NOW,
    Metrics,
    request,
    response,
    review,
    running,
)

OTHER = ServingCertificate(FIRST.pair, certificates.issue_ca(NOW).certificate)
"""Not trusted where it is served."""


# answers


@pytest.mark.parametrize("version", ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"])
async def test_the_answer_repeats_version_and_uid(version: str) -> None:
    async with running() as run:
        status, answer, _ = await run.post("/patch", review(version, object={"a": "b"}))
        operations = json.loads(base64.b64decode(answer["response"].pop("patch")))
        assert operations == [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
        response = {"allowed": True, "patchType": "JSONPatch", "uid": "u1"}
        assert (status, answer) == (200, {"apiVersion": version, "kind": "AdmissionReview", "response": response})


@pytest.mark.parametrize(
    ("path", "result"),
    [("/allow", "allowed"), ("/allow-later", "allowed"), ("/patch", "allowed"), ("/reject", "rejected")],
)
async def test_verdicts_are_counted(path: str, result: str) -> None:
    async with running() as run:
        status, answer, _ = await run.post(path)
        assert (status, answer["response"]["allowed"]) == (200, result == "allowed")
        assert run.metrics.results() == {(path, result): 1}


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/fail", "ZeroDivisionError: a defect"),
        ("/fail-later", "TimeoutError: of its own"),
        ("/nothing", "TypeError: it returned NoneType, which is no response"),
        ("/document", "TypeError: it returned dict, which is no response"),
        ("/strange", "TypeError: Encoding objects of type object is unsupported"),
        ("/surrogate", "UnicodeEncodeError: "),
    ],
)
async def test_a_handler_that_fails_refuses_and_is_named(path: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    async with running() as run:
        status, answer, _ = await run.post(path)
        response = answer["response"]
        assert (status, response["uid"], response["allowed"], response["status"]["code"]) == (200, "u1", False, 500)
        assert response["status"]["message"].startswith(f"the webhook {path} failed: {why}")
        assert run.metrics.results() == {(path, "failed"): 1}
        assert "Traceback" in caplog.text
        assert (await run.post("/allow"))[0] == 200


async def test_a_message_that_no_json_can_hold(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "koord.webhook.reviews")  # no report of a test can hold it either

    def handler(request: AdmissionRequest) -> AdmissionResponse:
        raise ValueError("\ud800" + "x" * 100_000)

    async with running({"/a": handler}) as run:
        status, answer, _ = await run.post("/a")
        assert status == 200 and len(answer["response"]["status"]["message"]) < 2000


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", b"the body is no JSON"),
        (b"nonsense", b"the body is no JSON"),
        (b"\xff{}", b"the body is no JSON"),
        (b'{"kind": "\xff"}', b"the body is no JSON"),
        (b'{"a": ' + b"[" * 10_000, b"the body is no JSON"),
        (b"[]", b"the body is no AdmissionReview"),
        (b"{}", b"the body is no AdmissionReview"),
        (b'{"kind": "Pod"}', b"the body is no AdmissionReview"),
        (gzip.compress(json.dumps(review()).encode(), mtime=0), b"the body is no JSON"),
    ],
)
async def test_bodies_that_cannot_be_decoded(body: bytes, why: bytes) -> None:
    async with running() as run:
        headers = {"Content-Encoding": "gzip"} if body.startswith(b"\x1f\x8b") else {}
        status, answer, _ = await run.post("/allow", body, data=body, headers=headers)
        assert (status, answer[: len(why)]) == (400, why)
        assert run.results() == {"undecodable": 1}


@pytest.mark.parametrize(
    ("method", "path", "status", "results"),
    [
        ("GET", "/healthz", 200, {}),
        ("POST", "/none", 404, {}),
        ("POST", "/allow/", 404, {}),
        ("GET", "/allow", 405, {}),
        ("POST", "/allow?timeout=10s", 200, {"allowed": 1}),
    ],
)
async def test_paths_and_methods(method: str, path: str, status: int, results: dict[str, int]) -> None:
    async with running() as run:
        assert (await run.post(path, method=method))[0] == status
        assert run.results() == results


async def test_a_connection_serves_many_requests() -> None:
    async with running() as run:
        reader, writer = await run.connect()
        for _ in range(3):
            writer.write(request("/allow"))
            assert (await response(reader))[0] == 200
        writer.close()


# too long, too much, too slow


async def test_a_handler_that_hangs_is_given_up() -> None:
    async with running() as run:
        status, _, _ = await run.post("/hang?timeout=1s")
        assert status == 504
        assert run.results() == {"timed_out": 1}
        assert run.server.requests_in_flight == run.server.buffered_bytes == 0


@pytest.mark.parametrize(
    ("query", "api_timeout_s"),
    [
        ("", 10),
        ("timeout=30s", 30),
        ("timeout=0s", 10),
        ("timeout=9999s", 30),
        ("timeout=99999999s", 30),
        ("timeout=1m0s", 10),
        ("xtimeout=3s", 10),
        ("a&timeout=2s", 2),
    ],
)
def test_a_handler_is_given_up_before_the_api_server_gives_up(query: str, api_timeout_s: float) -> None:
    assert deadline_s(query) == 0.8 * api_timeout_s


async def test_a_client_that_goes_ends_its_handler() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(request: AdmissionRequest) -> AdmissionResponse:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return AdmissionResponse()

    async with running({"/wait": wait}) as run:
        _, writer = await run.connect()
        writer.write(request("/wait"))
        await asyncio.wait_for(begun.wait(), 5)
        writer.transport.abort()
        await asyncio.wait_for(ended.wait(), 5)
        await until(lambda: run.results() == {"disconnected": 1})
        assert run.server.requests_in_flight == run.server.buffered_bytes == 0


async def test_what_waits_for_others_says_so_and_knows_the_client() -> None:
    async def wait(source: str) -> AdmissionResponse:
        raise OverloadedError(f"too much for {source}")

    async with running({"/wait": lambda review: wait}) as run:
        status, answer, headers = await run.post("/wait", source="127.0.0.2")
        assert (status, answer, headers["Retry-After"]) == (503, b"too much for 127.0.0.2\n", "1")
        assert run.results() == {"overloaded": 1}


@pytest.mark.parametrize(
    "extra",
    ["".join(f"A{number}: b\r\n" for number in range(200)), f"A: {'b' * 9000}\r\n"],
    ids=["many", "long"],
)
async def test_a_head_that_is_too_large(extra: str) -> None:
    async with running() as run:
        reader, writer = await run.connect()
        writer.write(request("/allow", extra=extra))
        assert (await response(reader))[0] == 400
        writer.close()
        assert run.results() == {}


@pytest.mark.parametrize("is_chunked", [False, True], ids=["length said", "chunked"])
async def test_a_body_that_is_too_large(is_chunked: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b" " * 1000

    async with running() as run:
        data = chunks() if is_chunked else b" " * 20_001
        with suppress(aiohttp.ClientOSError):  # it may be cut off while it still sends
            status, _, _ = await run.post("/allow", data=data)
            assert status == 413
        assert run.results() == {"too_large": 1}
        assert (await run.post("/allow", data=json.dumps(review()).encode() + b" " * 19_000))[0] == 200


async def test_objects_as_large_as_the_api_server_takes() -> None:
    big = review(object={"data": "x" * 3_100_000}, oldObject={"data": "y" * 3_100_000})
    async with running(limits=ServerLimits()) as run:
        assert (await run.post("/allow", big))[0] == 200


async def test_a_body_that_is_cut_off() -> None:
    async with running() as run:
        _, writer = await run.connect()
        writer.write(request("/allow", b"{", length=100))
        await until(lambda: run.server.requests_in_flight == 1)
        writer.transport.abort()
        await until(lambda: run.results() == {"disconnected": 1})
        assert run.server.requests_in_flight == run.server.buffered_bytes == 0
        assert (await run.post("/allow"))[0] == 200


async def test_a_body_that_trickles() -> None:
    async with running(limits=ServerLimits(body_s=0.3)) as run:
        reader, writer = await run.connect()
        writer.write(request("/allow", b"{", length=100))
        status, headers, _ = await response(reader)
        assert (status, headers["connection"]) == (408, "close")
        assert run.results() == {"too_slow": 1}
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"POST /allow HT", b"POST /allow HTTP/1.1\r\nA: b\r\n"])
async def test_a_head_that_does_not_come(sent: bytes) -> None:
    async with running(limits=IMPATIENT) as run:
        reader, writer = await run.connect()
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        await until(lambda: run.server.connections == 0)


async def test_a_connection_that_has_spoken_is_not_cut_off() -> None:
    async with running(limits=IMPATIENT) as run:
        reader, writer = await run.connect()
        writer.write(request("/allow"))
        await response(reader)
        await asyncio.sleep(1.2)  # longer than a head may take
        writer.write(request("/allow"))
        assert (await response(reader))[0] == 200
        writer.close()


async def test_a_client_that_begins_no_handshake() -> None:
    async with running(limits=IMPATIENT) as run:
        reader, writer = await asyncio.open_connection("127.0.0.1", run.port)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()


@pytest.mark.parametrize(
    "limits",
    [
        ServerLimits(requests=2),
        ServerLimits(buffered_bytes=2 * len(json.dumps(review())) + 10),
    ],
    ids=["requests", "bytes"],
)
async def test_more_than_can_be_held_is_to_come_again(limits: ServerLimits) -> None:
    released = asyncio.Event()

    async def wait(request: AdmissionRequest) -> AdmissionResponse:
        await released.wait()
        return AdmissionResponse()

    async with running({"/wait": wait, "/allow": allow}, limits) as run:
        first = asyncio.create_task(run.post("/wait"))
        await until(lambda: run.server.requests_in_flight == 1)
        status, _, headers = await run.post("/allow")
        assert (status, headers["Retry-After"]) == (503, "1")
        released.set()
        assert (await first)[0] == 200
        assert (await run.post("/allow"))[0] == 200
        assert run.results() == {"allowed": 2, "overloaded": 1}


async def test_bytes_that_are_announced_take_no_room() -> None:
    async with running(limits=ServerLimits()) as run:
        slow = [await run.connect() for _ in range(30)]
        for _, writer in slow:
            writer.write(b"POST /allow HTTP/1.1\r\nHost: x\r\nContent-Length: 7000000\r\n\r\n{")
        await until(lambda: run.server.requests_in_flight == 30)
        assert run.server.buffered_bytes <= 30
        assert (await run.post("/allow"))[0] == 200
        for _, writer in slow:
            writer.close()


async def test_one_address_leaves_room_for_the_others() -> None:
    released = asyncio.Event()

    async def wait(request: AdmissionRequest) -> AdmissionResponse:
        await released.wait()
        return AdmissionResponse()

    async with running({"/wait": wait, "/allow": allow}, ServerLimits(requests=8)) as run:
        waiting = [asyncio.create_task(run.post("/wait")) for _ in range(4)]
        await until(lambda: run.server.requests_in_flight == 4)
        assert (await run.post("/allow"))[0] == 503
        assert (await run.post("/allow", source="127.0.0.2"))[0] == 200
        released.set()
        assert [(await each)[0] for each in waiting] == [200] * 4


async def test_a_newcomer_takes_the_place_of_who_has_waited_longest() -> None:
    async with running(limits=ServerLimits(connections=3)) as run:
        held = [await run.connect() for _ in range(3)]
        assert (await run.post("/allow"))[0] == 200
        assert await asyncio.wait_for(held[0][0].read(), 5) == b""
        for reader, writer in held[1:]:
            writer.write(request("/allow"))
            assert (await response(reader))[0] == 200
            writer.close()
        await until(lambda: run.server.connections == 0)
        assert (await run.post("/allow"))[0] == 200


async def test_a_source_with_many_connections_takes_none_of_anothers() -> None:
    """As many silent ones as there may be, which ask for /healthz and come again, beside an API server's."""
    async with running(limits=ServerLimits(connections=8)) as run:
        own = await run.connect(source="127.0.0.2")
        for _ in range(3):
            flood = [await run.connect() for _ in range(10)]
            for _, writer in flood:
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            own[1].write(request("/allow"))
            assert (await response(own[0]))[0] == 200
            assert (await run.post("/allow", source="127.0.0.3"))[0] == 200
            assert run.server.connections <= 8
        own[1].close()


async def test_asking_for_health_keeps_no_connection() -> None:
    async with running(limits=ServerLimits(head_s=0.5)) as run:
        reader, writer = await run.connect()
        async with asyncio.timeout(5):
            while not reader.at_eof():
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                with suppress(ConnectionError, ssl.SSLError):
                    await reader.read(1 << 16)
                await asyncio.sleep(0.05)
        writer.close()


async def test_clients_that_begin_no_handshake_are_limited_and_keep_nobody_out() -> None:
    async with running(limits=ServerLimits(connections=3)) as run:
        silent = [await asyncio.open_connection("127.0.0.1", run.port) for _ in range(10)]
        for reader, _ in silent[:7]:
            assert await asyncio.wait_for(reader.read(), 5) == b""
        assert (await run.post("/allow"))[0] == 200
        assert await asyncio.wait_for(silent[7][0].read(), 5) == b""
        assert not any(reader.at_eof() for reader, _ in silent[8:])
        for _, writer in silent:
            writer.close()


async def test_a_client_that_begins_no_handshake_takes_no_place_of_who_was_served() -> None:
    async with running(limits=ServerLimits(connections=3)) as run:
        held = [await run.connect() for _ in range(2)]
        for _ in range(2):
            for reader, writer in held:
                writer.write(request("/allow"))
                assert (await response(reader))[0] == 200
            silent = [await asyncio.open_connection("127.0.0.1", run.port) for _ in range(5)]
            for reader, writer in silent[:-1]:
                assert await asyncio.wait_for(reader.read(), 5) == b""
                writer.close()
        for _, writer in (*held, silent[-1]):
            writer.close()


async def test_what_is_not_http_ends_its_connection_only() -> None:
    async with running() as run:
        reader, writer = await run.connect()
        writer.write(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert b" 400 " in await asyncio.wait_for(reader.read(), 5)
        writer.close()
        assert (await run.post("/allow"))[0] == 200


async def test_connections_that_came_to_nothing_count_no_more() -> None:
    async with running(limits=ServerLimits(connections=3)) as run:
        for _ in range(5):
            _, writer = await asyncio.open_connection("127.0.0.1", run.port)
            writer.write(b"no handshake")
            writer.close()
        assert (await run.post("/allow"))[0] == 200


# readiness and the end


async def test_readiness_is_a_request_verified_as_api_servers_verify_it() -> None:
    tls = LiveContext()
    server = WebhookServer(HANDLERS, tls, NAMES[0], Metrics().webhook_seconds)
    assert await server.unreadiness() == "the webhook server has not started"
    await server.start("0.0.0.0", 0)
    assert await server.unreadiness() == "the webhook server has no certificate"
    tls.load(FIRST)
    assert await server.unreadiness() == ""
    tls.load(ServingCertificate(FIRST.pair, b""))
    assert await server.unreadiness() == ""
    tls.load(OTHER)
    assert "certificate verify failed" in await server.unreadiness()
    tls.load(ServingCertificate(certificates.issue_serving(CA, ["localhost"], NOW), CA.certificate))
    assert "Hostname mismatch" in await server.unreadiness()
    tls.load(FIRST)
    await server.stop(0, 0)
    assert await server.unreadiness() == "the webhook server is stopping"


async def test_who_gives_up_asking_for_readiness_costs_no_other_the_answer() -> None:
    tls = LiveContext()
    tls.load(FIRST)
    server = WebhookServer(HANDLERS, tls, NAMES[0], Metrics().webhook_seconds)
    await server.start("127.0.0.1", 0)
    asking = [asyncio.create_task(server.unreadiness()) for _ in range(9)]
    await asyncio.sleep(0)
    asking.pop(0).cancel()
    assert set(await asyncio.gather(*asking)) == {""}
    tls.load(OTHER)
    assert "certificate verify failed" in await server.unreadiness(), "the next one is another answer"
    await server.stop(0, 0)


async def test_a_taken_port_is_an_os_error() -> None:
    async with running() as run:
        with pytest.raises(OSError, match="in use"):
            await WebhookServer(HANDLERS, run.tls, NAMES[0], {}).start("127.0.0.1", run.port)


async def test_the_end_waits_for_requests_in_flight() -> None:
    """One whose handler waits, one whose body is still on its way; both are answered, and nobody else is."""
    released = asyncio.Event()

    async def wait(request: AdmissionRequest) -> AdmissionResponse:
        await released.wait()
        return AdmissionResponse()

    async with running({"/wait": wait}, ServerLimits()) as run:
        body = json.dumps(review()).encode()
        (waiting, one), (sending, two), (idle, three) = [await run.connect() for _ in range(3)]
        one.write(request("/wait"))
        two.write(request("/wait", body[:10], length=len(body)))
        await until(lambda: run.server.requests_in_flight == 2)
        stop = asyncio.create_task(run.server.stop(0.05, 5))
        await asyncio.sleep(0.2)
        with pytest.raises(OSError):
            await run.connect()
        two.write(body[10:])
        released.set()
        for reader in (waiting, sending):
            status, headers, _ = await response(reader)
            assert (status, headers["connection"]) == (200, "close")
        await asyncio.wait_for(stop, 5)
        assert await asyncio.wait_for(idle.read(), 5) == b""
        assert run.results() == {"allowed": 2}
        for writer in (one, two, three):
            writer.close()


async def test_while_it_lingers_it_serves_and_ends_its_connections() -> None:
    async with running() as run:
        stop = asyncio.create_task(run.server.stop(0.3, 1))
        await asyncio.sleep(0.05)
        status, _, headers = await run.post("/allow")
        assert (status, headers["Connection"]) == (200, "close")
        assert await run.server.unreadiness() == "the webhook server is stopping"
        await stop


async def test_what_hangs_at_the_end_is_cut_off() -> None:
    async with running() as run:
        reader, writer = await run.connect()
        writer.write(request("/hang"))
        await until(lambda: run.server.requests_in_flight == 1)
        await asyncio.wait_for(run.server.stop(0, 0.1), 30)
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
