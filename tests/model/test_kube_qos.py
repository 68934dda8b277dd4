"""Kubernetes' QoS class of a pod, as its API server and its kubelet derive it."""

from __future__ import annotations

from typing import Any

import pytest

from koord.admission.documents import typed
from koord.model import podrequests
from tests.admission.objects import pod
from tests.support.kubernetes import container

TWO, FULL = {"cpu": "2"}, {"cpu": "2", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("document", "kube_qos"),
    [
        pytest.param({**pod(), "status": {"qosClass": "Burstable"}}, "Burstable", id="what-the-status-says"),
        pytest.param({**pod(), "status": {"qosClass": ""}}, "BestEffort", id="no-status"),
        pytest.param(pod(container(limits=FULL)), "Guaranteed", id="limits-are-requests"),
        pytest.param(
            pod(container(limits=FULL), initContainers=[container()]), "Burstable", id="init-containers-count"
        ),
        pytest.param(pod(container(requests=TWO)), "Burstable", id="requests"),
        pytest.param(pod(resources={"requests": TWO}), "Burstable", id="of-the-pod-as-a-whole"),
        pytest.param(
            pod(container(requests=TWO), resources={"limits": FULL}), "Guaranteed", id="which-replace-the-others"
        ),
        pytest.param(pod(container(requests=TWO), resources={"limits": {}}), "Burstable", id="unless-there-are-none"),
    ],
)
def test_kube_qos(document: dict[str, Any], kube_qos: str) -> None:
    assert podrequests.kube_qos(typed(document)) == kube_qos
