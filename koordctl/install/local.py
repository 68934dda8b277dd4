"""This node, as a Host: its disk, its systemctl, its clock, its terminal."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import click

from koordctl.install.disk import Disk
from koordctl.install.host import Host
from koordctl.install.kernel import restore_all
from koordctl.install.systemd import Systemd, runner

_STOPS = (signal.SIGTERM, signal.SIGHUP)


def host(wait_s: float, root: Path = Path("/")) -> Host:
    """``wait_s``: how long kubelet may take to be well, and a service to start or stop."""
    return Host(
        disk=Disk(root),
        systemd=Systemd(runner(wait_s)),
        restore_kernel=lambda runtime: restore_all(root, runtime),
        say=say,
        now=time.monotonic,
        sleep=time.sleep,
        wait_s=wait_s,
    )


def say(line: str) -> None:
    """Print ``line``; a terminal that has gone away is no reason to stop half-way."""
    with contextlib.suppress(OSError):
        click.echo(line)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """A lost terminal (but under nohup) or a SIGTERM is a KeyboardInterrupt, so that what was begun is undone."""
    heard = [number for number in _STOPS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, signal.default_int_handler) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
