"""The process that judges large reviews: ``python -m koord_manager.webhooks.reviewprocess``, a child of the manager.

It reads a job after the other from its standard input and ends with it. Invariants: it gives way to every other process
of the manager's; its memory, and each review's time on the CPU, are bounded, and a review that needs more refuses its
object as one that fails does; what it was told of the cluster it keeps until it is told something else.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
import time
from types import FrameType
from typing import Any, BinaryIO

from koord.admission import UnknownNamespace
from koord.service import log, loglimit
from koord.webhook import reviews
from koord.webhook.reviews import ReviewAnswer, UndecodableError
from koord_manager.webhooks.judges import Grounds, Namespaces, judge
from koord_manager.webhooks.largereviews import JOB, READY, REPLY, UNKNOWN_NAMESPACE

MEMORY_BYTES = 96 << 20
NICENESS = 10
CPU_S = 5.0
"""Of a review. The ConfigMap whose rules take longest takes one or two, and as much again for what it replaces."""
KILLED_S = 2 * CPU_S
"""What does not let itself be interrupted ends with the process."""


class _OutOfTime(BaseException):
    """The review has had its time on the CPU. No rule's ``except`` is to take it for an error of its own."""


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the manager judges on for a while after them
    os.nice(NICENESS)
    signal.signal(signal.SIGPROF, _interrupt)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    log.set_up("info", ("koord", "koord_manager"), os.environ)
    loglimit.limit(reviews.log.name)
    work(sys.stdin.buffer, sys.stdout.buffer)


def work(jobs: BinaryIO, replies: BinaryIO) -> None:
    """Until ``jobs`` ends."""
    told: dict[str, Any] = {}
    replies.write(READY)
    replies.flush()
    while head := jobs.read(JOB.size):
        size, body_size = JOB.unpack(head)
        path, news, namespaces = pickle.loads(jobs.read(size))
        told |= news
        reply = _reply(path, jobs.read(body_size), Grounds(**told), namespaces)
        replies.write(REPLY.pack(len(reply)) + reply)
        replies.flush()


def _reply(path: str, body: bytes, grounds: Grounds, namespaces: Namespaces) -> bytes:
    try:
        answer = _timed(path, body, grounds, namespaces)
    except UndecodableError as error:
        answer = error.answer
    except UnknownNamespace as unknown:
        return f"{UNKNOWN_NAMESPACE}\n{unknown.name}".encode()
    return answer.result.value.encode() + b"\n" + answer.body


def _timed(path: str, body: bytes, grounds: Grounds, namespaces: Namespaces) -> ReviewAnswer:
    """Raises UndecodableError and UnknownNamespace."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (round(time.process_time() + KILLED_S), hard))
    try:
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        try:
            return _answer(path, body, grounds, namespaces)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except _OutOfTime:
        error = TimeoutError(f"it takes more than {CPU_S:g} s on the CPU to judge")
        return reviews.failed(path, reviews.decode(body), error, is_defect=False)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise _OutOfTime


def _answer(path: str, body: bytes, grounds: Grounds, namespaces: Namespaces) -> ReviewAnswer:
    """Raises UndecodableError and UnknownNamespace."""
    review = reviews.decode(body)
    try:
        return reviews.answered(path, review, judge(path, review.request, grounds, namespaces))
    except UnknownNamespace:
        raise
    except MemoryError:
        error = MemoryError(f"it takes more than {MEMORY_BYTES >> 20} MiB to judge")
        return reviews.failed(path, review, error, is_defect=False)
    except Exception as error:  # noqa: BLE001 - the root of a review
        return reviews.failed(path, review, error)


if __name__ == "__main__":
    main()
