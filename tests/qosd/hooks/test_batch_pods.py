"""A batch or mid pod's own cgroup where not every container is one: sums over all of them, or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.host.files import Target
from koord.model import cfs, podtotal
from koord.model.crifields import Field
from koord.model.podtotal import Role
from koord.model.quantity import Bytes, MilliCPU
from koord.model.requirements import ContainerAmounts
from qosd.decide.decision import Decision, Op
from qosd.hooks import engine
from qosd.model.pod import OVERHEAD, HookStage, Resources, SpecContainer
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.model.snapshot import PodView
from qosd.strategies.reconciler import HookReconciler
from tests.qosd.contexts import V2, extended, pod, policy
from tests.qosd.podviews import RUNNING, snapshot, view

V1 = HostFacts(cgroup_version=1)
MI = 1 << 20
HALF = {"request": "500", "limit": "500", "memory": "512Mi"}


def spec(name: str, cpu: int = 0, memory_mi: int = 0, role: Role = Role.MAIN, request: int | None = None) -> Any:
    """A container with native limits; ``request`` else as its limit."""
    requested = cpu if request is None else request
    amounts = ContainerAmounts(name, MilliCPU(requested), MilliCPU(cpu), Bytes(memory_mi * MI), Bytes(memory_mi * MI))
    return SpecContainer(name, role, amounts)


MAIN, ISTIO = spec("main"), spec("istio-proxy", 2000, 1024)


def batch(
    *containers: SpecContainer, tier: str = "Burstable", seen: tuple[str, ...] = ("main",), **amounts: str
) -> PodView:
    """A BE pod whose container ``main`` has batch amounts; ``containers``: what kubelet tells, if it does."""
    made = [(name, RUNNING) for name in seen]
    return view("p", "BE", tier, containers=made, spec=containers or None, EXTENDED=extended(**(amounts or HALF)))


def mid(*containers: SpecContainer, **amounts: str) -> PodView:
    said = extended(kind="mid", **(amounts or HALF))
    return view("p", "LS", band="koord-mid", spec=containers or None, EXTENDED=said)


def decided(who: PodView, by: EffectivePolicy) -> Decision:
    return HookReconciler().decide(snapshot(by, who), None)[0]


def of_pod(who: PodView, by: EffectivePolicy | None = None) -> dict[str, Any]:
    """What the pod's own cgroup shall hold of shares, quota and memory."""
    found = decided(who, by or policy(V2)).opinions
    names = ("cpu_shares", "cpu_quota", "memory_limit_in_bytes")
    return {
        target.name: one.value
        for target, one in found.items()
        if target.cgroup == who.cgroup and target.name in names and one.op is Op.SET
    }


def want(shares: int, quota: int, memory_mi: int) -> dict[str, int]:
    memory = -1 if memory_mi < 0 else memory_mi * MI
    return {"cpu_shares": shares, "cpu_quota": quota, "memory_limit_in_bytes": memory}


@pytest.mark.parametrize("host", [V1, V2])
@pytest.mark.parametrize(
    ("who", "gets"),
    [
        (batch(MAIN), want(512, 50_000, 512)),
        (batch(MAIN, ISTIO), want(2560, 250_000, 1536)),
        (mid(MAIN, ISTIO), want(2560, 250_000, 1536)),
        # what one container leaves open, the pod does
        (batch(MAIN, spec("side", 0, 64, request=100)), want(614, -1, 576)),
        (batch(MAIN, spec("side", 100)), want(614, 60_000, -1)),
        (batch(MAIN, ISTIO, request="500"), want(2560, -1, -1)),
        # the overhead of the pod's runtime is native, and no container without a limit
        (batch(spec(OVERHEAD, 100, 64, Role.SIDECAR), MAIN), want(614, 60_000, 576)),
        (batch(spec(OVERHEAD, 0, 64, Role.SIDECAR), MAIN), want(512, 50_000, 576)),
        (batch(spec(OVERHEAD, 100, 0, Role.SIDECAR), MAIN), want(614, 60_000, 512)),
        # restartable init containers count, plain ones by the largest moment
        (batch(spec("side", 2000, 1024, Role.SIDECAR), MAIN), want(2560, 250_000, 1536)),
        (batch(spec("load", 2000, 1024, Role.INIT), MAIN), want(2048, 200_000, 1024)),
        (batch(spec("load", 100, 64, Role.INIT), MAIN), want(512, 50_000, 512)),
        (batch(spec("side", 300, 64, Role.SIDECAR), spec("load", 2000, 1024, Role.INIT), MAIN),
         want(2355, 230_000, 1088)),
        (batch(spec("load", role=Role.INIT), MAIN), want(512, -1, -1)),
        # in kubelet's BestEffort tier nobody has native amounts, whoever is asked
        (batch(tier="BestEffort"), want(512, 50_000, 512)),
        (batch(tier="BestEffort", seen=("main", "debug")), want(512, -1, -1)),
        # a mid pod keeps kubelet's value of what it has no mid amount of
        (mid(MAIN, ISTIO, memory="512Mi"), {"memory_limit_in_bytes": 1536 * MI}),
        (mid(spec("main", 0, 256), ISTIO, request="500", limit="500"), {"cpu_shares": 2560, "cpu_quota": 250_000}),
    ],
)  # fmt: skip
def test_all_containers_count(host: HostFacts, who: PodView, gets: dict[str, int]) -> None:
    assert of_pod(who, policy(host)) == gets


