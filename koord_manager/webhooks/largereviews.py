"""Reviews that would keep the event loop for long are judged by processes of their own.

Anybody who reaches the port may post megabytes that take seconds to judge, and memory that is many times their size. A
thread would share the interpreter's lock with everything else that the manager does. A process does not: it has its own
memory, is the first to give way, and is killed with the review that is given up. There is one for ConfigMaps, whose
rules may take seconds of a few kilobytes, and one for all other large reviews; neither is started before it is needed.

Invariants: a process judges one review at a time, and the clients' addresses take turns; what is large costs the event
loop the copying of its bytes alone; a process that has ended, whatever of, is another one for the next review, and the
review that it ended with refuses its object. Fails with UndecodableError.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import struct
import sys
from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any

from koord.kube import reviews
from koord.kube.errors import KubeError
from koord.kube.reviews import Answer, Result
from koord.kube.turns import Turns
from koord.service.process import own_environment
from koord_manager.webhooks.judges import VALIDATE_CONFIG_MAP, Grounds, Labels, Namespaces

LARGE_BYTES = 16 << 10
"""Smaller ones take some hundredths of a second at most, whatever they say. A usual pod is a third of it."""
PROGRAM = "koord_manager.webhooks.reviewprocess"
JOB = struct.Struct(">QQ")
"""Before a job: the bytes of its pickled part, and of the review."""
REPLY = struct.Struct(">Q")
UNKNOWN_NAMESPACE = "unknown_namespace"
"""In place of a `Result`, before the namespace's name."""
_FIELDS = tuple(field.name for field in fields(Grounds))
_log = logging.getLogger(__name__)


class ProcessEnded(Exception):
    """The process that was to judge a review has ended."""


class ReviewProcesses:
    """``grounds``: those of now, for a path. ``labels`` asks for those of a namespace, and raises KubeError."""

    def __init__(self, grounds: Callable[[str], Grounds], labels: Callable[[str], Awaitable[Labels | None]]) -> None:
        self._grounds, self._labels = grounds, labels
        self._config_maps, self._others = ReviewProcess(), ReviewProcess()

    def takes(self, path: str, size_bytes: int) -> bool:
        return size_bytes > LARGE_BYTES or path == VALIDATE_CONFIG_MAP

    async def answer(self, path: str, source: str, body: bytes) -> Answer:
        """Raises UndecodableError."""
        process = self.process(path)
        namespaces: Namespaces = {}
        try:
            while True:
                async with process.turns.turn(source):
                    found = await process.judge(path, body, self._grounds(path), namespaces)
                if isinstance(found, Answer):
                    return found
                namespaces = {found: await self._labels(found)}
        except (ProcessEnded, KubeError) as error:
            return reviews.failed(path, reviews.envelope(body), error)

    def process(self, path: str) -> ReviewProcess:
        """That judges reviews of ``path``."""
        return self._config_maps if path == VALIDATE_CONFIG_MAP else self._others

    async def close(self) -> None:
        await self._config_maps.close()
        await self._others.close()


class ReviewProcess:
    """One child, of which only who has the turn asks something."""

    def __init__(self) -> None:
        self.turns = Turns()
        self._child: asyncio.subprocess.Process | None = None
        self._told: dict[str, Any] = {}
        """The fields of `Grounds` as the child has them."""

    @property
    def pid(self) -> int | None:
        """None while there is none."""
        return None if self._child is None else self._child.pid

    async def judge(self, path: str, body: bytes, grounds: Grounds, namespaces: Namespaces) -> Answer | str:
        """The answer, or the name of a namespace whose labels are needed first. Raises ProcessEnded."""
        if self._child is not None and self._child.returncode is not None:
            self._child = None
        try:
            child = self._child = self._child or await self._started()
            return await self._exchanged(child, path, body, grounds, namespaces)
        except (OSError, asyncio.IncompleteReadError) as error:
            self._kill()
            raise ProcessEnded(f"the process that judges large reviews has ended: {error}") from error
        except BaseException:
            self._kill()  # the answer to a review that was given up would be taken for the next one's
            raise

    async def close(self) -> None:
        child = self._child
        self._kill()
        if child is not None:
            await child.wait()

    def _kill(self) -> None:
        if self._child is not None and self._child.returncode is None:
            self._child.kill()
        self._child = None

    async def _started(self) -> asyncio.subprocess.Process:
        """Raises OSError."""
        self._told = {}
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", PROGRAM), stdin=pipe, stdout=pipe, env=own_environment()
        )
        _log.info("process %d judges large reviews", child.pid)
        return child

    async def _exchanged(
        self, child: asyncio.subprocess.Process, path: str, body: bytes, grounds: Grounds, namespaces: Namespaces
    ) -> Answer | str:
        assert child.stdin is not None and child.stdout is not None
        now = {name: getattr(grounds, name) for name in _FIELDS}
        news = {name: value for name, value in now.items() if not self._is_told(name, value)}
        job = pickle.dumps((path, news, namespaces), pickle.HIGHEST_PROTOCOL)
        child.stdin.write(JOB.pack(len(job), len(body)) + job)
        child.stdin.write(body)
        await child.stdin.drain()
        self._told = now
        (size,) = REPLY.unpack(await child.stdout.readexactly(REPLY.size))
        word, _, rest = (await child.stdout.readexactly(size)).partition(b"\n")
        result = word.decode()
        return rest.decode() if result == UNKNOWN_NAMESPACE else Answer(Result(result), rest)

    def _is_told(self, name: str, value: Any) -> bool:
        """Objects that are the same are not compared: the view makes others when something changes."""
        return name in self._told and (self._told[name] is value or self._told[name] == value)
