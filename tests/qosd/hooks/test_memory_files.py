"""Memory QoS in the files of pods and containers, as a table by level and kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.host.files import ROWS
from koord.model.qos_settings import MemoryQOS
from qosd.hooks import memory
from qosd.hooks.memoryqos import MemoryCase
from qosd.model.pod import HookStage, PodContext, Resources
from qosd.model.policy import EffectivePolicy, HostFacts
from tests.qosd.contexts import MEMORY_QOS, V2, decided, extended, pod, policy

GIB = 1 << 30
V2_STOCK = replace(V2, files=frozenset({"memory.min", "memory.low", "memory.high", "memory.oom.group"}))
V2_VENDOR = replace(V2_STOCK, files=frozenset(memory.ROWS))
V1_STOCK = HostFacts(1, files=frozenset({"memory.soft_limit_in_bytes", "memory.force_empty"}))
V1_VENDOR = HostFacts(1, files=frozenset(name for name in memory.ROWS if "pagecache" not in name))
PERCENTS: dict[str, Any] = {"minLimitPercent": 20, "lowLimitPercent": 50, "throttlingPercent": 80}
GOLDEN = {"memory.min": "429496729", "memory.low": "1073741824", "memory.high": "5583454208"}
"""Request 2 GiB, limit 6 GiB."""
ASKS = Resources(memory_limit_bytes=6 * GIB, memory_request_bytes=2 * GIB)


def by(host: HostFacts, *classes: str, gate: bool = True, **settings: Any) -> EffectivePolicy:
    """These ``settings`` enabled for the classes."""
    strategy = {f"{name}Class": {"memoryQOS": {"enable": True, **settings}} for name in classes}
    return policy(host, {"resourceQOSStrategy": strategy}, **MEMORY_QOS if gate else {})


def found(who: PodContext, policy: EffectivePolicy) -> dict[str, int | str]:
    return {name: value for name, value in decided(who, policy).items() if name.startswith("memory.")}


def container(*said: Any, **more: Any) -> PodContext:
    return pod(*said, **more).at(HookStage.CONTAINER_CGROUP, ASKS, "main")


def own_cgroup(*said: Any, requested: Resources = ASKS, **more: Any) -> PodContext:
    return pod(*said, **more).at(HookStage.POD_CGROUP, requested)


class TestNothing:
    @pytest.mark.parametrize(
        ("who", "policy"),
        [
            (container("LS"), by(V2_VENDOR, "be", **PERCENTS)),
            (container("LS"), by(V2_VENDOR, "ls", gate=False, **PERCENTS)),
            (own_cgroup("LS"), by(V2_VENDOR, "ls", gate=False, **PERCENTS)),
            (container("LS"), by(V1_STOCK, "ls", **PERCENTS)),
            (own_cgroup("LS"), by(V1_STOCK, "ls", oomKillGroup=1, pageCacheLimitSize=GIB, **PERCENTS)),
            (pod("LS", requested=ASKS), by(V1_VENDOR, "ls", **PERCENTS)),  # no call carries v1's files
            (container("LS", MEMORY_QOS={"policy": "none"}), by(V2_VENDOR, "ls", **PERCENTS)),
            (container("LS", MEMORY_QOS={"policy": "auto"}), by(V2_VENDOR, gate=False)),
        ],
    )
    def test_where_nobody_asks_or_nothing_can(self, who: PodContext, policy: EffectivePolicy) -> None:
        assert found(who, policy) == {}


WMARKS = {"memory.wmark_ratio": "95", "memory.wmark_scale_factor": "20", "memory.wmark_min_adj": "-25"}
OOM = {"memory.priority": "3", "memory.use_priority_oom": "1", "memory.oom.group": "1"}
CACHE = {f"memory.pagecache_limit.{name}": text for name, text in (("size", f"{GIB}"), ("sync", "0"), ("enable", "1"))}
ALL = {**PERCENTS, "priority": 3, "priorityEnable": 1, "oomKillGroup": 1, "pageCacheLimitSize": GIB}
PROTECTION = {name: GOLDEN[name] for name in ("memory.min", "memory.low")}


@pytest.mark.parametrize(
    ("host", "of_container", "of_pod"),
    [
        (V2_VENDOR, {**GOLDEN, **WMARKS, **OOM}, {**PROTECTION, **WMARKS, **OOM, **CACHE}),
        (V2_STOCK, {**GOLDEN, "memory.oom.group": "1"}, {**PROTECTION, "memory.oom.group": "1"}),
        (V1_VENDOR, {**GOLDEN, **WMARKS, **OOM}, {**PROTECTION, **WMARKS, **OOM}),
        (V1_STOCK, {}, {}),
    ],
)
def test_levels_and_kernels(host: HostFacts, of_container: Any, of_pod: Any) -> None:
    asked = by(host, "ls", **ALL)
    assert found(container("LS"), asked) == of_container
    assert found(own_cgroup("LS"), asked) == of_pod
    called = found(pod("LS", requested=ASKS), asked)
    assert called == (GOLDEN if host.cgroup_version == 2 else {}), "what a call carries, on mainline's v2 alone"


@pytest.mark.parametrize(
    ("cls", "label", "wmarks"),
    [
        ("lsr", "LSE", ("95", "20", "-25")),
        ("lsr", "LSR", ("95", "20", "-25")),
        ("ls", "LS", ("95", "20", "-25")),
        ("be", "BE", ("95", "20", "50")),
        ("system", "SYSTEM", ("0", "50", "0")),
    ],
)
def test_the_defaults_of_each_class(cls: str, label: str, wmarks: tuple[str, ...]) -> None:
    """SYSTEM pods have a class as the others, and are limited but guaranteed by it."""
    values = found(container(label), by(V2_VENDOR, cls))
    assert tuple(values[name] for name in WMARKS) == wmarks
    assert {name: values[name] for name in GOLDEN} == {"memory.min": "0", "memory.low": "0", "memory.high": "max"}
    assert (values["memory.priority"], values["memory.use_priority_oom"]) == ("0", "0")
    assert "memory.oom.group" not in values, "what kubelet had the runtime set stays"


def test_system_pods_are_protected_of_their_requests_and_keep_their_limits() -> None:
    asked = by(V2_STOCK, "system", **PERCENTS)
    assert decided(container("SYSTEM", "Guaranteed"), asked) == GOLDEN
    assert decided(own_cgroup("SYSTEM", "Guaranteed"), asked) == PROTECTION


@pytest.mark.parametrize(
    ("settings", "limit", "size", "is_on"),
    [
        ({}, 6 * GIB, None, None),
        ({"pageCacheLimitSize": GIB}, 6 * GIB, GIB, 1),
        ({"pageCacheLimitSize": 7 * GIB}, 6 * GIB, 6 * GIB, 1),  # at most the pod's limit
        ({"pageCacheLimitSize": 7 * GIB}, None, 7 * GIB, 1),
        ({"pageCacheLimitPercent": 50}, 6 * GIB, 3 * GIB, 1),
        ({"pageCacheLimitPercent": 50}, None, 0, 0),
        ({"pageCacheLimitSize": GIB, "pageCacheLimitPercent": 50}, 6 * GIB, GIB, 1),
        ({"pageCacheLimitSize": 0}, 6 * GIB, 0, 0),
        ({"pageCacheLimitSize": 0, "pageCacheLimitPercent": 50}, 6 * GIB, 0, 0),
        ({"pageCacheEnable": False, "pageCacheLimitSize": GIB}, 6 * GIB, GIB, 0),
        ({"pageCacheEnable": True}, 6 * GIB, 0, 1),
    ],
)
def test_page_cache(settings: Any, limit: int | None, size: int | None, is_on: int | None) -> None:
    who = own_cgroup("LS", requested=Resources(memory_limit_bytes=limit, memory_request_bytes=GIB))
    values = found(who, by(V2_VENDOR, "ls", **settings))
    told = (values.get("memory.pagecache_limit.size"), values.get("memory.pagecache_limit.enable"))
    assert told == (None if size is None else str(size), None if is_on is None else str(is_on))


def test_page_cache_that_is_reclaimed_by_who_fills_it() -> None:
    values = found(own_cgroup("LS"), by(V2_VENDOR, "ls", pageCacheLimitSize=GIB, pageCacheReclaimSync=True))
    assert values["memory.pagecache_limit.sync"] == "1"


def test_a_batch_pod_with_a_container_without_limit_has_none() -> None:
    containers = {**extended("a", memory="1Gi")["containers"], **extended("b", memory_request="1Gi")["containers"]}
    who = own_cgroup("BE", "BestEffort", EXTENDED={"containers": containers}, requested=Resources())
    assert found(who, by(V2_VENDOR, "be", pageCacheLimitSize=7 * GIB))["memory.pagecache_limit.size"] == str(7 * GIB)


DEFAULTS = {"wmark_ratio": 95, "wmark_scale_permill": 20}


@pytest.mark.parametrize(
    ("settings", "request_bytes", "limit", "marks"),
    [
        # B = min(high, limit): above B * 95 % until B * (95 % - 20 permille)
        (DEFAULTS, 2 * GIB, 6 * GIB, (6 * GIB * 95 // 100, 6 * GIB * 930 // 1000)),
        ({**DEFAULTS, "throttling_percent": 80}, 2 * GIB, 6 * GIB, (5304281497, 5192612413)),
        ({**DEFAULTS, "throttling_percent": 0}, GIB, None, None),
        ({"wmark_ratio": 0, "wmark_scale_permill": 20}, GIB, 2 * GIB, None),
        ({"wmark_ratio": 1, "wmark_scale_permill": 1000}, GIB, 2 * GIB, (2 * GIB // 100, 0)),
    ],
)
def test_marks(settings: Any, request_bytes: int, limit: int | None, marks: tuple[int, int] | None) -> None:
    case = MemoryCase(MemoryQOS(**settings), "", request_bytes, limit)
    found = case.marks(policy(V2))
    assert (None if found is None else (found.high, found.low)) == marks


PERCENT = st.none() | st.integers(0, 100)


@given(
    st.builds(MemoryQOS, min_limit_percent=PERCENT, low_limit_percent=PERCENT, throttling_percent=PERCENT),
    st.none() | st.integers(0, 1 << 45),
    st.none() | st.integers(1, 1 << 45),
    st.sampled_from([None, "64Gi"]),
)
def test_min_is_at_most_low_and_low_at_most_high(
    settings: MemoryQOS, request_bytes: int | None, limit: int | None, allocatable: str | None
) -> None:
    node: dict[str, Any] = {} if allocatable is None else {"allocatableMemory": allocatable}
    by, case = policy(V2, **node), MemoryCase(settings, "", request_bytes, limit)
    minimum, low, high = case.min_bytes, case.low_bytes, case.high_bytes(by)
    if low and minimum is not None:
        assert minimum <= low
    if high is not None and high >= 0:
        assert high >= max(minimum or 0, low or 0)
    for name, value in (("memory.min", minimum), ("memory.low", low), ("memory.high", high)):
        if value is not None:
            ROWS[name].check(value, 2)
    marks = case.marks(by)
    assert marks is None or 0 <= marks.low <= marks.high
