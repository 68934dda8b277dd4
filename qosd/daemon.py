"""The daemon: which sockets and pages it serves, and the order in which its parts start and stop.

Start-up ends with the hook-server file, when all sockets answer and the first tick is under way, and READY=1.
Invariant: nothing but a socket that cannot be bound, options that contradict each other, or another koord-qosd keeps
this one from serving; a missing rules file means defaults, a missing runtime is an input that grows old, and so is a
missing cluster. Beside another koord-qosd it stands by (``qosd.standby``). Stopping is not disabling: every value
stays, but for temporary ones (``koord.host.temporary``).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from koord.service import process, timeslice
from koord.service.config import ConfigError
from koord.service.lines import LineWriter
from koord.service.notify import Notifier, watchdog_interval_us
from koord.service.statuspages import StatusPages
from koord.service.statusserver import Maker
from qosd import standby, state_files, status
from qosd.assembly import assemble
from qosd.health import Health, feed_watchdog
from qosd.hookserver import registration
from qosd.hookserver import server as hookserver
from qosd.inspect import service as inspect
from qosd.inspect.inspector import Inspector
from qosd.metrics import Metrics
from qosd.metricspage import MetricsPage
from qosd.node import UNDO, Node
from qosd.options import Options, is_node_name, node_name
from qosd.policy.watching import PolicyWatch
from qosd.tickscheduler import TickReason

if TYPE_CHECKING:
    from qosd.cluster.session import ClusterSession

_SWITCH_S = 0.001  # how long the node's thread may keep a hook call from Python's interpreter
_NANOSECONDS = 1e9
_SESSION_PAUSE_S = 60.0
_log = logging.getLogger(__name__)


async def run(options: Options, environ: Mapping[str, str], lines: LineWriter) -> None:
    """Serves until SIGTERM or SIGINT. Raises SocketTaken, OSError or ConfigError when it cannot start."""
    _check_cluster(options, environ)
    sys.setswitchinterval(_SWITCH_S)
    try:
        timeslice.shorten()
    except OSError as error:
        _log.info("turns on the CPU keep their length: %s", error)
    metrics = Metrics(lambda: lines.dropped)
    notifier = Notifier(environ.get("NOTIFY_SOCKET"))
    node: Node | None = None

    def reload() -> None:
        if node is not None:
            _reload(node, notifier)

    with process.signals(reload) as stop:
        lock_fd = None
        if standby.is_due(options):
            lock_fd = await standby.hold_lock(options.run_dir / UNDO, options, environ, notifier, stop)
        if stop.is_set():
            return
        node = assemble(options, metrics, lock_fd=lock_fd)
        health = _health(node)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(node.close, lambda: _clear_away(node))
            ticked = await _serve(node, health, environ, stack)
            gc.collect()
            gc.freeze()  # what start-up made never becomes garbage: no pod waits for a collection of it
            async with asyncio.TaskGroup() as tasks:
                running = _tasks(node, health, notifier, environ, tasks, ticked)
                notifier.ready(f"serving hooks on {options.hook_socket}")
                _log.info("serving hooks on %s, koordctl on %s", options.hook_socket, options.inspect_socket)
                await stop.wait()
                notifier.stopping()
                await node.end()
                for task in running:
                    task.cancel()


def _clear_away(node: Node) -> None:
    """Removes the state files if Koord is uninstalled and no kernel file holds a value of ours."""
    if node.is_uninstalled() and node.undo.is_empty:
        state_files.remove(node.options)


async def _serve(node: Node, health: Health, environ: Mapping[str, str], stack: AsyncExitStack) -> Callable[[], None]:
    """Starts all parts; ``stack`` ends them in the opposite order. Returns a function to be called after each tick."""
    options = node.options
    _watch(node, stack)
    node.start()
    await stack.enter_async_context(hookserver.listening(options.hook_socket, node.hooks))
    await stack.enter_async_context(inspect.listening(options.inspect_socket, Inspector(node)))
    if options.metrics_endpoint:
        await _open_pages(node, health, environ, stack)
    return _register(node, stack)


def _tasks(
    node: Node, health: Health, notifier: Notifier, environ: Mapping[str, str], group: asyncio.TaskGroup,
    ticked: Callable[[], None],
) -> list[asyncio.Task[None]]:  # fmt: skip
    tasks = [group.create_task(node.scheduler.run(_tick_of(node, ticked)), name="ticks")]
    if node.plugin is not None:
        tasks.append(group.create_task(node.plugin.run(), name="nri"))
    if node.options.kubeconfig:
        tasks.append(group.create_task(_follow_cluster(node, environ), name="cluster"))
    interval_us = watchdog_interval_us(environ, os.getpid())
    if interval_us:
        tasks.append(group.create_task(feed_watchdog(notifier, health.stuck, interval_us / 2e6), name="watchdog"))
    return tasks


def _check_cluster(options: Options, environ: Mapping[str, str]) -> None:
    """Raises ConfigError if the options name a cluster that this process could never reach."""
    if not options.kubeconfig:
        return
    for package in ("aiohttp", "httptools"):
        if find_spec(package) is not None:
            continue
        why = f"takes the Python package {package}, which is not installed (the extra 'node' of koord has it)"
        raise ConfigError("options", "kubeconfig", options.kubeconfig, why)
    name = node_name(options, environ)
    if not is_node_name(name):
        raise ConfigError("options", "node-name", name, "cannot be a Node's name: give --node-name")


async def _follow_cluster(node: Node, environ: Mapping[str, str]) -> None:
    """Follows the cluster for ever. An error here costs the view of the cluster, never the work on the node."""
    while True:
        try:
            session = await asyncio.to_thread(_session_class)
            gc.freeze()
            await session(node, node.options, environ).run()
        except Exception:  # noqa: BLE001 - the root of all that has to do with the cluster
            _log.exception("the cluster is not followed for %g s", _SESSION_PAUSE_S)
            node.metrics.cluster_crashes["session"] += 1
        await asyncio.sleep(_SESSION_PAUSE_S)


def _session_class() -> type[ClusterSession]:
    """Imports the session's class, in a thread: that takes tenths of a second, in which hooks go on being answered."""
    from qosd.cluster.session import ClusterSession  # noqa: PLC0415 - only who has a cluster pays for it

    return ClusterSession


