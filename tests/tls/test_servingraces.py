"""Every interleaving of two replicas that bring certificates in step, with a clock that may jump at any moment.

A model of `servingloop.converge`, one call of the API server at a time. It is searched whole: from a start, every
state that can be reached. In each transition a client that verified a replica goes on to verify it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import pytest

from koord.model.core import ObjectMeta
from koord.tls import certificates
from koord.tls.certificates import ServingCertificate
from koord.tls.servingcerts import (
    SETTLE,
    CABundleUpdate,
    ClientConfig,
    ContextReload,
    Observation,
    Secret,
    SecretCreation,
    SecretUpdate,
    Webhook,
    WebhookConfiguration,
    plan,
)
from tests.tls.pki import DAY, KINDS, NAMES, NOW, OURS, SERVICE, YEAR, own_data, secret_data

MAX_STATES = 300_000

Data = tuple[tuple[str, bytes], ...]
Versioned = tuple[int, bytes]
Stored = tuple[int, Data]
SECRET = len(KINDS)
CONFIGURATIONS_FIRST = (0, 1, SECRET)
SECRET_FIRST = (SECRET, 0, 1)


class Write:
    """An action of a plan, equal to itself only, so that states can be compared."""

    def __init__(self, action: SecretCreation | SecretUpdate | CABundleUpdate | ContextReload) -> None:
        self.action = action


@dataclass(frozen=True)
class Replica:
    """``reads``: those of this round; ``writes``: those of it that are left, None before it is planned."""

    number: int
    serving: ServingCertificate | None
    reads: tuple[Versioned | Stored | None, ...] = ()
    writes: tuple[Write, ...] | None = None
    is_done: bool = False


@dataclass(frozen=True)
class World:
    """``accidents``: how often somebody may still delete the Secret. ``times``: the first is now."""

    secret: Stored | None
    ca_bundles: tuple[Versioned, ...]
    replicas: tuple[Replica, ...]
    times: tuple[datetime, ...]
    accidents: int = 0
    order: tuple[int, ...] = CONFIGURATIONS_FIRST
    version: int = 1

    def trusted(self) -> set[tuple[int, int]]:
        """Number of the configuration, number of the replica that is verified by it."""
        return {
            (index, replica.number)
            for index, (_, ca_bundle) in enumerate(self.ca_bundles)
            for replica in self.replicas
            if replica.serving and _trusts(ca_bundle, replica.serving.pair.certificate, self.times[0])
        }


_trusts = cache(certificates.trusts)


@cache
def _planned(
    number: int,
    ca_bundles: tuple[Versioned, ...],
    secret: Stored | None,
    serving: ServingCertificate | None,
    now: datetime,
) -> tuple[Write, ...]:
    """The plan of one replica; the keys that it draws are the same whenever it sees the same."""
    configurations = tuple(
        WebhookConfiguration(
            kind,
            ObjectMeta(name=kind, resource_version=str(version)),
            (Webhook("webhook", ClientConfig(service=OURS, ca_bundle=ca_bundle)),),
        )
        for kind, (version, ca_bundle) in zip(KINDS, ca_bundles, strict=True)
    )
    stored = None if secret is None else Secret(ObjectMeta(resource_version=str(secret[0])), data=dict(secret[1]))
    return tuple(map(Write, plan(Observation(configurations, stored), serving, SERVICE, now).actions))


def successors(world: World) -> Iterator[World]:
    for replica in world.replicas:
        if not replica.is_done:
            yield step(world, replica)
    awake = tuple(replace(each, is_done=False) for each in world.replicas)
    if len(world.times) > 1:
        yield replace(world, times=world.times[1:], replicas=awake)
    if world.accidents and world.secret:
        yield replace(world, secret=None, accidents=world.accidents - 1, replicas=awake)


def step(world: World, replica: Replica) -> World:
    """The replica's next call of the API server; with the last read it plans."""
    if replica.writes is None:
        place = world.order[len(replica.reads)]
        reads = (*replica.reads, world.secret if place == SECRET else world.ca_bundles[place])
        if len(reads) < len(world.order):
            return changed(world, replace(replica, reads=reads))
        seen: dict[int, Any] = dict(zip(world.order, reads, strict=True))
        writes = _planned(replica.number, (seen[0], seen[1]), seen[SECRET], replica.serving, world.times[0])
        return changed(world, replace(replica, reads=(), writes=writes or None, is_done=not writes))
    action, left = replica.writes[0].action, replica.writes[1:]
    after = replace(replica, writes=left or None)
    if isinstance(action, ContextReload):
        return changed(world, replace(after, serving=action.certificate))
    return changed(written(world, action), after)


def changed(world: World, replica: Replica) -> World:
    replicas = tuple(replica if each.number == replica.number else each for each in world.replicas)
    return replace(world, replicas=replicas)


def written(world: World, action: SecretCreation | SecretUpdate | CABundleUpdate) -> World:
    """As the API server does it: a write that is made of another version does nothing."""
    if isinstance(action, CABundleUpdate):
        index = KINDS.index(action.kind)
        version, _ = world.ca_bundles[index]
        if action.resource_version != str(version):
            return world
        ca_bundles = list(world.ca_bundles)
        ca_bundles[index] = (version + 1, action.ca_bundles["webhook"])
        return replace(world, ca_bundles=tuple(ca_bundles))
    if isinstance(action, SecretCreation):
        return world if world.secret else stored(world, action.data)
    if world.secret is None or action.resource_version != str(world.secret[0]):
        return world
    return stored(world, {**dict(world.secret[1]), **action.data})


