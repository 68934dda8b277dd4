"""Places the members of a gang together or not at all: one decision after the other, in one transaction on the state.

Members are tried in the order of their priority, each as if those before it were bound already, until each gang of the
group has the minimum that it needs. One that no node takes is passed over, and tried again once another one is placed,
whose company it may want. If a minimum is not reached, all is undone, and the placement is tried once more with the
members first that found no node: what is hard to place then has all nodes to choose from.

Invariant: after a failure the state and all that is held are as before, also where a plugin fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from koord.model.gang import GangKey
from koord.scheduling.framework import Diagnosis, Framework, Placement
from koord.scheduling.plugins.volumebinding import binding
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState, Transaction
from koord.scheduling.table import Int64s
from koord.scheduling.volumes import VolumeDecision

_TRIES = 3


class Member(NamedTuple):
    """A pod that waits, of a gang of the group."""

    pod: PodInfo
    gang: GangKey


class PlacedMember(NamedTuple):
    """``volumes``: with the node, what the pod's claims get there."""

    member: Member
    placement: Placement
    volumes: VolumeDecision


@dataclass
class GroupPlacement:
    """``placed``: in their order; they count on their nodes only if nothing is ``short``. ``short``: how many members
    each gang lacks that could not be placed. ``diagnoses``: by uid, of each member that no node took.
    """

    placed: list[PlacedMember] = field(default_factory=list)
    short: dict[GangKey, int] = field(default_factory=dict)
    diagnoses: dict[str, Diagnosis] = field(default_factory=dict)
    lacking: Mapping[GangKey, str] = field(default_factory=dict)
    """What gangs lack of what must be free in all; then no member was tried."""
    unplaced: list[Member] = field(default_factory=list)
    """Those that no node took, in their order."""

    @property
    def is_whole(self) -> bool:
        return not self.short


class NodeCosts(Protocol):
    """``column``: int64[N], what is added to the scores of nodes."""

    column: Int64s

    def took(self, node: str) -> None:
        """A member has got the node."""


class Holder(Protocol):
    """Keeps what plugins hold for pods that are placed."""

    def hold(self, pod: PodInfo, node: str) -> None:
        """Raises PluginError; then nothing is held for the pod."""

    def release(self, uid: str) -> None:
        """Nothing is held for the pod any more."""


class NoHolder:
    def hold(self, pod: PodInfo, node: str) -> None:
        pass

    def release(self, uid: str) -> None:
        pass


def place(
    state: ClusterState,
    framework_of: Callable[[PodInfo], Framework],
    members: Sequence[Member],
    needs: Mapping[GangKey, int],
    holder: Holder,
) -> GroupPlacement:
    """Places as many of ``members`` of each gang as it ``needs``, or none of all. Raises PluginError; then it has
    placed none.
    """
    hard: dict[bytes, None] = {}
    while True:
        in_order = sorted(members, key=lambda each: each.pod.signature not in hard) if hard else members
        with held(state, holder) as attempt:
            found = attempt.fill(framework_of, in_order, needs)
            if found.is_whole:
                attempt.commit()
                return found
            _diagnose(found, framework_of)
        signatures = dict.fromkeys(each.pod.signature for each in found.unplaced)
        if len(hard) >= _TRIES - 1 or signatures.keys() <= hard.keys() or _are_all(signatures, members):
            return found
        hard |= signatures


def _are_all(signatures: Mapping[bytes, None], members: Iterable[Member]) -> bool:
    """Returns whether nobody could be tried after them."""
    return all(each.pod.signature in signatures for each in members)


def _diagnose(found: GroupPlacement, framework_of: Callable[[PodInfo], Framework]) -> None:
    """Says why no node takes the first that was not placed of each signature, beside those that are placed."""
    by_signature: dict[bytes, Diagnosis] = {}
    for pod, _ in found.unplaced:
        diagnosis = by_signature.get(pod.signature)
        if diagnosis is None:
            diagnosis = by_signature[pod.signature] = framework_of(pod).diagnose(pod)
        found.diagnoses[pod.uid] = diagnosis


class Attempt:
    """Members that are placed in a transaction. See `held`."""

    def __init__(self, state: ClusterState, transaction: Transaction, holder: Holder) -> None:
        self._state, self._transaction, self._holder = state, transaction, holder
        self._held: list[str] = []

    def fill(
        self,
        framework_of: Callable[[PodInfo], Framework],
        members: Iterable[Member],
        needs: Mapping[GangKey, int],
        costs: NodeCosts | None = None,
    ) -> GroupPlacement:
        """Places members until no gang needs more of them, or no node takes any of those that are left.

        ``costs``: what it costs others that a node is taken.
        """
        found, missing = GroupPlacement(), {gang: count for gang, count in needs.items() if count > 0}
        waiting, added = list(members), None if costs is None else costs.column
        while missing and waiting:
            placed_before, again = len(found.placed), list[Member]()
            failed: set[bytes] = set()
            for member in waiting:
                if member.gang not in missing:
                    continue
                signature = member.pod.signature
                placement = None if signature in failed else framework_of(member.pod).place(member.pod, added=added)
                if placement is None:
                    failed.add(signature)
                    again.append(member)
                    continue
                found.placed.append(self.put(member, placement))
                if costs is not None:
                    costs.took(placement.node)
                missing[member.gang] -= 1
                if not missing[member.gang]:
                    del missing[member.gang]
            waiting = again
            if len(found.placed) == placed_before:
                break
        found.short, found.unplaced = missing, waiting
        return found

    def put(self, member: Member, placement: Placement) -> PlacedMember:
        """The member counts on its node. Raises PluginError."""
        pod, node = member.pod, placement.node
        volumes = binding(self._state, pod, node)
        self._transaction.assume(pod, node, volumes)
        self._holder.hold(pod, node)
        self._held.append(pod.uid)
        return PlacedMember(member, placement, volumes)

    def commit(self) -> None:
        self._transaction.commit()
        self._held.clear()

    def release(self) -> None:
        while self._held:
            self._holder.release(self._held.pop())


@contextmanager
def held(state: ClusterState, holder: Holder) -> Iterator[Attempt]:
    """For the block members may be placed, which are taken back at its end unless that is committed."""
    with state.transaction() as transaction:
        attempt = Attempt(state, transaction, holder)
        try:
            yield attempt
        finally:
            attempt.release()
