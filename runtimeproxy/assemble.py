"""Puts the relay, the handling of held requests, and the status pages together; no other module joins them.

Nothing here does work of its own. The hook files are read before the first accept, because kubelet's first call must
already meet their hooks; ``open`` imports the costly modules, after serving has begun.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import koord
from koord.http2.client import UnaryClient
from koord.service.lines import LineWriter
from koord.service.log import InfoLines
from runtimeproxy.audit import AuditLog
from runtimeproxy.cri.exempt import SkipRules
from runtimeproxy.cri.handlercontext import HookOptions
from runtimeproxy.cri.interceptor import CriInterceptor
from runtimeproxy.cri.updaterecords import UpdateRecords
from runtimeproxy.hooks.client import MAX_ANSWER_BYTES
from runtimeproxy.hooks.directory import HookDirectory
from runtimeproxy.hooks.trust import distrust
from runtimeproxy.life import Attachments
from runtimeproxy.metrics import Metrics
from runtimeproxy.options import Options
from runtimeproxy.relay.server import RelayServer

if TYPE_CHECKING:
    from koord.service.inotify import DirectoryWatch

log = logging.getLogger("runtimeproxy")

POSTS_S = 2.0  # for after hooks that wait when the last call has ended; well within what life grants a hung process


def assemble(loop: asyncio.AbstractEventLoop, options: Options, lines: LineWriter) -> tuple[RelayServer, Attachments]:
    """Returns a relay that is ready to serve, with its hooks in force, and what has to be opened later."""
    metrics = Metrics()
    audit = InfoLines("koord.audit", "JOURNAL_STREAM" in os.environ, lines.put)  # --log-level does not silence it
    interceptor = CriInterceptor(
        hook_options(options), lambda path: _caller(path, loop, options.backend), options.backend,
        audit=AuditLog(audit.write), metrics=metrics, updates=UpdateRecords(options.requested_directory),
    )  # fmt: skip
    directory = HookDirectory(options.hook_directory, interceptor.use, metrics)
    directory.rescan()
    relay = RelayServer(
        loop, options.backend, interceptor, metrics=metrics,
        backend_wait_s=options.backend_wait_s, held_budget_bytes=options.held_budget_bytes,
    )  # fmt: skip
    late = _Late(loop, options, relay, interceptor, directory, metrics, lines)
    return relay, Attachments(open=late.open, close=late.close, reload=late.reload, ended=late.ended)


def _caller(path: str, loop: asyncio.AbstractEventLoop, backend: str) -> UnaryClient:
    """Returns a caller of a socket. The operator named the runtime's; a hook server's must be trusted."""
    if path == backend:
        return UnaryClient(path, loop)
    return UnaryClient(path, loop, distrust, MAX_ANSWER_BYTES)


def hook_options(options: Options) -> HookOptions:
    return HookOptions(
        version=koord.__version__,
        hook_timeout_s=options.hook_timeout_s,
        skip=SkipRules(
            options.skip_key,
            options.skip_value,
            options.privileged_namespaces,
            options.skip_namespaces,
            options.skip_static_pods,
            options.skip_critical_pods,
        ),
        foreign_parents=options.foreign_parents,
    )


class _Late:
    """Opens, a moment after serving began, the watch on the hook files, protobuf, and the status pages."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, options: Options, relay: RelayServer, interceptor: CriInterceptor,
        directory: HookDirectory, metrics: Metrics, lines: LineWriter,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._options = options
        self._relay = relay
        self._interceptor = interceptor
        self._directory = directory
        self._metrics, self._lines = metrics, lines
        self._watch: DirectoryWatch | None = None
        self._warming: asyncio.Task[None] | None = None
        self._close_pages: list[Callable[[], object]] = []

    def open(self) -> None:
        try:
            from koord.service import timeslice  # noqa: PLC0415 - after serving has begun

            timeslice.shorten()
        except (OSError, ImportError) as error:
            log.info("turns on the CPU keep their length: %s", error)
        self._warm_up()
        self._open_the_rest()

    def _open_the_rest(self) -> None:
        """Opens the rest; a reload tries again what could not be opened before."""
        if self._watch is None and self._options.hook_directory:
            try:
                self._watch = self._directory.watch(self._loop)
            except (OSError, ImportError) as error:
                log.error("%s is not watched, SIGHUP reads it again: %s", self._options.hook_directory, error)
        if not self._close_pages:
            self._open_pages()

    def _warm_up(self) -> None:
        """Begins to load the engine; a reload tries it again at once."""
        if self._warming is not None:
            self._warming.cancel()
        self._warming = self._loop.create_task(self._interceptor.warm_up())

    def _open_pages(self) -> None:
        from koord.service.statuspages import StatusPages  # noqa: PLC0415 - after serving has begun
        from koord.service.statusserver import StatusServer  # noqa: PLC0415
        from runtimeproxy.status import Pages, backend_up, guard_of  # noqa: PLC0415

        metrics = self._metrics
        metrics.hook_servers = lambda: len(self._interceptor.servers)
        metrics.bypass = lambda: self._relay.bypass
        metrics.backend_up = lambda: backend_up(self._options.backend)
        metrics.log_lines_dropped = lambda: self._lines.dropped
        pages = Pages(metrics, self._dump, metrics.backend_up, metrics.bypass, self._relay.lag.arm)
        endpoint = self._options.status_endpoint
        self._close_pages = [pages.close]
        if endpoint:
            guard = guard_of(endpoint, self._options.metrics_token_file)
            served = StatusPages(StatusServer(pages.by_path, guard), endpoint)
            opening = self._loop.create_task(served.open())
            self._close_pages = [opening.cancel, served.close, pages.close]

    def _dump(self) -> Callable[[], Mapping[str, object]]:
        errors, shown = dict(self._directory.errors), self._interceptor.dump()
        return lambda: {"hookFileErrors": errors, **shown()}

    def reload(self, fresh: Options) -> None:
        self._interceptor.configure(hook_options(fresh))
        self._directory.rescan()
        self._warm_up()
        self._open_the_rest()

    async def ended(self) -> None:
        """Delivers, before the process ends, the notifications that hook servers have not had yet."""
        await self._interceptor.finish(POSTS_S)

    def close(self) -> None:
        """Stops looking at files and answering status pages. Hooks stay in force for the calls that still arrive."""
        if self._watch is not None:
            self._watch.close()
        if self._warming is not None:
            self._warming.cancel()
        for close in self._close_pages:
            close()
