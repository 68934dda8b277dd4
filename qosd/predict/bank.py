"""The models: one pair of decaying histograms (CPU, memory) per thing whose peak is predicted.

Keys say what a model is of: ``pod/<uid>``, ``workload/<namespace>/<name>`` (so that a rollout does not start from
nothing), ``class/<priority class>``, ``system`` and ``node``. Invariant: a model is trusted by the evidence in it,
never by the age of its pod, and never by samples of a date that the clock was set back from. ``confidence`` is the
evidence that is left, as a part of what a model that was fed without end would hold: 1/2 after one half-life of
samples, 3/4 after two, and fading when samples stay away.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from koord.model.histogram import (
    CPU_CORES,
    CPU_HALF_LIFE_S,
    MEMORY_BYTES,
    MEMORY_HALF_LIFE_S,
    DecayingHistogram,
)
from koord.model.priority import PriorityClass

INTERVAL_S = 60.0
"""Models get one sample a minute."""
NODE, SYSTEM = "node", "system"
_POD, _CLASS, _WORKLOAD = "pod/", "class/", "workload/"
_SHORT_LIVED_S = 30 * 60.0
_LONG_LIVED_S = 14 * 24 * 3600.0  # a workload may rest for two weeks and is still known


def pod_key(uid: str) -> str:
    return _POD + uid


def class_key(priority_class: PriorityClass) -> str:
    return _CLASS + priority_class


def workload_key(namespace: str, name: str) -> str:
    return f"{_WORKLOAD}{namespace}/{name}"


@dataclass(slots=True)
class Model:
    """Peak CPU (cores) and memory (bytes, without page cache) of one key."""

    cpu: DecayingHistogram = field(default_factory=lambda: DecayingHistogram(CPU_CORES, CPU_HALF_LIFE_S))
    memory: DecayingHistogram = field(default_factory=lambda: DecayingHistogram(MEMORY_BYTES, MEMORY_HALF_LIFE_S))

    @property
    def updated_s(self) -> float:
        """The Unix time of the newest sample."""
        return self.cpu.newest_s

    def add(self, cpu_cores: float, memory_bytes: float, at_s: float) -> None:
        self.cpu.add(cpu_cores, at_s)
        self.memory.add(memory_bytes, at_s)

    def follow(self, clock_s: float) -> None:
        """Keep up with a clock that was set back."""
        self.cpu.follow(clock_s)
        self.memory.follow(clock_s)

    def confidence(self, at_s: float) -> float:
        """0 to 1, by CPU's half-life; see the module."""
        return confidence(self.cpu.weight_at(at_s))

    @property
    def is_empty(self) -> bool:
        return self.cpu.is_empty or self.memory.is_empty


def confidence(weight: float) -> float:
    """What ``weight`` samples are of the evidence of a model that got one per ``INTERVAL_S`` since ever."""
    endless = 1 / (1 - math.exp2(-INTERVAL_S / CPU_HALF_LIFE_S))
    return min(1.0, weight / endless)


def confidence_after(trained_s: float) -> float:
    """The confidence of a model that was fed for ``trained_s`` until now."""
    return 1 - math.exp2(-trained_s / CPU_HALF_LIFE_S)


class Bank:
    """Models by key. Those that get no more samples go: a workload's after two weeks, others after half an hour."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}

    def __len__(self) -> int:
        return len(self._models)

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def get(self, key: str) -> Model | None:
        return self._models.get(key)

    def put(self, key: str, model: Model) -> None:
        self._models[key] = model

    def add(self, key: str, cpu_cores: float, memory_bytes: float, at_s: float) -> None:
        """One sample; the model is made when it is the first."""
        model = self._models.get(key)
        if model is None:
            model = self._models[key] = Model()
        model.add(cpu_cores, memory_bytes, at_s)

    def expire(self, at_s: float) -> None:
        """Forget what has not been updated for its time; after a clock was set back, that time begins anew."""
        for key, model in list(self._models.items()):
            model.follow(at_s)
            life_s = _LONG_LIVED_S if key.startswith(_WORKLOAD) else _SHORT_LIVED_S
            if at_s - model.updated_s > life_s:
                del self._models[key]
