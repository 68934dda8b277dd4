"""What plugins do for a pod between the decision for a node and the binding: they hold, permit and patch.

Plugins that hold something for a pod (``reserve``) are told when it does not become bound (``unreserve``), the last one
first, each exactly once, also when leadership ends. A plugin that wants a pod to wait is asked again whenever something
has happened, until it lets the pod go, rejects it, or its time is over; meanwhile the pod keeps its node.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from koord.scheduling.plugin import PluginError, PodPatch, Reject, Wait
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from koord_scheduler.profiles import Profile

_log = logging.getLogger(__name__)
_PAUSE_S = 0.1
"""Between two questions about a pod: a thousand pods that wait cost a plugin 10,000 of them a second at most."""


class HeldPods:
    """The pods that plugins hold something for. ``monotonic_s``: the clock."""

    def __init__(self, state: ClusterState, monotonic_s: Callable[[], float]) -> None:
        self._state, self._monotonic_s = state, monotonic_s
        self._held: dict[str, tuple[PodInfo, str, Profile]] = {}
        self._happened = asyncio.Event()

    def reserve(self, pod: PodInfo, node: str, profile: Profile) -> None:
        """Has the plugins reserve. Raises PluginError; then nothing is held."""
        if not profile.reserve:
            return
        self._held[pod.uid] = pod, node, profile
        try:
            for plugin in profile.reserve:
                plugin.reserve(self._state, pod, node)
        except PluginError:
            self.unreserve(pod.uid)
            raise

    def unreserve(self, uid: str) -> None:
        """The pod does not become bound. Without effect on one that nothing is held for."""
        found = self._held.pop(uid, None)
        if found is None:
            return
        pod, node, profile = found
        for plugin in reversed(profile.reserve):
            try:
                plugin.unreserve(self._state, pod, node)
            except PluginError as error:
                _log.warning("pod %s/%s: %s", pod.namespace, pod.name, error)

    def bound(self, uid: str) -> None:
        """The pod is bound: what is held for it is the pod's own from now on."""
        self._held.pop(uid, None)

    def take_back(self) -> None:
        """Nothing is held for any pod."""
        for uid in tuple(self._held):
            self.unreserve(uid)

    def happened(self) -> None:
        """Pods that wait may go now: plugins are asked again."""
        self._happened.set()
        self._happened = asyncio.Event()

    async def permitted(self, pod: PodInfo, node: str, profile: Profile) -> str:
        """Returns "" once all plugins let the pod go, or why it is rejected. Raises PluginError."""
        until_s: dict[str, float] = {}
        while True:
            happened, ends_s = self._happened, list[float]()
            for plugin in profile.permit:
                said = plugin.permit(self._state, pod, node)
                if isinstance(said, Reject):
                    return f"rejected by {plugin.name}: {said.reason}"
                if isinstance(said, Wait):
                    now_s = self._monotonic_s()
                    ends_s.append(until_s.setdefault(plugin.name, now_s + said.timeout_s))
                    if ends_s[-1] <= now_s:
                        return f"rejected by {plugin.name}: it has waited {said.timeout_s:g} s in vain"
            if not ends_s or not self._state.is_assumed(pod.uid):
                return ""
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(ends_s) - self._monotonic_s()):
                    await asyncio.sleep(_PAUSE_S)
                    await happened.wait()

    def patch(self, pod: PodInfo, node: str, profile: Profile) -> PodPatch | None:
        """Returns all that plugins want written on the pod; None: nothing. Raises PluginError."""
        annotations: dict[str, str | None] = {}
        labels: dict[str, str | None] = {}
        writers: dict[tuple[str, str], str] = {}
        for plugin in profile.pre_bind:
            wanted = plugin.pre_bind_patch(self._state, pod, node) or PodPatch()
            for what, found, added in (
                ("annotations", annotations, wanted.annotations),
                ("labels", labels, wanted.labels),
            ):
                for key, value in added.items():
                    writer = writers.setdefault((what, key), plugin.name)
                    if found.setdefault(key, value) != value:
                        why = f"{key}: {value!r} in {what}, where {writer} has {found[key]!r}"
                        raise PluginError(plugin.name, "pre_bind_patch", why)
        return PodPatch(annotations, labels) if writers else None
