"""SchedulingHint: nodes that a pod's annotation names, for those who have planned where it goes.

Source: Koordinator, pkg/scheduler/plugins/schedulinghint, apis/extension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from koord.model import schema
from koord.model.core import Slim
from koord.model.schema import SchemaError
from koord.scheduling.plugin import Plugin, Rejection, Scope
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState

ANNOTATION = "internal.scheduling.koordinator.sh/scheduling-hint"
OLD_ANNOTATION = "scheduling.koordinator.sh/scheduling-hint"


class Hint(Slim, frozen=True):
    """``node_names``: the only nodes for the pod, if there are any. ``extensions``: for other plugins."""

    node_names: tuple[str, ...] = ()
    preferred_node_names: tuple[str, ...] = ()
    extensions: Any = None


_NO_HINT = Hint()


@dataclass(frozen=True)
class SchedulingHint(Plugin):
    """Rejects the nodes that the annotation does not name, and has the first of the preferred ones that is feasible
    taken. Of an annotation that cannot be read the pod waits until it can.

    ``most_preferred``: how many of the preferred nodes are tried.
    """

    name: ClassVar[str] = "SchedulingHint"
    filter_scope: ClassVar[Scope] = Scope.OBJECT
    reason: ClassVar[str] = "node(s) didn't satisfy plugin(s) [SchedulingHint]"
    most_preferred: int = 100

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        hint = _hint(pod)
        if isinstance(hint, str):
            return (Rejection(hint, state.table.exists, False, is_of_pod=True),)
        if not hint.node_names:
            return ()
        rows = np.ones(state.length, np.bool_)
        for name in hint.node_names:
            row = state.table.row(name)
            if row is not None:
                rows[row] = False
        return (Rejection(self.reason, rows, False),)

    def preferred_nodes(self, state: ClusterState, pod: PodInfo) -> Sequence[str]:
        hint = _hint(pod)
        return () if isinstance(hint, str) else hint.preferred_node_names[: self.most_preferred]


def _hint(pod: PodInfo) -> Hint | str:
    """Returns the pod's hint, or why it cannot be read. The old annotation counts where the other one is empty."""
    annotations = pod.pod.metadata.annotations
    for key in (ANNOTATION, OLD_ANNOTATION):
        if text := annotations.get(key):
            return _read(key, text)
    return _NO_HINT


@lru_cache(maxsize=1024)
def _read(key: str, text: str) -> Hint | str:
    try:
        document = schema.parse_json(text)
        return _NO_HINT if document is None else schema.read(Hint, document)
    except SchemaError as error:
        return f"annotation {key} cannot be read: {error}"
