"""Runs the process from the first served connection to the exit: readiness, watchdog, signals, reload, hand-over and
drain.

SIGTERM and SIGINT: stop accepting, GOAWAY, wait for the calls in flight up to ``--stop-timeout``, end. SIGHUP: reload.
SIGUSR1: bypass on or off (``runtimeproxy.bypass``). SIGUSR2: a successor takes over, then this process drains up to
``--drain-timeout``.

Invariants: sockets are served before anything else is done. The watchdog is fed from the event loop itself, so a
stuck loop is noticed. A process that was told to stop, or has a successor, starts no other and reloads nothing: each
signal may come at any moment, and two successors would both serve. Once a successor has taken over, this process
tells the service manager nothing more, and a timer of the kernel's ends it even if it hangs.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from koord.service import startsignals
from koord.service.notify import Notifier
from koord.service.options import CommandLine, OptionError
from runtimeproxy.bypass import Bypass
from runtimeproxy.listen import Listeners
from runtimeproxy.options import PROGRAM, Options
from runtimeproxy.relay.server import RelayServer
from runtimeproxy.upgrade import LATE_MODULES, READY_TIMEOUT_S, Predecessor, UpgradeError, preload, start_successor

log = logging.getLogger("runtimeproxy.life")

LOGGED = ("runtimeproxy", "koord")  # the packages whose messages --log-level governs
ANNOUNCE_AGAIN_S = 0.5  # systemd reads no messages while it reloads, and its queue is short
SETTLE_S = 0.25  # from readiness to the late imports
BETWEEN_IMPORTS_S = 0.02
HANG_GRACE_S = 5.0  # over the drain's own limit, before the kernel ends the process


class Ending(Enum):
    STOPPED = "stopped"
    HANDED_OVER = "handed over"


@dataclass(frozen=True, slots=True)
class StartContext:
    """The circumstances of the process's start. ``command`` is its own command line, for a successor."""

    command: Sequence[str]
    environ: Mapping[str, str]
    notifier: Notifier
    watchdog_us: int | None
    predecessor: Predecessor | None


@dataclass(frozen=True, slots=True)
class Attachments:
    """Opens parts a moment after serving began, closes them when it ends, and hands them new options.

    No part that decides on a call may wait for ``open``: kubelet's first call comes before it. ``ended`` is called when
    the last call has ended.
    """

    open: Callable[[], None]
    close: Callable[[], None]
    reload: Callable[[Options], None]
    ended: Callable[[], Awaitable[None]]


