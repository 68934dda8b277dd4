"""The amount that prod pods requested and will not need, which mid-priority pods may be given.

Two predictors, the smaller result counts. By pod: each prod pod's request above its own predicted peak. By class: all
requests above the peaks of the prod class and the system together. (Every pod has a class here: where none is given,
its QoS class says which.) Peaks are p95 (CPU) and p98 (memory) with a margin on top. A terminating pod offers nothing,
and needs what it uses. A pod whose model, or whose workload's, has too little evidence offers nothing: its
request counts as needed. ``confidence`` is that of the weakest model the result rests on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from koord.model.priority import PriorityClass
from qosd.model.snapshot import PodView
from qosd.predict.bank import SYSTEM, Bank, Model, class_key, confidence_after, pod_key, workload_key
from qosd.predict.workload import workload_name
from qosd.sense.prediction import PredictionRow

CPU_QUANTILE, MEMORY_QUANTILE = 0.95, 0.98
_RUNNING = "SANDBOX_READY"


@dataclass(frozen=True, slots=True)
class Amount:
    cpu_milli: float = 0.0
    memory_bytes: float = 0.0

    def plus(self, other: Amount) -> Amount:
        return Amount(self.cpu_milli + other.cpu_milli, self.memory_bytes + other.memory_bytes)

    def above(self, other: Amount) -> Amount:
        """Returns the part of this that is more than ``other``, never negative."""
        return Amount(max(self.cpu_milli - other.cpu_milli, 0.0), max(self.memory_bytes - other.memory_bytes, 0.0))

    def least(self, other: Amount) -> Amount:
        return Amount(min(self.cpu_milli, other.cpu_milli), min(self.memory_bytes, other.memory_bytes))

    def most(self, other: Amount) -> Amount:
        return Amount(max(self.cpu_milli, other.cpu_milli), max(self.memory_bytes, other.memory_bytes))


@dataclass(frozen=True, slots=True)
class PredictionSettings:
    """``cold_start_s``: for how long a model must have learnt before it is trusted."""

    margin_percent: float = 10.0
    cold_start_s: float = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class ProdPrediction:
    """``peak`` includes the system's and the margin. ``unpredicted``: prod pods that count with their requests."""

    reclaimable: Amount
    peak: Amount
    confidence: float
    unpredicted: tuple[str, ...]

    def rows(self) -> Mapping[str, PredictionRow]:
        """Returns the prediction as the row of its metrics: that of the node, which has the name ""."""
        row = PredictionRow(
            prod_reclaimable_cpu_cores=self.reclaimable.cpu_milli / 1000,
            prod_reclaimable_memory_bytes=self.reclaimable.memory_bytes,
            prod_peak_cpu_cores=self.peak.cpu_milli / 1000,
            prod_peak_memory_bytes=self.peak.memory_bytes,
            prediction_confidence_ratio=self.confidence,
            unpredicted_pods=float(len(self.unpredicted)),
        )
        return {"": row}


def predict(
    bank: Bank, pods: Iterable[PodView], allocatable: Amount, now_s: float, settings: PredictionSettings
) -> ProdPrediction:
    """Returns prod's reclaimable amount and peak, at Unix time ``now_s``, on a node with ``allocatable``."""
    prod = [pod for pod in pods if pod.priority_class is PriorityClass.PROD and pod.state == _RUNNING]
    by_pod = _by_pod(bank, prod, now_s, settings)
    needed = by_pod.predicted.plus(by_pod.unpredicted)
    classes = [bank.get(key) for key in (SYSTEM, class_key(PriorityClass.PROD))]
    trusted = [model for model in classes if model is not None and _is_trusted(model, now_s, settings)]
    if len(trusted) < len(classes):
        weakest = min((model.confidence(now_s) if model else 0.0 for model in classes), default=0.0)
        return ProdPrediction(Amount(), needed, weakest, by_pod.names)
    peak = Amount()
    for model in trusted:
        peak = peak.plus(_peak(model, settings))
    requests = Amount()
    for pod in prod:
        if pod.facts.deletion_unix_s is None:
            requests = requests.plus(_request(pod))
    first = by_pod.offered.least(allocatable.above(by_pod.predicted))
    second = requests.above(peak).least(allocatable.above(peak))
    confidence = min([*(model.confidence(now_s) for model in trusted), *by_pod.confidences])
    return ProdPrediction(first.least(second), peak.most(needed), confidence, by_pod.names)


@dataclass(frozen=True, slots=True)
class _ByPod:
    offered: Amount
    predicted: Amount
    unpredicted: Amount
    names: tuple[str, ...]
    confidences: tuple[float, ...]


def _by_pod(bank: Bank, prod: Iterable[PodView], now_s: float, settings: PredictionSettings) -> _ByPod:
    offered, predicted, unpredicted = Amount(), Amount(), Amount()
    names: list[str] = []
    confidences: list[float] = []
    for pod in prod:
        model = _model_of(bank, pod, now_s, settings)
        if model is None:
            unpredicted = unpredicted.plus(_request(pod))
            names.append(pod.key)
            continue
        peak = _peak(model, settings)
        if pod.facts.deletion_unix_s is None:
            offered = offered.plus(_request(pod).above(peak))
        predicted = predicted.plus(peak)
        confidences.append(model.confidence(now_s))
    return _ByPod(offered, predicted, unpredicted, tuple(names), tuple(confidences))


def _model_of(bank: Bank, pod: PodView, now_s: float, settings: PredictionSettings) -> Model | None:
    """Returns the pod's own model if it has learnt enough, else its workload's, else None."""
    keys = (pod_key(pod.uid), workload_key(pod.namespace, workload_name(pod.name)))
    models = (bank.get(key) for key in keys)
    return next((model for model in models if model is not None and _is_trusted(model, now_s, settings)), None)


def _is_trusted(model: Model, now_s: float, settings: PredictionSettings) -> bool:
    return not model.is_empty and model.confidence(now_s) >= confidence_after(settings.cold_start_s)


def _peak(model: Model, settings: PredictionSettings) -> Amount:
    margin = 1 + settings.margin_percent / 100
    return Amount(model.cpu.percentile(CPU_QUANTILE) * 1000 * margin, model.memory.percentile(MEMORY_QUANTILE) * margin)


def _request(pod: PodView) -> Amount:
    """Returns the pod's requests; a pod without known requests offers nothing and adds nothing."""
    return Amount(float(pod.cpu_request_milli or 0), float(pod.memory_request_bytes or 0))
