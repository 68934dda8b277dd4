"""Asks the leading koord-scheduler: directly at an address, or in its pod through the API server.

Its pages are for callers of its own machine. Its Lease says which replica leads, which is the name of its pod, and on
which port its pages are. Fails with NotAsked, whose text says why in a clause: what the API server has is shown then.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from koord.kube.client import Client
from koord.kube.errors import APIError, KubeError
from koord.kube.kind import LEASE, Key
from koord.model.schedulerpages import (
    ANNOTATION_STATUS_PORT,
    DEFAULT_PORT,
    POD_PAGE,
    QUEUE_PAGE,
    QUOTA_PAGE,
    ErrorPage,
    PodPage,
    QueuePage,
    QuotaPage,
)

NAME = "koord-scheduler"
Answer = TypeVar("Answer", PodPage, QueuePage, QuotaPage)


class NotAsked(Exception):
    """The scheduler cannot be asked, or has no answer. ``is_there`` False: nothing says that there is one."""

    def __init__(self, why: str, is_there: bool = True) -> None:
        self.is_there = is_there
        super().__init__(why)


class SchedulerChoice(NamedTuple):
    """``address``: ``host:port``; "": the leader's, found by the Lease in ``namespace``. ``token_file``: with what its
    pages want, if they do.
    """

    namespace: str
    address: str
    timeout_s: float
    token_file: Path | None = None

    def request(self, path: str) -> bytes:
        """Raises OSError."""
        token = "" if self.token_file is None else self.token_file.read_text(encoding="utf-8").strip()
        bearer = f"Authorization: Bearer {token}\r\n" if token else ""
        return f"GET {path} HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n{bearer}\r\n".encode()


async def pod(client: Client, choice: SchedulerChoice, key: Key) -> PodPage:
    return await _ask(client, choice, f"{POD_PAGE}{quote(key.namespace)}/{quote(key.name)}", PodPage)


async def queue(client: Client, choice: SchedulerChoice, limit: int) -> QueuePage:
    return await _ask(client, choice, f"{QUEUE_PAGE}?{urlencode({'limit': limit})}", QueuePage)


async def quota(client: Client, choice: SchedulerChoice, name: str) -> QuotaPage:
    return await _ask(client, choice, f"{QUOTA_PAGE}{quote(name)}", QuotaPage)


async def _ask(client: Client, choice: SchedulerChoice, path: str, kind: type[Answer]) -> Answer:
    try:
        answer = _Answer.of(await _sent(client, choice, path))
        if answer.status == 200:
            return msgspec.json.decode(answer.body, type=kind)
        why = msgspec.json.decode(answer.body, type=ErrorPage).message if answer.body[:1] == b"{" else ""
    except (KubeError, OSError, TimeoutError, ValueError) as error:
        raise NotAsked(f"it cannot be asked: {error or 'no answer in time'}") from error
    raise NotAsked(f"it answered {answer.status}: {why or answer.body[:200].decode(errors='replace').strip()}")


async def _sent(client: Client, choice: SchedulerChoice, path: str) -> bytes:
    """Returns the answer, head and body."""
    if choice.address:
        return await _direct(choice, path)
    try:
        lease = await client.get(LEASE, Key(choice.namespace, NAME))
    except APIError as error:
        if error.is_not_found:
            raise NotAsked(f"there is no Lease {choice.namespace}/{NAME}", is_there=False) from error
        raise
    holder = lease.spec.holder_identity.partition("_")[0]
    if not holder:
        raise NotAsked("no replica leads")
    port = lease.metadata.annotations.get(ANNOTATION_STATUS_PORT, str(DEFAULT_PORT))
    if not port.isdecimal():
        raise NotAsked("its leader serves no pages")
    return await client.forwarded(Key(choice.namespace, holder), int(port), choice.request(path))


async def _direct(choice: SchedulerChoice, path: str) -> bytes:
    host, _, port = choice.address.rpartition(":")
    async with asyncio.timeout(choice.timeout_s):
        reader, writer = await asyncio.open_connection(host.strip("[]") or "127.0.0.1", int(port))
        try:
            writer.write(choice.request(path))
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()


class _Answer(NamedTuple):
    status: int
    body: bytes

    @classmethod
    def of(cls, said: bytes) -> _Answer:
        """Raises ValueError for what is no whole answer of HTTP."""
        head, separator, body = said.partition(b"\r\n\r\n")
        words = head.split(None, 2)
        if not separator or len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
            raise ValueError(f"{said[:60]!r} is no answer of HTTP")
        return cls(int(words[1]), body)
