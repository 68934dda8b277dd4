"""The newest prediction as a row of the metric table."""

from __future__ import annotations

from collections.abc import Mapping

from qosd.predict.reclaimable import Prediction
from qosd.sense.store import Row


def rows(prediction: Prediction) -> Mapping[str, Row]:
    """In the order of ``qosd.sense.table.PREDICTION``."""
    reclaimable, peak = prediction.reclaimable, prediction.peak
    row = (
        reclaimable.cpu_milli / 1000,
        reclaimable.memory_bytes,
        peak.cpu_milli / 1000,
        peak.memory_bytes,
        prediction.confidence,
        float(len(prediction.unpredicted)),
    )
    return {"": row}
