"""The process of a cluster component: its log, its limits, its event loop and its exit codes.

0: ended by a signal, or done; 1: could not start, or died; 2: usage.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import resource
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import uvloop

from koord.service import failures, log, loglimit
from koord.service.options import OptionError

Work = Coroutine[Any, Any, None]
DESCRIPTORS = 65_536
"""More than the connections to all ports of a component together."""
_M_MMAP_THRESHOLD, _LARGE_BYTES = -3, 128 << 10
"""glibc's number of the setting, and its own default."""
STRANGERS = ("asyncio", "koord.tls.listener", "koord.webhook.reviews", "koord.webhook.server")
"""Loggers with lines that any client of a port can cause."""


def run(name: str, load: Callable[[Sequence[str]], Work]) -> None:
    """Runs what ``load`` makes of the command line; leaves by SystemExit unless that comes to its end.

    ``name``: the program's, such as koord-manager. ``load`` raises OptionError for a command line that is wrong.
    """
    try:
        work = load(sys.argv[1:])
    except OptionError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2)
    from koord.kube.errors import KubeError  # noqa: PLC0415 - nothing heavy is loaded for --help or a usage error

    with (
        failures.ending(logging.getLogger(name.replace("-", "_")), OSError, KubeError, ValueError),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(work)


def set_up_log(level: str, packages: Sequence[str], strangers: Iterable[str] = ()) -> None:
    """Lines of ``packages`` and of koord from ``level`` on. ``strangers``: loggers as ``STRANGERS``, beside those."""
    log.set_up(level, (*packages, "koord"), os.environ)
    loglimit.limit(*STRANGERS, *strangers)


def prepare_for_clients() -> None:
    """A process that serves many connections: descriptors for them, and none of their buffers stays with it."""
    _allow_descriptors()
    _give_back_large_buffers()


def _give_back_large_buffers() -> None:
    """Lets large buffers, such as a review of 7 MB, go back to the kernel when they are freed. By default glibc puts
    what is no larger than the last one freed into its heap, which has holes then: 50 MiB after a flood. Other libcs
    have no such setting.
    """
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def _allow_descriptors() -> None:
    """Raises the soft limit of descriptors, in many containers 1024: a large cluster has more connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
