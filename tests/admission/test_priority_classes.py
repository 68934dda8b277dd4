"""The priority class that a pod is treated by."""

from __future__ import annotations

from typing import Any

import pytest

from koord.admission import priorityclasses
from koord.admission.documents import typed
from koord.model.quantity import QuantityError
from tests.admission.objects import BATCH_CPU, CLASS, QOS, pod
from tests.support.kubernetes import container

TWO, FULL = {"cpu": "2"}, {"cpu": "2", "memory": "1Gi"}


def test_amounts_that_decide_and_cannot_be_read() -> None:
    document = pod(container(requests={"cpu": "x"}))
    with pytest.raises(QuantityError):
        priorityclasses.effective(typed(document))
    document["metadata"]["labels"] = {QOS: "BE"}
    assert priorityclasses.effective(typed(document)) == "koord-batch", "they do not matter here"


@pytest.mark.parametrize(
    ("document", "raw", "effective"),
    [
        pytest.param(pod(labels={QOS: "LS"}, priority=9000), "koord-prod", "koord-prod", id="the number's band"),
        pytest.param(pod(), None, "koord-batch", id="no number: best effort"),
        pytest.param(
            pod(container(requests=TWO), labels={CLASS: "foo"}, priority=5500), None, "koord-prod", id="unknown label"
        ),
        pytest.param(pod(labels={CLASS: "foo"}, priority=5500), None, "koord-batch", id="unknown label, best effort"),
        pytest.param(pod(container(requests=TWO), priority=6000), None, "koord-prod", id="a number between bands"),
        pytest.param(pod(container(requests=TWO), priority=2000000000), None, "koord-prod", id="a system number"),
        pytest.param(pod(labels={QOS: "BE"}, priority=3500), "koord-free", "koord-free", id="free"),
        pytest.param(pod(container(requests=FULL, limits=FULL)), None, "koord-prod", id="guaranteed"),
        pytest.param(pod(container(requests={BATCH_CPU: "1k"})), None, "koord-batch", id="batch-resources-alone"),
        pytest.param(pod(labels={QOS: "SYSTEM"}), None, "koord-prod", id="SYSTEM"),
    ],
)
def test_classes(document: dict[str, Any], raw: str | None, effective: str) -> None:
    assert priorityclasses.raw(typed(document)) == raw
    assert priorityclasses.effective(typed(document)) == effective
