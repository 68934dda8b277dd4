"""Reviews that would keep the event loop for long are judged by processes of their own.

Any client of the port may post megabytes that take seconds to judge, and memory that is many times their size. A thread
would share the interpreter's lock with everything else that the manager does. A process does not: it has its own
memory, is the first to give way, and is killed with the review that is given up. There is one for ConfigMaps, whose
rules may take seconds of a few kilobytes, and one for all other large reviews; neither is started before it is needed.

Invariants: a process judges one review at a time, and the clients' addresses take turns (`Turns`), each of them for
``TURN_S`` on the CPU if others want the process, and a client that has gone no longer than that; a network whose review
was given up for it is put behind the others for a while. A large review costs the event loop the copying of its bytes
alone; a process that has ended is replaced for the next review, and the review that it ended with refuses its object.
Fails with UndecodableError, and with OverloadedError where others want the process.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any

from koord.model.clientnetwork import network_of
from koord.service.process import own_environment
from koord.webhook import reviews
from koord.webhook.reviews import OverloadedError, ReviewAnswer, ReviewResult
from koord.webhook.turns import Turns
from koord_manager.webhooks.judges import VALIDATE_CONFIG_MAP, Grounds, Labels, Namespaces

LARGE_BYTES = 16 << 10
"""Smaller ones take some hundredths of a second at most, whatever they say. A usual pod is a third of it."""
PROGRAM = "koord_manager.webhooks.reviewprocess"
JOB = struct.Struct(">QQ")
"""Before a job: the bytes of its pickled part, and of the review."""
READY = b"."
"""What the process says when it can judge; what it has used until then is no review's."""
REPLY = struct.Struct(">Q")
TURN_S = 0.5
"""On the CPU: some hundreds of node entries, or thousands of containers."""
BEHIND_S = 60.0
MAX_BEHIND = 1000
"""Networks."""
_LOOK_S = 0.05
UNKNOWN_NAMESPACE = "unknown_namespace"
"""In place of a `ReviewResult`, before the namespace's name."""
_FIELDS = tuple(field.name for field in fields(Grounds))
_log = logging.getLogger(__name__)


class ProcessEnded(Exception):
    """The process that was to judge a review has ended."""


class ReviewProcesses:
    """``grounds``: those of now, for a path. ``labels`` asks for those of a namespace, for a client's address."""

    def __init__(
        self, grounds: Callable[[str], Grounds], labels: Callable[[str, str], Awaitable[Labels | None]]
    ) -> None:
        self._grounds, self._labels = grounds, labels
        self._config_maps, self._others = ReviewProcess(), ReviewProcess()

    def takes(self, path: str, size_bytes: int) -> bool:
        return size_bytes > LARGE_BYTES or path == VALIDATE_CONFIG_MAP

    async def answer(self, path: str, source: str, body: bytes) -> ReviewAnswer:
        """Raises UndecodableError and OverloadedError."""
        process = self.process(path)
        namespaces: Namespaces = {}
        try:
            while True:
                found = await process.judge_in_turn(source, path, body, lambda: self._grounds(path), namespaces)
                if isinstance(found, ReviewAnswer):
                    return found
                namespaces = {found: await self._labels(found, source)}
        except ProcessEnded as error:
            return reviews.failed(path, reviews.decode(body), error, is_defect=False)

    def process(self, path: str) -> ReviewProcess:
        """Returns the process that judges reviews of ``path``."""
        return self._config_maps if path == VALIDATE_CONFIG_MAP else self._others

    async def close(self) -> None:
        await self._config_maps.close()
        await self._others.close()


