"""One policy of several documents: each layer goes over the one below it.

    NodeSLO      over the rules file's ``spec``, field by field: an object merges with the object below, a list and a
                 map take the place of the one below; a field that it does not set is the file's
    Node         over the rules file's ``node`` (``nodeobject``)

Below the file's ``spec`` are the built-in defaults, and a QoS class that the result switches off is neutral: that is
``slo_defaults.in_force``, as for a file alone. Fields that have to fit each other are judged with those below them, so
half of a pair may come from each layer; a field that does not fit counts as not set, in the NodeSLO if that helps, else
in the file.

Invariants: layers that are good alone and together make the same as one document of both. A wrong value counts as not
set in its layer, so the one below shows, and nothing else changes. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from koord.model import slo_defaults, slo_rules
from koord.model.problem import Bad, Problem
from koord.model.slo import NodeSLOSpec
from qosd.model.policy import NodeSettings
from qosd.policy import nodeobject
from qosd.policy.nodeobject import NodeFacts

NOT_SET = "it counts as not set"
_SETTINGS = "spec.systemStrategy."


@dataclass(frozen=True, slots=True)
class NodePolicy:
    """A checked document: a field that is not set in ``spec`` has its default. ``source``: its name, for messages.

    ``slo_generation``: of the NodeSLO that is part of it; 0 = there is none. ``bad_settings``: as in
    ``EffectivePolicy``.
    """

    spec: NodeSLOSpec = field(default_factory=NodeSLOSpec)
    node: NodeSettings = field(default_factory=NodeSettings)
    source: str = ""
    slo_generation: int = 0
    bad_settings: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ClusterOverrides:
    """The settings of the cluster's objects; None: there are none. The sources are the objects' names, for messages."""

    slo: NodeSLOSpec | None = None
    slo_generation: int = 0
    slo_source: str = ""
    node: NodeFacts | None = None
    node_source: str = ""
    bad_settings: frozenset[str] = frozenset()


def bad_settings(problems: Iterable[Problem]) -> frozenset[str]:
    """Returns the settings of ``systemStrategy`` that ``problems`` are about."""
    return frozenset(each.path.removeprefix(_SETTINGS) for each in problems if each.path.startswith(_SETTINGS))


def overlay(file: NodePolicy, cluster: ClusterOverrides, warn: Callable[[str], None]) -> NodePolicy:
    """Returns the cluster's settings over the file's, and tells ``warn`` which do not count; ``file`` itself if there
    are none.
    """
    node = file.node
    if cluster.node is not None:
        node = nodeobject.over(node, cluster.node, lambda problem: warn(f"{cluster.node_source}: {problem}; {NOT_SET}"))
    if cluster.slo is None:
        return file if node is file.node else replace(file, node=node)
    spec = _laid_over(file, cluster.slo, cluster.slo_source, warn)
    source = f"{cluster.slo_source} over {file.source}"
    return NodePolicy(spec, node, source, cluster.slo_generation, file.bad_settings | cluster.bad_settings)


def _laid_over(file: NodePolicy, over: NodeSLOSpec, source: str, warn: Callable[[str], None]) -> NodeSLOSpec:
    """Returns ``over`` laid over the file's spec. It is checked twice: the second check finds contradictions in the
    file."""

    def teller(place: str) -> Bad:
        return lambda problem: warn(f"{place}: {problem}; {NOT_SET}")

    over = slo_rules.checked(over, bad=teller(source), below=file.spec)
    spec = slo_defaults.overlaid(file.spec, over)
    return slo_rules.checked(spec, bad=teller(f"{file.source} under {source}"))
