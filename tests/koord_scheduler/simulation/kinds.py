"""The kinds of lives: what happens more often in one than in others, so that what a fault needs comes within seconds.

A life of all that there is (``ANYTHING``) meets everything, and little of it often: a full cluster binds few pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.scheduling.clusters import APPS, HOSTNAME, ZONE

Document = dict[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _spread(key: str) -> Document:
    selector = {"matchLabels": {"app": "web"}}
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}


def _near(key: str, kind: str = "podAffinity", app: str = "web", **term: Any) -> Document:
    return {kind: {_REQUIRED: [{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **term}]}}


_PLAIN: tuple[Document, ...] = ({},)
_NEIGHBOURS: tuple[Document, ...] = (
    {"topologySpreadConstraints": [_spread(ZONE)]},
    {"topologySpreadConstraints": [_spread(HOSTNAME)]},
    {"affinity": _near(HOSTNAME, "podAntiAffinity")},
    {"affinity": _near(ZONE, "podAntiAffinity", namespaceSelector={"matchLabels": {"team": "a"}})},
    {"affinity": _near(ZONE)},
)
_NEAR: tuple[Document, ...] = tuple({"affinity": _near(key, app=app)} for key in (ZONE, HOSTNAME) for app in APPS)
_SOME_NODES: tuple[Document, ...] = (
    {"nodeSelector": {"disk": "ssd"}},
    {"tolerations": [{"key": "t1", "operator": "Exists"}]},
)
_SPECS: tuple[Document, ...] = (
    *_PLAIN, *_PLAIN, {"preemptionPolicy": "Never"}, *_NEIGHBOURS, *_SOME_NODES, {"terminationGracePeriodSeconds": 0},
)  # fmt: skip
_HAPPENINGS = {
    "add_pods": 40, "delete_pods": 14, "let_pods_go": 14, "end_pod": 10, "delete_promised_pod": 1,
    "relabel_pod": 4, "resize_pod": 5, "ungate_pod": 3, "place_pod_elsewhere": 5, "replace_pod": 2, "mend_pod": 1,
    "add_node": 4, "remove_node": 3, "change_node": 8,
    "change_namespace": 1, "change_owner": 2, "change_budget": 2,
    "add_gang": 7, "change_pod_groups": 2,
    "change_volumes": 4, "bind_claims": 8, "change_templates": 1,
}  # fmt: skip
_FATES = {
    "ok": 60, "ok, answered late": 12, "answer lost": 5, "request lost": 5, "lost and late": 4, "never answered": 3,
    "refused": 3, "not done": 8,
}  # fmt: skip
FATES = tuple(_FATES)
"""What becomes of a request."""


@dataclass(frozen=True)
class Kind:
    """``specs``, ``cpus``, ``priorities``: what pods are made of; ``other_specs``, ``claims``: one pod template of so
    many is of the generator of clusters, or has a claim; 0: none.

    ``happenings``: how often what happens in the cluster, by the names of `World`'s methods; ``steps``: how often that
    happens, a watch tells, a request is answered, time passes, a replica starts or ends. ``troubles``: of which one is
    drawn: how likely what can go wrong does; ``lease_trouble``, ``other_trouble``: by how much likelier a request about
    the Lease does, and one that is no binding either.
    ``fates``: how often what becomes of a request that meets trouble. ``times_s``: of which one passes at a time.
    ``rest_steps``: from rest to rest, at least and at most; ``long_rests``: how many of them are long.
    """

    name: str
    specs: tuple[Document, ...] = _SPECS
    cpus: tuple[str, ...] = ("100m", "250m", "500m", "2")
    priorities: tuple[int, ...] = (0, 0, 100, 1000)
    other_specs: int = 3
    claims: int = 4
    happenings: Mapping[str, float] = field(default_factory=lambda: _HAPPENINGS)
    steps: tuple[float, float, float, float, float] = (20, 28, 36, 15, 0.6)
    troubles: tuple[float, ...] = (0.0, 0.03, 0.1, 0.2)
    lease_trouble: float = 0.2
    other_trouble: float = 1.0
    fates: Mapping[str, float] = field(default_factory=lambda: _FATES)
    times_s: tuple[float, ...] = (0.001, 0.01, 0.05, 0.2, 0.5, 1.0, 1.0, 3.0, 12.0)
    rest_steps: tuple[int, int] = (100, 700)
    long_rests: float = 0.25


_ROOMY = {**_HAPPENINGS, "add_pods": 60, "delete_pods": 24, "let_pods_go": 40, "end_pod": 40}
_FEW_PODS = {**_ROOMY, "add_pods": 30, "end_pod": 80, "add_node": 1, "remove_node": 1, "change_node": 1}
_MANY_PREEMPT = {**_HAPPENINGS, "delete_promised_pod": 20, "add_node": 1, "remove_node": 1}
_SHORT_TIMES_S = (0.001, 0.01, 0.05, 0.2, 0.5, 1.0)
ANYTHING = Kind("anything")
BINDINGS = Kind(
    "bindings, which end in every way", _PLAIN, ("100m",), other_specs=0, claims=0, happenings=_ROOMY, troubles=(0.2,),
    other_trouble=0.2, fates={**_FATES, "ok": 20, "lost and late": 30, "never answered": 12, "refused": 30},
    times_s=_SHORT_TIMES_S, rest_steps=(60, 200),
)  # fmt: skip
TERMS = Kind(
    "terms that end while bindings are out", _PLAIN, ("100m",), other_specs=0, claims=0, happenings=_ROOMY,
    steps=(20, 28, 30, 15, 3), troubles=(0.2,), lease_trouble=2.5,
    fates={**_FATES, "ok": 20, "lost and late": 12, "never answered": 20}, rest_steps=(60, 200),
)  # fmt: skip
NODES = Kind(
    "nodes that change and go, and bindings that wait", (*_PLAIN, *_SOME_NODES), ("100m", "500m"), other_specs=0,
    claims=0, happenings={**_ROOMY, "add_node": 16, "remove_node": 16, "change_node": 16}, troubles=(0.2,),
    steps=(30, 28, 30, 8, 0.2), fates={**_FATES, "not done": 150}, times_s=_SHORT_TIMES_S, rest_steps=(100, 300),
)  # fmt: skip
NEIGHBOURS = Kind(
    "pods that go by others", (*_PLAIN, *_NEIGHBOURS, *_NEAR), ("100m",), (0,), other_specs=0, claims=0,
    happenings=_FEW_PODS, troubles=(0.0, 0.03), rest_steps=(15, 60), long_rests=0.0,
)  # fmt: skip
PREEMPTION = Kind(
    "pods that make room", _PLAIN, ("500m", "2", "2"), other_specs=0, claims=0, happenings=_MANY_PREEMPT,
    troubles=(0.0, 0.03, 0.1), rest_steps=(40, 150), long_rests=0.0,
)  # fmt: skip
VOLUMES = Kind(
    "volumes", _PLAIN, ("100m",), (0,), other_specs=0, claims=1,
    happenings={**_ROOMY, "change_volumes": 20, "bind_claims": 40}, troubles=(0.0, 0.1), rest_steps=(60, 200),
)  # fmt: skip
WAITING = Kind(
    "pods that wait for long", cpus=("500m", "2"), troubles=(0.2,), fates={**_FATES, "ok": 20, "not done": 40},
    rest_steps=(60, 200), long_rests=1.0,
)  # fmt: skip
GANGS = Kind(
    "gangs", (*_PLAIN, *_PLAIN, *_NEAR), ("100m", "500m", "2"), other_specs=0, claims=0,
    happenings={**_ROOMY, "add_pods": 15, "add_gang": 40, "change_pod_groups": 6}, troubles=(0.0, 0.1, 0.2),
    rest_steps=(60, 200),
)  # fmt: skip
KINDS = (ANYTHING, BINDINGS, TERMS, NODES, NEIGHBOURS, PREEMPTION, VOLUMES, WAITING, GANGS)
