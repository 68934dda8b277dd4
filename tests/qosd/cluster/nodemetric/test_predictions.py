"""A prediction that is missing or old gives nothing away."""

from __future__ import annotations

import pytest

from tests.qosd.cluster.history import History, Use
from tests.qosd.cluster.nodemetric.reports import reported


def test_no_evidence_is_nothing_to_give_away() -> None:
    history = History()
    history.tick(Use(1, 1))
    status = reported(history).status
    assert status.prod_reclaimable_metric is not None and status.prod_peak_metric is None
    assert status.prod_reclaimable_metric.resource.resources == {"cpu": "0", "memory": "0"}


@pytest.mark.parametrize(("age_s", "cpu"), [(1, "2500m"), (179, "2500m"), (180, "0")])
def test_a_prediction_that_nobody_renews_is_no_evidence(age_s: int, cpu: str) -> None:
    history = History()
    history.predict(Use(2.5, 1), Use(1, 1))
    history.now_s += age_s - 1
    history.tick(Use(1, 1))
    status = reported(history).status
    assert status.prod_reclaimable_metric is not None
    assert status.prod_reclaimable_metric.resource.resources["cpu"] == cpu
