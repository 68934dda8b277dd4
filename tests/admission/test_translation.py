"""Native amounts become those of the priority class: every conversion, every place, and sums stay what they were."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from koord.admission import translate
from koord.admission.documents import typed
from koord.admission.errors import TranslationError
from koord.admission.translation import untranslated
from koord.model import podrequests
from koord.model.priority import PriorityClass
from tests.admission.objects import BATCH_CPU, BATCH_MEMORY, CLASS, MID_CPU, MID_MEMORY, QOS, pod
from tests.support.kubernetes import container

BATCH, MID, PROD, FREE = PriorityClass.BATCH, PriorityClass.MID, PriorityClass.PROD, PriorityClass.FREE


def whole(**resources: Any) -> dict[str, Any]:
    """Resources of the pod as a whole."""
    return {"resources": resources}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(
            pod(container(requests={"cpu": "lots"})),
            r"spec.containers\[0\].resources.requests.cpu: 'lots' is not a quantity",
            id="no-quantity",
        ),
        pytest.param(
            pod(initContainers=[container(), container(limits={"memory": "1Q"})]),
            r"spec.initContainers\[1\].resources.limits.memory: '1Q' is not a quantity",
            id="no-quantity-of-an-init-container",
        ),
        pytest.param(
            pod(container(requests={"cpu": "1"}), **whole(requests={"cpu": "2"})),
            "spec.resources.requests.cpu: '2' for the pod as a whole has no counterpart .* write the amounts on its "
            "containers",
            id="the-pod-requests-more-than-its-containers",
        ),
        pytest.param(
            pod(**whole(requests={"memory": "2Gi"})), "requests.memory: '2Gi' for the pod", id="the-pod-alone"
        ),
        pytest.param(
            pod(container(requests={"cpu": "1"}), **whole(requests={"cpu": "1"}, limits={"cpu": "4"})),
            "spec.resources.requests.cpu: '1' for the pod",
            id="the-pod-is-limited-and-its-containers-are-not",
        ),
    ],
)
def test_refused(document: dict[str, Any], message: str) -> None:
    with pytest.raises(TranslationError, match=message) as error:
        translate(document, BATCH)
    assert error.value.code == 400


@pytest.mark.parametrize(
    ("cls", "native", "translated"),
    [
        (BATCH, {"cpu": "2", "memory": "4Gi"}, {BATCH_CPU: "2k", BATCH_MEMORY: "4Gi"}),
        (MID, {"cpu": "2", "memory": "4Gi"}, {MID_CPU: "2k", MID_MEMORY: "4Gi"}),
        (PROD, {"cpu": "2", "memory": "4Gi"}, {"cpu": "2", "memory": "4Gi"}),
        (FREE, {"cpu": "2", "memory": "4Gi"}, {"cpu": "2", "memory": "4Gi"}),
        (BATCH, {"cpu": "500m"}, {BATCH_CPU: "500"}),
        (BATCH, {"cpu": "1.5"}, {BATCH_CPU: "1500"}),
        (BATCH, {"cpu": "0.0001"}, {BATCH_CPU: "1"}),
        (BATCH, {"cpu": "1001u"}, {BATCH_CPU: "2"}),
        (BATCH, {"cpu": 3}, {BATCH_CPU: "3k"}),
        (BATCH, {"cpu": "0"}, {BATCH_CPU: "0"}),
        (BATCH, {"memory": "4096Mi"}, {BATCH_MEMORY: "4Gi"}),
        (BATCH, {"memory": 7945689498}, {BATCH_MEMORY: "7945689498"}),
        (BATCH, {"memory": "1e3"}, {BATCH_MEMORY: "1e3"}),
        (BATCH, {"nvidia.com/gpu": "1", "hugepages-2Mi": "4Mi"}, {"nvidia.com/gpu": "1", "hugepages-2Mi": "4Mi"}),
        (BATCH, {BATCH_CPU: "1000"}, {BATCH_CPU: "1000"}),
        (BATCH, {"cpu": "2", BATCH_CPU: "7"}, {BATCH_CPU: "2k"}),
        (BATCH, {}, {}),
    ],
)
def test_amounts(cls: PriorityClass, native: dict[str, Any], translated: dict[str, Any]) -> None:
    result = translate(pod(container(requests=native, limits=native)), cls)
    assert result["spec"]["containers"][0]["resources"] == {"requests": translated, "limits": translated}


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        (None, {"cpu": "1"}, {BATCH_CPU: "1k"}),
        ({}, {"cpu": "1"}, {BATCH_CPU: "1k"}),
        ({"memory": "1Gi"}, {"cpu": "1"}, {BATCH_CPU: "1k", BATCH_MEMORY: "1Gi"}),
        ({"cpu": "500m"}, {"cpu": "1"}, {BATCH_CPU: "500"}),
        ({"cpu": "500m"}, None, {BATCH_CPU: "500"}),
        (None, {BATCH_CPU: "7"}, {BATCH_CPU: "7"}),
        (None, {"nvidia.com/gpu": "1"}, None),
    ],
)
def test_a_missing_request_is_the_limit(
    requests: dict[str, str] | None, limits: dict[str, str] | None, expected: dict[str, str] | None
) -> None:
    result = translate(pod(container(requests=requests, limits=limits)), BATCH)
    assert result["spec"]["containers"][0]["resources"].get("requests") == expected


def test_every_place() -> None:
    amounts = {"cpu": "1"}
    document = pod(
        container("a", requests=dict(amounts)),
        container("b", requests=dict(amounts)),
        initContainers=[container("i", requests=dict(amounts)), container("s", dict(amounts), restartPolicy="Always")],
        ephemeralContainers=[container("e")],
    )
    spec = translate(document, BATCH)["spec"]
    found = [each["resources"]["requests"] for each in (*spec["containers"], *spec["initContainers"])]
    assert found == [{BATCH_CPU: "1k"}] * 4
    assert spec["ephemeralContainers"] == document["spec"]["ephemeralContainers"]
    assert document["spec"]["containers"][0]["resources"]["requests"] == amounts, "the pod that was sent stays"


@pytest.mark.parametrize("cls", [BATCH, MID, PROD, FREE])
@pytest.mark.parametrize("overhead", [{"cpu": "250m", "memory": "120Mi"}, {"cpu": "x"}, None])
def test_the_overhead_stays_that_of_the_runtime_class(cls: PriorityClass, overhead: dict[str, str] | None) -> None:
    spec = translate(pod(container(requests={"cpu": "1"}), overhead=overhead), cls)["spec"]
    assert spec["overhead"] == overhead


@pytest.mark.parametrize(
    ("resources", "left"),
    [
        pytest.param({"requests": {"cpu": "3", "memory": "1Gi"}, "limits": {"cpu": "4"}}, None, id="the-same-sums"),
        pytest.param({"requests": {"cpu": "3", "hugepages-2Mi": "4Mi"}, "limits": {"cpu": "4"}},
                     {"requests": {"hugepages-2Mi": "4Mi"}}, id="others-stay"),
        pytest.param({}, {}, id="nothing"),
    ],
)  # fmt: skip
def test_amounts_of_the_pod_that_say_no_more_than_its_containers_go(
    resources: dict[str, Any], left: dict[str, Any] | None
) -> None:
    containers = (
        container("a", requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "2"}),
        container("b", limits={"cpu": "2"}),
    )
    spec = translate(pod(*containers, **whole(**resources)), BATCH)["spec"]
    assert spec.get("resources") == left
    assert typed({"spec": spec}).spec.containers[1].resources.requests == {BATCH_CPU: "2k"}


@pytest.mark.parametrize("cls", [PROD, FREE])
def test_amounts_of_a_pod_that_keeps_native_resources_stay(cls: PriorityClass) -> None:
    document = pod(**whole(requests={"cpu": "2"}))
    assert translate(document, cls) == document


@pytest.mark.parametrize(
    ("document", "names"),
    [
        (pod(container(requests={"cpu": "1"}), labels={CLASS: "koord-batch"}), ("cpu",)),
        (pod(container(limits={"memory": "1"}), labels={CLASS: "koord-mid"}), ("memory",)),
        (pod(initContainers=[container(requests={"cpu": "1"})], priority=5000), ("cpu",)),
        (pod(priority=5000, **whole(requests={"memory": "1", "cpu": 1})), ("cpu", "memory")),
        (pod(container(requests={"cpu": "1"}), labels={QOS: "BE"}), ("cpu",)),
        (pod(container(requests={"cpu": "1"}), labels={QOS: "BE"}, priority=3000), ()),
        (pod(container(requests={"cpu": "1"})), ()),
        (pod(container(requests={BATCH_CPU: "1"}), priority=5000), ()),
        (pod(priority=5000, overhead={"cpu": "250m"}), ()),
        (pod(), ()),
    ],
)
def test_what_is_left_untranslated(document: dict[str, Any], names: tuple[str, ...]) -> None:
    assert untranslated(typed(document)) == names


MILLI = st.integers(0, 10_000)
LISTS = st.fixed_dictionaries(
    {}, optional={"cpu": MILLI.map(lambda milli: f"{milli}m"), "memory": st.integers(0, 2**40).map(str)}
)
CONTAINERS = st.builds(
    container, st.just("c"), st.none() | LISTS, st.none() | LISTS, restartPolicy=st.sampled_from(["Always", None])
)


@given(
    st.lists(CONTAINERS, min_size=1, max_size=3), st.lists(CONTAINERS, max_size=3), LISTS, st.sampled_from([BATCH, MID])
)
def test_what_a_pod_requests_and_may_use_stays(
    containers: list[dict[str, Any]], inits: list[dict[str, Any]], overhead: dict[str, str], cls: PriorityClass
) -> None:
    document = pod(*containers, initContainers=inits, overhead=overhead)
    before, after = typed(document).spec, typed(translate(document, cls)).spec
    assert after.overhead == before.overhead
    before, after = replace(before, overhead={}), replace(after, overhead={})
    names = {BATCH: (BATCH_CPU, BATCH_MEMORY), MID: (MID_CPU, MID_MEMORY)}[cls]
    for native, name in zip(("cpu", "memory"), names, strict=True):
        assert podrequests.request(after, name) == podrequests.request(before, native)
        assert podrequests.limit(after, name) == podrequests.limit(before, native)
        assert (podrequests.request(after, native), podrequests.limit(after, native)) == (0, None)
