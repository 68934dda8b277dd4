"""Processes of a test's own that begin with their imports made, which are most of what starting one costs.

They are forks of a process that has only imported. What an interpreter of its own adds, tests that start one see to.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["qosd.daemon", "tests.runtimeproxy.relay.serve"])


class Forked:
    """A process, in the words of asyncio's."""

    def __init__(self, run: Callable[..., object], *arguments: object) -> None:
        self._process = _context.Process(target=run, args=arguments)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        await asyncio.to_thread(self._process.join)
        assert self.returncode is not None
        return self.returncode


def run_module(module: str, arguments: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
    """``python -m module`` as a command would; what it says on standard error is added to ``log``."""
    os.environ.clear()
    os.environ.update(environ)
    with log.open("ab") as said:
        os.dup2(said.fileno(), 2)
    sys.argv[1:] = arguments
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        logging.shutdown()  # as an interpreter does at its exit
