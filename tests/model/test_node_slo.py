"""NodeSLO: errors that name path and value, Koordinator's defaults, and what a disabled feature turns into."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import schema, slo, slo_defaults, slo_rules
from koord.model.annotations.values import MemoryPolicy, PodMemoryQOS
from koord.model.priority import PriorityClass
from koord.model.problem import Problem
from koord.model.qos import QoSClass
from koord.model.qos_settings import CPUQOS, CPUBurstConfig, CPUBurstPolicy, MemoryQOS, ResctrlQOS
from koord.model.schema import SchemaError
from koord.model.slo import NodeSLOSpec, ResourceQOS, ResourceQOSStrategy


def nest(path: str, value: object) -> dict[str, Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    assert isinstance(value, dict)
    return value


BAD = [
    ("spec", 7, "spec: 7 is not an object"),
    ("spec.resourceQOSStrategy.beClass.cpuQOS.groupIdentity", 7, "7 is not in -1..2"),
    ("spec.resourceQOSStrategy.beClass.cpuQOS.schedIdle", 2, "2 is not in 0..1"),
    ("spec.resourceQOSStrategy.lsClass.memoryQOS.wmarkScalePermill", 0, "0 is not in 1..1000"),
    ("spec.resourceQOSStrategy.lsClass.memoryQOS.priority", 13, "13 is not in 0..12"),
    ("spec.resourceQOSStrategy.lsClass.memoryQOS.pageCacheLimitSize", -1, "-1 is less than 0"),
    ("spec.resourceQOSStrategy.lsrClass.resctrlQOS.mbaPercent", "50", "'50' is not a whole number"),
    ("spec.resourceQOSStrategy.lsrClass.networkQOS.egressLimit", 101, "101 is not in 0..100 percent"),
    ("spec.resourceQOSStrategy.lsrClass.networkQOS.egressLimit", "50%", "'50%' is not a quantity"),
    ("spec.resourceQOSStrategy.lsrClass.networkQOS.egressLimit", "-5M", "'-5M' is negative"),
    ("spec.resourceQOSStrategy.lsrClass.networkQOS.egressLimit", 1.5, "1.5 is neither a whole percentage nor"),
    ("spec.resourceQOSStrategy.policies.cpuPolicy", "cfs", "'cfs' is not one of groupIdentity, coreSched"),
    ("spec.resourceQOSStrategy.policies.netQOSPolicy", 1, "1 is not one of tc, terway-qos"),
    ("spec.resourceUsedThresholdWithBE.enable", "true", "'true' is neither true nor false"),
    ("spec.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent", 101, "101 is not in 0..100"),
    ("spec.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent", 65.5, "65.5 is not a whole number"),
    ("spec.resourceUsedThresholdWithBE.cpuSuppressPolicy", "quota", "'quota' is not one of cpuset, cfsQuota"),
    ("spec.resourceUsedThresholdWithBE.cpuEvictBEUsageThresholdPercent", -1, "-1 is not in 0..100"),
    ("spec.resourceUsedThresholdWithBE.allocatableEvictPriorityThreshold", 8000, "8000 is not in -2147483648..7999"),
    ("spec.resourceUsedThresholdWithBE.evictEnabledPriorityThreshold", 2**31, "is not in -2147483648..2147483647"),
    ("spec.resourceUsedThresholdWithBE.cpuEvictTimeWindowSeconds", 2**63, "9223372036854775808 is not in 1.."),
    ("spec.cpuBurstStrategy.cpuBurstPercent", 0, "0 is not in 1..10000"),
    ("spec.systemStrategy.minFreeKbytesFactor", -5, "-5 is less than 1"),
    ("spec.systemStrategy.watermarkScaleFactor", 401, "401 is not in 10..400"),
    ("spec.resourceUsedThresholdWithBE.cpuEvictTimeWindowSeconds", 0, "0 is less than 1"),
    ("spec.cpuBurstStrategy.policy", "on", "'on' is not one of none, cpuBurstOnly, cfsQuotaBurstOnly, auto"),
    ("spec.cpuBurstStrategy.cfsQuotaBurstPercent", 50, "50 is less than 100"),
    ("spec.systemStrategy.totalNetworkBandwidth", "1000Mbps", "'1000Mbps' is not a quantity"),
    ("spec.systemStrategy.schedFeatures", ["X"], "a list is not an object"),
    ("spec.extensions", [], "a list is not an object"),
    ("spec.hostApplications", {}, "an object is not a list"),
]


@pytest.mark.parametrize(("path", "value", "message"), BAD)
def test_an_error_names_path_and_value(path: str, value: object, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        slo.decode(nest(path, value))
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


LEAVES = [(path, value, message) for path, value, message in BAD if "object" not in message and "enable" not in path]


@pytest.mark.parametrize(("path", "value", "message"), LEAVES)
def test_a_bad_leaf_is_told_and_counts_as_not_set(path: str, value: object, message: str) -> None:
    told: list[Problem] = []
    rest = {"cpuBurstStrategy": {"sharePoolThresholdPercent": 40}, "systemStrategy": {"memcgReapBackGround": 1}}
    spec = slo.decode_spec(merged(nest(path, value)["spec"], rest), bad=told.append)
    assert slo_defaults.in_force(spec) == slo_defaults.in_force(slo.decode_spec(rest)), "all the rest counts"
    assert [each.path for each in told] == [path]
    assert message in str(told[0])


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {**other, **one}
    return {**both, **{key: {**other[key], **one[key]} for key in one.keys() & other.keys()}}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec", 7),
        ("spec.resourceQOSStrategy.beClass", []),
        ("spec.systemStrategy.schedFeatures", ["X"]),
        ("spec.hostApplications", {}),
        ("spec.resourceUsedThresholdWithBE.enable", "true"),  # absent would mean off
    ],
)
def test_what_is_no_leaf_refuses_the_whole(path: str, value: object) -> None:
    with pytest.raises(SchemaError):
        slo.decode_spec(nest(path, value)["spec"], bad=lambda problem: None)


def test_a_bad_host_application_costs_itself_only() -> None:
    told: list[Problem] = []
    applications = [{"name": "a"}, {"name": "b", "cgroupPath": {"base": "x"}}, {"name": "c"}]
    spec = slo.decode_spec({"hostApplications": applications}, bad=told.append)
    assert [each.name for each in spec.host_applications or ()] == ["a", "c"], "never in the cgroup root instead"
    assert [each.path for each in told] == ["spec.hostApplications[1].cgroupPath.base"]


THRESHOLDS, BURST, CACHE = "resourceUsedThresholdWithBE", "cpuBurstStrategy", "resourceQOSStrategy.beClass.resctrlQOS"
TOGETHER = [
    (THRESHOLDS, {"cpuEvictBESatisfactionLowerPercent": 40}, {}, "needs cpuEvictBESatisfactionUpperPercent too"),
    (THRESHOLDS, {"cpuEvictBESatisfactionUpperPercent": 40}, {}, "needs cpuEvictBESatisfactionLowerPercent too"),
    (
        THRESHOLDS,
        {"cpuEvictBESatisfactionLowerPercent": 60, "cpuEvictBESatisfactionUpperPercent": 40},
        {},
        "60 is more than cpuEvictBESatisfactionUpperPercent, 40",
    ),
    (THRESHOLDS, {"cpuEvictBESatisfactionLowerPercent": 60, "cpuEvictBESatisfactionUpperPercent": 60}, None, ""),
    (THRESHOLDS, {"cpuSuppressMinPercent": 65}, {}, "65 is not less than cpuSuppressThresholdPercent, 65"),
    (THRESHOLDS, {"cpuSuppressMinPercent": 64}, None, ""),
    (
        THRESHOLDS,
        {"cpuSuppressMinPercent": 20, "cpuSuppressThresholdPercent": 10},
        {"cpuSuppressThresholdPercent": 10},
        "20 is not less than cpuSuppressThresholdPercent, 10",
    ),
    (THRESHOLDS, {"memoryAllocatableEvictThresholdPercent": 90}, {}, "needs memoryAllocatableEvictLowerPercent too"),
    (
        THRESHOLDS,
        {"cpuAllocatableEvictThresholdPercent": 90, "cpuAllocatableEvictLowerPercent": 90},
        {},
        "90 is not less than cpuAllocatableEvictThresholdPercent, 90",
    ),
    (
        THRESHOLDS,
        {"memoryEvictThresholdPercent": 60, "memoryEvictLowerPercent": 65},
        {"memoryEvictThresholdPercent": 60},
        "65 is not less than memoryEvictThresholdPercent, 60",
    ),
    (THRESHOLDS, {"memoryEvictLowerPercent": 70}, {}, "70 is not less than memoryEvictThresholdPercent, 70"),
    (THRESHOLDS, {"cpuEvictThresholdPercent": 70}, {"cpuEvictThresholdPercent": 70}, ""),
    (THRESHOLDS, {"memoryEvictThresholdPercent": 80}, {"memoryEvictThresholdPercent": 80}, ""),
    (CACHE, {"catRangeStartPercent": 30}, {}, "30 is not less than catRangeEndPercent, 30"),
    (CACHE, {"catRangeStartPercent": 10, "catRangeEndPercent": 20}, None, ""),
    (CACHE, {"catRangeStartPercent": 20, "catRangeEndPercent": 10, "mbaPercent": 50}, {"mbaPercent": 50}, "20 is not"),
    (BURST, {"cfsQuotaBurstPeriodSeconds": 0, "policy": "auto"}, None, ""),
    (BURST, {"cfsQuotaBurstPeriodSeconds": 1}, None, ""),
    (BURST, {"cfsQuotaBurstPeriodSeconds": -1}, None, ""),
    ("systemStrategy", {"totalNetworkBandwidth": "-1G"}, {}, "'-1G' is negative"),
    ("systemStrategy", {"totalNetworkBandwidth": "0"}, None, ""),
]


@pytest.mark.parametrize(("path", "said", "counts", "message"), TOGETHER)
def test_fields_that_contradict_each_other(path: str, said: Any, counts: Any, message: str) -> None:
    told: list[Problem] = []
    spec = slo.decode_spec(nest(path, said))
    assert slo_rules.checked(spec, bad=told.append) == slo.decode_spec(nest(path, said if counts is None else counts))
    assert [message in str(each) for each in told] == ([True] if message else [])
    if message:
        assert told[0].path.startswith(f"spec.{path}.")
        with pytest.raises(SchemaError):
            slo_rules.checked(spec)


@pytest.mark.parametrize(
    ("applications", "counting", "complaints"),
    [
        ([{"name": "a"}, {"name": "b", "qos": "LS", "priority": "koord-prod"}], ["a", "b"], []),
        ([{"qos": "LS"}, {"name": "b"}], ["b"], ["spec.hostApplications[0].name: '' is no name"]),
        (
            [{"name": "a", "qos": "LS"}, {"name": "a", "qos": "BE"}, {"name": "b"}],
            ["a", "b"],
            ["spec.hostApplications[1].name: 'a' is the name of spec.hostApplications[0] too"],
        ),
        (
            [{"name": "a", "qos": "ls", "priority": "prod"}],
            ["a"],
            [
                "spec.hostApplications[0].qos: 'ls' is not one of LSE, LSR, LS, BE, SYSTEM",
                f"spec.hostApplications[0].priority: 'prod' is not one of {', '.join(PriorityClass)}",
            ],
        ),
    ],
)
def test_host_applications_are_told_apart(applications: Any, counting: list[str], complaints: list[str]) -> None:
    told: list[Problem] = []
    spec = slo_rules.checked(slo.decode_spec({"hostApplications": applications}), bad=told.append)
    assert [each.name for each in spec.host_applications or ()] == counting
    assert [str(each) for each in told] == complaints
    assert {each.qos for each in spec.host_applications or ()} <= {"", *QoSClass}


def test_an_error_inside_a_list_names_the_index() -> None:
    with pytest.raises(SchemaError, match=r"^spec\.hostApplications\[1\]\.cgroupPath\.base: 'x' is not one of"):
        slo.decode({"spec": {"hostApplications": [{}, {"cgroupPath": {"base": "x"}}]}})


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", "[" * 300_000, b"\xff", '{"a":' * 200_000])
def test_what_is_no_object_at_all(text: str | bytes) -> None:
    with pytest.raises(SchemaError):
        slo.decode(text)


def test_free_form_depth_is_bounded() -> None:
    deep = '{"spec":{"extensions":{"a":' + "[" * 100_000 + "]" * 100_000 + "}}}"
    with pytest.raises(SchemaError, match="nested too deeply"):
        slo.decode(deep)


def test_nothing_said_is_nothing_set() -> None:
    for document in ("{}", '{"spec":null}', '{"spec":{}}', '{"spec":{"resourceQOSStrategy":null}}'):
        assert slo.decode(document).spec == NodeSLOSpec()


def test_unknown_keys_are_told_but_do_not_stop() -> None:
    told: list[str] = []
    document = {"metadata": {}, "spec": {"beClass": {}, "cpuBurstStrategy": {"cpuBurstPercnt": 5, "a.b": 1}}}
    assert slo.decode(document, told.append).spec.cpu_burst == slo.CPUBurstStrategy()
    assert told == ["spec.beClass", "spec.cpuBurstStrategy.cpuBurstPercnt", "spec.cpuBurstStrategy['a.b']"]


@pytest.mark.parametrize("extensions", [{"a": {"b": 1}}, {"Object": {"a": {"b": 1}}}])
def test_both_forms_of_extensions(extensions: dict[str, object]) -> None:
    assert slo.decode({"spec": {"extensions": extensions}}).spec.extensions == {"a": {"b": 1}}


@pytest.mark.parametrize("extensions", [{"Object": 1}, {"Object": {}, "other": 1}])
def test_an_extension_that_is_named_object(extensions: dict[str, object]) -> None:
    assert slo.decode({"spec": {"extensions": extensions}}).spec.extensions == extensions


@pytest.mark.parametrize(
    ("value", "bits_per_s"), [(40, 400_000_000), (0, 0), (100, 10**9), ("50M", 50_000_000), ("40", 40), ("0", 0)]
)
def test_bandwidth_is_a_percentage_or_a_quantity(value: object, bits_per_s: int) -> None:
    spec = slo.decode(nest("spec.resourceQOSStrategy.lsClass.networkQOS.egressLimit", value)).spec
    assert spec.resource_qos is not None
    assert spec.resource_qos.ls_class is not None
    assert spec.resource_qos.ls_class.network_qos is not None
    limit = spec.resource_qos.ls_class.network_qos.egress_limit
    assert limit is not None
    assert limit.of_total(10**9) == bits_per_s


def test_host_applications() -> None:
    spec = slo.decode({"spec": {"hostApplications": [
        {"name": "nginx", "priority": "koord-prod", "qos": "LS", "strategy": {},
         "cgroupPath": {"base": "CgroupRoot", "parentDir": "host", "relativePath": "nginx"}},
        {"name": "odd", "qos": "XX"},
    ]}}).spec  # fmt: skip
    assert spec.host_applications is not None
    nginx, odd = spec.host_applications
    assert (nginx.qos_class, odd.qos_class) == (QoSClass.LS, None)
    assert nginx.cgroup_path is not None
    assert (nginx.cgroup_path.base, nginx.cgroup_path.parent_dir) == ("CgroupRoot", "host")


def test_go_writes_unset_choices_as_empty_text() -> None:
    spec = slo.decode({"spec": {"resourceQOSStrategy": {"policies": {"cpuPolicy": ""}}}}).spec
    assert spec.resource_qos is not None
    assert spec.resource_qos.policies == slo.Policies()


def test_defaults_are_koordinators() -> None:
    document = json.loads(schema.encode(slo_defaults.defaults()))
    assert document["resourceUsedThresholdWithBE"] == {
        "enable": False, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cpuset",
        "memoryEvictThresholdPercent": 70, "cpuEvictPolicy": "evictByRealLimit",
    }  # fmt: skip
    assert document["cpuBurstStrategy"] == {
        "policy": "none", "cpuBurstPercent": 1000, "cfsQuotaBurstPercent": 300, "cfsQuotaBurstPeriodSeconds": -1,
        "sharePoolThresholdPercent": 50,
    }  # fmt: skip
    assert document["systemStrategy"] == {"totalNetworkBandwidth": "0"}
    assert document["resourceQOSStrategy"]["policies"] == {"cpuPolicy": "groupIdentity", "netQOSPolicy": "tc"}
    assert document["resourceQOSStrategy"]["cgroupRoot"] == {"blkioQOS": {"enable": False, "blocks": []}}


@pytest.mark.parametrize(
    ("cls", "identity", "expeller", "wmark", "cat_end"),
    [
        ("lsrClass", 2, True, [95, 20, -25], 100),
        ("lsClass", 2, True, [95, 20, -25], 100),
        ("beClass", -1, False, [95, 20, 50], 30),
        ("systemClass", 0, False, [0, 50, 0], 100),
    ],
)
def test_class_defaults(cls: str, identity: int, expeller: bool, wmark: list[int], cat_end: int) -> None:
    settings = json.loads(schema.encode(slo_defaults.defaults()))["resourceQOSStrategy"][cls]
    cpu, memory, resctrl = settings["cpuQOS"], settings["memoryQOS"], settings["resctrlQOS"]
    assert cpu == {"enable": False, "groupIdentity": identity, "schedIdle": 0, "coreExpeller": expeller}
    assert [memory[key] for key in ("wmarkRatio", "wmarkScalePermill", "wmarkMinAdj")] == wmark
    zeros = ("minLimitPercent", "lowLimitPercent", "throttlingPercent", "priorityEnable", "priority", "oomKillGroup")
    assert {memory[key] for key in zeros} == {0}
    assert not {key for key in memory if key.startswith("pageCache")}
    assert (resctrl["catRangeStartPercent"], resctrl["catRangeEndPercent"], resctrl["mbaPercent"]) == (0, cat_end, 100)
    assert settings["networkQOS"] == {
        "enable": False, "ingressRequest": 0, "ingressLimit": 0, "egressRequest": 0, "egressLimit": 0,
    }  # fmt: skip


NEUTRAL_MEMORY = {
    "enable": False, "minLimitPercent": 0, "lowLimitPercent": 0, "throttlingPercent": 0, "wmarkRatio": 0,
    "wmarkScalePermill": 50, "wmarkMinAdj": 0, "priorityEnable": 0, "priority": 0, "oomKillGroup": 0,
}  # fmt: skip


@pytest.mark.parametrize("cls", ["lsrClass", "lsClass", "beClass"])
@pytest.mark.parametrize(
    "said", [None, {}, {"cpuQOS": {"enable": False, "groupIdentity": 1}, "memoryQOS": {"priority": 5}}]
)
def test_disabled_features_become_neutral(cls: str, said: object) -> None:
    spec = slo.decode(nest(f"spec.resourceQOSStrategy.{cls}", said)).spec
    settings = json.loads(schema.encode(slo_defaults.in_force(spec)))["resourceQOSStrategy"][cls]
    assert settings["cpuQOS"] == {"enable": False, "groupIdentity": 0, "schedIdle": 0, "coreExpeller": False}
    assert settings["memoryQOS"] == NEUTRAL_MEMORY
    assert settings["resctrlQOS"] == {
        "enable": False, "catRangeStartPercent": 0, "catRangeEndPercent": 100, "mbaPercent": 100,
    }  # fmt: skip


def test_the_system_class_and_block_io_are_never_neutralised() -> None:
    blocks = {"blkioQOS": {"blocks": [{"name": "/dev/vdb"}]}}
    said = {"systemClass": {"cpuQOS": {"groupIdentity": 1}}, "beClass": blocks}
    in_force = slo_defaults.in_force(slo.decode({"spec": {"resourceQOSStrategy": said}}).spec).resource_qos
    assert in_force is not None
    system, be = in_force.of(QoSClass.SYSTEM), in_force.of(QoSClass.BE)
    assert system is not None
    assert system.cpu_qos == CPUQOS(enable=False, group_identity=1, sched_idle=0, core_expeller=False)
    assert be is not None
    assert be.blkio_qos is not None
    assert [block.name for block in be.blkio_qos.blocks or ()] == ["/dev/vdb"]


def test_enabled_features_start_from_the_class_defaults() -> None:
    on = {"enable": True}
    said = {"cpuQOS": on, "memoryQOS": on | {"lowLimitPercent": 50}, "resctrlQOS": on}
    in_force = slo_defaults.in_force(slo.decode(nest("spec.resourceQOSStrategy.beClass", said)).spec).resource_qos
    assert in_force is not None
    be = in_force.be_class
    assert be is not None
    assert be.cpu_qos == CPUQOS(enable=True, group_identity=-1, sched_idle=0, core_expeller=False)
    assert be.memory_qos is not None
    assert (be.memory_qos.low_limit_percent, be.memory_qos.wmark_ratio, be.memory_qos.wmark_min_adj) == (50, 95, 50)
    assert be.resctrl_qos == ResctrlQOS(
        enable=True, cat_range_start_percent=0, cat_range_end_percent=30, mba_percent=100
    )


def test_lse_takes_the_settings_of_lsr() -> None:
    strategy = ResourceQOSStrategy(lsr_class=ResourceQOS(cpu_qos=CPUQOS(group_identity=2)))
    assert strategy.of(QoSClass.LSE) is strategy.of(QoSClass.LSR) is strategy.lsr_class
    assert strategy.of(QoSClass.LS) is strategy.of(QoSClass.SYSTEM) is None


def test_a_pods_settings_overlay_the_nodes() -> None:
    strategy = slo.CPUBurstStrategy(policy=CPUBurstPolicy.NONE, cpu_burst_percent=200, share_pool_threshold_percent=50)
    burst = schema.overlay(strategy, CPUBurstConfig(policy=CPUBurstPolicy.AUTO))
    assert burst == slo.CPUBurstStrategy(
        policy=CPUBurstPolicy.AUTO, cpu_burst_percent=200, share_pool_threshold_percent=50
    )
    memory = schema.overlay(slo_defaults.neutral_memory(), PodMemoryQOS(policy=MemoryPolicy.DEFAULT, priority=3))
    assert (type(memory), memory.priority, memory.wmark_scale_permill) == (MemoryQOS, 3, 50)
    assert schema.overlay(memory, None) is memory


optional = st.none() | st.integers(0, 100)
switch = st.none() | st.booleans()
memory_settings = st.builds(MemoryQOS, enable=switch, min_limit_percent=optional, wmark_ratio=optional)
class_settings = st.builds(ResourceQOS, memory_qos=st.none() | memory_settings)
specs = st.builds(
    NodeSLOSpec,
    resource_qos=st.none() | st.builds(ResourceQOSStrategy, ls_class=st.none() | class_settings),
    system=st.none() | st.builds(slo.SystemStrategy, min_free_kbytes_factor=st.none() | st.integers(1, 400)),
    host_applications=st.none() | st.lists(st.builds(slo.HostApplication, name=st.text(max_size=5))).map(tuple),
)


@given(specs)
def test_round_trip(spec: NodeSLOSpec) -> None:
    assert slo.decode_spec(schema.parse_json(schema.encode(spec))) == spec


@given(specs)
def test_overlay_is_idempotent_and_keeps_what_is_not_said(spec: NodeSLOSpec) -> None:
    once = schema.overlay(slo_defaults.defaults(), spec)
    assert schema.overlay(once, spec) == once
    assert once.cpu_burst == slo_defaults.defaults().cpu_burst
    assert slo_defaults.in_force(slo_defaults.in_force(spec)) == slo_defaults.in_force(spec)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
known_paths = sorted({path.removeprefix("spec.") for path, _, _ in BAD} - {"spec"})


@given(st.sampled_from(known_paths), json_values)
def test_never_fails_otherwise(path: str, value: object) -> None:
    try:
        slo.decode_spec(nest(path, value))
    except SchemaError as error:
        assert error.path.startswith("spec.")
