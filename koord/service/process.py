"""The frame of a daemon: the signals that end or reload it, and what its children are started with.

SIGTERM and SIGINT set an event, SIGHUP calls a function; nothing is done inside a signal handler beyond that.
Invariant: the handlers are gone when the block ends, so a nested or a second run starts clean.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from koord.service import startsignals

_log = logging.getLogger(__name__)
_ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def signals(on_reload: Callable[[], None]) -> Iterator[asyncio.Event]:
    """Yields, inside a running loop, the event that SIGTERM or SIGINT sets; SIGHUP calls ``on_reload``."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in _ENDING:
        loop.add_signal_handler(number, _ask_to_stop, stop, number)
    loop.add_signal_handler(signal.SIGHUP, on_reload)
    startsignals.let_through()
    try:
        yield stop
    finally:
        for number in (*_ENDING, signal.SIGHUP):
            loop.remove_signal_handler(number)


def own_environment() -> dict[str, str]:
    """Returns the environment for a child that imports from this process's own paths and from nowhere else."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return ours | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if os.path.isabs(path))}


def _ask_to_stop(stop: asyncio.Event, number: signal.Signals) -> None:
    _log.info("%s: stopping", number.name)
    stop.set()
