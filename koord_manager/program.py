"""koord-manager's program: options, logging, exit codes.

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
from collections.abc import Coroutine, Sequence
from typing import Any

import uvloop

from koord.service import failures, log, loglimit
from koord.service.options import OptionError
from koord_manager.options import PROGRAM, UNINSTALL

_log = logging.getLogger("koord_manager")
_UNINSTALL = "uninstall"
DESCRIPTORS = 65_536
"""More than NodeLink's and the webhooks' connections together."""
_M_MMAP_THRESHOLD, _LARGE_BYTES = -3, 128 << 10
"""glibc's number of the setting, and its own default."""

STRANGERS = (
    "asyncio",
    "koord.webhook.reviews",
    "koord.tls.listener",
    "koord.webhook.server",
    "koord_manager.nodelink.gate",
    "koord_manager.nodelink.server",
    "koord_manager.webhooks.largereviews",
)
"""Loggers of which whoever reaches a port, or one node, can cause lines."""


def main() -> None:
    """Serve until a signal ends it, or uninstall; leaves by SystemExit otherwise."""
    arguments = sys.argv[1:]
    try:
        work = _uninstallation(arguments[1:]) if arguments[:1] == [_UNINSTALL] else _service(arguments)
    except OptionError as error:
        print(f"koord-manager: {error}", file=sys.stderr)
        sys.exit(2)
    from koord.kube.errors import KubeError  # noqa: PLC0415 - nothing heavy is loaded for --help or a usage error

    with (
        failures.ending(_log, OSError, KubeError, ValueError),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(work)


def _service(arguments: Sequence[str]) -> Coroutine[Any, Any, None]:
    options = PROGRAM.load(PROGRAM.parse(arguments))
    _set_up_log(options.effective_log_level)
    _allow_descriptors()
    _give_back_large_buffers()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # each handshake that a stranger breaks off would be a line
    from koord_manager import manager  # noqa: PLC0415

    return manager.run(options, os.environ)


def _uninstallation(arguments: Sequence[str]) -> Coroutine[Any, Any, None]:
    options = UNINSTALL.load(UNINSTALL.parse(arguments))
    _set_up_log(options.log_level)
    from koord_manager import uninstall  # noqa: PLC0415

    return uninstall.run(options, os.environ)


def _give_back_large_buffers() -> None:
    """To the kernel when they are freed, such as a review of 7 MB. By default glibc puts what is no larger than the one
    freed into its heap from then on, which has holes then: 50 MiB after a flood. Other libcs have no such setting.
    """
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def _allow_descriptors() -> None:
    """Of the soft limit, 1024 in many containers, a large cluster's connections would be more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _set_up_log(level: str) -> None:
    log.set_up(level, ("koord_manager", "koord"), os.environ)
    loglimit.limit(*STRANGERS)
