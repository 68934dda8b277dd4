"""Which of several processes leads: the one that holds a Lease object. client-go's rules, and their proof.

A candidate takes a Lease only when, by its own clock, it has seen it unchanged for the Lease's whole duration. A leader
stops leading ``renew_s`` after it *began* the last renewal that succeeded, by its own clock, whether or not a call
hangs. A change is made after its call began and seen after it was made, and ``renew_s`` < ``lease_s``; so no two lead
at one moment while clocks run at rates that differ by less than their ratio, wherever their hands stand. (As with every
Lease: for as long as nobody deletes it.)

``Term`` is of one leadership. The leader's work runs in it and is cancelled at its end, so what writes within that work
begins no request later; one that is under way may still arrive. Who writes elsewhere can ``check`` the term first. The
holder's identity carries its address, by which others find the leader, and annotations what else they need for that.
Released on the way out, a Lease is taken at the next look. Fails with nothing: what goes wrong with the API is logged,
and costs leadership at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from random import random as uniform
from typing import Any, Protocol, TypeVar

from koord.kube.backoff import Random
from koord.kube.errors import APIError, KubeError, NotLeader
from koord.kube.kind import LEASE, Key, Kind, T
from koord.model.core import Lease, LeaseSpec

_log = logging.getLogger(__name__)
_JITTER = 0.2
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Identity:
    """``process``: unique among all candidates of all times. ``address``: ``host:port``, where the leader answers."""

    process: str
    address: str = ""

    def __str__(self) -> str:
        return f"{self.process}@{self.address}" if self.address else self.process


def address_of(holder_identity: str) -> str:
    """The address in a Lease's holder; "" of one that has none, such as upstream's."""
    return holder_identity.rpartition("@")[2] if "@" in holder_identity else ""


@dataclass(frozen=True, slots=True)
class Term:
    """One leadership. ``transitions`` grows from each to the next, whoever leads."""

    holder: str
    transitions: int


@dataclass(frozen=True, slots=True)
class Timing:
    """``call_s``: for each call, so that one that hangs leaves time for another."""

    lease_s: int = 15
    renew_s: float = 10.0
    retry_s: float = 2.0
    call_s: float = 3.0

    def __post_init__(self) -> None:
        if not self.lease_s > self.renew_s > self.retry_s * (1 + _JITTER) > 0:
            raise ValueError(
                f"a lease of {self.lease_s} s, {self.renew_s:g} s to renew it and a retry after "
                f"{self.retry_s:g} s do not follow each other"
            )


class Leases(Protocol):
    """The part of ``Client`` that an election needs; one whose calls neither wait for a rate nor are repeated."""

    async def get(self, kind: Kind[T], key: Key) -> T: ...
    async def create(self, kind: Kind[T], body: Mapping[str, Any], namespace: str) -> T: ...
    async def patch(self, kind: Kind[T], key: Key, body: Mapping[str, Any]) -> T: ...


def boottime_s() -> float:
    """Seconds since the boot; they go on while a machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _none() -> Mapping[str, str]:
    return {}


