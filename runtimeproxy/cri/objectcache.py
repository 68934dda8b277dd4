"""Caches pods and containers from the requests that pass; bounded, and never right where the runtime differs.

Entries hold the hook request of their object, encoded, as the runtime has it after our edits; they come with the
runtime's success and go with Remove* (kubelet may stop an object several times). Where there is no room the oldest go
first, and are read from the runtime again when needed (``rebuild``). Invariant: ``hold_creates`` is true as long as
some sandbox may differ from what kubelet believes, so that its containers' requests must be looked at. Environment
values stay inside the encoded request and are never logged.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from runtimeproxy.cri.requested import Record
from runtimeproxy.hooks.edits import Edits

MAX_BYTES = 8 * 1024 * 1024
ENTRY_BYTES = 400  # what an entry costs besides its request: objects, keys, id


@dataclass(frozen=True, slots=True)
class PodEntry:
    """A sandbox. ``request``: encoded PodSandboxHookRequest; ``edits``: what hooks changed, to be repeated in its
    containers.

    ``rebuilt``: read from the runtime, so whether it was moved is not known; ``complete``: False if from a list only,
    which says nothing of the cgroup parent.
    """

    uid: str
    namespace: str
    request: bytes
    edits: Edits = field(default_factory=dict)
    rebuilt: bool = False
    complete: bool = True


@dataclass(frozen=True, slots=True)
class ContainerEntry:
    """A container. ``request``: encoded ContainerResourceHookRequest without the pod's fields; resources as last
    asserted.

    ``record``: what kubelet requested otherwise when the container was made.
    """

    pod_id: str
    request: bytes
    record: Record = field(default_factory=dict)


class ObjectCache:
    """Keeps pods and containers by id, at most ``max_bytes`` of them."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._pods: OrderedDict[str, PodEntry] = OrderedDict()
        self._containers: OrderedDict[str, ContainerEntry] = OrderedDict()
        self._suspects: set[str] = set()  # sandboxes that exist and may have been edited
        self._listed = False
        self._before: frozenset[str] = frozenset()
        self._gone: set[str] | None = None  # removed since the list was asked for

    @property
    def hold_creates(self) -> bool:
        return not self._listed or bool(self._suspects)

    @property
    def sizes(self) -> tuple[int, int]:
        """The number of pods and of containers."""
        return len(self._pods), len(self._containers)

    @property
    def stored_bytes(self) -> int:
        return self._bytes

    def listing(self) -> None:
        """Notes that the runtime is asked for its list of sandboxes now; ``listed`` follows, or another ``listing``."""
        self._before = frozenset(self._pods) | self._suspects
        self._gone = set()

    def listed(self, pods: Iterable[tuple[str, PodEntry]]) -> None:
        """Takes the runtime's own list of all sandboxes; those not known so far may have been edited by a predecessor.

        A sandbox that was known when the list was asked for, and that it lacks, was removed unseen. One that was
        removed since then may still be in it.
        """
        gone, exist = self._gone or set(), dict(pods)
        for pod_id in self._before - exist.keys():
            self.remove_pod(pod_id)
        for pod_id, entry in exist.items():
            if pod_id not in self._pods and pod_id not in gone:
                self.put_pod(pod_id, entry)
        self._before, self._gone = frozenset(), None
        self._listed = True

    def distrust(self) -> None:
        """Takes the cache for incomplete, as before the first list; its entries stay."""
        self._listed = False

    def pod(self, pod_id: str) -> PodEntry | None:
        return self._pods.get(pod_id)

    def container(self, container_id: str) -> ContainerEntry | None:
        return self._containers.get(container_id)

    def pods(self) -> Iterator[tuple[str, PodEntry]]:
        return iter(self._pods.items())

    def containers(self) -> Iterator[tuple[str, ContainerEntry]]:
        return iter(self._containers.items())

    def put_pod(self, pod_id: str, entry: PodEntry) -> None:
        self._forget(self._pods.pop(pod_id, None))
        self._pods[pod_id] = entry
        if entry.edits or entry.rebuilt:
            self._suspects.add(pod_id)
        self._remember(entry)

    def put_container(self, container_id: str, entry: ContainerEntry) -> None:
        self._forget(self._containers.pop(container_id, None))
        self._containers[container_id] = entry
        self._remember(entry)

    def remove_pod(self, pod_id: str) -> None:
        """Removes a sandbox, and its containers, which the runtime removes with it."""
        self._forget(self._pods.pop(pod_id, None))
        self._suspects.discard(pod_id)
        if self._gone is not None:
            self._gone.add(pod_id)
        for container_id in [key for key, entry in self._containers.items() if entry.pod_id == pod_id]:
            self.remove_container(container_id)

    def remove_container(self, container_id: str) -> None:
        self._forget(self._containers.pop(container_id, None))

    def _remember(self, entry: PodEntry | ContainerEntry) -> None:
        self._bytes += _cost(entry)
        while self._bytes > self._max_bytes and (self._containers or self._pods):
            if self._containers:
                self._forget(self._containers.popitem(last=False)[1])
            else:
                pod_id, oldest = self._pods.popitem(last=False)
                self._suspects.add(pod_id)
                self._forget(oldest)

    def _forget(self, entry: PodEntry | ContainerEntry | None) -> None:
        if entry is not None:
            self._bytes -= _cost(entry)


def _cost(entry: PodEntry | ContainerEntry) -> int:
    edits = sum(len(str(value)) for value in entry.edits.values()) if isinstance(entry, PodEntry) else 0
    return ENTRY_BYTES + len(entry.request) + edits
