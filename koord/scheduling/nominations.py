"""Pods that wait for the room that others make for them: what is promised to them is not given to lesser ones.

A pod for which victims leave a node is nominated there until it is placed. A pod of the same or a lower priority fits
on that node only if it does so beside the nominated ones, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from koord.scheduling.podinfo import PodInfo


class Nominations:
    """``placed``: by their uids, the pods that are on a node, whose nominations do not count. ``ended``: called with
    the node that one is not nominated to any more; for others to set.
    """

    def __init__(self, placed: Mapping[str, object]) -> None:
        self._placed = placed
        self.ended: Callable[[str], None] = lambda node: None
        self._node: dict[str, str] = {}
        self._by_node: dict[str, dict[str, PodInfo]] = {}

    def put(self, pod: PodInfo, node: str) -> None:
        """The pod is nominated to ``node``, and to no other any more."""
        if self._node.get(pod.uid) != node:
            self.remove(pod.uid)
        self._node[pod.uid] = node
        self._by_node.setdefault(node, {})[pod.uid] = pod

    def remove(self, uid: str) -> None:
        node = self._node.pop(uid, None)
        if node is not None:
            del self._by_node[node][uid]
            if not self._by_node[node]:
                del self._by_node[node]
            self.ended(node)

    def node_of(self, uid: str) -> str | None:
        return self._node.get(uid)

    def on(self, node: str) -> Iterable[str]:
        """Returns the uids of the pods that are nominated to ``node``."""
        return self._by_node.get(node, {})

    def below(self, priority: int, node: str) -> Sequence[PodInfo]:
        """Returns the pods of a lower priority that are nominated to ``node``."""
        return [pod for pod in self._by_node.get(node, {}).values() if pod.priority < priority]

    def before(self, pod: PodInfo) -> Iterator[tuple[str, Sequence[PodInfo]]]:
        """Yields each node with the pods that are nominated to it and that ``pod`` has to leave room for."""
        for node in tuple(self._by_node):
            if ahead := self.ahead_on(node, pod):
                yield node, ahead

    def ahead_on(self, node: str, pod: PodInfo) -> Sequence[PodInfo]:
        """Returns those of one node."""
        return [
            each
            for uid, each in self._by_node.get(node, {}).items()
            if each.priority >= pod.priority and uid != pod.uid and uid not in self._placed
        ]