class Election:
    """``leader``: who holds the Lease as far as we know, "" if nobody. ``wall_s``: for the times in the object.

    ``annotations``: what the leader says in the Lease beside that it leads.
    """

    def __init__(
        self,
        leases: Leases,
        key: Key,
        identity: Identity,
        timing: Timing = Timing(),
        clock: Callable[[], float] = boottime_s,
        wall_s: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Random = uniform,
        annotations: Callable[[], Mapping[str, str]] = _none,
    ) -> None:
        self._annotations = annotations
        self._leases, self._key, self._holder, self._timing = leases, key, str(identity), timing
        self._clock, self._wall_s, self._sleep, self._random = clock, wall_s, sleep, random
        self._observed = LeaseSpec()
        self._observed_s = float("-inf")
        self._term: Term | None = None
        self._deadline_s = float("-inf")
        self.terms = 0

    @property
    def leader(self) -> str:
        return self._observed.holder_identity

    @property
    def term(self) -> Term | None:
        """The term in which we lead at this very moment."""
        return self._term if self._clock() < self._deadline_s else None

    def check(self) -> None:
        """Raises NotLeader unless we lead at this very moment."""
        if self.term is None:
            raise NotLeader(f"{self._holder} does not lead at this moment")

    async def run(self, lead: Callable[[Term], Coroutine[Any, Any, None]]) -> None:
        """Waits for leadership, runs ``lead`` in it, and again; until ``lead`` returns or fails, or cancelled.

        ``lead`` is cancelled when leadership ends, and has ended before the Lease is released.
        """
        try:
            while not await self._lead(await self._acquire(), lead):
                pass
        finally:
            await self._release()

    async def _acquire(self) -> Term:
        while True:
            term = await self._try()
            if term is not None:
                self.terms += 1
                _log.info("%s: leading, term %d", self._key, term.transitions)
                return term
            await self._pause(self._timing.retry_s)

    async def _lead(self, term: Term, lead: Callable[[Term], Coroutine[Any, Any, None]]) -> bool:
        """Whether ``lead`` came to its end by itself."""
        work, renewal = asyncio.create_task(lead(term)), asyncio.create_task(self._renew(term))
        try:
            await asyncio.wait((work, renewal), return_when=asyncio.FIRST_COMPLETED)
            is_over = work.done()
        finally:
            renewal.cancel()
            work.cancel()
            await _ended(work, renewal)
        if not work.cancelled() and (error := work.exception()) is not None:
            raise error
        return is_over

    async def _renew(self, term: Term) -> None:
        """Returns when ``term`` is over."""
        while self.term == term:
            await self._pause(min(self._timing.retry_s, max(0.0, self._deadline_s - self._clock())))
            if self.term == term and await self._try() is None and self.leader != self._holder:
                break
        _log.warning("%s: leadership is lost, the Lease is %s's", self._key, self.leader or "nobody")
        self._deadline_s = float("-inf")

    async def _try(self) -> Term | None:
        """One attempt to take the Lease or to renew it: the term in which we lead now."""
        try:
            lease = await self._bounded(self._leases.get(LEASE, self._key))
        except APIError as error:
            if error.is_not_found:
                return await self._written(None)
            _log.warning("%s: %s", self._key, error)
            return None
        except (KubeError, TimeoutError) as error:
            _log.warning("%s cannot be read: %s", self._key, _why(error))
            return None
        self._observe(lease.spec)
        return await self._written(lease)

    async def _written(self, lease: Lease | None) -> Term | None:
        """``lease`` None: there is none yet."""
        if self._is_held_by_another():
            return None
        term = self.term or Term(self._holder, self._observed.lease_transitions + (self._observed != LeaseSpec()))
        begun_s = self._clock()
        try:
            written = await self._bounded(self._write(lease, self._spec(term, lease)))
        except (KubeError, TimeoutError) as error:
            _log.info("%s cannot be written: %s", self._key, _why(error))
            return None
        self._observe(written.spec)
        self._term, self._deadline_s = term, begun_s + self._timing.renew_s
        return self.term

    def _is_held_by_another(self) -> bool:
        """By one that may still lead. A Lease that was deleted is as good as one that is there."""
        holder, duration_s = self._observed.holder_identity, self._observed.lease_duration_seconds
        if holder in ("", self._holder):
            return False
        return self._clock() < self._observed_s + (self._timing.lease_s if duration_s is None else duration_s)

    def _observe(self, spec: LeaseSpec) -> None:
        if spec != self._observed:
            self._observed, self._observed_s = spec, self._clock()

    def _spec(self, term: Term, lease: Lease | None) -> dict[str, Any]:
        now = _time(self._wall_s())
        spec: dict[str, Any] = {
            "holderIdentity": term.holder,
            "leaseDurationSeconds": self._timing.lease_s,
            "renewTime": now,
            "leaseTransitions": term.transitions,
        }
        is_new = lease is None or self.term is None
        return spec | ({"acquireTime": now} if is_new else {})

    async def _write(self, lease: Lease | None, spec: dict[str, Any]) -> Lease:
        """Fails with a conflict if somebody else wrote since ``lease`` was read."""
        annotations = dict(self._annotations())
        metadata: dict[str, Any] = {"annotations": annotations} if annotations else {}
        if lease is None:
            metadata |= {"namespace": self._key.namespace, "name": self._key.name}
            body = {"apiVersion": LEASE.api_version, "kind": LEASE.name, "metadata": metadata, "spec": spec}
            return await self._leases.create(LEASE, body, self._key.namespace)
        metadata["resourceVersion"] = lease.metadata.resource_version
        return await self._leases.patch(LEASE, self._key, {"metadata": metadata, "spec": spec})

    async def _release(self) -> None:
        """So that the next one need not wait; nothing if the Lease is no longer ours, or the API does not answer."""
        if self.term is None:
            return
        term, self._deadline_s = self._term, float("-inf")
        try:
            lease = await self._bounded(self._leases.get(LEASE, self._key))
            if term == Term(lease.spec.holder_identity, lease.spec.lease_transitions):
                now = _time(self._wall_s())
                spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now}
                await self._bounded(self._write(lease, spec))
                _log.info("%s: released", self._key)
        except (KubeError, TimeoutError) as error:
            _log.warning("%s cannot be released: %s", self._key, _why(error))

    async def _bounded(self, call: Awaitable[Lease]) -> Lease:
        """Raises TimeoutError; for a leader at the end of its term at the latest."""
        limit_s = self._timing.call_s
        if self.term is not None:
            limit_s = min(limit_s, self._deadline_s - self._clock())
        async with asyncio.timeout(limit_s):
            return await call

    async def _pause(self, seconds: float) -> None:
        """Candidates do not look in step; a leader never looks late."""
        is_leading = self.term is not None
        await self._sleep(seconds if is_leading else seconds * (1 + _JITTER * self._random()))


async def to_its_end(call: Coroutine[Any, Any, R]) -> R:
    """Returns what the call does; cancelled, it waits for the call before, so that who leads next meets no request."""
    sent = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(sent)
    except asyncio.CancelledError:
        with contextlib.suppress(asyncio.CancelledError):
            await _ended(sent)
        sent.cancelled() or sent.exception()  # nobody asks for it any more
        raise


async def _ended(*tasks: asyncio.Task[Any]) -> None:
    """Returns once all have ended; cancelled, it waits for them before, or others would lead while they still write."""
    is_cancelled = False
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError


def _why(error: Exception) -> str:
    return str(error) or "no answer in time"


def _time(unix_s: float) -> str:
    """``MicroTime`` as the API writes it."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
