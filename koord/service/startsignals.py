"""Keeps signals that come before a process can handle them, where they would have ended it.

SIGHUP, SIGUSR1 and SIGUSR2 end a process that has no handler, and ours come with the event loop, a tenth of a second
after the start. So a program's first act is ``hold_back``, and the code that has installed the handlers calls
``let_through``: signals that came meanwhile are handled then. Before the first act, while Python itself starts, they
still end the process.
"""

from __future__ import annotations

import signal

_HELD_BACK = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def hold_back() -> None:
    """Has the signals wait from now on. Threads that are started before ``let_through`` never get them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)


def let_through() -> None:
    """Delivers the signals that waited: their handlers are there."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD_BACK)


def ignore() -> None:
    """Ignores the signals before an exec, or they would end the next program, which installs handlers of its own."""
    for number in _HELD_BACK:
        signal.signal(number, signal.SIG_IGN)