@pytest.mark.parametrize(("period_us", "quota_us"), [(None, 50_000), (10_000, 5000), (50_000, 25_000)])
def test_kubelets_period_is_that_of_containers_and_not_of_a_best_effort_pod(
    period_us: int | None, quota_us: int
) -> None:
    asked = Resources(cpu_period_us=period_us)
    who = view("p", "BE", "BestEffort", requested=asked, container_requested=asked, EXTENDED=extended(**HALF))
    assert of_pod(who) == want(512, 50_000, 512)
    found = decided(who, policy(V2)).opinions
    assert found[Target(f"{who.cgroup}/main", "cpu_quota")].value == quota_us


@pytest.mark.parametrize("of_pod_us", [None, 10_000])
@pytest.mark.parametrize(("period_us", "quota_us"), [(None, 50_000), (10_000, 5000), (50_000, 25_000)])
def test_the_quota_of_another_pod_is_of_its_containers_period_whoever_tells_of_it(
    of_pod_us: int | None, period_us: int | None, quota_us: int
) -> None:
    """A pod without native limits has the kernel's in its cgroup: the writer knows which, and nobody else need."""
    asked = Resources(cpu_period_us=period_us)
    of_its_own = Resources(cpu_period_us=of_pod_us if period_us else None)
    who = view(
        "p", "BE", "Burstable", requested=of_its_own, container_requested=asked, spec=(MAIN,), EXTENDED=extended(**HALF)
    )
    assert of_pod(who) == want(512, quota_us, 512)
    found = decided(who, policy(V2)).opinions
    assert found[Target(f"{who.cgroup}/main", "cpu_quota")].value == quota_us


def test_init_containers_count_as_the_annotation_or_kubelet_says() -> None:
    """Of 500m and 512Mi in ``main``, 1500m and 96Mi in ``init``: as a sidecar, unless kubelet tells that it is none."""
    both = extended(**HALF) | {
        "initContainers": extended("init", request="1500", limit="1500", memory="96Mi")["containers"]
    }
    alone = view("p", "BE", "BestEffort", containers=[("main", RUNNING)], EXTENDED=both)
    assert of_pod(alone) == want(2048, 200_000, 608)
    told = (SpecContainer("init", Role.INIT, ContainerAmounts()), MAIN)
    assert of_pod(view("p", "BE", "BestEffort", spec=told, EXTENDED=both)) == want(1536, 150_000, 512)


def test_only_the_batch_part_is_normalized() -> None:
    assert of_pod(batch(MAIN, ISTIO), policy(V2, cpuNormalizationRatio=1.25))["cpu_quota"] == 240_000
    assert of_pod(mid(MAIN, ISTIO), policy(V2, cpuNormalizationRatio=1.25))["cpu_quota"] == 250_000


def test_suppression_by_quota_leaves_the_pod_its_own() -> None:
    by = policy(V2, {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}})
    assert of_pod(batch(MAIN, ISTIO), by)["cpu_quota"] == 250_000


