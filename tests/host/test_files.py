"""The table of kernel files: conversions of both cgroup versions, ranges, and that what is read can be written back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.host.files import ROWS, ParseError, UnknownRow, Value, ValueRefused, row
from koord.host.spelling import INT64_MAX
from koord.host.weights import Weights
from koord.model import cpuset

PAGE = 4096


@pytest.mark.parametrize(
    ("name", "version", "text", "why"),
    [
        ("cpu_quota", 2, "", "has no word 1"),
        ("cpu_period", 2, "max", "has no word 2"),
        ("cpu_quota", 1, "lots", "invalid literal"),
        ("cpu_shares", 2, "default", "invalid literal"),
        ("cpuset_cpus", 2, "3-1", "runs backwards"),
        ("memory_limit_in_bytes", 2, "1G", "invalid literal"),
        ("cpuacct.usage", 2, "user_usec 5\n", "has no line usage_usec"),
        ("io.weight", 2, "", "is empty"),
        ("cgroup.freeze", 1, "1", "is none of THAWED, FREEZING, FROZEN"),
        ("cgroup.freeze", 2, "FROZEN", "is none of 0, 1"),
        ("sched_features@CORE_EXPEL", 2, "CORE_EXPELLER NO_CORE\n", "has no feature CORE_EXPEL"),
        ("resctrl.schemata@LS/L3", 1, "MB:0=100\n", "has no line L3"),
        ("resctrl.schemata@LS/L3", 1, "L3:0\n", "domain=setting"),
    ],
)
def test_text_of_another_form_names_file_and_text(name: str, version: int, text: str, why: str) -> None:
    with pytest.raises(ParseError, match=why) as caught:
        row(name).parse(text, version)
    assert caught.value.file == row(name).file_name(version)
    assert caught.value.text == text
    assert caught.value.file in str(caught.value)


@pytest.mark.parametrize(
    ("name", "version", "value", "why"),
    [
        ("cpu_quota", 1, 0, "not in 1000"),
        ("cpu_quota", 2, 999, "not in 1000"),
        ("cpu_quota", 2, -2, "and not -1"),
        ("cpu_quota", 2, "max", "not a whole number"),
        ("cpu_quota", 2, True, "not a whole number"),
        ("cpu_period", 2, 100000, "cannot be written on cgroup v2"),
        ("cpu_shares", 1, 1, "not in 2..262144"),
        ("cpu_shares", 2, 262145, "not in 2..262144"),
        ("cpu.bvt_warp_ns", 1, 3, "not in -1..2"),
        ("cpu.bvt_warp_ns", 1, -2, "not in -1..2"),
        ("cpu.idle", 2, 2, "not in 0..1"),
        ("cgroup.freeze", 1, 2, "not in 0..1"),
        ("cgroup.freeze", 2, "FROZEN", "not a whole number"),
        ("cpu.max.burst", 1, -1, "not in 0"),
        ("cpuset_cpus", 1, "0-", "is not a list"),
        ("cpuset.cpus.partition", 2, "exclusive", "is none of member"),
        ("memory.high", 2, -2, "not in 0"),
        ("memory.wmark_min_adj", 1, 51, "not in -25..50"),
        ("memory.wmark_scale_factor", 1, 0, "not in 1..1000"),
        ("memory.priority", 2, 13, "not in 0..12"),
        ("memory.swap.max", 1, 0, "cannot be written on cgroup v1"),
        ("memory.pagecache_limit.size", 2, -1, "not in 0"),
        ("memory.stat", 2, "anon 1", "cannot be written"),
        ("io.max.rbps", 2, 1, "lacks its device"),
        ("io.max.rbps@8:0", 2, 0, "neither positive nor -1"),
        ("io.weight", 2, 0, "not in 1..10000"),
        ("io.weight", 2, "default", "not a whole number"),  # the group's own has no default but itself
        ("sched_features@CORE_EXPEL", 2, 2, "not in 0..1"),
        ("sched_features@CORE_EXPEL", 2, "NO_CORE_EXPEL", "not a whole number"),
        ("sched_features", 2, 1, "lacks its feature"),
        ("blkio.cost.weight@8:0", 1, 101, "not in 1..100"),
        ("io.cost.qos@8:0", 2, "enable", "key=value"),
        ("net_cls.classid", 2, 1, "cannot be written on cgroup v2"),
        ("vm.min_free_kbytes", 1, 10239, "not in 10240..10485760"),
        ("oom_score_adj@42", 2, -1001, "not in -1000..1000"),
        ("resctrl.schemata@LS/L3", 1, "0:f", "domains such as"),
    ],
)
def test_refused_values_name_row_value_and_rule(name: str, version: int, value: Value, why: str) -> None:
    with pytest.raises(ValueRefused, match=why) as caught:
        row(name).format(value, version)
    assert (caught.value.name, caught.value.value) == (row(name).name, value)


@pytest.mark.parametrize(
    "name",
    ["", "cpu.max", "io.max.rbps@", "io.max.rbps@sda", "cpu_quota@8:0", "oom_score_adj@0", "oom_score_adj@../1",
     "resctrl.schemata@LS", "resctrl.schemata@../L3", "resctrl.schemata@a/b/L3", "resctrl.schemata@LS/l3"],
)  # fmt: skip
def test_unknown_rows_and_qualifiers(name: str) -> None:
    with pytest.raises(UnknownRow):
        row(name)


@pytest.mark.parametrize(
    ("name", "version", "text", "value", "back"),
    [
        ("cpu_quota", 1, "-1\n", -1, "-1"),
        ("cpu_quota", 1, "150000\n", 150000, "150000"),
        ("cpu_quota", 2, "max 100000\n", -1, "max"),
        ("cpu_quota", 2, "166667 100000\n", 166667, "166667"),
        ("cpu_period", 1, "100000\n", 100000, "100000"),
        ("cpu.max.burst", 2, "0\n", 0, "0"),
        ("cpu_shares", 1, "1536\n", 1536, "1536"),
        ("cpu_shares", 2, "100\n", 2598, "100"),
        ("cpu.bvt_warp_ns", 2, "-1\n", -1, "-1"),
        ("cpuset_cpus", 1, "0-3,4,8\n", "0-4,8", "0-4,8"),
        ("cpuset_mems", 2, "\n", "", "\n"),
        ("cpuset.cpus.partition", 2, "root invalid (Cpu list empty)\n", "root", "root"),
        ("memory_limit_in_bytes", 1, "9223372036854771712\n", -1, "-1"),
        ("memory_limit_in_bytes", 1, "9223372036854710272\n", -1, "-1"),  # 64 KiB pages
        ("memory_limit_in_bytes", 2, "max\n", -1, "max"),
        ("memory_limit_in_bytes", 2, "1073741824\n", 1 << 30, "1073741824"),
        ("memory.high", 2, "max\n", -1, "max"),
        ("memory.low", 2, "0\n", 0, "0"),
        ("memory.high", 1, "max\n", -1, "-1"),
        ("memory.pagecache_limit.size", 2, "0\n", 0, "0"),
        ("io.max.wbps@253:16", 2, "8:0 rbps=1 wbps=2\n253:16 rbps=max wbps=52428800 riops=max wiops=max\n",
         52428800, "253:16 wbps=52428800"),
        ("io.max.rbps@253:16", 2, "253:16 rbps=max wbps=5 riops=max wiops=max\n", -1, "253:16 rbps=max"),
        ("io.max.riops@253:16", 2, "", -1, "253:16 riops=max"),
        ("io.max.rbps@253:16", 1, "8:0 5\n253:16 52428800\n", 52428800, "253:16 52428800"),
        ("io.max.rbps@253:16", 1, "", -1, "253:16 0"),
        ("io.weight", 2, "default 100\n8:0 300\n", 100, "default 100"),
        ("io.weight@8:0", 2, "default 100\n8:0 300\n", 300, "8:0 300"),
        ("io.weight@8:1", 2, "default 150\n8:0 300\n", "default", "8:1 default"),  # the line goes
        ("blkio.cost.weight@8:0", 1, "100\n8:0 60\n", 60, "8:0 60"),
        ("blkio.cost.weight@8:1", 1, "100\n8:0 60\n", "default", "8:1 default"),
        ("sched_features@CORE_EXPEL", 2, "GENTLE_FAIR_SLEEPERS NO_CORE_EXPEL LB_MIN\n", 0, "NO_CORE_EXPEL"),
        ("sched_features@CORE_EXPEL", 1, "GENTLE_FAIR_SLEEPERS CORE_EXPEL\n", 1, "CORE_EXPEL"),
        ("io.latency@8:0", 2, "", "", "8:0 target=0"),
        ("io.cost.qos@8:0", 2, "8:0 enable=1 ctrl=user rpct=95.00\n", "enable=1 ctrl=user rpct=95.00",
         "8:0 enable=1 ctrl=user rpct=95.00"),
        ("net_cls.classid", 1, "65538\n", 65538, "65538"),
        ("resctrl.schemata@LS/L3", 1, "    MB:0= 100;1= 100\n    L3:0=07FF;1=3f\n", "0=7ff;1=3f", "L3:0=7ff;1=3f\n"),
        ("resctrl.schemata@/MB", 1, "    MB:0= 100;1=  90\n", "0=100;1=90", "MB:0=100;1=90\n"),
        ("oom_score_adj@42", 1, "-998\n", -998, "-998"),
    ],
)  # fmt: skip
def test_text_to_value_and_back(name: str, version: int, text: str, value: Value, back: str) -> None:
    assert row(name).parse(text, version) == value
    assert row(name).format(value, version) == back


@pytest.mark.parametrize(
    ("version", "text", "ns"), [(1, "5000\n", 5000), (2, "usage_usec 5\nuser_usec 3\nsystem_usec 2\n", 5000)]
)
def test_cpu_time_is_in_nanoseconds_on_both_versions(version: int, text: str, ns: int) -> None:
    assert row("cpuacct.usage").parse(text, version) == ns


@pytest.mark.parametrize(
    ("name", "desired", "actual", "same"),
    [
        ("cpu_quota", -1, -1, True),
        ("cpu_quota", 150000, 150001, False),
        ("memory_limit_in_bytes", 5000, PAGE, True),
        ("memory_limit_in_bytes", 9000, PAGE, False),
        ("memory_limit_in_bytes", INT64_MAX, -1, True),
        ("memory_limit_in_bytes", -1, 0, False),
        ("cpuset_cpus", "0,1,2", "0-2", True),
        ("cpuset_cpus", "0-1", "0-2", False),
        ("cpu_shares", 1024, Weights.LINEAR.shares(39), True),
        ("cpu_shares", 1024, Weights.LINEAR.shares(100), True),
        ("cpu_shares", 1024, Weights.QUADRATIC.shares(100), True),
        ("cpu_shares", 1024, Weights.LINEAR.shares(59), False),
        ("io.cost.qos", "enable=1 rpct=95", "enable=1 ctrl=user rpct=95.00 rlat=3000", True),
        ("io.cost.qos", "enable=1 rpct=90", "enable=1 ctrl=user rpct=95.00 rlat=3000", False),
        ("io.latency", "", "target=75", False),
    ],
)
def test_what_counts_as_the_same(name: str, desired: Value, actual: Value, same: bool) -> None:
    assert row(name).same(desired, actual, PAGE, version=2) is same


@pytest.mark.parametrize("name", ["cpu_shares", "memory_limit_in_bytes", "cpu_quota", "cpuset_mems"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_files_name_tells_its_cgroup_version(name: str, version: int) -> None:
    file_name = row(name).file_name(version, for_write=True)
    told = row(name).version_of(f"/sys/fs/cgroup/kubepods/pod1/{file_name}")
    same_on_both = row(name).file_name(1) == row(name).file_name(2, for_write=True)
    assert told == version or same_on_both


def test_v1_keeps_shares_exactly() -> None:
    assert not row("cpu_shares").same(1024, Weights.LINEAR.shares(39), PAGE, version=1)


def _values(name: str) -> st.SearchStrategy[Value]:
    spelled = row(name).spelling
    low, high = getattr(spelled, "low", None), getattr(spelled, "high", None)
    if low is None or high is None:
        return st.sets(st.integers(0, 255)).map(lambda cpus: str(cpuset.CPUSet.of(cpus)))
    numbers = st.integers(low, min(high, 1 << 62))
    return numbers | st.just(-1) if getattr(spelled, "unlimited", False) else numbers


ROUND = [
    (one.name, version)
    for one in ROWS.values()
    for version in (1, 2)
    if type(one.spelling).__name__ in ("Integer", "Bytes", "CPUList")
    and one.writable
    and not one.takes
    and (one.system or one.file_name(version, for_write=True))
    and one.name != "cpu_period"
]


@given(st.data(), st.sampled_from(ROUND))
def test_every_value_that_may_be_written_reads_back(data: st.DataObject, place: tuple[str, int]) -> None:
    name, version = place
    value = data.draw(_values(name))
    assert row(name).parse(row(name).format(value, version), version) == value


@given(st.integers(1, 10000), st.sampled_from(Weights))
def test_every_weight_read_is_written_back_unchanged(weight: int, weights: Weights) -> None:
    shares = row("cpu_shares").parse(str(weight), 2, weights)
    assert row("cpu_shares").format(shares, 2, weights) == str(weight)


@given(st.integers(1, INT64_MAX), st.sampled_from(["rbps", "wbps", "riops", "wiops"]), st.sampled_from((1, 2)))
def test_device_limits_read_back(limit: int, key: str, version: int) -> None:
    found = row(f"io.max.{key}@8:16")
    assert found.parse(found.format(limit, version), version) == limit


def test_rows_are_consistent() -> None:
    for name, one in ROWS.items():
        assert one.name == name
        assert one.v1 or one.v2 or one.v2_read or one.system, name
        assert not (one.unified and one.v2 is None), name
        assert set(one.vendor_on) <= {1, 2}, name


@pytest.mark.parametrize(("name", "vendor"), [("cpu.bvt_warp_ns", True), ("memory.high", False), ("cpu.idle", False)])
def test_which_rows_only_vendor_kernels_have(name: str, vendor: bool) -> None:
    assert row(name).vendor is vendor


@pytest.mark.parametrize(
    ("version", "text", "value", "written"),
    [
        (1, "THAWED\n", 0, "THAWED"),
        (1, "FREEZING\n", 1, "FROZEN"),
        (1, "FROZEN\n", 1, "FROZEN"),
        (2, "0\n", 0, "0"),
        (2, "1\n", 1, "1"),
    ],
)
def test_freezing_has_words_on_v1(version: int, text: str, value: int, written: str) -> None:
    freezer = row("cgroup.freeze")
    assert freezer.parse(text, version) == value
    assert freezer.format(value, version) == written
