"""One koord-qosd acts on a node; a second one may be started, and stands by until the first has ended.

That happens on a node with the systemd unit and the DaemonSet's pod, or when one takes the place of the other. The unit
may know of no cluster, so it stands by without one as well. The one that acts holds the lock of the undo record; the
other waits in flock(2), so the kernel wakes it the moment the holder is gone, however it ended. Invariant: it reads,
writes and binds nothing of the node meanwhile but the status pages, and hands the lock to the record without giving it
up in between. The record reports a lock that cannot be opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from koord.host import undo
from koord.service.notify import Notifier, watchdog_interval_us
from koord.service.statuspages import StatusPages
from koord.service.statusserver import Maker, Page
from qosd import status
from qosd.health import feed_watchdog
from qosd.options import Options

_log = logging.getLogger(__name__)


def is_due(options: Options) -> bool:
    """Is this one to stand by? With --dry-run and no cluster it ends: if it held the lock, none would act."""
    return bool(options.kubeconfig) or not options.dry_run


async def hold_lock(
    record: Path, options: Options, environ: Mapping[str, str], notifier: Notifier, stop: asyncio.Event
) -> int | None:
    """Waits until no other process holds the lock of the undo record, and returns a descriptor that holds it.

    None: ``stop`` was set before, or the lock cannot be opened. Raises ConfigError, as the pages' options may.
    """
    with contextlib.suppress(OSError):
        record.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    try:
        held = _try(record)
    except OSError:
        return None
    if held is not None:
        return held
    reason = f"standing by: another koord-qosd acts on this node and holds {undo.lock_file(record)}"
    _log.warning("%s", reason)
    async with _said(reason, options, environ, notifier):
        held = await _awaited(record, stop)
    if held is not None:
        _log.info("the other koord-qosd has ended, this one takes over")
    return held


def _try(record: Path) -> int | None:
    descriptor = undo.open_lock(record)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


async def _awaited(record: Path, stop: asyncio.Event) -> int | None:
    """Waits for the lock in a thread. Nothing ends a wait in flock(2), so ``stop`` leaves the thread behind."""
    loop = asyncio.get_running_loop()
    locked: asyncio.Future[int | None] = loop.create_future()

    def give(descriptor: int | None) -> None:
        if not locked.done():
            locked.set_result(descriptor)
        elif descriptor is not None:
            os.close(descriptor)

    def wait() -> None:
        try:
            descriptor = _wait(record)
        except OSError:
            descriptor = None
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the process is about to
            loop.call_soon_threadsafe(give, descriptor)

    threading.Thread(target=wait, name="standby", daemon=True).start()
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((locked, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if locked.done():
        return locked.result()
    locked.cancel()
    return None


def _wait(record: Path) -> int:
    """Returns with the lock of the file that has the name now: the file that was waited for may have been removed.

    Raises OSError.
    """
    while True:
        try:
            record.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            descriptor = undo.open_lock(record)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            named, held = os.stat(undo.lock_file(record)), os.fstat(descriptor)
        except FileNotFoundError:
            os.close(descriptor)
            continue
        except OSError:
            os.close(descriptor)
            raise
        if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino):
            return descriptor
        os.close(descriptor)


@contextlib.asynccontextmanager
async def _said(reason: str, options: Options, environ: Mapping[str, str], notifier: Notifier) -> AsyncIterator[None]:
    """Tells the service manager, and serves the pages, that it stands by; a unit that stands by counts as started."""
    interval_us = watchdog_interval_us(environ, os.getpid())
    pages = await _open_pages(reason, options)
    notifier.ready(reason)
    feeding = asyncio.ensure_future(feed_watchdog(notifier, lambda: "", interval_us / 2e6)) if interval_us else None
    try:
        yield
    finally:
        if pages is not None:
            pages.close()
        if feeding is not None:
            feeding.cancel()


async def _open_pages(reason: str, options: Options) -> StatusPages | None:
    if not options.metrics_endpoint:
        return None
    served: dict[str, Maker] = {
        "/healthz": lambda: Page(200, b"ok\n"),
        "/readyz": lambda: Page(503, f"{reason}\n".encode()),
    }
    pages = StatusPages(status.server(options, served), status.address(options.metrics_endpoint))
    await pages.open()
    return pages
