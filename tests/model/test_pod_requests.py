"""What a pod requests and may use: Kubernetes' rules as tables, and what holds of any pod."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from koord.model import podrequests
from koord.model.core import Container, PodSpec, ResourceRequirements
from koord.model.podtotal import Role
from koord.model.quantity import QuantityError

BATCH_CPU, GPU, HUGE = "kubernetes.io/batch-cpu", "nvidia.com/gpu", "hugepages-2Mi"


def has(requests: Mapping[str, Any] | None = None, restart: str = "", **limits: Any) -> Container:
    return Container("c", ResourceRequirements(requests or {}, limits), restart)


def limiting(limits: Mapping[str, Any]) -> Container:
    return Container("c", ResourceRequirements({}, limits))


def cpu(text: Any, restart: str = "") -> Container:
    return has({"cpu": text}, restart)


def sidecar(text: Any) -> Container:
    return cpu(text, "Always")


def whole(requests: Mapping[str, Any] | None = None, **limits: Any) -> ResourceRequirements:
    return ResourceRequirements(requests or {}, limits)


@pytest.mark.parametrize("text", ["lots", "", "-1", -1, True, None, [], {}, "9" * 20])
def test_amounts_that_are_none(text: Any) -> None:
    spec = PodSpec((has({"cpu": 1, "memory": text}, memory=text),))
    for amount in (podrequests.request, podrequests.limit):
        with pytest.raises(QuantityError):
            amount(spec, "memory")
    assert podrequests.request(spec, "cpu") == 1000, "the others are not affected"


def test_a_negative_amount_is_not_set_off_against_others() -> None:
    with pytest.raises(QuantityError, match="'-1' is negative"):
        podrequests.request(PodSpec((cpu(3), cpu("-1"))), "cpu")


@pytest.mark.parametrize(
    ("inits", "mains", "milli"),
    [
        # KEP-753, Resources calculation for scheduling and pod admission
        ((), (), 0),
        ((), (Container(),), 0),
        ((), (cpu(1), cpu("500m")), 1500),
        ((cpu(5),), (cpu(1), cpu(2)), 5000),
        ((cpu(2),), (cpu(1), cpu(2)), 3000),
        ((cpu(2), cpu(4)), (cpu(3),), 4000),
        ((sidecar(1),), (cpu(2),), 3000),
        ((sidecar(1), cpu(5)), (cpu(2),), 6000),
        ((cpu(5), sidecar(1)), (cpu(2),), 5000),
        ((sidecar(1), cpu(5), sidecar(2)), (cpu(4),), 7000),
        ((sidecar(1), sidecar(2), cpu(5)), (cpu(4),), 8000),
        ((cpu(2), sidecar(1), cpu(1), sidecar(1), cpu(3)), (cpu(1),), 5000),
        ((cpu("1", "Never"),), (cpu("500m"),), 1000),
    ],
)
def test_containers_add_up_by_the_time_at_which_they_run(
    inits: tuple[Container, ...], mains: tuple[Container, ...], milli: int
) -> None:
    spec = PodSpec(mains, inits)
    assert podrequests.request(spec, "cpu") == milli
    limited_mains, limited_inits = (
        tuple(has(None, each.restart_policy, **each.resources.requests) for each in some) for some in (mains, inits)
    )
    assert (podrequests.limit(PodSpec(limited_mains, limited_inits), "cpu") or 0) == milli


@pytest.mark.parametrize(
    ("spec", "requests", "limits"),
    [
        (PodSpec((has({"cpu": "1"}, memory="1Gi"),)), {"cpu": 1000, "memory": 1 << 30}, {"memory": 1 << 30}),
        (PodSpec((has({"cpu": "1"}, cpu="2"),)), {"cpu": 1000}, {"cpu": 2000}),
        (PodSpec((has({"cpu": "0"}, cpu="2"),)), {"cpu": 0}, {"cpu": 2000}),
        (PodSpec((has(cpu="2"), cpu("1"))), {"cpu": 3000}, {"cpu": 2000}),
        (
            PodSpec((has({BATCH_CPU: "2k", GPU: 1, "cpu": 0.5}), has({BATCH_CPU: 500}))),
            {BATCH_CPU: 2500, GPU: 1, "cpu": 500},
            {},
        ),
        # the sum is rounded, not its parts
        (PodSpec((cpu("400u"), cpu("600u"))), {"cpu": 1}, {}),
        (PodSpec((has({"memory": "500m"}), has({"memory": "600m"}))), {"memory": 2}, {}),
    ],
)
def test_every_resource(spec: PodSpec, requests: Mapping[str, int], limits: Mapping[str, int]) -> None:
    assert (podrequests.requests(spec), podrequests.limits(spec)) == (requests, limits)


@pytest.mark.parametrize(
    ("overhead", "containers", "requests", "limits"),
    [
        ({"cpu": "250m"}, (cpu("1"),), {"cpu": 1250}, {}),
        ({"cpu": "250m"}, (has(cpu="1"),), {"cpu": 1250}, {"cpu": 1250}),
        ({"cpu": "250m"}, (has(cpu="0"),), {"cpu": 250}, {"cpu": 0}),
        ({"memory": "1Mi"}, (cpu("1"),), {"cpu": 1000, "memory": 1 << 20}, {}),
        ({GPU: 1}, (), {GPU: 1}, {}),
    ],
)
def test_overhead_is_requested_and_allowed_where_anything_is_limited(
    overhead: Mapping[str, Any],
    containers: tuple[Container, ...],
    requests: Mapping[str, int],
    limits: Mapping[str, int],
) -> None:
    spec = PodSpec(containers, overhead=overhead)
    assert (podrequests.requests(spec), podrequests.limits(spec)) == (requests, limits)


@pytest.mark.parametrize(
    ("pod", "containers", "requests", "limits"),
    [
        (whole({"cpu": "6"}), (cpu("1"),), {"cpu": 6000}, {}),
        (whole({"cpu": "1"}), (cpu("6"),), {"cpu": 1000}, {}),
        (whole({"cpu": "6"}, cpu="8"), (has(cpu="2"),), {"cpu": 6000}, {"cpu": 8000}),
        (whole(cpu="6"), (), {"cpu": 6000}, {"cpu": 6000}),
        (whole(cpu="6"), (cpu("1"), cpu("2")), {"cpu": 3000}, {"cpu": 6000}),
        (whole(cpu="6"), (has({"memory": 7}),), {"cpu": 6000, "memory": 7}, {"cpu": 6000}),
        (whole({HUGE: "4Mi"}), (), {HUGE: 4 << 20}, {}),
        (ResourceRequirements({}, {HUGE: "4Mi"}), (limiting({HUGE: "2Mi"}),), {HUGE: 4 << 20}, {HUGE: 4 << 20}),
        (ResourceRequirements({GPU: 8}, {GPU: 8}), (limiting({GPU: 1}),), {GPU: 1}, {GPU: 1}),
        (whole({BATCH_CPU: 8}), (), {}, {}),
    ],
)
def test_amounts_of_the_pod_as_a_whole_replace_those_of_containers(
    pod: ResourceRequirements,
    containers: tuple[Container, ...],
    requests: Mapping[str, int],
    limits: Mapping[str, int],
) -> None:
    spec = PodSpec(containers, resources=pod)
    assert (podrequests.requests(spec), podrequests.limits(spec)) == (requests, limits)
    above = replace(spec, overhead={"cpu": 1})
    assert podrequests.request(above, "cpu") == requests.get("cpu", 0) + 1000
    assert podrequests.limit(above, "cpu") == (limits["cpu"] + 1000 if "cpu" in limits else None)


@pytest.mark.parametrize(
    ("spec", "limited"),
    [
        (PodSpec((has(cpu="1"), has(cpu="2"))), True),
        (PodSpec((has(cpu="1"), cpu("2"))), False),
        (PodSpec((has(cpu="1"), has(cpu="0"))), False),
        (PodSpec((has(cpu="1"),), (cpu("1"),)), False),
        (PodSpec((has(cpu="1"),), (sidecar("1"),)), False),
        (PodSpec((cpu("1"),), resources=whole(cpu="2")), True),
        (PodSpec((cpu("1"),), resources=whole(cpu="0")), False),
        (PodSpec((cpu("1"),), resources=whole({"cpu": "2"})), False),
        (PodSpec((has(cpu="1"),), overhead={"cpu": "1"}), True),
    ],
)
def test_a_pod_is_limited_if_each_container_is(spec: PodSpec, limited: bool) -> None:
    assert podrequests.is_limited(spec, "cpu") is limited


def test_the_order_in_which_containers_come_to_run() -> None:
    spec = PodSpec((Container("m"),), (Container("s", restart_policy="Always"), Container("i")))
    assert [(container.name, role) for container, role in podrequests.in_order(spec)] == [
        ("s", Role.SIDECAR),
        ("i", Role.INIT),
        ("m", Role.MAIN),
    ]


NAMES = st.sampled_from(["cpu", "memory", BATCH_CPU, GPU])
AMOUNTS = st.dictionaries(NAMES, st.sampled_from(["0", "1n", "300u", "1m", "250m", "1", "1.5", "3Ki", "2Gi", 7, "1e3"]))
CONTAINERS = st.builds(Container, st.just("c"), st.builds(ResourceRequirements, AMOUNTS, AMOUNTS),
                       st.sampled_from(["", "Always"]))  # fmt: skip
SPECS = st.builds(
    PodSpec,
    st.lists(CONTAINERS, max_size=4).map(tuple),
    st.lists(CONTAINERS, max_size=4).map(tuple),
    overhead=AMOUNTS,
)


@given(spec=SPECS, container=CONTAINERS, at=st.integers(0, 4), to_inits=st.booleans())
def test_another_container_never_lowers_anything(spec: PodSpec, container: Container, at: int, to_inits: bool) -> None:
    name = "init_containers" if to_inits else "containers"
    before = getattr(spec, name)
    more = replace(spec, **{name: (*before[:at], container, *before[at:])})
    for amounts in (podrequests.requests, podrequests.limits):
        then, now = amounts(spec), amounts(more)
        assert all(now[resource] >= amount for resource, amount in then.items())


@given(spec=SPECS, data=st.data())
def test_the_order_of_containers_does_not_matter(spec: PodSpec, data: st.DataObject) -> None:
    shuffled = replace(spec, containers=tuple(data.draw(st.permutations(spec.containers))))
    assert podrequests.requests(shuffled) == podrequests.requests(spec)
    assert podrequests.limits(shuffled) == podrequests.limits(spec)


@given(nanos=st.lists(st.integers(0, 10**15), min_size=1, max_size=20))
def test_sums_are_exact_and_rounded_up_once(nanos: list[int]) -> None:
    spec = PodSpec(tuple(has({"cpu": f"{nano}n", "memory": f"{nano}n"}) for nano in nanos))
    assert podrequests.request(spec, "cpu") == math.ceil(Fraction(sum(nanos), 10**6))
    assert podrequests.request(spec, "memory") == math.ceil(Fraction(sum(nanos), 10**9))


@given(spec=SPECS)
def test_all_resources_and_each_of_them_agree(spec: PodSpec) -> None:
    requests, limits = podrequests.requests(spec), podrequests.limits(spec)
    for resource in ("cpu", "memory", BATCH_CPU, GPU):
        assert requests.get(resource, 0) == podrequests.request(spec, resource)
        assert limits.get(resource) == podrequests.limit(spec, resource)
