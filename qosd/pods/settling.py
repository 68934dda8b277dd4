"""Where the runtime's tale and the cgroup tree differ, the runtime is about to say something: ask again soon.

A container's directory is made before the runtime lists the container as running (containerd lists a sandbox only
once RunPodSandbox is done), and removed before it lists it as ended. Invariant: a difference hastens for ``PATIENCE_S``
at most, so one that stays (a scope that is no container, a runtime without host cgroups) costs nothing for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from qosd.model.snapshot import ContainerView, PodView
from qosd.pods.cri import CONTAINER_CREATED, CONTAINER_RUNNING, SANDBOX_READY

PATIENCE_S = 10.0
_RUNNING = (SANDBOX_READY, CONTAINER_RUNNING)


class Settling:
    """Remembers since when each difference exists."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], float] = {}

    def unsettled(
        self, pods: Iterable[PodView], directories: Set[str], tiers: Set[str], unlisted: Set[str], now_s: float
    ) -> bool:
        """Returns whether there is a difference young enough to ask again for.

        ``directories``: container cgroups in the tree; ``unlisted``: UIDs of pods that kubelet does not list yet.
        """
        found = _differences(pods, directories, tiers) | {(uid, "unlisted") for uid in unlisted}
        self._since = {key: self._since.get(key, now_s) for key in found}
        return any(now_s - since < PATIENCE_S for since in self._since.values())


def _differences(pods: Iterable[PodView], directories: Set[str], tiers: Set[str]) -> set[tuple[str, str]]:
    told, found = set(), set()
    for pod in pods:
        for view in pod.containers:
            told.add(view.cgroup)
            if view.cgroup and _differs(view, view.cgroup in directories, tiers):
                found.add((view.cgroup, view.state))
    found.update((cgroup, "") for cgroup in directories - told)
    return found


def _differs(view: ContainerView, exists: bool, tiers: Set[str]) -> bool:
    if view.state == CONTAINER_CREATED:
        return exists
    return not exists and view.state in _RUNNING and view.cgroup.rsplit("/", 2)[0] in tiers