class TestWhereSomeMayBeMissing:
    """A Burstable pod, and nobody tells its native amounts."""

    @pytest.mark.parametrize("host", [V1, V2])
    def test_nothing_is_given(self, host: HostFacts) -> None:
        assert of_pod(batch(), policy(host)) == {}
        assert of_pod(batch(seen=("main", "istio-proxy")), policy(host)) == {}
        assert of_pod(mid(), policy(host)) == {}

    def test_what_was_given_stays_until_kubelet_has_told(self) -> None:
        kept = [one for one in decided(batch(), policy(V2)).opinions.values() if one.op is Op.KEEP]
        assert len(kept) == 3
        assert "the native amounts of containers that extended-resource-spec may not name are unknown" in kept[0].why

    def test_a_container_of_another_kind_ends_it(self) -> None:
        found = decided(batch(seen=("main", "istio-proxy")), policy(V2)).opinions
        released = [one for one in found.values() if one.op is Op.RELEASE]
        assert len(released) == 3
        assert "batchResource: left alone: the native amounts of istio-proxy are unknown" in released[0].why

    def test_a_field_that_a_later_hook_edits_is_not_left_alone(self) -> None:
        bound = view("p", "BE", cpus="2-3", EXTENDED=extended(**HALF))
        assert of_pod(bound, policy(V2)) == {"cpu_quota": -1}

    def test_a_sandbox_is_asked_for_as_kubelet_does(self) -> None:
        edits = engine.decide(pod("BE", "Burstable", HookStage.RUN_SANDBOX, "", EXTENDED=extended(**HALF)), policy(V2))
        assert edits.items == ()


AMOUNT = st.sampled_from([0, 1, 3, 10, 100, 500, 999, 2000])
CONTAINERS = st.lists(
    st.tuples(st.sampled_from(list(Role)), st.booleans(), AMOUNT, AMOUNT, AMOUNT), min_size=1, max_size=5
)


def _cores(name: str, request: int, limit: int, memory_mi: int) -> dict[str, Any]:
    amounts = {"request": request, "limit": limit}
    said = {key: str(value) for key, value in amounts.items() if value}
    made: dict[str, Any] = extended(name, **said, **({"memory": f"{memory_mi}Mi"} if memory_mi else {}))["containers"]
    return made


@given(CONTAINERS, st.sampled_from(["batch", "mid"]), st.sampled_from([-1, 1.2]))
def test_no_container_gets_more_than_its_pod(containers: Any, kind: str, ratio: float) -> None:
    """And the pod gets no more than all of them."""
    made, said = [], {}
    for index, (role, is_ours, request, limit, memory_mi) in enumerate(containers):
        name = f"c{index}"
        if is_ours:
            made.append(spec(name, role=role))
            ours = _cores(name, request, limit, memory_mi)
            said.update({one: _renamed(value, kind) for one, value in ours.items()})
        else:
            made.append(spec(name, limit, memory_mi, role, request))
    qos, band = ("BE", "") if kind == "batch" else ("LS", "koord-mid")
    who = view("p", qos, band=band, spec=tuple(made), EXTENDED={"containers": said})
    by = policy(V1, cpuNormalizationRatio=ratio)
    found = of_pod(who, by)
    for field, limit_of in ((Field.CPU_QUOTA, _quota), (Field.MEMORY_LIMIT, _memory)):
        if field.value not in found:
            continue
        each = [(one.role, limit_of(one, who, by)) for one in made]
        if any(limit < 0 for _, limit in each):
            assert found[field.value] == -1
        else:
            total = podtotal.total(each)
            rounding = 100 * len(each) if field is Field.CPU_QUOTA else 0  # us: a thousandth of a CPU
            smallest = cfs.MIN_QUOTA_US * len(each) if field is Field.CPU_QUOTA else 0
            assert max(limit for _, limit in each) <= found[field.value] <= total + rounding
            assert found[field.value] >= total - rounding - smallest


def _renamed(resources: dict[str, Any], kind: str) -> dict[str, Any]:
    return {
        which: {name.replace("batch", kind): amount for name, amount in amounts.items()}
        for which, amounts in resources.items()
    }


def _given(one: SpecContainer, who: PodView, by: EffectivePolicy, field: Field) -> int | None:
    edit = engine.decide(who.context.at(HookStage.CREATE, who.context.requested, one.name), by).get(field)
    return None if edit is None else int(edit.value)


def _quota(one: SpecContainer, who: PodView, by: EffectivePolicy) -> int:
    """What the container gets: by the hooks, else as kubelet asks."""
    ours = _given(one, who, by, Field.CPU_QUOTA)
    return cfs.quota_us(one.native.cpu_limit) if ours is None else ours


def _memory(one: SpecContainer, who: PodView, by: EffectivePolicy) -> int:
    ours = _given(one, who, by, Field.MEMORY_LIMIT)
    return (one.native.memory_limit or -1) if ours is None else ours
