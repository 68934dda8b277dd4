"""The proxy's pages: rendered beside the loop, one at a time, and behind a token on a port."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from koord.service.statusserver import StatusServer
from runtimeproxy.metrics import Metrics
from runtimeproxy.status import Pages, guard_of
from tests.support.waiting import until


class Cache:
    """What is dumped: ``gate`` keeps the rendering of it waiting."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.value = "first"
        self.rendering = self.rendered = 0

    def copy(self) -> Callable[[], Mapping[str, object]]:
        value = self.value

        def render() -> Mapping[str, object]:
            self.rendering += 1
            self.gate.wait(30)
            self.rendered += 1
            return {"value": value}

        return render


def pages_of(cache: Cache) -> Pages:
    return Pages(Metrics(), cache.copy, backend_up=lambda: True, bypass=lambda: False)


@asynccontextmanager
async def served(cache: Cache, endpoint: str, token_file: str = "") -> AsyncIterator[StatusServer]:
    pages = pages_of(cache)
    server = StatusServer(pages.by_path, guard_of(endpoint, token_file))
    await server.start(endpoint)
    try:
        yield server
    finally:
        cache.gate.set()
        server.close()
        pages.close()


async def get(path: Path | int, page: str, head: str = "") -> tuple[int, bytes]:
    connected = asyncio.open_unix_connection(path) if isinstance(path, Path) else asyncio.open_connection("::1", path)
    reader, writer = await connected
    writer.write(f"GET {page} HTTP/1.0\r\n{head}\r\n".encode())
    answer, _, body = (await asyncio.wait_for(reader.read(), 20)).partition(b"\r\n\r\n")
    writer.close()
    return int(answer.split()[1]), body


async def test_pages_are_answered_while_a_large_one_is_rendered(tmp_path: Path) -> None:
    cache = Cache()
    path = tmp_path / "s"
    async with served(cache, str(path)):
        dump = asyncio.create_task(get(path, "/dump"))
        await until(lambda: cache.rendering)
        cache.value = "second"
        assert await get(path, "/readyz") == (200, b"ok\n")
        metrics = asyncio.create_task(get(path, "/metrics"))
        assert await get(path, "/healthz") == (200, b"ok\n")
        assert not (dump.done() or metrics.done())
        cache.gate.set()
        assert json.loads((await dump)[1]) == {"value": "first"}  # as it was when it was asked for
        assert (await metrics)[0] == 200


async def test_whoever_polls_is_served_one_at_a_time(tmp_path: Path) -> None:
    cache = Cache()
    path = tmp_path / "s"
    async with served(cache, str(path)):
        asked = [asyncio.create_task(get(path, "/dump")) for _ in range(8)]
        await until(lambda: cache.rendering)
        for _ in range(20):
            assert await get(path, "/healthz") == (200, b"ok\n")
        assert cache.rendering == 1
        cache.gate.set()
        assert {status for status, _ in await asyncio.gather(*asked)} == {200}
        assert cache.rendered == 8


TOKEN = "Authorization: Bearer secret\r\n"


@pytest.mark.parametrize(
    ("token", "head", "expected"),
    [
        ("secret\n", TOKEN, {"/metrics": 200, "/dump": 200, "/healthz": 200, "/readyz": 200, "/none": 404}),
        ("secret\n", "", {"/metrics": 401, "/dump": 401, "/healthz": 200, "/readyz": 200, "/none": 401}),
        ("secret\n", "Authorization: Bearer \r\n", {"/metrics": 401, "/dump": 401}),
        (None, "", {"/metrics": 401, "/dump": 401, "/healthz": 200, "/readyz": 200}),
        (None, "Authorization: Bearer \r\n", {"/metrics": 401, "/dump": 401}),
        ("", "Authorization: Bearer \r\n", {"/metrics": 401, "/dump": 401}),
        ("/nonexistent", TOKEN, {"/metrics": 401, "/dump": 401, "/healthz": 200}),
    ],
)
async def test_a_port_shows_figures_for_the_token_only(
    tmp_path: Path, token: str | None, head: str, expected: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    file = "" if token is None else token if token.startswith("/") else str(tmp_path / "token")
    if token is not None and not token.startswith("/"):
        (tmp_path / "token").write_text(token)
    cache = Cache()
    cache.gate.set()
    async with served(cache, "[::1]:0", file) as server:
        for page, status in expected.items():
            assert (await get(server.port, page, head))[0] == status, page
    assert ["--metrics-token-file" in record.message for record in caplog.records] == [True] * (token != "secret\n")


async def test_a_unix_socket_is_guarded_by_its_mode(tmp_path: Path) -> None:
    cache = Cache()
    cache.gate.set()
    async with served(cache, str(tmp_path / "s"), "/nonexistent"):
        assert (await get(tmp_path / "s", "/dump"))[0] == 200
