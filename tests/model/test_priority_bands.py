"""Priority bands, resource translation and the admission matrix, as tables."""

from __future__ import annotations

import pytest

from koord.model import priority, qos
from koord.model.priority import BANDS, LABEL_PRIORITY_CLASS, CombinationVerdict, PriorityClass
from koord.model.qos import LABEL_QOS, KubeQoS, QoSClass


@pytest.mark.parametrize(
    ("value", "band"),
    [
        (None, None), (0, None), (-1, None), (2999, None), (3000, "koord-free"), (3999, "koord-free"), (4000, None),
        (4999, None), (5000, "koord-batch"), (5999, "koord-batch"), (6000, None), (7000, "koord-mid"),
        (7999, "koord-mid"), (8000, None), (8999, None), (9000, "koord-prod"), (9999, "koord-prod"), (10000, None),
        (2000000000, None), (2000001000, None),
    ],
)  # fmt: skip
def test_bands(value: int | None, band: str | None) -> None:
    assert priority.band_of(value) == band
    assert priority.raw({}, value) == band


@pytest.mark.parametrize("text", ["", "foo", "koord-Prod", "prod", "9000"])
def test_an_unknown_label_hides_the_number(text: str) -> None:
    assert priority.raw({LABEL_PRIORITY_CLASS: text}, 5500) is None


@pytest.mark.parametrize(
    ("labels", "value", "kube", "raw", "effective"),
    [
        pytest.param({LABEL_QOS: "LS"}, 9000, KubeQoS.BURSTABLE, "koord-prod", "koord-prod", id="LS of prod"),
        pytest.param({}, None, KubeQoS.BEST_EFFORT, None, "koord-batch", id="best effort without a number"),
        pytest.param({LABEL_PRIORITY_CLASS: "foo"}, 5500, KubeQoS.BURSTABLE, None, "koord-prod", id="unknown label"),
        pytest.param({}, 6000, KubeQoS.BURSTABLE, None, "koord-prod", id="a number between bands"),
        pytest.param({}, 2000000000, KubeQoS.GUARANTEED, None, "koord-prod", id="a system number"),
        pytest.param({LABEL_QOS: "BE"}, 3500, KubeQoS.BEST_EFFORT, "koord-free", "koord-free", id="BE of free"),
        ({LABEL_PRIORITY_CLASS: "koord-mid"}, 9000, KubeQoS.BURSTABLE, "koord-mid", "koord-mid"),
        ({LABEL_QOS: "SYSTEM"}, None, KubeQoS.BEST_EFFORT, None, "koord-prod"),
    ],
)
def test_effective_class(
    labels: dict[str, str], value: int | None, kube: KubeQoS, raw: str | None, effective: str
) -> None:
    cls = qos.derive(qos.labelled(labels), kube).qos
    assert priority.raw(labels, value) == raw
    assert priority.effective(labels, value, cls) == effective


@pytest.mark.parametrize(
    ("value", "cls", "compared"),
    [(None, PriorityClass.PROD, 9500), (0, PriorityClass.MID, 7500), (None, PriorityClass.BATCH, 5500),
     (None, PriorityClass.FREE, 3500), (None, None, 0), (6000, None, 6000), (-5, PriorityClass.PROD, -5)],
)  # fmt: skip
def test_the_number_evictions_compare(value: int | None, cls: PriorityClass | None, compared: int) -> None:
    assert priority.value(value, cls) == compared


def test_priority_class_objects() -> None:
    assert {str(cls): band.object_value for cls, band in BANDS.items()} == {
        "koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cls", "cpu", "memory"),
    [
        (None, "cpu", "memory"),
        (PriorityClass.PROD, "cpu", "memory"),
        (PriorityClass.MID, "kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"),
        (PriorityClass.BATCH, "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"),
        (PriorityClass.FREE, "cpu", "memory"),
    ],
)
def test_resource_names(cls: PriorityClass | None, cpu: str, memory: str) -> None:
    assert (priority.resource_name("cpu", cls), priority.resource_name("memory", cls)) == (cpu, memory)
    assert priority.resource_name("nvidia.com/gpu", cls) == "nvidia.com/gpu"


COLUMNS = (PriorityClass.PROD, PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE, None)


@pytest.mark.parametrize(
    ("raw", "row"),
    [("LSE", "ATTTT"), ("LSR", "AXXXX"), ("LS", "AATTA"), ("BE", "XAAAX"), ("SYSTEM", "ATTTT"), ("", "AAAAA")],
)
def test_combinations(raw: str, row: str) -> None:
    letters = {"A": CombinationVerdict.ACCEPTED, "T": CombinationVerdict.TOLERATED, "X": CombinationVerdict.REJECTED}
    cls = qos.parse(raw)
    assert [priority.combination(cls, column) for column in COLUMNS] == [letters[letter] for letter in row]


@pytest.mark.parametrize("raw", [None, QoSClass.LSE, QoSClass.LSR, QoSClass.LS, QoSClass.SYSTEM])
def test_batch_resources_are_for_be_only(raw: QoSClass | None) -> None:
    assert priority.combination(raw, PriorityClass.BATCH, requests_batch=True) is CombinationVerdict.REJECTED
    assert priority.combination(QoSClass.BE, PriorityClass.BATCH, requests_batch=True) is CombinationVerdict.ACCEPTED
