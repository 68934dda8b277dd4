"""The daemon: rules, the two services, metrics, and the order in which they come and go.

Start-up ends with the hook-server file, when both sockets answer, and READY=1. Invariant: nothing but a socket that
cannot be bound keeps qosd from serving; missing rules are defaults, a missing runtime is an answer of NodeInspect.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc.aio

from koord.host import cgroup
from koord.service import process, rpc, unixsocket
from koord.service.config import ConfigError
from koord.service.inotify import FileWatch
from koord.service.notify import Notifier
from koord.service.statusserver import Page, StatusServer
from qosd import hostfacts
from qosd.hooks.rules import HostFacts
from qosd.hookserver import registration
from qosd.hookserver.server import REGISTERED, HookServer, listening
from qosd.inspect.runtime import Runtime
from qosd.inspect.service import Inspector
from qosd.metrics import CONTENT_TYPE, Metrics
from qosd.options import Options
from qosd.rules import RulesSource

_GRACE_S = 2.0
_log = logging.getLogger(__name__)


async def run(options: Options, environ: Mapping[str, str]) -> None:
    """Serve until SIGTERM or SIGINT. Raises SocketTaken, ServeError or ConfigError when it cannot start."""
    metrics = Metrics()
    tree = cgroup.detect(options.cgroup_root, _text(Path("/proc/self/mountinfo")))
    rules = RulesSource(options.rules_file, lambda: _host_facts(tree, options), metrics)
    notifier = Notifier(environ.get("NOTIFY_SOCKET"))
    with process.signals(lambda: _reload(rules, notifier)) as stop:
        async with AsyncExitStack() as stack:
            await _serve(options, rules, tree, metrics, stack)
            gc.collect()
            gc.freeze()  # what start-up made never becomes garbage: no pod waits for a collection of it
            notifier.ready(f"serving hooks on {options.hook_socket}")
            _log.info("serving hooks on %s, koordctl on %s", options.hook_socket, options.inspect_socket)
            await stop.wait()
            notifier.stopping()


async def _serve(
    options: Options, rules: RulesSource, tree: cgroup.Tree, metrics: Metrics, stack: AsyncExitStack
) -> None:
    """Start everything; ``stack`` ends it in the opposite order."""
    _watch(options.rules_file, rules, stack)
    rules.load()
    runtime = Runtime(options.runtime_endpoint, options.runtime_timeout)
    stack.push_async_callback(runtime.close)
    hooks = HookServer(lambda: rules.current, metrics, later=asyncio.get_running_loop().call_soon)
    inspector = Inspector(runtime, tree, rules)
    await stack.enter_async_context(listening(options.hook_socket, hooks))
    await stack.enter_async_context(_listening(options.inspect_socket, 0o600, inspector.service()))
    if options.metrics_endpoint:
        status = StatusServer({"/metrics": lambda: Page(200, metrics.render(), CONTENT_TYPE)})
        stack.callback(status.close)
        await status.start(metrics_address(options.metrics_endpoint))
    if options.hookserver_dir:
        _register(options, Path(options.hookserver_dir), stack)


@asynccontextmanager
async def _listening(path: Path, mode: int, service: grpc.GenericRpcHandler) -> AsyncIterator[grpc.aio.Server]:
    server = await rpc.listen(path, mode, [service])
    try:
        yield server
    finally:
        await server.stop(_GRACE_S)


def _watch(file: Path, rules: RulesSource, stack: AsyncExitStack) -> None:
    """Reload the rules when the file changes; where the kernel has no watches left, only SIGHUP does."""
    try:
        watch = FileWatch(asyncio.get_running_loop(), str(file), rules.load)
    except OSError as error:
        _log.warning("%s is not watched, SIGHUP reloads it: %s", file, error)
        return
    stack.callback(watch.close)


def metrics_address(endpoint: str) -> str:
    """The path of ``unix:///path``, or a loopback ``host:port``; the node's figures go no further (ConfigError)."""
    path = unixsocket.without_scheme(endpoint)
    if path.startswith("/"):
        return path
    host, _, port = endpoint.rpartition(":")
    if host.strip("[]") not in ("127.0.0.1", "::1", "localhost") or not port.isdigit():
        raise ConfigError("options", "metrics-endpoint", endpoint, "must be unix:///path or a loopback host:port")
    return endpoint


def _register(options: Options, directory: Path, stack: AsyncExitStack) -> None:
    """Write the hook-server file; a directory that refuses it is said and leaves the hooks served."""
    try:
        file = registration.write(
            directory, registration.content(options.hook_socket, options.failure_policy, REGISTERED)
        )
    except OSError as error:
        _log.error("%s: no runtime proxy will find the hooks: %s", error.filename, error.strerror)
        return
    _log.info("wrote %s (failure policy %s)", file, options.failure_policy)
    if options.remove_hookserver_file:
        stack.callback(registration.remove, directory)


def _reload(rules: RulesSource, notifier: Notifier) -> None:
    notifier.reloading()
    rules.load()
    notifier.ready()


def _host_facts(tree: cgroup.Tree, options: Options) -> HostFacts:
    return hostfacts.look(tree, options.resctrl_root, _text(Path("/proc/meminfo")), resource.getpagesize())


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
