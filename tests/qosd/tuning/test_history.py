"""Which containers have a history, and what it says of limits, requests and how these can be changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from koord.host.files import Target
from koord.host.reconcile.state import FileState, Phase
from koord.model.podtotal import Role
from koord.model.quantity import Bytes, MilliCPU
from koord.model.requirements import ContainerAmounts
from koord.model.reservation import Reserved
from qosd.act.filereport import FileReport
from qosd.model.metric import Scope
from qosd.model.pod import Resources, SpecContainer
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.model.snapshot import PodView
from qosd.report import TickReport
from qosd.sense.memoryevents import MEMORY_EVENTS
from qosd.sense.runqueue import RunQueueRow
from qosd.sense.store import SampleStore
from qosd.sense.table import PANELS
from qosd.sense.usage import USAGE
from qosd.tuning import history
from qosd.tuning.advice import advise
from tests.qosd.contexts import policy
from tests.qosd.inspect.scenes import put_steady
from tests.qosd.podviews import EXITED, RUNNING, machine, snapshot, view

HALF = Resources(cpu_period_us=100_000, cpu_quota_us=50_000, memory_limit_bytes=256 << 20)
HOST = HostFacts(memory_total_bytes=16 << 30)


def spec(name: str = "main", **amounts: int) -> SpecContainer:
    made: dict[str, Any] = {key: (MilliCPU if "cpu" in key else Bytes)(value) for key, value in amounts.items()}
    return SpecContainer(name, Role.MAIN, ContainerAmounts(name=name, **made))


def web(qos: str = "LS", tier: str = "Burstable", **said: Any) -> PodView:
    return view("web", qos, tier, **{"container_requested": HALF, **said})


def report(
    pod: PodView, by: EffectivePolicy | None = None, states: Mapping[Target, FileState] | None = None
) -> TickReport:
    files = FileReport(states or {}, {}, {}, "", {}, None)
    return TickReport((files,), {}, snapshot(by or policy(HOST), pod, topology=machine(4)))


EMPTY = SampleStore(PANELS)


def one(pod: PodView, by: EffectivePolicy | None = None, **states: Any) -> history.ContainerHistory:
    (found,) = history.of_pod(report(pod, by, **states), EMPTY, pod).containers
    return found


@pytest.mark.parametrize(
    ("pod", "names"),
    [
        (web(), ["main"]),
        (web("LSR"), ["main"]),
        (web("BE", "BestEffort"), []),
        (web("SYSTEM"), []),
        (web(containers=[("a", RUNNING), ("b", EXITED), ("c", RUNNING)]), ["a", "c"]),
    ],
)
def test_latency_sensitive_containers_that_run(pod: PodView, names: list[str]) -> None:
    pod = structs.replace(pod, qos=pod.context.raw_qos or pod.qos)
    assert [each.name for each in history.of_pod(report(pod), EMPTY, pod).containers] == names


def test_limits_are_kubelets_and_requests_the_specs() -> None:
    found = one(web(spec=(spec(cpu_request=250, memory_request=64 << 20),)))
    assert (found.cpu_limit_milli, found.memory_limit_bytes) == (500, 256 << 20)
    assert (found.cpu_request_milli, found.memory_request_bytes) == (250, 64 << 20)
    unlimited = one(web(container_requested=Resources(cpu_period_us=100_000, cpu_quota_us=-1), spec=(spec(),)))
    assert (unlimited.cpu_limit_milli, unlimited.memory_limit_bytes) == (0, 0)
    assert (unlimited.cpu_request_milli, unlimited.memory_request_bytes) == (0, 0)
    assert one(web()).cpu_request_milli is None, "only kubelet tells"


@pytest.mark.parametrize(
    ("pod", "cpu", "memory", "is_guaranteed"),
    [
        (web(), "", "", False),
        (web(tier="Guaranteed"), "", "", True),
        (web(tier="BestEffort"), "a resize in place never changes", "a resize in place never changes", False),
        (web("LSR", cpus="0-1"), "the scheduler has bound its CPUs", "", False),
    ],
)
def test_what_kubelet_would_not_do_in_place(pod: PodView, cpu: str, memory: str, is_guaranteed: bool) -> None:
    found = one(pod)
    assert found.is_guaranteed is is_guaranteed
    for why, begins in ((found.cpu_fixed, cpu), (found.memory_fixed, memory)):
        assert why.startswith(begins) if begins else why == ""


def test_what_kubelets_cpu_manager_gave_is_not_resized_in_place() -> None:
    pod = web(tier="Guaranteed")
    seen = report(pod)
    assert seen.snapshot is not None
    seen = structs.replace(seen, snapshot=structs.replace(seen.snapshot, kubelet_cpus={"web": "2-3"}))
    (found,) = history.of_pod(seen, EMPTY, pod).containers
    assert found.cpu_fixed.startswith("kubelet's CPU manager has given it CPUs")


def test_the_cpus_it_may_use() -> None:
    pod = web()
    held = FileState(phase=Phase.HELD, written="2", by="hooks")
    target = Target(pod.containers[1].cgroup, "cpuset_cpus")
    by_pool = policy(HOST, sharedPools={"ls": [{"cpuset": "0-2"}]})
    assert one(pod).cpus == 4, "all that are online"
    assert one(pod, by_pool).cpus == 3
    assert one(pod, by_pool, states={target: held}).cpus == 1


def test_what_the_node_has_left_to_request() -> None:
    pod = structs.replace(web(memory_request_bytes=1 << 30), cpu_request_milli=1500)
    by = policy(HOST)
    found = one(pod, by)
    assert (found.left_milli, found.left_bytes) == (2500, 15 << 30)
    assert one(web()).left_milli is None, "nobody tells what pods request"
    reserved = replace(by, node=replace(by.node, kubelet_reserved=Reserved(1000, 1 << 30)))
    assert (one(pod, reserved).left_milli, one(pod, reserved).left_bytes) == (1500, 14 << 30)


@pytest.mark.parametrize(("burst", "may_burst"), [("none", False), ("auto", True), ("cfsQuotaBurstOnly", True)])
def test_whether_it_may_burst(burst: str, may_burst: bool) -> None:
    assert one(web(), policy(HOST, {"cpuBurstStrategy": {"policy": burst}})).may_burst is may_burst


def test_from_samples_to_a_sentence() -> None:
    pod = web()
    cgroup, usage = pod.containers[1].cgroup, USAGE[Scope.CONTAINER]
    store = SampleStore(PANELS)
    put_steady(
        store,
        {
            (usage.cpu_usage_cores, cgroup): 0.5,
            (usage.cpu_throttled_ratio, cgroup): 0.25,
            (usage.cpu_throttled_us_per_s, cgroup): 300_000.0,
            (usage.memory_usage_bytes, cgroup): 250.0 * (1 << 20),
            (MEMORY_EVENTS[Scope.CONTAINER].memory_high_events_per_s, cgroup): 0.0,
            (MEMORY_EVENTS[Scope.POD].oom_kills_per_s, pod.cgroup): 0.1,
            (RunQueueRow.run_queue_delay_us_per_s, cgroup): 10.0,
        },
    )
    found = advise(history.of_pod(report(pod), store, pod))
    assert [(each.container, each.topic) for each in found] == [("", "killed"), ("main", "throttled"), ("main", "full")]
    assert found[1].finding == "limit 500m: throttled 25 % of the periods of the last 2 min; 900m would have sufficed"


def test_before_the_first_tick_nobody_has_a_history() -> None:
    pod = web()
    nothing = structs.replace(report(pod), snapshot=None)
    assert history.of_pod(nothing, EMPTY, pod) == history.PodHistory()
