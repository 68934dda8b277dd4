"""The share of a bounded amount that each client may hold, so that there is always room for a newcomer.

A network (`network_of`) may hold twice what is free, so alone two thirds of all, and N of them leave one part of
2N + 1. An address may hold as much as its network has left, so alone half of all, and every other one has room, too.
Pure. Invariant: no more than ``most`` is ever held.
"""

from __future__ import annotations

from collections import Counter

from koord.model.clientnetwork import network_of


class FairShare:
    """``most``: of all clients."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sources, self._networks = Counter[str](), Counter[str]()
        self.held = 0

    def has_room(self, source: str, count: int = 1) -> bool:
        free = self._most - self.held
        left = 2 * free - self._networks[network_of(source)]
        return count <= free and self._sources[source] + count <= left

    def hold(self, source: str, count: int = 1) -> None:
        """The caller has asked whether there is room. Negative: ``source`` gives some back."""
        self.held += count
        for counts, name in ((self._sources, source), (self._networks, network_of(source))):
            counts[name] += count
            if not counts[name]:
                del counts[name]
