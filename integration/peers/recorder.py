"""A hook server in front of another: it hands questions on, and keeps what was asked and answered."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from integration.harness.hookserver import SERVICE, Answering, Metadata, Question, Reply

TIMEOUT_S = 5.0


Calls = list[tuple[Question, Reply]]


@dataclass(slots=True)
class Recorder:
    behind: Answering
    heard: Calls = field(default_factory=list)

    def answer(self, question: Question) -> Reply:
        reply = self.behind(question)
        self.heard.append((question, reply))
        return reply


@contextlib.contextmanager
def process_behind(socket: Path) -> Iterator[Answering]:
    """The answers of the hook server on ``socket``, asked with the caller's metadata."""
    channel = grpc.insecure_channel(f"unix:{socket}")

    def answer(question: Question) -> Reply:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"{SERVICE}{question.stage}Hook")
        message, done = call.with_call(question.message, timeout=TIMEOUT_S, metadata=_own(question.metadata))
        return Reply(message, _own(tuple(done.initial_metadata())))

    with contextlib.closing(channel):
        yield answer


def _own(metadata: Metadata) -> Metadata:
    """Without what gRPC adds by itself."""
    return tuple((key, value) for key, value in metadata if not key.startswith(("grpc-", "user-agent")))
