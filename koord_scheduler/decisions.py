"""The last decisions, for whoever asks why a pod is where it is; and what the flags of debugging have said of each.

Invariant: the last ``MOST`` decisions are there and no others, of each pod the last one: about a KiB each.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import NamedTuple

from koord.scheduling.framework import Framework, Placement, WeightedPlugin
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.queuedpod import QueuedPod

_log = logging.getLogger(__name__)
MOST = 10_000
BEST = 3
"""How many of the best nodes are kept of each decision."""


class Decision(NamedTuple):
    """``tries``: the last among them; ``waited_s``: since it could first be tried. ``scoring``: whose scores
    ``placement.best`` has.
    """

    placement: Placement
    decided_s: float
    node_count: int
    tries: int
    waited_s: float
    scoring: tuple[WeightedPlugin, ...]


class Decisions:
    """``scores``: how many of the best nodes are logged of each pod, with their scores; ``filters``: whether each
    rejection of a node is logged.
    """

    def __init__(self, scores: int = 0, filters: bool = False) -> None:
        self._scores, self._filters = scores, filters
        self._by_uid: OrderedDict[str, Decision] = OrderedDict()

    def get(self, uid: str) -> Decision | None:
        return self._by_uid.get(uid)

    def made(self, queued: QueuedPod, placement: Placement, framework: Framework, now_s: float) -> None:
        """A node was found for the pod."""
        kept = placement if len(placement.best) <= BEST else placement._replace(best=placement.best[:BEST])
        self._by_uid.pop(queued.pod.uid, None)
        self._by_uid[queued.pod.uid] = Decision(
            kept, now_s, len(framework.state.table), queued.tries, now_s - queued.tried_from_s, framework.scoring
        )
        if len(self._by_uid) > MOST:
            self._by_uid.popitem(last=False)
        if self._scores:
            _log.info("%s", _table(queued.pod, placement, framework, self._scores))

    def looked_at(self, pod: PodInfo, framework: Framework) -> None:
        """The pod is about to be decided about."""
        if not self._filters:
            return
        state = framework.state
        for plugin in framework.filters:
            for rejection in plugin.rejections(state, pod):
                for row in (rejection.rows & state.table.exists).nonzero()[0].tolist():
                    _log.info(
                        "pod %s/%s: node %s is rejected by %s: %s",
                        *(pod.namespace, pod.name, state.table.name(row), plugin.name, rejection.reason),
                    )


def _table(pod: PodInfo, placement: Placement, framework: Framework, count: int) -> str:
    """Upstream's table of the best nodes; of an only feasible node it has no scores."""
    name = f"{pod.namespace}/{pod.name}"
    if not placement.best:
        return f"the best nodes for pod {name}: {placement.node} alone will do"
    head = ["#", "Pod", "Node", "Score", *[each.plugin.name for each in framework.scoring]]
    lines = [head, ["---"] * len(head)]
    for number, each in enumerate(placement.best[:count]):
        lines.append([str(number), name, each.node, str(each.total), *map(str, each.scores)])
    return "\n".join([f"the best nodes for pod {name}:", *[f"| {' | '.join(line)} |" for line in lines]])