def stored(world: World, data: Mapping[str, bytes | None]) -> World:
    kept = tuple(sorted((key, value) for key, value in data.items() if value is not None))
    return replace(world, secret=(world.version + 1, kept), version=world.version + 1)


def explore(start: World) -> tuple[int, list[World]]:
    """How many states there are, and those in which nothing is left to do. Fails where trust is lost."""
    seen, stack, ends = {start}, [start], []
    while stack:
        world = stack.pop()
        trusted = world.trusted()
        is_end = True
        for after in successors(world):
            is_end = False
            assert trusted <= after.trusted(), "a client that verified a server no longer does"
            if after not in seen:
                assert len(seen) < MAX_STATES, "it does not come to an end"
                seen.add(after)
                stack.append(after)
        if is_end:
            ends.append(world)
    return len(seen), ends


def start(data: dict[str, bytes] | None, ca_bundle: bytes, serving: dict[str, bytes] | None, *times: datetime) -> World:
    loaded = None
    if serving is not None:
        pair = certificates.KeyPair(serving["tls.key"], serving["tls.crt"])
        loaded = ServingCertificate(pair, serving["ca-cert.pem"])
    return World(
        None if data is None else (1, tuple(sorted(data.items()))),
        ((1, ca_bundle), (1, ca_bundle)),
        (Replica(0, loaded), Replica(1, loaded)),
        times or (NOW,),
    )


def installed(now: datetime = NOW) -> World:
    data = own_data(now)
    return start(data, data["ca-cert.pem"], data)


def fresh() -> World:
    return start(None, b"\n", None)


def empty() -> World:
    return start({}, b"\n", None)


def deleted() -> World:
    data = own_data(NOW)
    return start(None, data["ca-cert.pem"], data)


def broken() -> World:
    data = own_data(NOW)
    return start({**data, "ca-key.pem": b""}, data["ca-cert.pem"], data)


def serving_due() -> World:
    data = own_data(NOW - 250 * DAY)
    return start(data, data["ca-cert.pem"], data)


def rotation() -> World:
    """Announced, trusted, signing."""
    ca = certificates.issue_ca(NOW - 2 * YEAR)
    data = secret_data(ca, certificates.issue_serving(ca, NAMES, NOW))
    return start(data, data["ca-cert.pem"], data, NOW, NOW + SETTLE, NOW + SETTLE + timedelta(minutes=1))


def retirement() -> World:
    data = own_data(NOW)
    old = certificates.issue_ca(NOW).certificate
    since = (NOW - YEAR + timedelta(hours=1)).isoformat().encode()
    stored_data = {**data, "previous-ca-certs.pem": old, "ca-signing-since": since}
    return start(stored_data, data["ca-cert.pem"] + old, data, NOW, NOW + timedelta(hours=1))


def deletion_at_any_moment() -> World:
    return replace(installed(), accidents=1)


def one_restarts_after_deletion() -> World:
    world = deleted()
    return replace(world, replicas=(world.replicas[0], Replica(1, None)))


def check_ends(ends: list[World]) -> list[dict[str, bytes]]:
    """In each, all is in step. Returns what the Secrets hold."""
    assert ends
    secrets = []
    for end in ends:
        assert end.secret is not None
        data = dict(end.secret[1])
        assert {each.serving and each.serving.pair.certificate for each in end.replicas} == {data["tls.crt"]}
        assert len(end.trusted()) == len(KINDS) * len(end.replicas)
        assert len({ca_bundle for _, ca_bundle in end.ca_bundles}) == 1
        secrets.append(data)
    return secrets


@pytest.mark.parametrize(
    "make",
    [
        installed,
        fresh,
        empty,
        deleted,
        broken,
        serving_due,
        retirement,
        deletion_at_any_moment,
        one_restarts_after_deletion,
    ],
    ids=lambda make: make.__name__,
)
def test_no_interleaving_loses_a_client(
    make: Callable[[], World], record_property: Callable[[str, object], None]
) -> None:
    states, ends = explore(make())
    record_property("count", f"{states} states of {make.__name__}")
    check_ends(ends)


def test_no_interleaving_of_a_rotation_loses_a_client(record_property: Callable[[str, object], None]) -> None:
    world = rotation()
    assert world.secret is not None
    old = dict(world.secret[1])["ca-cert.pem"]
    states, ends = explore(world)
    record_property("count", f"{states} states of rotation")
    for data in check_ends(ends):
        assert old == data["ca-cert.pem" if "next-ca-cert.pem" in data else "previous-ca-certs.pem"]
    assert any(data["ca-cert.pem"] != old for data in check_ends(ends))


def test_the_other_order_of_reading_loses_clients() -> None:
    """Who has read the Secret before somebody else replaced it would write its old bundle over the new one."""
    with pytest.raises(AssertionError, match="no longer does"):
        explore(replace(deletion_at_any_moment(), order=SECRET_FIRST))
