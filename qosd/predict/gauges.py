"""The newest prediction as a row of the metric table."""

from __future__ import annotations

from collections.abc import Mapping

from qosd.predict.reclaimable import Prediction
from qosd.sense.prediction import PredictionRow


def rows(prediction: Prediction) -> Mapping[str, PredictionRow]:
    reclaimable, peak = prediction.reclaimable, prediction.peak
    row = PredictionRow(
        prod_reclaimable_cpu_cores=reclaimable.cpu_milli / 1000,
        prod_reclaimable_memory_bytes=reclaimable.memory_bytes,
        prod_peak_cpu_cores=peak.cpu_milli / 1000,
        prod_peak_memory_bytes=peak.memory_bytes,
        prediction_confidence_ratio=prediction.confidence,
        unpredicted_pods=float(len(prediction.unpredicted)),
    )
    return {"": row}
