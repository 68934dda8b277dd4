"""Logs the exceptions that end a program: the exceptions themselves, out of groups in groups."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def ending(log: logging.Logger, *kinds: type[Exception]) -> Iterator[None]:
    """Logs the exceptions of these kinds, each as a sentence, and ends the program with status 1; others pass."""
    is_failed = False
    try:
        yield
    except* kinds as group:
        for reason in each(group):
            log.error("%s", reason)
        is_failed = True
    if is_failed:  # what is raised within except* becomes a group, and that a traceback
        sys.exit(1)


def each(error: BaseException) -> Iterator[BaseException]:
    """Yields the exceptions of a group and of the groups in it, in their order; ``error`` alone if it is no group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from each(inner)
    else:
        yield error
