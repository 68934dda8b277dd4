"""Which cgroups are units of systemd, and what their properties say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.host import systemd
from koord.host.files import Value
from koord.host.systemd import INFINITY
from koord.host.weights import Weights

POD = "kubepods-burstable-pod1_2.slice"
SCOPE = "cri-containerd-" + "ab" * 32 + ".scope"
SLICES = f"/kubepods.slice/kubepods-burstable.slice/{POD}"


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("", ""),
        ("/", ""),
        ("/kubepods/burstable/pod1/0123", ""),
        ("/kubepods/pod1.slice", ""),
        ("/kubepods.slice/kubepods-besteffort", ""),
        (f"/kubepods.slice/{POD}", ""),
        (f"{SLICES}/{SCOPE}/system.slice", ""),
        (f"{SLICES}/{SCOPE}/system.slice/nginx.service", ""),
        (f"{SLICES}/{SCOPE}/nginx.service", ""),
        ("/user.slice/user-0.slice/user@0.service/app.slice/a.service", ""),
        ("/_memory.slice", ""),
        ("/kubepods.slice", "kubepods.slice"),
        ("/kubepods.slice/kubepods-burstable.slice", "kubepods-burstable.slice"),
        ("/nested.slice/nested-kubepods.slice", "nested-kubepods.slice"),
        (SLICES, POD),
        (f"{SLICES}/", POD),
        (f"{SLICES}/{SCOPE}", SCOPE),
        ("/system.slice/nginx.service", "nginx.service"),
        ("/init.scope", "init.scope"),
    ],
)
def test_whose_cgroup_it_is(cgroup: str, unit: str) -> None:
    assert systemd.unit_of(cgroup) == unit


@pytest.mark.parametrize(
    ("version", "values", "said"),
    [
        (2, {}, []),
        (2, {"cpu.max.burst": 5, "memory.oom.group": 1, "io.max.rbps@8:0": 5, "cpu.bvt_warp_ns": 2}, []),
        (2, {"cpu_quota": 5000}, []),
        (2, {"cpu.idle": 0}, []),
        (2, {"cpu_shares": 1024}, [("CPUWeight", 39)]),
        (2, {"cpu_shares": 3, "cpu.idle": 1}, [("CPUWeight", 0)]),
        (2, {"cpu_shares": 2, "cpu.idle": 0}, [("CPUWeight", 1)]),
        (2, {"cpu_quota": -1, "cpu_period": 100_000}, [("CPUQuota", INFINITY), ("CPUQuotaPeriodSec", 100_000)]),
        (2, {"cpu_quota": 33_333, "cpu_period": 100_000}, [("CPUQuota", 340_000), ("CPUQuotaPeriodSec", 100_000)]),
        (2, {"cpu_quota": 1000, "cpu_period": 1_000_000}, [("CPUQuota", 10_000), ("CPUQuotaPeriodSec", 1_000_000)]),
        (2, {"cpuset_cpus": ""}, [("AllowedCPUs", b"")]),
        (2, {"cpuset_cpus": "0,8-9", "cpuset_mems": "0"}, [("AllowedCPUs", b"\1\3"), ("AllowedMemoryNodes", b"\1")]),
        (2, {"memory_limit_in_bytes": -1, "memory.min": 0}, [("MemoryMax", INFINITY), ("MemoryMin", 0)]),
        (2, {"memory.low": 4096, "memory.high": -1}, [("MemoryLow", 4096), ("MemoryHigh", INFINITY)]),
        (2, {"memory.swap.max": 0, "pids.max": 7, "io.weight": 50},
         [("MemorySwapMax", 0), ("TasksMax", 7), ("IOWeight", 50)]),
        (1, {"cpu_shares": 1024, "cpuset_cpus": "0", "memory.min": 0}, [("CPUShares", 1024)]),
        (1, {"cpu_shares": 3, "cpu.idle": 1}, []),
        (1, {"memory_limit_in_bytes": 4096, "cpu_quota": -1, "cpu_period": 50_000},
         [("CPUQuota", INFINITY), ("CPUQuotaPeriodSec", 50_000), ("MemoryLimit", 4096)]),
    ],
)  # fmt: skip
def test_what_is_said(version: int, values: dict[str, Value], said: list[tuple[str, int | bytes]]) -> None:
    settings = systemd.settings(values, version, Weights.LINEAR)
    assert [(one.directive, one.value) for one in settings] == said


@given(st.integers(1000, 1 << 40), st.integers(1000, 1_000_000))
def test_a_quota_is_kept_in_whole_percents_and_never_lowered(quota_us: int, period_us: int) -> None:
    (per_second, _) = systemd.settings({"cpu_quota": quota_us, "cpu_period": period_us}, 2, Weights.LINEAR)
    kept = systemd.kept_quota_us(quota_us, period_us)
    assert isinstance(per_second.value, int)
    assert per_second.value % 10_000 == 0, "the drop-in file says it in whole percents"
    assert kept == per_second.value * period_us // 1_000_000
    assert quota_us <= kept < quota_us + period_us // 100 + 1
    assert systemd.kept_quota_us(kept, period_us) == kept
