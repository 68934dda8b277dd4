"""qosd's two front ends at a runtime, each on a loop of its own beside a test that plays kubelet."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

from integration.harness import proxy
from integration.harness.cgroups import hierarchies
from integration.harness.processes import wait_for
from koord.host import cgroup
from koord.host.files import Target
from koord.host.undo import UndoRecord
from koord.host.writer import Writer
from qosd.hookserver import registration
from qosd.hookserver.server import REGISTERED, HookServer, listening
from qosd.metrics import Metrics
from qosd.model.pod import PodContext
from qosd.model.policy import HostFacts
from qosd.nri.plugin import NRIPlugin
from qosd.nri.service import Hooks
from qosd.originals import OriginalsRecorder
from qosd.policy.source import PolicySource


class Attached:
    """A plugin; ``acting`` may be switched, ``announced`` are the pods it was told of.

    With an ``undo`` record it notes there what kubelet requested, and writes the limits that no answer carried.
    """

    def __init__(self, plugin_socket: Path, rules_file: Path, undo: UndoRecord | None = None) -> None:
        self.acting = True
        self.heard: list[bool] = []
        self.announced: list[PodContext] = []
        self.metrics = Metrics()
        source = PolicySource(rules_file, HostFacts, self.metrics)
        source.load()
        writer = Writer(cgroup.detect(Path("/sys/fs/cgroup"), Path("/proc/self/mountinfo").read_text()))
        originals = None if undo is None else OriginalsRecorder(undo, writer, self.metrics)
        hooks = Hooks(
            source.in_force,
            self.metrics,
            lambda: self.acting,
            _set_of,
            announced=self.announced.append,
            originals=originals,
        )
        self.plugin = NRIPlugin(plugin_socket, hooks, self.heard.append)

    def wait(self, attachments: int) -> None:
        """Until the runtime has taken the plugin in for the ``attachments``-th time."""
        wait_for(
            lambda: self.plugin.runtime and self.plugin.status.attachments == attachments,
            20,
            f"attachment {attachments} ({self.plugin.status})",
        )


@contextlib.contextmanager
def attached(plugin_socket: Path, rules_file: Path, undo: UndoRecord | None = None) -> Iterator[Attached]:
    """The plugin runs until the block ends; it need not be attached yet when it begins."""
    found = Attached(plugin_socket, rules_file, undo)
    with _beside(found.plugin.run()):
        yield found


@contextlib.contextmanager
def proxied(backend: Path, directory: Path, rules_file: Path) -> Iterator[Path]:
    """The CRI socket of a proxy before ``backend``, whose hook server has the rules of ``rules_file``."""
    metrics = Metrics()
    source = PolicySource(rules_file, HostFacts, metrics)
    source.load()
    hook_files, hook_socket = directory / "hookserver.d", directory / "hooks.sock"

    async def serve() -> None:
        async with listening(hook_socket, HookServer(source.in_force, metrics)):
            registration.Registration(hook_files, hook_socket, "Fail", REGISTERED).keep(source.current)
            await asyncio.get_running_loop().create_future()

    with _beside(serve()):
        wait_for(lambda: any(hook_files.glob("*.json")), 10, "the hook server to serve")
        process = proxy.start_proxy(backend, directory, hook_files)
        try:
            yield proxy.socket_of(directory)
        finally:
            process.stop()


@contextlib.contextmanager
def _beside(work: Coroutine[Any, Any, None]) -> Iterator[None]:
    """``work`` runs on another thread's loop and is cancelled at the end; what went wrong in it is raised there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    task = asyncio.run_coroutine_threadsafe(_task(work), loop).result()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        with contextlib.suppress(asyncio.CancelledError, concurrent.futures.CancelledError):
            asyncio.run_coroutine_threadsafe(asyncio.wait_for(asyncio.shield(task), 10), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.create_task(work)


def _set_of(target: Target) -> str:
    """The CPUs, or memory nodes, of a cgroup (v1)."""
    try:
        return (hierarchies()["cpuset"] / target.cgroup.lstrip("/") / target.name.replace("_", ".")).read_text().strip()
    except FileNotFoundError:
        return ""
