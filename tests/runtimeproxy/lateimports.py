"""The proxy with one of its late imports failing, in a process of its own for each of them.

Run as a program it prints one line of JSON: the names of all that is imported after the first accept, and what went
wrong. It imports nothing itself that the proxy imports late, so messages are made by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from koord.http2.client import UnaryClient, UnaryError
from koord.http2.server import ServerReply, UnaryServer
from koord.service.lines import LineWriter
from runtimeproxy import program as _the_program  # noqa: F401 - all that is imported before the first accept
from runtimeproxy.assemble import assemble
from runtimeproxy.hooks.stages import CallStage
from runtimeproxy.options import Options
from runtimeproxy.upgrade import preload
from runtimeproxy.wire.protowire import bytes_field, int_field, nested

V1 = "/runtime.v1.RuntimeService/"
DEADLINE_S = 20.0
POD = nested((1, 1), bytes_field(1, b"pod") + bytes_field(2, b"uid")) + nested((1, 6), bytes_field(1, b"k"))
CREATE = bytes_field(1, b"p") + nested((2, 1), bytes_field(1, b"main")) + nested((3, 1), bytes_field(2, b"uid"))
CALLS = {
    "RunPodSandbox": POD,
    "CreateContainer": CREATE,
    "StopContainer": bytes_field(1, b"c"),
    "RemovePodSandbox": bytes_field(1, b"p"),
}
SHARES = nested((2,), int_field(3, 7))  # of a ContainerResourceHookResponse
ID = bytes_field(1, b"p")


class Failing:
    """A finder that knows nothing, keeps what is asked for, and fails for ``name`` until it is ``healed``."""

    def __init__(self, name: str) -> None:
        self.name, self.healed = name, False
        self.names: list[str] = []
        self.failures = 0

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        self.names.append(name)
        if name == self.name and not self.healed:
            self.failures += 1
            raise ImportError(f"injected for {name}")
        return None


@contextlib.contextmanager
def failing(name: str) -> Iterator[Failing]:
    finder = Failing(name)
    sys.meta_path.insert(0, finder)
    try:
        yield finder
    finally:
        sys.meta_path.remove(finder)


class Life:
    """From the first accept to a reload, in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.problems: list[str] = []
        self._got: list[bytes] = []

    async def run(self, finder: Failing) -> None:
        loop, at = asyncio.get_running_loop(), self._directory
        loop.set_exception_handler(lambda _, context: self.problems.append(f"nobody caught {context}"))
        (at / "hooks").mkdir()
        stages = ["PreRunPodSandbox", "PreCreateContainer"]
        hook_file = {"remote-endpoint": f"{at}/h.sock", "failure-policy": "Ignore", "runtime-hooks": stages}
        (at / "hooks" / "a.json").write_text(json.dumps(hook_file))
        hooks = UnaryServer({stage.path: self._hook for stage in CallStage})
        runtime = UnaryServer({V1 + name: self._runtime for name in (*CALLS, "Version", "ListPodSandbox")})
        await loop.create_unix_server(runtime.protocol, f"{at}/r.sock")
        await loop.create_unix_server(hooks.protocol, f"{at}/h.sock")
        options = Options(backend=f"{at}/r.sock", hook_directory=f"{at}/hooks", status_endpoint=f"{at}/s.sock")
        relay, late = assemble(loop, options, LineWriter(2, str))
        relay.add_listener(_listening(f"{at}/p.sock"))
        client = UnaryClient(f"{at}/p.sock", loop)
        await self._calls(client)
        preload()
        with contextlib.suppress(Exception):  # the root of the task that does this
            late.open()
        await self._scrape(f"{at}/s.sock", 0.3)
        await self._calls(client)
        finder.healed = True
        late.reload(options)
        await self._until_edited(client)
        page = await self._scrape(f"{at}/s.sock", DEADLINE_S)
        if b"koord_runtimeproxy_calls_total" not in page:
            self.problems.append(f"/metrics is {page[:200]!r}")
        if relay.metrics.accepted_connections != 1:
            self.problems.append("the client's connection was lost")

    async def _calls(self, client: UnaryClient) -> None:
        for method, message in CALLS.items():
            edited = await self._call(client, method, message)
            if edited and method != "CreateContainer":
                self.problems.append(f"{method} was edited")

    async def _call(self, client: UnaryClient, method: str, message: bytes) -> bool:
        """Was it edited?"""
        self._got.clear()
        try:
            await client.call(V1 + method, message, DEADLINE_S)
        except UnaryError as error:
            self.problems.append(f"{method}: {error}")
            return False
        if len(self._got) != 1 or not self._got[0].startswith(message):
            self.problems.append(f"{method}: the runtime got {self._got}")
        return self._got != [message]

    async def _until_edited(self, client: UnaryClient) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DEADLINE_S):
                while not await self._call(client, "CreateContainer", CREATE):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
                return
        self.problems.append("nothing is edited after the import would succeed again")

    async def _scrape(self, path: str, timeout_s: float) -> bytes:
        """The page of metrics; nothing if there is none in that time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        reader, writer = await asyncio.open_unix_connection(path)
                        break
                    except OSError:
                        await asyncio.sleep(0.005)
                writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
                page = await reader.read()
                writer.close()
                return page
        return b""

    def _runtime(self, message: bytes, fields: Any) -> ServerReply:
        if not fields[b":path"].endswith((b"ListPodSandbox", b"Version")):
            self._got.append(message)
        return ServerReply(b"" if fields[b":path"].endswith(b"ListPodSandbox") else ID)

    def _hook(self, message: bytes, fields: Any) -> ServerReply:
        creates = fields[b":path"].endswith(b"PreCreateContainerHook")
        return ServerReply(SHARES if creates else b"", (("koord-presence", "1"),))


def _listening(path: str) -> Any:
    import socket  # noqa: PLC0415 - asyncio has it

    sock = socket.socket(socket.AF_UNIX)
    sock.bind(path)
    sock.listen(16)
    return sock


def _in_a_child(name: str) -> tuple[list[str], list[str], int]:
    """What was imported, what went wrong, and how often this import failed."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        problems = ["it did not come to its end"]
        names: list[str] = []
        failures = 0
        try:
            os.close(reader)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with tempfile.TemporaryDirectory() as directory, failing(name) as finder:
                life = Life(Path(directory))
                asyncio.run(life.run(finder))
                problems, names, failures = life.problems, finder.names, finder.failures
        except BaseException as error:  # noqa: BLE001 - it is told by the parent
            problems.append(repr(error))
        finally:
            os.write(writer, json.dumps([names, problems, failures]).encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as result:
        names, problems, failures = json.loads(result.read())
    os.waitpid(child, 0)
    return names, problems, failures


def main() -> None:
    names, problems, _ = _in_a_child("")
    late = sorted(set(names))
    wrong = {"none": problems} if problems else {}
    failed = 0
    for name in late:
        _, problems, failures = _in_a_child(name)
        wrong |= {name: problems} if problems else {}
        failed += failures > 0
    print(json.dumps({"late": late, "failed": failed, "wrong": wrong}))


if __name__ == "__main__":
    main()
