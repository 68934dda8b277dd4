"""The gangs of a cluster: who is a member, whether a gang may be tried, and how many must be placed together.

Invariant: **a gang holds nothing while it waits.** Its members count on no node and no plugin holds anything for them,
until as many as it needs are placed in one transaction (`gangplacement`). Two gangs can therefore not wait for what the
other one has. What a gang needs follows from its objects and from the state alone, so who leads next needs the same.

A gang of which a member is on a node has started: members are never placed but with the whole minimum, so the rest of
it was refused its bindings, or was lost since. Then what waits is placed together, up to the minimum. A gang starts
anew once none of its members is on a node: one that has ended in success counts only beside members of its own owner.
Settings of members that contradict each other, and gangs of a group that do not name the same group, keep a gang from
starting, which is said (``why_not``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from koord.model import readable
from koord.model.gang import (
    GangDefaults,
    GangKey,
    GangSettings,
    MatchPolicy,
    key_of,
    settings_of_group,
    settings_of_pod,
)
from koord.model.quantity import QuantityError
from koord.model.scheduling.koordinator import PodGroup
from koord.scheduling import amounts
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState

_SCHEDULED = "PodScheduled"
_DEFAULTS = GangDefaults()


@dataclass(eq=False)
class Gang:
    """``waiting``: members that are to be placed and are not on a node by their objects; ``placed``: those that are;
    ``succeeded``: those that have ended in success, by uid, with their owner's uid; ``failed``: those that have not.
    ``least_free``: as much must be free on all nodes together, with what is placed, before a member is placed.
    ``held``: members that the queue keeps until the gang may be tried. ``said``: by members that wait; ``said_before``:
    by those that are placed, which counts where none waits.
    """

    key: GangKey
    pod_group: PodGroup | None = None
    least_free: Mapping[str, int] = field(default_factory=dict)
    of_group: GangSettings | None = None
    waiting: dict[str, PodInfo] = field(default_factory=dict)
    placed: dict[str, PodInfo] = field(default_factory=dict)
    succeeded: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    said: Counter[GangSettings | None] = field(default_factory=Counter)
    said_before: Counter[GangSettings | None] = field(default_factory=Counter)

    @property
    def settings(self) -> GangSettings | None:
        """Returns what holds for the gang; None: nobody says it, or not with one voice."""
        if self.of_group is not None:
            return self.of_group
        said = self.said or self.said_before
        return next(iter(said)) if len(said) == 1 else None

    @property
    def member_count(self) -> int:
        return len(self.waiting) + len(self.placed) + len(self.succeeded) + len(self.failed)

    @property
    def is_unused(self) -> bool:
        return self.pod_group is None and not self.member_count


class Gangs:
    """``changed``: called with a gang whose members or settings have changed; for others to set."""

    def __init__(self, state: ClusterState, defaults: GangDefaults = _DEFAULTS) -> None:
        self._state, self._defaults = state, defaults
        self._gangs: dict[GangKey, Gang] = {}
        self._gang_of: dict[str, GangKey] = {}
        self.changed: Callable[[GangKey], None] = unheard

    def __iter__(self) -> Iterator[Gang]:
        return iter(tuple(self._gangs.values()))

    def get(self, key: GangKey) -> Gang | None:
        return self._gangs.get(key)

    def of(self, uid: str) -> GangKey | None:
        """Returns the gang of a member that was put."""
        return self._gang_of.get(uid)

    # events

    def put_pod_group(self, group: PodGroup) -> None:
        gang = self._gang(GangKey(group.metadata.namespace, group.metadata.name))
        gang.pod_group, gang.of_group = group, settings_of_group(group, self._defaults)
        try:
            gang.least_free = amounts.allocatable(group.spec.min_resources)
        except QuantityError as error:
            blocked = f"spec.minResources of its PodGroup: {error}"
            gang.least_free, gang.of_group = {}, gang.of_group._replace(blocked=blocked)
        self.changed(gang.key)

    def remove_pod_group(self, key: GangKey) -> None:
        """Members that are not placed wait for it to come back, or for a minimum that they say themselves."""
        gang = self._gangs.get(key)
        if gang is not None:
            gang.pod_group = gang.of_group = None
            gang.least_free = {}
            self._forget_unused(gang)
            self.changed(key)

    def put(self, pod: PodInfo) -> None:
        """The pod is as its object says; without effect if it is of no gang. One that cannot be tried, for its own
        gates, is not there yet; nor is one any more that is being deleted.
        """
        key = key_of(pod.pod.metadata)
        if (before := self._gang_of.get(pod.uid)) is not None and before != key:
            self.remove(pod.uid)
        if key is None:
            return
        gang = self._gang(key)
        is_held = pod.uid in gang.held
        self._take_out(gang, pod.uid)
        self._gang_of[pod.uid] = key
        phase, owner = pod.pod.status.phase, pod.pod.metadata.controller
        if phase == "Succeeded":
            gang.succeeded[pod.uid] = "" if owner is None else owner.uid
        elif phase == "Failed":
            gang.failed.add(pod.uid)
        elif pod.is_terminating or (not pod.spec.node_name and pod.spec.scheduling_gates):
            del self._gang_of[pod.uid]
            self._forget_unused(gang)
        elif pod.spec.node_name:
            gang.placed[pod.uid] = pod
            gang.said_before[settings_of_pod(pod.pod.metadata, key, self._defaults)] += 1
        else:
            gang.waiting[pod.uid] = pod
            if is_held:
                gang.held.add(pod.uid)
            gang.said[settings_of_pod(pod.pod.metadata, key, self._defaults)] += 1
        self.changed(key)

    def remove(self, uid: str) -> None:
        """The pod is gone; without effect on one of no gang."""
        key = self._gang_of.pop(uid, None)
        if key is not None:
            gang = self._gangs[key]
            self._take_out(gang, uid)
            self._forget_unused(gang)
            self.changed(key)

    # what a gang needs

    def group(self, key: GangKey) -> tuple[GangKey, ...]:
        """Returns the gangs that start together with this one, itself among them."""
        gang = self._gangs.get(key)
        settings = None if gang is None else gang.settings
        return (key,) if settings is None else settings.group

    def holds(self, pod: PodInfo) -> bool:
        """Returns whether the pod must not be tried yet, and keeps it for ``released`` if so. No room is promised to it
        meanwhile.
        """
        key = self._gang_of.get(pod.uid)
        if key is None or not self.why_not(key):
            return False
        self._state.nominations.remove(pod.uid)
        self._gangs[key].held.add(pod.uid)
        return True

    def released(self, key: GangKey) -> list[str]:
        """Returns the uids of those that were held, if the gang's group may be tried now."""
        held = [gang for each in self.group(key) if (gang := self._gangs.get(each)) is not None and gang.held]
        if not held or self.why_not(key):
            return []
        found = [uid for gang in held for uid in sorted(gang.held)]
        for gang in held:
            gang.held.clear()
        return found

    def why_not(self, key: GangKey) -> str:
        """Returns why the group of the gang is not to be tried; "" if it is."""
        group = self.group(key)
        for each in group:
            if why := self._why_not(each, group):
                return why
        return ""

    def missing(self, gang: Gang) -> int:
        """Returns how many members do not exist that the gang waits for."""
        settings = gang.settings
        if settings is None:
            return 0
        unplaced = len(gang.waiting)
        if settings.match_policy is MatchPolicy.WAITING_AND_RUNNING:
            return max(0, settings.min_member - unplaced - len(gang.placed))
        lacking = max(0, settings.min_member - unplaced)
        return 0 if lacking and self._has_started(gang, settings) else lacking

    def needs(self, key: GangKey) -> dict[GangKey, int]:
        """Returns of each gang of the group how many members must be placed together now."""
        return {each: self._needed(self._gangs[each]) for each in self.group(key) if each in self._gangs}

    def lacking(self, key: GangKey) -> dict[GangKey, str]:
        """Returns what gangs of the group that need members lack of their ``least_free``, for people."""
        found = {}
        for each, needed in self.needs(key).items():
            gang = self._gangs[each]
            for resource, least in gang.least_free.items() if needed else ():
                had = sum(pod.requests.get(resource, 0) for pod in gang.placed.values())
                if (free := self._free(resource) + had) < least:
                    asked, left = readable.amount(resource, least), readable.amount(resource, free)
                    found[each] = f"gang {each} needs {asked} {resource} in all (minResources), and {left} is free"
        return found

    def _free(self, resource: str) -> int:
        """Returns how much all nodes together have free."""
        state = self._state
        allocatable, requested = state.nodes.allocatable.of(resource), state.requested.of(resource)
        if allocatable is None:
            return 0
        free = allocatable if requested is None else allocatable - requested
        return int(np.clip(free, 0, None)[state.table.exists].sum())

    def candidates(self, key: GangKey) -> list[PodInfo]:
        """Returns the group's members that are on no node, by assumption neither."""
        return [
            pod
            for each in self.group(key)
            if (gang := self._gangs.get(each)) is not None
            for pod in gang.waiting.values()
            if not self._state.is_assumed(pod.uid)
        ]

    def waiting_group_count(self) -> int:
        """Returns of how many groups members wait."""
        return len({self.group(gang.key) for gang in self._gangs.values() if gang.waiting})

    def placed_count(self, gang: Gang) -> int:
        """Returns how many members are on a node, by assumption, too."""
        return len(gang.placed) + sum(self._state.is_assumed(uid) for uid in gang.waiting)

    def _why_not(self, key: GangKey, group: tuple[GangKey, ...]) -> str:
        gang = self._gangs.get(key)
        if gang is None:
            return f"gang {key}, which is to start with it, does not exist"
        settings = gang.settings
        if settings is None:
            if len(gang.said) > 1:
                return f"the members of gang {key} that wait do not say the same of it"
            return f"gang {key} has no PodGroup, and its members say no minimum"
        if settings.blocked:
            return f"gang {key}: {settings.blocked}"
        if settings.group != group:
            named = ", ".join(map(str, settings.group))
            return f"gang {key}, which is to start with it, says that it starts with {named}"
        if missing := self.missing(gang):
            there = settings.min_member - missing
            return f"gang {key} has {there} of {settings.min_member} members, {missing} more must exist"
        return ""

    def _needed(self, gang: Gang) -> int:
        settings = gang.settings
        if settings is None:
            return 0
        placed = self.placed_count(gang)
        if settings.match_policy is MatchPolicy.WAITING_AND_RUNNING:
            return max(0, settings.min_member - placed)
        if self._has_started(gang, settings):
            unplaced = sum(not self._state.is_assumed(uid) for uid in gang.waiting)
            succeeded = self._succeeded(gang) if settings.match_policy is MatchPolicy.ONCE_SATISFIED else 0
            return min(unplaced, max(0, settings.min_member - placed - succeeded))
        return settings.min_member

    def _has_started(self, gang: Gang, settings: GangSettings) -> bool:
        """Returns whether what waits need not be the whole minimum; asked of gangs that do not count running members
        alone. Where no running member counts, those may join them that were there when they started.
        """
        is_under_way = any(self._state.is_assumed(uid) for uid in gang.waiting)
        if settings.match_policy is MatchPolicy.ONCE_SATISFIED:
            return is_under_way or bool(gang.placed) or bool(self._succeeded(gang))
        if is_under_way or not gang.placed:
            return is_under_way
        last = max(_scheduled_at(pod) for pod in gang.placed.values())
        return all((pod.pod.metadata.creation_timestamp or "") <= last for pod in gang.waiting.values())

    def _succeeded(self, gang: Gang) -> int:
        """Returns how many have ended in success beside members of their owner that wait or are placed."""
        if not gang.succeeded:
            return 0
        owners = {each.uid for pod in (*gang.waiting.values(), *gang.placed.values())
                  if (each := pod.pod.metadata.controller) is not None}  # fmt: skip
        return sum(owner in owners for owner in gang.succeeded.values())

    def _gang(self, key: GangKey) -> Gang:
        return self._gangs.setdefault(key, Gang(key))

    def _take_out(self, gang: Gang, uid: str) -> None:
        for pods, counts in ((gang.waiting, gang.said), (gang.placed, gang.said_before)):
            pod = pods.pop(uid, None)
            if pod is not None:
                said = settings_of_pod(pod.pod.metadata, gang.key, self._defaults)
                counts[said] -= 1
                if not counts[said]:
                    del counts[said]
        gang.succeeded.pop(uid, None)
        gang.failed.discard(uid)
        gang.held.discard(uid)

    def _forget_unused(self, gang: Gang) -> None:
        if gang.is_unused:
            del self._gangs[gang.key]


def unheard(_: GangKey) -> None:
    """For who does not want to know of changes."""


def _scheduled_at(pod: PodInfo) -> str:
    condition = pod.pod.status.condition(_SCHEDULED)
    return (condition.last_transition_time or "") if condition is not None else ""
