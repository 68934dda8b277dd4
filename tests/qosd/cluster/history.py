"""A node's samples, second by second, as the collectors bring them: what the system uses is worked out by the real one.

All figures are CPU in cores and memory in GiB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from msgspec import structs

from koord.model.priority import PriorityClass
from koord.model.qos import KubeQoS, QoSClass
from koord.model.slo import HostApplication, NodeSLOSpec
from qosd.model.metric import Scope
from qosd.model.policy import EffectivePolicy, NodeSettings
from qosd.model.snapshot import NodeSnapshot, PodView
from qosd.sense.node import NodeRow, NumaRow
from qosd.sense.prediction import PredictionRow
from qosd.sense.row import NO_SAMPLE, Panel, Row
from qosd.sense.store import SampleStore
from qosd.sense.system import SystemCollector
from qosd.sense.table import PANELS
from qosd.sense.targets import SampleTargets, Tiers
from qosd.sense.tick import Tick
from qosd.sense.usage import USAGE
from tests.qosd.podviews import machine, view

GIB = 2**30
S = 1_000_000_000
START_S = 1000
WALL_S = 1_790_000_000
"""When the monotonic clock shows 0."""

TIERS = {KubeQoS.GUARANTEED: "/kubepods", KubeQoS.BURSTABLE: "/kubepods/burstable"}
R = TypeVar("R", bound=Row)


class Use(NamedTuple):
    cores: float = 0.0
    gib: float = 0.0

    def plus(self, *others: Use) -> Use:
        return Use(self.cores + sum(each.cores for each in others), self.gib + sum(each.gib for each in others))


def pod(
    name: str,
    namespace: str = "shop",
    qos: QoSClass = QoSClass.LS,
    band: PriorityClass = PriorityClass.PROD,
    cores: float | None = None,
    gib: float | None = None,
    **said: Any,
) -> PodView:
    """It requests ``cores`` and ``gib``, if anybody tells."""
    return structs.replace(
        view(name, **said),
        namespace=namespace,
        qos=qos,
        priority_class=band,
        cpu_request_milli=None if cores is None else int(cores * 1000),
        memory_request_bytes=None if gib is None else int(gib * GIB),
    )


def row(cls: type[R], **figures: float) -> R:
    return cls(**{column.stem: figures.get(column.stem, NO_SAMPLE) for column in cls.columns})


NONE = Use()


class History:
    """``has_root``: kubelet's root cgroup can be read."""

    def __init__(self, *pods: PodView, apps: Sequence[HostApplication] = (), has_root: bool = True) -> None:
        self.store = SampleStore(PANELS)
        self.pods, self.apps, self.has_root = pods, tuple(apps), has_root
        self.now_s, self.beat_s = float(START_S), 1.0
        self.ages_s: dict[str, float] = {"node": 0.0, "usage": 0.0, "system": 0.0, "pods": 0.0}
        self.policy = EffectivePolicy(
            slo=NodeSLOSpec(host_applications=self.apps), node=NodeSettings(allocatable_memory_bytes=16 * GIB)
        )
        self._system = SystemCollector(None)  # type: ignore[arg-type]  # it reads a file on machines of several NUMA nodes only

    def tick(
        self,
        system: Use = NONE,
        orphans: Use = NONE,
        cache_gib: float = 0.0,
        *,
        apps: Mapping[str, Use] | None = None,
        apps_inside: Mapping[str, Use] | None = None,
        unreadable: Mapping[str, Use] | None = None,
        **pods: Use,
    ) -> None:
        """A beat later. ``orphans`` and the pods in ``unreadable`` are in kubepods and cannot be measured alone."""
        self.now_s += self.beat_s
        outside, inside = apps or {}, apps_inside or {}
        kubepods = orphans.plus(*pods.values(), *inside.values(), *(unreadable or {}).values())
        node = system.plus(kubepods, *outside.values())
        at_ns, by_name = self.at_ns, {each.name: each.cgroup for each in self.pods}
        self._put(NodeRow.panel, {"": row(NodeRow, **_figures(node, cache_gib))})
        self._put(NumaRow.panel, {"0": row(NumaRow, cpu_usage_cores=node.cores, memory_usage_bytes=node.gib * GIB)})
        self._put_usage(Scope.TIER, {"/kubepods": kubepods} if self.has_root else {}, cache_gib)
        self._put_usage(Scope.POD, {by_name[name]: use for name, use in pods.items()}, cache_gib)
        self._put_usage(Scope.HOST_APP, {**outside, **inside}, cache_gib)
        targets = SampleTargets.of(self.pods, Tiers.of(TIERS if self.has_root else {}), self.apps)
        for panel, rows in self._system.collect(Tick(at_ns, targets, self.store)):
            self.store.put(panel, at_ns, rows)

    @property
    def at_ns(self) -> int:
        return int(self.now_s * S)

    def predict(self, reclaimable: Use, peak: Use) -> None:
        figures = {
            "prod_reclaimable_cpu_cores": reclaimable.cores,
            "prod_reclaimable_memory_bytes": reclaimable.gib * GIB,
            "prod_peak_cpu_cores": peak.cores,
            "prod_peak_memory_bytes": peak.gib * GIB,
        }
        self._put(PredictionRow.panel, {"": row(PredictionRow, **figures)})

    def snapshot(self) -> NodeSnapshot:
        return NodeSnapshot(
            tick=1,
            wall_ns=WALL_S * S + self.at_ns,
            monotonic_ns=self.at_ns,
            policy=self.policy,
            topology=machine(4),
            pods=self.pods,
            values=self.store.newest(),
            ages_s=self.ages_s,
            tiers=TIERS if self.has_root else {},
            sampled_ns=self.at_ns,
        )

    def with_slo_generation(self, generation: int) -> None:
        self.policy = replace(self.policy, slo_generation=generation)

    def _put(self, panel: Panel, rows: Mapping[str, Row]) -> None:
        self.store.put(panel, self.at_ns, rows)

    def _put_usage(self, scope: Scope, uses: Mapping[str, Use], cache_gib: float) -> None:
        rows = {subject: row(USAGE[scope], **_figures(use, cache_gib)) for subject, use in uses.items()}
        self._put(USAGE[scope].panel, rows)


def _figures(use: Use, cache_gib: float) -> dict[str, float]:
    return {
        "cpu_usage_cores": use.cores,
        "memory_usage_bytes": use.gib * GIB,
        "memory_with_page_cache_bytes": (use.gib + cache_gib) * GIB,
    }
