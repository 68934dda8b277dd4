"""Pods of the model: what one is, what kubelet has told of it, what it uses; and the samples of all of them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from msgspec import structs

from koord.model import priority
from koord.model.qos import QoSClass
from qosd.model.pod import Resources
from qosd.model.snapshot import Aggregate, ContainerView, Owner, PodFacts, PodView
from tests.fakes.clock import S
from tests.qosd.contexts import extended
from tests.qosd.eviction.settings import GATES, JUST_ABOVE, one_in
from tests.qosd.podviews import view

MIB = 1 << 20
_RUNNING, _EXITED = "CONTAINER_RUNNING", "CONTAINER_EXITED"


@dataclass(eq=False)
class Pod:
    """What it is, what kubelet has told of it, and what it uses; CPU in thousandths, memory in bytes."""

    name: str
    qos: str
    priority: int
    kind: str
    """``batch``, ``mid`` or "": of which band it requests."""
    request: int
    """In thousandths of a CPU, and in MiB of memory."""
    labels: Mapping[str, str]
    annotations: Mapping[str, object]
    owner: str
    source: str
    runtime_class: str
    restarts: bool
    cpu_milli: int
    anonymous: float
    cache: float
    """Of files, dirty or not."""
    growth: float
    """Of anonymous memory, bytes per second."""
    dirty: float = 0.0
    """Of the cache: nobody can take it back before it is written."""
    slab: float = 0.0
    """Dentries and inodes."""
    worked_s: float = 0.0
    is_listed: bool = False
    phase: str = "Running"
    deletion_s: float | None = None
    is_running: bool = True
    is_ready: bool = True
    attempt: int = 0
    is_frozen: bool = False
    quota_milli: int | None = None
    high: int | None = None
    seen: PodView | None = None
    base: PodView = field(init=False)

    def __post_init__(self) -> None:
        amounts = {"request": str(self.request), "memory_request": f"{self.request}Mi"}
        asked: dict[str, Any] = {"EXTENDED": extended(kind=self.kind, **amounts)} if self.kind else {}
        tier = "BestEffort" if self.qos in ("BE", "") else "Burstable"
        said: dict[str, Any] = {**self.annotations, "kubernetes.io/config.source": self.source}
        made = view(self.name, self.qos, tier, labels=self.labels, **asked, **said)
        derived = made.context.raw_qos or (QoSClass.BE if tier == "BestEffort" else QoSClass.LS)
        self.base = structs.replace(
            made, qos=derived, cpu_request_milli=self.request, memory_request_bytes=self.request * MIB
        )

    @property
    def uid(self) -> str:
        return self.name

    @property
    def cgroup(self) -> str:
        return self.base.cgroup

    def uses_milli(self) -> int:
        if self.is_frozen or not self.is_running:
            return 0
        return self.cpu_milli if self.quota_milli is None else min(self.cpu_milli, self.quota_milli)

    def clean(self) -> float:
        return max(0.0, self.cache - self.dirty)

    def reclaim(self, most: float) -> None:
        """The kernel takes back ``most`` bytes, as far as there are any: dentries and inodes, then clean cache."""
        of_slab = min(self.slab, most)
        self.slab -= of_slab
        self.cache -= min(self.clean(), most - of_slab)

    def pass_time(self, seconds: float) -> None:
        self.dirty = min(self.dirty, self.cache) * 0.7**seconds
        self.worked_s += self.uses_milli() / 1000 * seconds
        if self.is_frozen or not self.is_running:
            return
        slowed = 1.0 if not self.cpu_milli else min(1.0, self.uses_milli() / self.cpu_milli)
        self.anonymous = max(1.0, self.anonymous + self.growth * slowed * seconds)
        if self.high is not None and self.growth > 0:
            self.anonymous = min(self.anonymous, max(float(self.high), 1.0))

    def view(self) -> PodView:
        """The same one while nothing of it changed."""
        if self.seen is None:
            sandbox, main = self.base.containers
            state = _RUNNING if self.is_running else _EXITED
            made = ContainerView(f"{self.name}-{self.attempt}", main.name, main.cgroup, state, Resources(), {})
            told = self.priority if self.is_listed else None
            owner = Owner("Job", self.owner) if self.owner and self.is_listed else None
            self.seen = structs.replace(
                self.base,
                state="SANDBOX_READY" if self.is_ready else "SANDBOX_NOTREADY",
                containers=(sandbox, made),
                priority=told,
                phase=self.phase if self.is_listed else "",
                priority_class=priority.effective(self.base.context.request.labels, told, self.base.qos),
                facts=PodFacts(owner, 1.0, self.deletion_s, runtime_class=self.runtime_class if self.is_listed else ""),
            )
        return self.seen

    def changed(self) -> None:
        self.seen = None


@dataclass
class Series:
    """What was sampled of one metric, by object: of the last 70 seconds."""

    by_object: dict[str, deque[tuple[int, float]]] = field(default_factory=dict)

    def add(self, at_ns: int, values: Mapping[str, float]) -> None:
        for subject, value in values.items():
            series = self.by_object.setdefault(subject, deque())
            series.append((at_ns, value))
            while series[0][0] < at_ns - 70 * S:
                series.popleft()
        for subject in self.by_object.keys() - values.keys():
            if not values or self.by_object[subject][-1][0] < at_ns - 70 * S:
                del self.by_object[subject]

    def over(self, over_s: float, now_ns: int, subjects: Iterable[str]) -> Mapping[str, Aggregate]:
        found = {}
        for subject in subjects:
            samples = [(at, value) for at, value in self.by_object.get(subject, ()) if at > now_ns - over_s * S]
            if samples:
                found[subject] = _aggregate(samples)
        return found


def _aggregate(samples: list[tuple[int, float]]) -> Aggregate:
    count, first_ns = len(samples), samples[0][0]
    mean = math.fsum(value for _, value in samples) / count
    times = [(at - first_ns) / S for at, _ in samples]
    middle = sum(times) / count
    spread = sum((time - middle) ** 2 for time in times)
    rise = sum((time - middle) * (value - mean) for time, (_, value) in zip(times, samples, strict=True))
    return Aggregate(count, mean, mean, rise / spread if spread else 0.0, (samples[-1][0] - first_ns) / S)


def made_pod(chance: Random, name: str, memory: int) -> Pod:
    """Any that a node may have; ``memory``: the node's."""
    qos = chance.choices(("BE", "LS", "LSR", "LSE", "SYSTEM", ""), (10, 3, 1, 1, 1, 2))[0]
    kind = chance.choices(("batch", "mid", ""), (6, 3, 1))[0] if qos in ("BE", "LS", "") else ""
    number = {"batch": chance.randrange(5000, 6000), "mid": chance.randrange(7000, 8000)}.get(kind, 9000)
    labels, annotations = _said(chance)
    roomy = memory / 40
    return Pod(
        name=name, qos=qos, kind=kind, labels=labels, annotations=annotations,
        priority=chance.choice((number, number, number, number // 1000 * 1000 + 500, 0, 3500, *JUST_ABOVE)),
        request=chance.choice((0, 500, 1000, 1000, 4000)),
        owner=chance.choice(("", "a", "a", "b", "c")),
        source=chance.choices(("api", "file", "http"), (12, 1, 1))[0],
        runtime_class=chance.choices(("", "runc", "kata", "kata-qemu", "sized"), (12, 2, 1, 1, 1))[0],
        restarts=chance.random() < 0.6,
        cpu_milli=chance.choice((0, 50, 100, 300, 1000, 1000, 4000)),
        anonymous=chance.choice((roomy, roomy, chance.uniform(0, 4 * roomy))),
        cache=chance.choice((0.0, 0.0, chance.uniform(0, 2 * roomy), chance.uniform(0, 12 * roomy))),
        slab=chance.choice((0.0, 0.0, chance.uniform(0, roomy), chance.uniform(0, 12 * roomy))),
        growth=chance.choice((0.0, 0.0, 0.0, chance.uniform(-roomy, 2 * roomy) / 8, chance.uniform(0, roomy))),
    )  # fmt: skip


def _said(chance: Random) -> tuple[Mapping[str, str], Mapping[str, object]]:
    labels, annotations = {}, dict[str, object]()
    if chance.random() < 0.7:
        labels["koordinator.sh/eviction-enabled"] = chance.choices(("true", "false"), (9, 1))[0]
    if one_in(chance, 6):
        labels["koordinator.sh/priority"] = str(chance.choice((-5, 1, 5500, 9999)))
    if one_in(chance, 10):
        labels["koordinator.sh/priority-class"] = chance.choice(("koord-batch", "koord-mid", "koord-prod", "odd"))
    if one_in(chance, 6):
        annotations["koordinator.sh/eviction-priority"] = str(chance.choice((-10, 10, 100)))
    if one_in(chance, 8):
        policies: tuple[object, ...] = (
            [],
            ["MemoryEvict"],
            list(GATES),
            ["BECPUEvict", "BEMemoryEvict"],
            "no JSON",
        )
        annotations["koordinator.sh/eviction-policy"] = chance.choice(policies)
    return labels, annotations
