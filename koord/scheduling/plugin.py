"""What a plugin of the scheduler is: a filter and a score over all nodes at once, and the same of one node in words.

A plugin overrides what it takes part in. It keeps nothing of the cluster: all that it knows is in ``state``, which it
must not change. Arrays have one element for each row of the state's table; what a row of no node holds does not count.

A plugin overrides ``filter``, or ``rejections`` where it has reasons to tell; each follows from the other.
``explain`` agrees with both and with ``score``, element by element. Where a plugin's answer for a node goes by that
node and the pods on it alone (``Scope.PODS``), a decision for a pod like the one before asks ``explain`` for the one
node that has got a pod since, instead of all nodes anew.

Beyond the decision a plugin may hold something of its own for a pod (``reserve``), have it wait for others
(``permit``), and have annotations and labels written on it before it is bound (``pre_bind_patch``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import ClassVar, NamedTuple

import numpy as np

from koord.scheduling.owners import ControllerKey, ServicePods
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools, Int64s

MOST_SCORE = 100
EXTENDER = "Extender"
"""Stands among the names of plugins for the programs outside of this one that have a say in where a pod goes."""
GANG = "Coscheduling"
"""Stands among the names of plugins for the rest of a pod's gang, which has to be placed with it."""
LabelPair = tuple[str, str]
"""A label's key and value."""


class Scope(Enum):
    """What an answer for one node goes by, beside the pod itself."""

    OBJECT = auto()
    """The objects of nodes."""
    PODS = auto()
    """The node's own object and the pods on it."""
    CLUSTER = auto()
    """Pods on other nodes, too; other objects, such as volumes; or which nodes are feasible."""


class EventKind(Enum):
    """What happened in the cluster that may help a pod that waits."""

    NODE = auto()
    """A node came, or its object changed; of no row: one went, with all that was in its domains."""
    POD_LEFT = auto()
    """A pod left its node, or holds less of it; of no pod: none is nominated to the node any more that was."""
    POD_CAME = auto()
    """A pod came to a node, or has other labels there."""
    USAGE = auto()
    """A node uses less than it did, or its measurement does not keep pods off it any more."""
    VOLUME = auto()
    """What volumes are made of has changed: only pods with claims go by that."""
    QUOTA = auto()
    """Other pods of quotas request something, or a quota has changed."""
    OWNER = auto()
    """What a Service or a controller selects has changed, by which pods are spread that do not say how."""
    OTHER = auto()
    """Another object that plugins go by: a namespace."""


class Event(NamedTuple):
    """``row``: of the node, -1 where it is about none. ``pod``: which came or left. ``owner``: whose pods it is about:
    a Service's, before it changed or now, or a controller's.
    """

    kind: EventKind
    row: int = -1
    pod: PodInfo | None = None
    owner: ServicePods | ControllerKey | None = None


class Rejection(NamedTuple):
    """``rows``: bool[N], the nodes that are rejected for ``reason``, which is upstream's text.

    ``is_resolvable``: bool[N] or one for all: whether the node could be feasible without some of its pods.
    ``is_of_pod``: the reason is the pod's own, whatever the nodes, all of which are rejected.
    """

    reason: str
    rows: Bools
    is_resolvable: Bools | bool = True
    is_of_pod: bool = False


class Reason(NamedTuple):
    """Why one node is rejected. ``text``: as of `Rejection`; ``detail``: figures, for people."""

    text: str
    is_resolvable: bool = True
    detail: str = ""


class Explanation(NamedTuple):
    """What a plugin says of one node. ``score`` None: it does not score this pod, or rejects the node."""

    reasons: tuple[Reason, ...] = ()
    score: int | None = None


class Wait(NamedTuple):
    """The pod keeps its node and is not bound yet, ``timeout_s`` at most from when it was first told so."""

    timeout_s: float


class Reject(NamedTuple):
    """The pod is not to have its node after all, for ``reason``; it is tried again after its backoff."""

    reason: str


class PodPatch(NamedTuple):
    """Annotations and labels for a pod, by their keys; None removes one."""

    annotations: Mapping[str, str | None] = {}
    labels: Mapping[str, str | None] = {}


class PluginError(Exception):
    """``plugin`` did not do its part at ``point``, a method of `Plugin`: the pod that it was about is tried again."""

    def __init__(self, plugin: str, point: str, why: str) -> None:
        self.plugin, self.point = plugin, point
        super().__init__(f"plugin {plugin}: {point}: {why}")


