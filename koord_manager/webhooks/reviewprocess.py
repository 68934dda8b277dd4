"""The process that judges large reviews: ``python -m koord_manager.webhooks.reviewprocess``, a child of the manager.

It reads a job after the other from its standard input and ends with it. Invariants: it gives way to every other process
of the manager's; its memory is bounded, and a review that needs more refuses its object as one that fails does; what it
was told of the cluster it keeps until it is told something else.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
from typing import Any, BinaryIO

from koord.kube import reviews
from koord.kube.reviews import Answer, UndecodableError
from koord.service import log
from koord_manager.webhooks.judges import Grounds, Namespaces, UnknownNamespace, judge
from koord_manager.webhooks.largereviews import JOB, REPLY, UNKNOWN_NAMESPACE

MEMORY_BYTES = 128 << 20
NICENESS = 10


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the manager judges on for a while after them
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    log.set_up("info", ("koord", "koord_manager"), os.environ)
    work(sys.stdin.buffer, sys.stdout.buffer)


def work(jobs: BinaryIO, replies: BinaryIO) -> None:
    """Until ``jobs`` ends."""
    told: dict[str, Any] = {}
    while head := jobs.read(JOB.size):
        size, body_size = JOB.unpack(head)
        path, news, namespaces = pickle.loads(jobs.read(size))
        told |= news
        reply = _reply(path, jobs.read(body_size), Grounds(**told), namespaces)
        replies.write(REPLY.pack(len(reply)) + reply)
        replies.flush()


def _reply(path: str, body: bytes, grounds: Grounds, namespaces: Namespaces) -> bytes:
    try:
        answer = _answer(path, body, grounds, namespaces)
    except UndecodableError as error:
        answer = error.answer
    except UnknownNamespace as unknown:
        return f"{UNKNOWN_NAMESPACE}\n{unknown.name}".encode()
    return answer.result.value.encode() + b"\n" + answer.body


def _answer(path: str, body: bytes, grounds: Grounds, namespaces: Namespaces) -> Answer:
    """Raises UndecodableError and UnknownNamespace."""
    review = None
    try:
        review = reviews.decoded(body)
        return reviews.answered(path, review, judge(path, review, grounds, namespaces))
    except (UndecodableError, UnknownNamespace):
        raise
    except Exception as error:  # noqa: BLE001 - the root of a review, for want of memory, too
        return reviews.failed(path, review or reviews.envelope(body), error)


if __name__ == "__main__":
    main()