class Life:
    """Runs the process once. ``options`` is replaced at a reload."""

    def __init__(
        self,
        process: StartContext,
        command_line: CommandLine,
        options: Options,
        *,
        relay: RelayServer,
        listeners: Listeners,
        bypass: Bypass,
        attachments: Attachments,
    ) -> None:
        self.options = options
        self._started_with = options
        self._process = process
        self._command_line = command_line
        self._relay = relay
        self._listeners = listeners
        self._bypass = bypass
        self._attachments = attachments
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._handed_over = asyncio.Event()
        self._watchdog: asyncio.TimerHandle | None = None
        self._announcement: asyncio.TimerHandle | None = None
        self._upgrade: asyncio.Task[None] | None = None

    async def run(self) -> Ending:
        """Serves until a signal or a successor ends it. Raises what ``add_listener`` raises."""
        self._handle_signals()
        self._listeners.serve()
        self._announce()
        log.info(
            "serving %s, runtime %s, hook files in %s",
            self.options.endpoint,
            self.options.backend,
            self.options.hook_directory,
        )
        settling = self._loop.create_task(self._settle())
        ending = await self._ended()
        settling.cancel()
        if self._announcement is not None:
            self._announcement.cancel()
        await asyncio.wait({settling})
        self._listeners.unwatch()
        self._bypass.close()
        self._attachments.close()
        await self._drain(ending)
        await self._attachments.ended()
        return ending

    def _handle_signals(self) -> None:
        for number, handler in (
            (signal.SIGTERM, self._stop.set),
            (signal.SIGINT, self._stop.set),
            (signal.SIGHUP, self._reload),
            (signal.SIGUSR1, self._bypass.toggle),
            (signal.SIGUSR2, self._start_upgrade),
        ):
            self._loop.add_signal_handler(number, handler)
        startsignals.let_through()

    def _announce(self) -> None:
        """Tells systemd, until it has taken the message, and only then the predecessor, which leaves.

        A predecessor that died before it could leave was systemd's main process, and systemd starts another: this
        process ends, silently. Without a service manager no other would come, and it stays.
        """
        process, predecessor, self._announcement = self._process, self._process.predecessor, None
        if process.notifier.enabled and predecessor is not None and predecessor.is_gone:
            self._stand_down()
            return
        told = process.notifier.ready(status="serving", main_pid=None if predecessor is None else os.getpid())
        if process.notifier.enabled and not told:
            self._announcement = self._loop.call_later(ANNOUNCE_AGAIN_S, self._announce)
            return
        self._listeners.store_own()
        if predecessor is not None and not predecessor.announce(os.getpid()) and process.notifier.enabled:
            self._stand_down()
            return
        self._feed_watchdog()

    def _stand_down(self) -> None:
        log.warning("the old process died before this one could take over; the service manager starts another")
        self._handed_over.set()

    def _feed_watchdog(self) -> None:
        if self._process.watchdog_us is not None:
            self._process.notifier.watchdog()
            self._watchdog = self._loop.call_later(self._process.watchdog_us / 2e6, self._feed_watchdog)

    async def _settle(self) -> None:
        """Opens what serving did not need at once: imports one by one, between calls; watches; the attachments."""
        await asyncio.sleep(SETTLE_S)
        try:
            for module in LATE_MODULES:
                preload([module])
                await asyncio.sleep(BETWEEN_IMPORTS_S)
            self._listeners.watch()
            self._bypass.watch(self._loop)
            self._attachments.open()
            gc.collect()
            gc.freeze()  # modules and code never become garbage: a full collection then takes microseconds
        except Exception:  # a task's root: serving goes on without what failed
            log.exception("not everything could be opened")

    async def _ended(self) -> Ending:
        waiting = {self._loop.create_task(event.wait()) for event in (self._stop, self._handed_over)}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        if self._handed_over.is_set():
            return Ending.HANDED_OVER
        if self._upgrade is not None and not self._upgrade.done():
            self._upgrade.cancel()
            await asyncio.wait({self._upgrade})
        return Ending.STOPPED

    async def _drain(self, ending: Ending) -> None:
        if ending is Ending.STOPPED:
            self._process.notifier.stopping("draining")
            limit_s = self.options.stop_timeout_s
        else:
            if self._watchdog is not None:
                self._watchdog.cancel()
            limit_s = self.options.drain_timeout_s
        signal.setitimer(signal.ITIMER_REAL, limit_s + HANG_GRACE_S)
        log.info("%s: draining for at most %g s", ending.value, limit_s)
        self._relay.drain()
        self._listeners.close()
        if not await self._drained(limit_s, ending):
            log.warning("calls were still in flight and have been cut off")

    async def _drained(self, limit_s: float, ending: Ending) -> bool:
        """Drains; SIGTERM shortens the drain of a process that was handed over."""
        if ending is Ending.STOPPED:
            return await self._relay.drained(limit_s)
        drained = self._loop.create_task(self._relay.drained(limit_s))
        stop = self._loop.create_task(self._stop.wait())
        await asyncio.wait({drained, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if drained.done():
            return drained.result()
        drained.cancel()
        return await self._relay.drained(min(limit_s, self.options.stop_timeout_s))

    @property
    def _is_ending(self) -> bool:
        return self._stop.is_set() or self._handed_over.is_set()

    def _reload(self) -> None:
        if self._is_ending:
            return
        self._process.notifier.reloading()
        try:
            fresh = PROGRAM.load(self._command_line)
        except OptionError as error:
            log.error("options stay as they are: %s", error)
            self._process.notifier.ready(status="serving; the new options were refused, see the log")
            return
        self._apply(fresh)
        self._process.notifier.ready(status="serving")
        log.info("reloaded")

    def _apply(self, fresh: Options) -> None:
        fixed = PROGRAM.fixed_changes(self._started_with, fresh)
        if fixed:
            log.warning("takes effect at the next start or upgrade: %s", ", ".join(f"--{name}" for name in fixed))
        if fresh.bypass != self.options.bypass:
            self._bypass.set_switch(fresh.bypass)
        if fresh.log_level != self.options.log_level:
            for package in LOGGED:
                logging.getLogger(package).setLevel(fresh.log_level.upper())
        self.options = fresh
        self._attachments.reload(fresh)

    def _start_upgrade(self) -> None:
        if self._is_ending or (self._upgrade is not None and not self._upgrade.done()):
            log.warning("no upgrade: one is under way already, or this process ends")
            return
        self._upgrade = self._loop.create_task(self._hand_over())

    async def _hand_over(self) -> None:
        """Hands over; meanwhile the socket file is not watched, or two processes would put it back."""
        preload()
        self._listeners.unwatch()
        try:
            pid = await start_successor(
                self._process.command, self._process.environ, self._listeners.inherited(), READY_TIMEOUT_S
            )
        except UpgradeError as error:
            log.error("upgrade failed, this process goes on: %s", error)
            self._listeners.watch()
            return
        log.info("successor %d serves", pid)
        self._handed_over.set()