class Plugin:
    """``name``: as in a KubeSchedulerConfiguration."""

    name: ClassVar[str]
    filter_scope: ClassVar[Scope] = Scope.CLUSTER
    score_scope: ClassVar[Scope] = Scope.CLUSTER
    goes_by_quotas: ClassVar[bool] = False
    """Whether an event of ``EventKind.QUOTA`` may let its filter pass nodes."""

    def overrides(self, *methods: str) -> bool:
        """Returns whether the plugin has one of these of its own, and so takes part in it."""
        return any(getattr(type(self), method) is not getattr(Plugin, method) for method in methods)

    def goes_by_pods(self, state: ClusterState, pod: PodInfo) -> bool:
        """Returns whether its filter may let a node pass that it rejects now, once pods have left some node."""
        return self.filter_scope is not Scope.OBJECT

    def goes_by_owners(self, pod: PodInfo) -> bool:
        """Returns whether its filter goes by the Services and the controller that the pod belongs to
        (``state.owners``). Asked of plugins of ``Scope.CLUSTER``.
        """
        return False

    def helped_by(self, state: ClusterState, pod: PodInfo) -> Sequence[LabelPair] | None:
        """Returns labels of which a pod must have one, so that its coming or leaving may let the filter pass any node
        that it rejected before, its own among them; None: any pod may.

        Asked of plugins of ``Scope.CLUSTER`` that go by pods. ``is_helped_by`` is asked only of events that agree.
        """
        return None

    def is_helped_by(self, state: ClusterState, pod: PodInfo, event: Event) -> bool:
        """Returns whether ``event`` may let the filter pass any node that it rejected before. Whether the node that the
        event is about will do now is asked of all filters, and need not be said here.

        Asked of plugins of ``Scope.CLUSTER`` that rejected the pod; False must be certain.
        """
        return True

    def room(self, state: ClusterState, pod: PodInfo) -> int | None:
        """Returns how many pods like this one the filter lets pass one after the other, wherever they go; None: that is
        for the nodes. Asked of plugins that ``goes_by_quotas``.
        """
        return None

    def filter(self, state: ClusterState, pod: PodInfo) -> Bools | None:
        """bool[N]: whether each node will do; None: all will."""
        rejections = self.rejections(state, pod)
        if not rejections:
            return None
        found = np.ones(state.length, np.bool_)
        for rejection in rejections:
            found &= ~rejection.rows
        return found

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        """The nodes that will not do, by reason. A node may have several reasons."""
        passed = self.filter(state, pod) if self.overrides("filter") else None
        return () if passed is None else (Rejection(f"node(s) were rejected by {self.name}", ~passed),)

    def preferred_nodes(self, state: ClusterState, pod: PodInfo) -> Sequence[str]:
        """Names of nodes to try first, in their order: the first that is feasible gets the pod, whatever the scores."""
        return ()

    def score(self, state: ClusterState, pod: PodInfo, feasible: Bools) -> Int64s | int | None:
        """int64[N], 0 to 100: how well each feasible node would do. An int: that, on each; None: no say.

        ``feasible``: bool[N], the nodes that all filters let pass.
        """
        return None

    def explain(self, state: ClusterState, pod: PodInfo, row: int, feasible: Bools) -> Explanation:
        """What ``rejections`` and ``score`` say of one node."""
        reasons = tuple(
            [
                Reason(text, resolvable if isinstance(resolvable, bool) else bool(resolvable[row]))
                for text, rows, resolvable, _ in self.rejections(state, pod)
                if rows[row]
            ]
        )
        if reasons:
            return Explanation(reasons)
        scores = self.score(state, pod, feasible)
        return Explanation((), scores if scores is None or isinstance(scores, int) else int(scores[row]))

    # once the pod has a node, on which it counts from here on

    def reserve(self, state: ClusterState, pod: PodInfo, node: str) -> None:
        """The pod has got ``node``: notes what the plugin holds for it there. Decisions that follow see that."""

    def unreserve(self, state: ClusterState, pod: PodInfo, node: str) -> None:
        """The pod has not become bound: takes back what ``reserve`` has noted, all, some or nothing of it."""

    def permit(self, state: ClusterState, pod: PodInfo, node: str) -> Wait | Reject | None:
        """Returns whether the pod may be bound; None: it may.

        Of a pod that has to wait this is asked again whenever something has happened: another pod has got a node,
        or lost it, or there was an event.
        """
        return None

    def pre_bind_patch(self, state: ClusterState, pod: PodInfo, node: str) -> PodPatch | None:
        """Returns what is to be written on the pod before it is bound; None: nothing."""
        return None


def scaled_to_largest(scores: Int64s, feasible: Bools, is_reversed: bool = False) -> Int64s | int:
    """Upstream's DefaultNormalizeScore: the largest of the feasible nodes' scores becomes 100, or 0 if reversed."""
    largest = int(scores[feasible].max(initial=0))
    if largest == 0:
        return MOST_SCORE if is_reversed else 0
    scaled = np.floor(scores * MOST_SCORE / largest).astype(np.int64)
    return MOST_SCORE - scaled if is_reversed else scaled
