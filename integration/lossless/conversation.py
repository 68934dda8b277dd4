"""One round of the test: each method of CRI called once, in an order in which the proxy knows the objects named.

Invariant: a request that names a sandbox or a container at its top level names the one of its own round, so that the
proxy finds it in its cache and asks hooks about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf.message import Message

from integration.lossless.generate import Generator
from integration.lossless.schema import Method

RUN_POD, CREATE, UPDATE, UPDATE_POD = EDITED = (
    "RunPodSandbox",
    "CreateContainer",
    "UpdateContainerResources",
    "UpdatePodSandboxResources",
)
MOST_ANSWERS = 3


@dataclass(frozen=True, slots=True)
class Turn:
    """One call: what the client sends, and what the server answers whatever it gets."""

    round: int
    method: Method
    request: bytes
    answers: tuple[bytes, ...]


class Prepare(Protocol):
    """Puts something of its own into a request that is about to be sent."""

    def __call__(self, method: str, request: Any, number: int) -> None: ...


def as_generated(method: str, request: Any, number: int) -> None:
    """Puts nothing into a request."""


def turns(methods: Mapping[str, Method], seed: int, number: int, prepare: Prepare) -> Iterator[Turn]:
    """The calls of round ``number``. The first round sets every field; of the others, every second sends each request
    in two halves, so that singular messages occur twice on the wire."""
    generator = Generator(f"{seed}/{number}", 1.0 if number == 0 else 0.75)
    for method in sorted(methods.values(), key=_order):
        halves = 2 if number % 2 else 1
        requests = [_named(generator.message(method.request), number) for _ in range(halves)]
        for request in requests:
            prepare(method.name, request, number)
        count = (number + 1) % (MOST_ANSWERS + 1) if method.streams else 1
        answers = [generator.message(method.answer) for _ in range(count)]
        if method.name in (RUN_POD, CREATE):
            answers = [_named(answer, number) for answer in answers]
        yield Turn(number, method, b"".join(map(_wire, requests)), tuple(map(_wire, answers)))


def _order(method: Method) -> int:
    return EDITED.index(method.name) if method.name in EDITED else len(EDITED)


def _named(message: Message, number: int) -> Message:
    for name, value in (("pod_sandbox_id", f"pod-{number}"), ("container_id", f"container-{number}")):
        if name in message.DESCRIPTOR.fields_by_name:
            setattr(message, name, value)
    return message


def _wire(message: Message) -> bytes:
    return message.SerializeToString()
