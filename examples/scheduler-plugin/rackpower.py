"""RackPower: the pods of a rack request no more CPUs than the rack's circuit feeds; emptier racks come first."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from koord.scheduling.domains import Domains, summed
from koord.scheduling.plugin import Plugin, PodPatch, Rejection
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools, Int64s


class RackPowerArgs(msgspec.Struct, frozen=True, rename="camel"):
    """What the configuration says, ``cpusPerRack`` and ``rackLabel``."""

    cpus_per_rack: int
    rack_label: str = "example.com/rack"


class RackPower(Plugin):
    name = "RackPower"
    Args = RackPowerArgs

    def __init__(self, args: RackPowerArgs) -> None:
        if args.cpus_per_rack < 1:
            raise ValueError("cpusPerRack must be 1 or more")
        self._label, self._most_milli = args.rack_label, args.cpus_per_rack * 1000

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        racks = self._requested_milli(state)
        is_full = racks.at_nodes + pod.requests.get("cpu", 0) > self._most_milli
        return [Rejection("node(s) in racks without enough power", racks.has_domain & is_full)]

    def score(self, state: ClusterState, pod: PodInfo, feasible: Bools) -> Int64s:
        left_milli = self._most_milli - self._requested_milli(state).at_nodes
        return np.clip(left_milli * 100 // self._most_milli, 0, 100)

    def pre_bind_patch(self, state: ClusterState, pod: PodInfo, node: str) -> PodPatch | None:
        row = state.table.row(node)
        rack = None if row is None else state.nodes.labels.of(row).get(self._label)
        return PodPatch(labels={self._label: rack}) if rack else None

    def _requested_milli(self, state: ClusterState) -> Domains:
        """The CPU that pods request, by rack. Pods count from the decision for their node on."""
        requested = state.requested.of("cpu")
        return summed(state, self._label, np.zeros(state.length, np.int64) if requested is None else requested)