class ReviewProcess:
    """One child, of which only who has the turn asks something. ``clock``: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turns = Turns()
        self._behind: dict[str, float] = {}
        """Networks, until when, in the order in which that ends."""
        self._child: asyncio.subprocess.Process | None = None
        self._is_ready = False
        self._begin_s: float | None = None
        """What the child had used when it was given the review; None before that."""
        self._told: dict[str, Any] = {}
        """The fields of `Grounds` as the child has them."""

    @property
    def pid(self) -> int | None:
        """The process ID; None while there is no process."""
        return None if self._child is None else self._child.pid

    async def judge_in_turn(
        self, source: str, path: str, body: bytes, grounds: Callable[[], Grounds], namespaces: Namespaces
    ) -> ReviewAnswer | str:
        """Judges when it is the turn of ``source``, as ``judge`` does. Raises OverloadedError, too."""
        async with self._turns.turn(source, is_behind=self._is_behind(source)):
            self._begin_s = None
            judging = asyncio.create_task(self.judge(path, body, grounds(), namespaces))
            try:
                while not judging.done():
                    await asyncio.wait({judging}, timeout=_LOOK_S)
                    if self._used_s() > TURN_S and self._turns.are_others_ahead(source):
                        break
            except asyncio.CancelledError:
                await asyncio.wait({judging}, timeout=TURN_S)  # what is soon done needs no other process after it
                raise
            finally:
                if not judging.done():
                    if self._has_review():
                        self._put_behind(source)
                    judging.cancel()
                    await asyncio.wait({judging})
                if not judging.cancelled():
                    judging.exception()  # its client may have gone
            if judging.cancelled():
                raise OverloadedError("the review takes long, and others wait")
            return judging.result()

    def _has_review(self) -> bool:
        return self._begin_s is not None

    def _used_s(self) -> float:
        """Returns the CPU time that the review has used."""
        return 0.0 if self._begin_s is None else self._cpu_s() - self._begin_s

    def _cpu_s(self) -> float:
        """Returns the CPU time of the child since it began; 0 without one."""
        child = self._child
        if child is None or child.returncode is not None:
            return 0.0
        try:
            return time.clock_gettime(~child.pid << 3 | 2)  # Linux' clock of a process by its number
        except OSError:
            return 0.0

    def _is_behind(self, source: str) -> bool:
        return self._behind.get(network_of(source), 0.0) > self._clock()

    def _put_behind(self, source: str) -> None:
        network = network_of(source)
        self._behind.pop(network, None)
        self._behind[network] = self._clock() + BEHIND_S
        if len(self._behind) > MAX_BEHIND:
            del self._behind[next(iter(self._behind))]

    async def judge(self, path: str, body: bytes, grounds: Grounds, namespaces: Namespaces) -> ReviewAnswer | str:
        """The answer, or the name of a namespace whose labels are needed first. Raises ProcessEnded."""
        try:
            child = await self._ready()
            self._begin_s = self._cpu_s()
            try:
                return await self._exchanged(child, path, body, grounds, namespaces)
            except BaseException:
                self._kill()  # the answer to a review that was given up would be taken for the next one's
                raise
        except (OSError, asyncio.IncompleteReadError) as error:
            self._kill()
            raise ProcessEnded(f"the process that judges large reviews has ended: {error}") from error

    async def close(self) -> None:
        child = self._child
        self._kill()
        if child is not None:
            await child.wait()

    def _kill(self) -> None:
        if self._child is not None and self._child.returncode is None:
            self._child.kill()
        self._child = None

    async def _ready(self) -> asyncio.subprocess.Process:
        """Returns a child that can judge. A caller that gives up while it starts leaves it to the next one. Raises
        OSError and asyncio.IncompleteReadError.
        """
        if self._child is not None and self._child.returncode is not None:
            self._child = None
        if self._child is None:
            self._told, self._is_ready, pipe = {}, False, asyncio.subprocess.PIPE
            self._child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", PROGRAM), stdin=pipe, stdout=pipe, env=own_environment()
            )
            _log.info("process %d judges large reviews", self._child.pid)
        child = self._child
        if not self._is_ready:
            assert child.stdout is not None
            await child.stdout.readexactly(len(READY))
            self._is_ready = True
        return child

    async def _exchanged(
        self, child: asyncio.subprocess.Process, path: str, body: bytes, grounds: Grounds, namespaces: Namespaces
    ) -> ReviewAnswer | str:
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
        return rest.decode() if result == UNKNOWN_NAMESPACE else ReviewAnswer(ReviewResult(result), rest)

    def _is_told(self, name: str, value: Any) -> bool:
        """Objects that are the same are not compared: the view makes others when something changes."""
        return name in self._told and (self._told[name] is value or self._told[name] == value)
