from __future__ import annotations

import asyncio
import os
import resource
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from koord.service import clientlistener, statusserver
from koord.service.statusserver import MAX_CLIENTS, MAX_HEAD_BYTES, Maker, Page, PageRequest, StatusServer, TokenGuard


def _fails() -> Page:
    raise ZeroDivisionError


async def _later() -> Page:
    return await asyncio.to_thread(Page, 200, b"late\n")


async def _fails_later() -> Page:
    return await asyncio.to_thread(_fails)


PAGES: dict[str, Maker] = {
    "/ok": lambda: Page(200, b"fine\n"),
    "/fails": _fails,
    "/later": _later,
    "/fails-later": _fails_later,
}


@pytest.fixture
async def endpoint(tmp_path: Path) -> AsyncIterator[Path]:
    server = StatusServer(PAGES)
    await server.start(str(tmp_path / "dir" / "status.sock"))
    yield tmp_path / "dir" / "status.sock"
    server.close()


async def exchange(path: Path, request: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.read(), 2)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\xff\r\n\r\n", 400),
        (b"POST /ok HTTP/1.1\r\n\r\n", 405),
        (b"GET /none HTTP/1.1\r\n\r\n", 404),
        (b"GET /fails HTTP/1.1\r\n\r\n", 500),
        (b"GET /fails-later HTTP/1.1\r\n\r\n", 500),
        (b"GET /later HTTP/1.1\r\n\r\n", 200),
        (b"GET /ok HTTP/1.0\r\n\r\n", 200),
        (b"GET /ok?x=1 HTTP/1.1\r\nHost: x\r\n\r\n", 200),
    ],
)
async def test_answers(endpoint: Path, request_bytes: bytes, status: int) -> None:
    answer = await exchange(endpoint, request_bytes)
    assert answer.startswith(f"HTTP/1.0 {status} ".encode())


async def test_a_whole_answer(endpoint: Path) -> None:
    assert await exchange(endpoint, b"GET /ok HTTP/1.0\r\n\r\n") == (
        b"HTTP/1.0 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\n"
        b"Connection: close\r\n\r\nfine\n"
    )


async def test_an_endless_head_is_cut_off(endpoint: Path) -> None:
    assert await exchange(endpoint, b"GET /ok HTTP/1.0\r\nX: " + b"x" * 2 * MAX_HEAD_BYTES) == b""


async def test_silent_clients_keep_nobody_out(endpoint: Path) -> None:
    """Who has waited longest makes room."""
    silent = [await asyncio.open_unix_connection(endpoint) for _ in range(clientlistener.MOST + 9)]
    for _ in range(MAX_CLIENTS):
        assert b"200 OK" in await exchange(endpoint, b"GET /ok HTTP/1.0\r\n\r\n")
    for reader, writer in silent[:9]:
        assert await asyncio.wait_for(reader.read(), 2) == b""
        writer.close()
    assert not any(reader.at_eof() for reader, _ in silent[9 + MAX_CLIENTS :])
    for _, writer in silent[9:]:
        writer.close()


async def test_who_never_ends_his_head_keeps_nobody_out(endpoint: Path, caplog: pytest.LogCaptureFixture) -> None:
    slow = [await asyncio.open_unix_connection(endpoint) for _ in range(2 * MAX_CLIENTS)]
    for _, writer in slow:
        writer.write(b"GET /ok")
    for _ in range(MAX_CLIENTS):
        assert b"200 OK" in await exchange(endpoint, b"GET /ok HTTP/1.0\r\n\r\n")
    for reader, writer in slow[:MAX_CLIENTS]:
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 2) == b""
        writer.close()
    for _, writer in slow:
        writer.close()
    assert caplog.text == "", "nobody's going is a line"


async def test_who_has_asked_is_answered_however_many_begin_to_ask() -> None:
    """All from one address, as a probe and a process of the same machine are."""
    is_made = asyncio.Event()

    async def page() -> Page:
        await is_made.wait()
        return Page(200, b"made")

    server = StatusServer({**PAGES, "/slow": page})
    await server.start("127.0.0.1:0")
    asking = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
    for _, writer in asking:
        writer.write(b"GET /slow HTTP/1.0\r\n\r\n")
    flood = []
    for _ in range(3 * MAX_CLIENTS):
        flood.append(await asyncio.open_connection("127.0.0.1", server.port))
        flood[-1][1].write(b"GET /s")
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /ok HTTP/1.0\r\n\r\n")
    assert b"fine" in await asyncio.wait_for(reader.read(), 2), "what can be made at once needs no place"
    writer.close()
    is_made.set()
    for reader, _ in asking:
        assert b"200 OK" in await asyncio.wait_for(reader.read(), 2)
    for _, writer in (*asking, *flood):
        writer.close()
    server.close()


async def test_a_source_with_many_clients_gives_its_own() -> None:
    """A client that takes its time is kept, however many another address has."""
    server = StatusServer(PAGES)
    await server.start("127.0.0.1:0")
    slow = await asyncio.open_connection("127.0.0.1", server.port, local_addr=("127.0.0.2", 0))
    await asyncio.sleep(0.02)
    flood = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(clientlistener.MOST + 50)]
    for _, writer in flood[-3 * MAX_CLIENTS :]:
        writer.write(b"GET /ok")
    await asyncio.sleep(0.05)
    slow[1].write(b"GET /ok HTTP/1.0\r\n\r\n")
    assert b"200 OK" in await asyncio.wait_for(slow[0].read(), 2)
    for _, writer in (slow, *flood):
        writer.close()
    server.close()


