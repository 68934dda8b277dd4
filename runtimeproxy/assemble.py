"""The one place where the relay, what is done with held requests, and the status pages are put together.

Nothing here does work of its own. The hook files are read before the first accept, because kubelet's first call must
already meet their hooks; what is costly to import is imported by ``open``, after serving has begun.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import koord
from koord.http2.client import UnaryClient
from koord.service.leisure import Leisure
from koord.service.log import InfoLines
from runtimeproxy.audit import AuditLog
from runtimeproxy.cri.interceptor import CriInterceptor
from runtimeproxy.cri.world import HookOptions
from runtimeproxy.hookcounters import HookCounters
from runtimeproxy.hooks.directory import Directory
from runtimeproxy.life import Attachments
from runtimeproxy.options import Options
from runtimeproxy.relay.server import RelayServer

if TYPE_CHECKING:
    from koord.service.inotify import DirectoryWatch

log = logging.getLogger("runtimeproxy")


def assemble(loop: asyncio.AbstractEventLoop, options: Options) -> tuple[RelayServer, Attachments]:
    """A relay that is ready to serve, with its hooks in force, and what has to be opened later."""
    counters, leisure = HookCounters(), Leisure(loop)
    audit = InfoLines("koord.audit", "JOURNAL_STREAM" in os.environ)  # --log-level does not silence it
    interceptor = CriInterceptor(
        hook_options(options), lambda path: UnaryClient(path, loop), options.backend,
        audit=AuditLog(audit.write), metrics=counters,
        later=leisure,
    )  # fmt: skip
    directory = Directory(options.hook_directory, interceptor.use, counters)
    directory.rescan()
    relay = RelayServer(
        loop, options.backend, interceptor,
        backend_wait_s=options.backend_wait_s, held_budget_bytes=options.held_budget_bytes,
    )  # fmt: skip
    late = _Late(loop, options, relay, interceptor, directory, counters, leisure)
    return relay, Attachments(open=late.open, close=late.close, reload=late.reload, ended=leisure.flush)


def hook_options(options: Options) -> HookOptions:
    return HookOptions(
        version=koord.__version__,
        hook_timeout_s=options.hook_timeout_s,
        skip_key=options.skip_key,
        skip_value=options.skip_value,
        skip_namespaces=options.skip_namespaces,
        foreign_parents=options.foreign_parents,
    )


class _Late:
    """Opened a moment after serving began: the watch on the hook files, protobuf, the status pages."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, options: Options, relay: RelayServer, interceptor: CriInterceptor,
        directory: Directory, counters: HookCounters, leisure: Leisure,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._options = options
        self._relay = relay
        self._interceptor = interceptor
        self._directory = directory
        self._counters, self._leisure = counters, leisure
        self._watch: DirectoryWatch | None = None
        self._warming: asyncio.Task[None] | None = None
        self._close_pages: Callable[[], None] | None = None

    def open(self) -> None:
        self._warming = self._loop.create_task(self._interceptor.warm_up())
        try:
            self._watch = self._directory.watch(self._loop)
        except OSError as error:
            log.error("%s is not watched, SIGHUP reads it again: %s", self._options.hook_directory, error)
        self._open_pages()

    def _open_pages(self) -> None:
        from runtimeproxy.metrics import Figures  # noqa: PLC0415 - after serving has begun
        from runtimeproxy.status import StatusPages, backend_up, pages  # noqa: PLC0415

        figures = Figures(
            relay=self._relay.counters,
            hooks=self._counters,
            bypass=lambda: self._relay.bypass,
            backend_up=lambda: backend_up(self._options.backend),
            hook_servers=lambda: len(self._interceptor.servers),
        )
        served = pages(figures, self._interceptor.dump, self._leisure.flush)
        opened = StatusPages(self._loop, self._options.status_endpoint, served)
        opened.open()
        self._close_pages = opened.close

    def reload(self, fresh: Options) -> None:
        self._interceptor.configure(hook_options(fresh))
        self._directory.rescan()

    def close(self) -> None:
        """Stop looking at files and answering status pages. Hooks stay in force for the calls that still arrive."""
        if self._watch is not None:
            self._watch.close()
        if self._warming is not None:
            self._warming.cancel()
        if self._close_pages is not None:
            self._close_pages()
