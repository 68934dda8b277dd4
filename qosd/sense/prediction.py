"""The row of the newest prediction, which ``qosd.predict`` fills; the metric table has it beside the measured rows."""

from __future__ import annotations

from qosd.model.metric import Koordlet, Scope
from qosd.sense.row import Column, Row

PREDICTION_S = 60.0


def _koordlet(name: str, resource: str, unit: str) -> Koordlet:
    return Koordlet(name, {"predictor": "minPredictor", "resource": resource, "unit": unit})


_RECLAIMABLE, _PEAK = "node_predicted_resource_reclaimable", "node_predicted_resource_peak"


class PredictionRow(Row, source="prediction", scope=Scope.NODE, period_s=PREDICTION_S):
    prod_reclaimable_cpu_cores: Column = Column(
        "cores",
        "Requested by prod pods and, by prediction, not needed by them.",
        koordlet=_koordlet(_RECLAIMABLE, "cpu", "core"),
    )
    prod_reclaimable_memory_bytes: Column = Column(
        "bytes", "The same of memory.", koordlet=_koordlet(_RECLAIMABLE, "memory", "byte")
    )
    prod_peak_cpu_cores: Column = Column(
        "cores", "Predicted peak of prod pods and system, with margin.", koordlet=_koordlet(_PEAK, "cpu", "core")
    )
    prod_peak_memory_bytes: Column = Column("bytes", "The same of memory.", koordlet=_koordlet(_PEAK, "memory", "byte"))
    prediction_confidence_ratio: Column = Column(
        "ratio", "Evidence in the weakest model the prediction rests on, 0 to 1."
    )
    unpredicted_pods: Column = Column("pods", "Prod pods that count with their requests, for want of evidence.")
