"""Cgroup trees of files, and pods in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from koord.host.cgroup import Tree
from koord.host.reader import KeptFiles
from koord.model.priority import PriorityClass
from koord.model.qos import KubeQoS, QoSClass
from qosd.model.pod import HookStage, PodContext, Resources, RuntimeRequest
from qosd.model.snapshot import ContainerView, PodView
from qosd.sense.host import CollectorHost
from qosd.sense.row import Panel, Row
from qosd.sense.store import SampleStore
from qosd.sense.table import PANELS
from qosd.sense.targets import SampleTargets, Tiers
from qosd.sense.tick import Batch, Collector, Tick
from tests.fakes.cgroups import Cgroups
from tests.fakes.clock import Clock
from tests.support.opened import opened

TIERS = Tiers("/kubepods", "/kubepods/burstable", "/kubepods/besteffort")


class World:
    """A tree of version 1 or 2 below ``root``, with proc and sys beside it."""

    def __init__(self, root: Path, version: int, unified: bool = True) -> None:
        self.root, self.version = root, version
        cgroup = root / "cgroup"
        v1 = {name: cgroup / name for name in ("cpu", "cpuacct", "memory", "cpuset", "perf_event")}
        self.tree = Tree(
            version,
            cgroup,
            v1 if version == 1 else {},
            cgroup / "unified" if version == 1 and unified else None,
            proc=root / "proc",
            sys=root / "sys",
            resctrl=root / "resctrl",
        )
        self.clock, self.store = Clock(), SampleStore(PANELS)
        self.files = opened(KeptFiles(10_000, lambda text: None))
        self.host = CollectorHost(self.tree, self.files, self.clock, tuple, 100, 4096)
        self.targets = SampleTargets()

    def write(self, cgroup: str, **texts: str) -> None:
        """Files of a cgroup, by name with ``_`` for the first dot (``cpu_stat``, ``memory_numa_stat``)."""
        for key, text in texts.items():
            self.put(self.path(cgroup, key.replace("_", ".", 1)), text)

    def path(self, cgroup: str, name: str) -> Path:
        return Cgroups(self.tree.root, self.version).path(cgroup, name)

    def put(self, path: Path | str, text: str) -> Path:
        """A file below the root of the world, or at an absolute path."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def usage(self, cgroup: str, cpu_us: int, memory: Mapping[str, int], charged: int = 0, throttled: str = "") -> None:
        """What a cgroup has used, in the files of this version. ``throttled``: "periods throttled us"."""
        periods, times, us = (throttled or "0 0 0").split()
        if self.version == 1:
            stat = "cache 1\nrss 1\n" + "".join(f"total_{key} {value}\n" for key, value in memory.items())
            self.put(self.path(cgroup, "cpuacct.usage"), f"{cpu_us * 1000}\n")
            text = f"nr_periods {periods}\nnr_throttled {times}\nthrottled_time {int(us) * 1000}\n"
            self.put(self.path(cgroup, "cpu.stat"), text)
            self.put(self.path(cgroup, "memory.usage_in_bytes"), f"{charged}\n")
        else:
            stat = "anon 1\nfile 1\n" + "".join(f"{key} {value}\n" for key, value in memory.items()) + "pgfault 3\n"
            text = f"nr_periods {periods}\nnr_throttled {times}\nthrottled_usec {us}\n"
            self.put(self.path(cgroup, "cpu.stat"), f"usage_usec {cpu_us}\nuser_usec 1\nsystem_usec 1\n{text}")
            self.put(self.path(cgroup, "memory.current"), f"{charged}\n")
        self.put(self.path(cgroup, "memory.stat"), stat)

    def tick(self) -> Tick:
        return Tick(self.clock(), self.targets, self.store)

    def store_batch(self, batch: Batch) -> None:
        for panel, rows in batch:
            self.store.put(panel, self.clock(), rows)


MEMORY = {
    "inactive_anon": 1000,
    "active_anon": 200,
    "inactive_file": 50,
    "active_file": 7,
    "unevictable": 3,
    "workingset_refault_anon": 0,
    "workingset_refault_file": 0,
    "pgmajfault": 0,
    "file_dirty": 0,
    "file_writeback": 0,
    "dirty": 0,
    "writeback": 0,
    "swapcached": 0,
    "slab_reclaimable": 0,
}
"""Of both cgroup versions."""


def pod(
    name: str = "p",
    qos: QoSClass = QoSClass.LS,
    tier: str = "/kubepods/burstable",
    containers: tuple[str, ...] = ("main",),
    state: str = "SANDBOX_READY",
    annotations: Mapping[str, str] | None = None,
) -> PodView:
    cgroup = f"{tier}/pod{name}"
    labels = {"koordinator.sh/qosClass": qos.value}
    request = RuntimeRequest(
        HookStage.CREATE, "default", name, f"uid-{name}", labels, annotations or {}, tier, Resources()
    )
    views = [ContainerView("sandbox", "", f"{cgroup}/sandbox", "CONTAINER_RUNNING", Resources(), {}, is_sandbox=True)]
    views += [
        ContainerView(f"{name}-{one}", one, f"{cgroup}/{one}", "CONTAINER_RUNNING", Resources(), {})
        for one in containers
    ]
    return PodView(
        uid=f"uid-{name}",
        namespace="default",
        name=name,
        sandbox_id="sandbox",
        state=state,
        cgroup=cgroup,
        context=PodContext.read(request),
        kube_qos=KubeQoS.BURSTABLE,
        qos=qos,
        qos_source="label",
        priority_class=PriorityClass.PROD,
        sub_priority=0,
        containers=tuple(views),
    )


def run(world: World, collector: Collector) -> Mapping[Panel, Mapping[str, Row]]:
    batch = list(collector.collect(world.tick()))
    world.store_batch(batch)
    return dict(batch)


def named(panel: Panel, row: Sequence[float]) -> dict[str, float]:
    """A row by metric name, without what has no sample."""
    return {metric.name: value for metric, value in zip(panel.metrics, row, strict=True) if not math.isnan(value)}