def _tick_of(node: Node, ticked: Callable[[], None]) -> Callable[[TickReason], Awaitable[None]]:
    async def tick(reason: TickReason) -> None:
        began_s = time.monotonic()
        try:
            await node.tick(reason)
            ticked()
        except Exception:  # noqa: BLE001 - the root of a tick: the next one starts anew
            _log.exception("a tick failed")
            node.metrics.failed_ticks += 1
            return
        node.metrics.tick_seconds[reason].observe(time.monotonic() - began_s)

    return tick


def _health(node: Node) -> Health:
    def ended_s() -> float | None:
        ended_ns = node.loop.report.ended_ns
        return None if ended_ns is None else ended_ns / _NANOSECONDS

    return Health(node.options.tick_interval, ended_s, lambda: node.pods.age_s, time.monotonic)


async def _open_pages(node: Node, health: Health, environ: Mapping[str, str], stack: AsyncExitStack) -> None:
    served: dict[str, Maker] = {
        "/healthz": health.alive,
        "/readyz": health.ready,
        "/metrics": MetricsPage(node, node_name(node.options, environ), time.time()).answer,
    }
    pages = StatusPages(status.server(node.options, served), status.address(node.options.metrics_endpoint))
    stack.callback(pages.close)
    await pages.open()


def _watch(node: Node, stack: AsyncExitStack) -> None:
    """Reloads the rules file when it changes; if the kernel has no watches left, only SIGHUP reloads it."""
    file = node.options.rules_file
    try:
        watch = PolicyWatch(asyncio.get_running_loop(), file, node.reload_policy)
    except OSError as error:
        _log.warning("%s is not watched, SIGHUP reloads it: %s", file, error)
        return
    stack.callback(watch.close)


def _register(node: Node, stack: AsyncExitStack) -> Callable[[], None]:
    """Writes the hook-server file; returns a function that updates it to the policy."""
    options = node.options
    if not options.hookserver_dir:
        return lambda: None
    file = registration.Registration(
        Path(options.hookserver_dir), options.hook_socket, options.failure_policy, hookserver.REGISTERED
    )
    file.keep(node.policy.current)
    if options.remove_hookserver_file:
        stack.callback(file.remove)
    return lambda: file.keep(node.policy.current)


def _reload(node: Node, notifier: Notifier) -> None:
    notifier.reloading()
    node.reload()
    notifier.ready()
