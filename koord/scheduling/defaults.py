"""The plugins that Kubernetes' scheduler has by default, in its order, with its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from koord.scheduling.framework import WeightedPlugin
from koord.scheduling.plugins.hostports import NodePorts
from koord.scheduling.plugins.nodes import ImageLocality, NodeAffinity, NodeName, NodeUnschedulable, TaintToleration
from koord.scheduling.plugins.podaffinity import InterPodAffinity
from koord.scheduling.plugins.resources import NodeResourcesBalancedAllocation, NodeResourcesFit
from koord.scheduling.plugins.spread import PodTopologySpread
from koord.scheduling.plugins.volumebinding import VolumeBinding
from koord.scheduling.plugins.volumes import NodeVolumeLimits, VolumeRestrictions, VolumeZone

MINOR = 34
"""Of the Kubernetes whose scores count where nothing says which: 1.34."""


def default_plugins(minor: int = MINOR) -> tuple[WeightedPlugin, ...]:
    """``minor``: the release of Kubernetes, 1.``minor``, whose scores count."""
    return (
        WeightedPlugin(NodeUnschedulable()),
        WeightedPlugin(NodeName()),
        WeightedPlugin(TaintToleration(), 3),
        WeightedPlugin(NodeAffinity(), 2),
        WeightedPlugin(NodePorts()),
        WeightedPlugin(NodeResourcesFit()),
        WeightedPlugin(VolumeRestrictions()),
        WeightedPlugin(NodeVolumeLimits()),
        WeightedPlugin(VolumeBinding()),
        WeightedPlugin(VolumeZone()),
        WeightedPlugin(PodTopologySpread(), 2),
        WeightedPlugin(InterPodAffinity(), 2),
        WeightedPlugin(NodeResourcesBalancedAllocation(minor=minor)),
        WeightedPlugin(ImageLocality()),
    )


def at_minor(plugins: Sequence[WeightedPlugin], minor: int) -> tuple[WeightedPlugin, ...]:
    """Returns the plugins as the release 1.``minor`` has them."""
    return tuple(
        [
            each._replace(plugin=replace(each.plugin, minor=minor))
            if isinstance(each.plugin, NodeResourcesBalancedAllocation)
            else each
            for each in plugins
        ]
    )
