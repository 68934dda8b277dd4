"""The models: one pair of decaying histograms (CPU, memory) per thing whose peak is predicted.

Keys say what a model is of: ``pod/<uid>``, ``workload/<namespace>/<name>`` (so that a rollout does not start from
nothing), ``class/<priority class>``, ``system`` and ``node``. Invariant: a model is trusted by the evidence in it,
never by the age of its pod, and never by samples of a date that the clock was set back from. ``confidence`` is the
evidence that is left, as a share of the evidence in a model that is fed without end: 1/2 after one half-life of
samples, 3/4 after two, and fading when samples stay away.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

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
MOST_MODELS = 2048
"""The most models of pods, and of workloads: many times what a node runs, and some 2 MiB each."""
_MOST_OTHERS = 64
T = TypeVar("T")


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
        """Returns the Unix time of the newest sample."""
        return self.cpu.newest_s

    def add(self, cpu_cores: float, memory_bytes: float, at_s: float) -> None:
        self.cpu.add(cpu_cores, at_s)
        self.memory.add(memory_bytes, at_s)

    def follow(self, clock_s: float) -> None:
        """Keeps up with a clock that was set back."""
        self.cpu.follow(clock_s)
        self.memory.follow(clock_s)

    def confidence(self, at_s: float) -> float:
        """Returns the confidence, 0 to 1, by CPU's half-life; see the module."""
        return confidence(self.cpu.weight_at(at_s))

    @property
    def is_empty(self) -> bool:
        return self.cpu.is_empty or self.memory.is_empty


def confidence(weight: float) -> float:
    """Returns ``weight`` as a share of the samples in a model that got one per ``INTERVAL_S`` for ever."""
    endless = 1 / (1 - math.exp2(-INTERVAL_S / CPU_HALF_LIFE_S))
    return min(1.0, weight / endless)


def confidence_after(trained_s: float) -> float:
    """Returns the confidence of a model that was fed for ``trained_s`` until now."""
    return 1 - math.exp2(-trained_s / CPU_HALF_LIFE_S)


class _Shelf:
    """Models of one kind, the one longest without a sample first; beyond ``most`` models the first ones go."""

    def __init__(self, life_s: float, most: int) -> None:
        self.life_s, self._most = life_s, most
        self.models: OrderedDict[str, Model] = OrderedDict()

    def put(self, key: str, model: Model) -> None:
        self.models[key] = model
        self.models.move_to_end(key)
        while len(self.models) > self._most:
            self.models.popitem(last=False)

    def expire(self, at_s: float, known_since_s: float) -> None:
        """Forgets models without a sample for their life, which begins at ``known_since_s`` at the earliest."""
        while self.models:
            oldest = next(iter(self.models))
            if at_s - max(self.models[oldest].updated_s, known_since_s) <= self.life_s:
                return
            del self.models[oldest]


class Bank:
    """Models by key, at most ``MOST_MODELS`` of pods and of workloads each, the newest.

    Those that get no more samples go: a workload's after two weeks, others after half an hour. One thread calls it;
    ``read`` is for others too.
    """

    def __init__(self) -> None:
        self._workloads = _Shelf(_LONG_LIVED_S, MOST_MODELS)
        self._pods = _Shelf(_SHORT_LIVED_S, MOST_MODELS)
        self._others = _Shelf(_SHORT_LIVED_S, _MOST_OTHERS)
        self._newest_s = 0.0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return sum(len(shelf.models) for shelf in self._shelves)

    def __iter__(self) -> Iterator[str]:
        """Yields the keys as they are now."""
        return iter([key for shelf in self._shelves for key in list(shelf.models)])

    def get(self, key: str) -> Model | None:
        return self._shelf(key).models.get(key)

    def read(self, key: str, of: Callable[[Model], T]) -> T | None:
        """Returns ``of`` the model, while no thread changes it; None if there is none."""
        with self._lock:
            model = self.get(key)
            return None if model is None else of(model)

    def put(self, key: str, model: Model) -> None:
        with self._lock:
            self._shelf(key).put(key, model)
            self._newest_s = max(self._newest_s, model.updated_s)

    def add(self, key: str, cpu_cores: float, memory_bytes: float, at_s: float) -> None:
        """Adds one sample; the first makes the model."""
        with self._lock:
            model = self.get(key) or Model()
            model.add(cpu_cores, memory_bytes, at_s)
            self._shelf(key).put(key, model)
            self._newest_s = max(self._newest_s, at_s)

    def expire(self, at_s: float, pods_known_since_s: float = 0.0) -> None:
        """Forgets models that have not been updated for their time; after a clock was set back, that time begins anew.

        ``pods_known_since_s``: before it the pods were unknown, and no model is forgotten for having no sample.
        """
        with self._lock:
            if at_s < self._newest_s:
                self._follow(at_s)
            self._workloads.expire(at_s, 0.0)
            self._pods.expire(at_s, pods_known_since_s)
            self._others.expire(at_s, pods_known_since_s)

    def _follow(self, at_s: float) -> None:
        models = [model for shelf in self._shelves for model in shelf.models.values()]
        for model in models:
            model.follow(at_s)
        self._newest_s = max((model.updated_s for model in models), default=0.0)

    @property
    def _shelves(self) -> tuple[_Shelf, ...]:
        return self._others, self._workloads, self._pods

    def _shelf(self, key: str) -> _Shelf:
        if key.startswith(_WORKLOAD):
            return self._workloads
        return self._pods if key.startswith(_POD) else self._others