async def test_who_says_nothing_is_cut_off_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statusserver, "TIMEOUT_S", 0.1)
    server = StatusServer(PAGES)
    await server.start(str(tmp_path / "status.sock"))
    for said in (b"", b"GET"):
        assert await exchange(tmp_path / "status.sock", said) == b""
    server.close()


async def test_an_accept_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no descriptors for a while."""
    monkeypatch.setattr(clientlistener, "_PAUSE_S", 0.05)
    server = StatusServer(PAGES)
    await server.start("127.0.0.1:0")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    other = socket.socket()
    other.setblocking(False)
    resource.setrlimit(resource.RLIMIT_NOFILE, (other.fileno() + 1, hard))
    try:
        other.connect_ex(("127.0.0.1", server.port))
        await asyncio.sleep(0.2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    writer.write(b"GET /ok HTTP/1.0\r\n\r\n")
    assert b"200 OK" in await asyncio.wait_for(reader.read(), 2)
    await asyncio.get_running_loop().sock_sendall(other, b"GET /ok HTTP/1.0\r\n\r\n")
    assert b"200 OK" in await asyncio.wait_for(asyncio.get_running_loop().sock_recv(other, 1000), 2)
    other.close()
    writer.close()
    server.close()


async def test_the_socket_is_not_open_to_others(endpoint: Path) -> None:
    assert stat.S_IMODE(os.stat(endpoint).st_mode) == 0o660


async def test_a_taken_path_is_an_os_error(endpoint: Path) -> None:
    with pytest.raises(OSError, match=r"status\.sock"):
        await StatusServer(PAGES).start(str(endpoint))


async def test_loopback() -> None:
    server = StatusServer(PAGES)
    await server.start("127.0.0.1:0")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /ok HTTP/1.0\r\n\r\n")
    assert (await reader.read()).endswith(b"fine\n")
    writer.close()
    server.close()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /ok HTTP/1.1\r\n\r\n", 401),
        (b"GET /ok HTTP/1.1\r\nAuthorization: Bearer wrong\r\n\r\n", 401),
        (b"GET /ok HTTP/1.1\r\nAuthorization: secret\r\n\r\n", 401),
        (b"GET /none HTTP/1.1\r\n\r\n", 401),
        (b"GET /ok HTTP/1.1\r\nauthorization:  Bearer secret \r\n\r\n", 200),
        (b"GET /open HTTP/1.1\r\n\r\n", 200),
    ],
)
async def test_a_guarded_page_wants_the_token(tmp_path: Path, request_bytes: bytes, status: int) -> None:
    pages = {**PAGES, "/open": lambda: Page(200, b"ok\n")}
    server = StatusServer(pages, TokenGuard("secret", frozenset({"/open"})))
    await server.start(str(tmp_path / "status.sock"))
    try:
        answer = await exchange(tmp_path / "status.sock", request_bytes)
    finally:
        server.close()
    assert answer.startswith(f"HTTP/1.0 {status} ".encode())


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/names/a%2Fb/c?limit=3&limit=4&x=", b"a/b/c limit=4"),
        ("/names/", b" "),
        ("/one?limit=1", b" limit=1"),
        ("/one/more", b"see /ok"),
        ("/names", b"see /ok"),
    ],
)
async def test_a_local_page_gets_what_is_below_its_path_and_what_is_asked(
    tmp_path: Path, path: str, answer: bytes
) -> None:
    server = StatusServer({"/ok": PAGES["/ok"]}, local={"/names/": _said, "/one": _said})
    await server.start(str(tmp_path / "status.sock"))
    try:
        said = await exchange(tmp_path / "status.sock", f"GET {path} HTTP/1.0\r\n\r\n".encode())
    finally:
        server.close()
    assert said.partition(b"\r\n\r\n")[2].startswith(answer)


@pytest.mark.parametrize(
    ("source", "bearer", "status"),
    [
        ("127.0.0.1", "", 200),
        ("::1", "", 200),
        ("::ffff:127.0.0.1", "", 200),
        ("", "", 200),
        ("10.0.0.7", "", 403),
        ("::ffff:10.0.0.7", "", 403),
        ("fe80::1%eth0", "", 403),
        ("10.0.0.7", "secret", 200),
        ("127.0.0.1", "wrong", 401),
    ],
)
def test_who_is_let_to_local_pages(source: str, bearer: str, status: int) -> None:
    """Without a token callers of this machine alone; with one, whoever has it, and nobody else."""
    server = StatusServer(PAGES, TokenGuard("secret") if bearer else None, local={"/one": _said})
    head = f"GET /one HTTP/1.0\r\nAuthorization: Bearer {bearer}\r\n\r\n".encode()
    made = server._made(head, source)
    assert isinstance(made, Page)
    assert made.status == status
    if not bearer:
        figures = server._made(b"GET /ok HTTP/1.0\r\n\r\n", source)
        assert isinstance(figures, Page)
        assert figures.status == 200


def _said(request: PageRequest) -> Page:
    query = ",".join(f"{name}={value}" for name, value in request.query.items())
    return Page(200, f"{request.rest} {query}".encode())
