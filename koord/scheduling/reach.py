"""Which nodes reach a volume, as rows or over all nodes at once; found once for each volume and version of the nodes.

A volume of one node, or of the few that have one value of a label, costs what those few nodes cost.
"""

from __future__ import annotations

import numpy as np

from koord.scheduling import nodeselector
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools, Int64s
from koord.scheduling.volumes import Reach


def rows(state: ClusterState, reach: Reach) -> Int64s | None:
    """Returns the nodes; None where they are not told by one label, and `mask` is to be asked."""
    if reach.pin is None:
        return None
    version = _version(state)
    if reach.rows is None or reach.version != version:
        key, values = reach.pin
        found = [state.nodes.labels.rows(key, value) for value in values]
        reach.rows = found[0] if len(found) == 1 else np.concatenate(found or [np.zeros(0, np.int64)])
        reach.version = version
    return reach.rows


def mask(state: ClusterState, reach: Reach | None) -> Bools:
    """bool[N]. Not to be written to."""
    if reach is None:
        return state.table.exists
    some = rows(state, reach)
    if some is not None:
        found = np.zeros(state.length, np.bool_)
        found[some] = True
        return found
    version = _version(state)
    if reach.mask is None or reach.version != version:
        reach.mask = nodeselector.any_of(state, reach.terms)
        reach.version = version
    return reach.mask


def with_room(state: ClusterState, class_name: str, size: int) -> Bools:
    """bool[N]: the nodes that reach room for a new volume of the class. Not to be written to."""
    version = _version(state)
    known = state.volumes.rooms.get((class_name, size))
    if known is not None and known[0] == version:
        return known[1]
    found = np.zeros(state.length, np.bool_)
    for capacity in state.volumes.capacities(class_name):
        if capacity.limit_bytes < size:
            continue
        some = rows(state, capacity.reach) if capacity.reach else None
        if some is not None:
            found[some] = True
        else:
            found |= mask(state, capacity.reach)
    state.volumes.keep_room(class_name, size, version, found)
    return found


def _version(state: ClusterState) -> tuple[int, int]:
    return state.objects_version, state.length
