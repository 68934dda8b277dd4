"""Which connection makes room for a newcomer where a server has as many as it may.

A server that refuses newcomers is shut by the clients that come first and stay; one that cuts the oldest connection is
shut by the clients that come most often. Here the network (`network_of`) with most connections gives one, of its
address with most: the one that has waited longest without being of use, and if all were of use, the one whose use is
longest ago. So a network can only take its own places, and even there a silent client takes none from those that speak.

A client with many networks has as many places. So some are reserved: for the networks that have been of use for
``STANDING_S``, the earliest first, as long as they are of use at least every ``FORGOTTEN_S``. And where known clients
can be told from strangers, strangers give first.

Pure. Invariants: there are never more than ``most``; of networks that have nothing reserved none gives a connection
while another one has more; a newcomer always finds a place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

from koord.model.clientnetwork import network_of

STANDING_S = 120.0
FORGOTTEN_S = 900.0
_NETWORKS = 16
"""That have places reserved, together half of all."""
_MOST_REMEMBERED = 1024
_PART_OF_STRANGERS = 8
"""One part of so many is theirs, among them the clients that have not shown yet who they are."""
K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Source(Generic[K]):
    """Its connections by the number of their coming, or of their last use; longest ago first."""

    unused: dict[K, int] = field(default_factory=dict)
    used: dict[K, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.unused) + len(self.used)

    def next(self) -> tuple[K, int]:
        """The connection that it gives first, and its number."""
        return next(iter((self.unused or self.used).items()))


@dataclass(slots=True)
class _Network(Generic[K]):
    sources: dict[str, _Source[K]] = field(default_factory=dict)
    count: int = 0

    def next(self) -> tuple[K, int]:
        return max(self.sources.values(), key=_rank).next()


@dataclass(slots=True)
class _Pool(Generic[K]):
    networks: dict[str, _Network[K]] = field(default_factory=dict)
    count: int = 0

    def add(self, key: K, source: str, number: int) -> None:
        network = self.networks.setdefault(network_of(source), _Network())
        network.sources.setdefault(source, _Source()).unused[key] = number
        network.count += 1
        self.count += 1

    def use(self, key: K, source: str, number: int) -> None:
        of_source = self.networks[network_of(source)].sources[source]
        of_source.unused.pop(key, None)
        of_source.used.pop(key, None)
        of_source.used[key] = number

    def remove(self, key: K, source: str) -> None:
        name = network_of(source)
        network = self.networks[name]
        of_source = network.sources[source]
        of_source.unused.pop(key, None)
        of_source.used.pop(key, None)
        network.count -= 1
        self.count -= 1
        if not len(of_source):
            del network.sources[source]
        if not network.count:
            del self.networks[name]


class ConnectionLimit(Generic[K]):
    """``most``: connections at a time. ``clock``: seconds."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most, self._clock = most, clock
        self._number = 0
        self._owners: dict[K, tuple[str, _Pool[K]]] = {}
        self._strangers, self._known = _Pool[K](), _Pool[K]()
        self._useful: dict[str, list[float]] = {}
        """By network since when, and when last; the earliest first."""

    def __len__(self) -> int:
        return len(self._owners)

    @property
    def addresses(self) -> int:
        """The number of addresses that connections come from."""
        pools = self._strangers, self._known
        return sum(len(network.sources) for pool in pools for network in pool.networks.values())

    def add(self, key: K, source: str, is_known: bool = False) -> K | None:
        """Takes ``key`` in. Returns the connection that has to be closed for it, which does not count any more."""
        pool = self._known if is_known else self._strangers
        self._owners[key] = source, pool
        pool.add(key, source, self._next())
        if len(self._owners) <= self._most:
            return None
        given = self._given()
        self.discard(given)
        return given

    def use(self, key: K) -> None:
        """Notes that ``key`` was of use just now."""
        if key not in self._owners:
            return
        source, pool = self._owners[key]
        pool.use(key, source, self._next())
        now_s = self._clock()
        useful = self._useful.get(network_of(source))
        if useful is not None:
            useful[1] = now_s
        elif len(self._useful) < _MOST_REMEMBERED or self._forget(now_s):
            self._useful[network_of(source)] = [now_s, now_s]

    def discard(self, key: K) -> None:
        """Forgets ``key``, which is closed."""
        if key in self._owners:
            source, pool = self._owners.pop(key)
            pool.remove(key, source)

    def _given(self) -> K:
        are_many = self._strangers.count > self._most // _PART_OF_STRANGERS
        pool = self._strangers if are_many or not self._known.count else self._known
        reserved = dict.fromkeys(islice(self._standing(), _NETWORKS), self._most // (2 * _NETWORKS))

        def rank(item: tuple[str, _Network[K]]) -> tuple[int, int]:
            name, network = item
            return network.count - reserved.get(name, 0), -network.next()[1]

        _, network = max(pool.networks.items(), key=rank)
        return network.next()[0]

    def _standing(self) -> Iterator[str]:
        now_s = self._clock()
        for network, (since_s, last_s) in self._useful.items():
            if last_s - since_s >= STANDING_S and now_s - last_s < FORGOTTEN_S:
                yield network

    def _forget(self, now_s: float) -> bool:
        """Returns whether there is room for another network's standing after it."""
        for network in [name for name, (_, last_s) in self._useful.items() if now_s - last_s >= FORGOTTEN_S]:
            del self._useful[network]
        return len(self._useful) < _MOST_REMEMBERED

    def _next(self) -> int:
        self._number += 1
        return self._number


def _rank(source: _Source[K]) -> tuple[int, int]:
    """The source of the highest rank gives one: who has most, and of these whose has waited longest."""
    return len(source), -source.next()[1]
