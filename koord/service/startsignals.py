"""Signals that come before a process can handle them: kept for later, where they would have ended it.

SIGHUP, SIGUSR1 and SIGUSR2 end a process that has no handler, and ours come with the event loop, a tenth of a second
after the start. So a program's first act is ``hold_back``, and who has installed the handlers calls ``let_through``:
what came meanwhile is handled then. Before the first act, while Python itself starts, they still end the process.
"""

from __future__ import annotations

import signal

_HELD_BACK = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def hold_back() -> None:
    """From now on they wait. Threads that are started before ``let_through`` never get them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)


def let_through() -> None:
    """Their handlers are there: deliver what waited."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD_BACK)


def ignore() -> None:
    """Before an exec: they do not end the next program while it starts. It installs handlers of its own."""
    for number in _HELD_BACK:
        signal.signal(number, signal.SIG_IGN)
