"""Pod labels and annotations: bad ones are named and count as absent, good ones survive a round trip."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import quantity
from koord.model.annotations import AnnotationError, PodAnnotations, decode, encode, values
from koord.model.annotations.pod import ANNOTATIONS, KEYS, LABELS
from koord.model.cpuset import CPUSet
from koord.model.priority import BATCH_CPU, BATCH_MEMORY, MID_CPU
from koord.model.qos_settings import CPUQOS, BlkIOQOS, Block, BlockType, CPUBurstConfig, CPUBurstPolicy, IOCfg
from koord.model.quantity import Format, Quantity

DEEP = '{"llc":' * 100_000
NOTHING = PodAnnotations()


def its(field: str) -> str:
    """The key of a field."""
    return KEYS[field].name


def read(key: str, text: str) -> PodAnnotations:
    where = {key: text}
    return PodAnnotations.read(where, {}, "ns/p") if key in LABELS else PodAnnotations.read({}, where, "ns/p")


BAD = [
    (its("qos_class"), "ls", "is not one of LSE, LSR, LS, BE, SYSTEM"),
    (its("priority_class"), "prod", "is not one of koord-prod, koord-mid, koord-batch, koord-free"),
    (its("priority"), "1.5", "is not a decimal integer"),
    (its("priority"), "2147483648", "is not in -2147483648..2147483647"),
    (its("priority"), "9" * 20, "is not a decimal integer"),
    (its("priority"), "٣", "is not a decimal integer"),
    (its("eviction_enabled"), "True", "is neither true nor false"),
    (its("eviction_priority"), " 1", "is not a decimal integer"),
    (its("core_sched_policy"), "all", "is not one of none, exclusive"),
    (its("eviction_policy"), '"evictByCPUUsage"', "'evictByCPUUsage' is not a list"),
    (its("eviction_policy"), "[1]", "[0]: 1 is not a string"),
    (its("eviction_policy"), "null", "None is not a list"),
    (its("eviction_policy"), '["CPUEvict","evictByCPUUsage"]', "[1]: 'evictByCPUUsage' is no feature gate"),
    (its("cpu_burst"), '{"policy":"always"}', "policy: 'always' is not one of none, cpuBurstOnly, cfsQuota"),
    (its("cpu_burst"), '{"cpuBurstPercent":"100"}', "cpuBurstPercent: '100' is not a whole number"),
    (its("cpu_burst"), '{"cfsQuotaBurstPercent":90.5}', "cfsQuotaBurstPercent: 90.5 is not a whole number"),
    (its("cpu_burst"), f'{{"cfsQuotaBurstPercent":{-1 << 64}}}', f"cfsQuotaBurstPercent: {-1 << 64} is less than"),
    (its("memory_qos"), '{"policy":"AUTO"}', "policy: 'AUTO' is not one of default, none, auto"),
    (its("memory_qos"), '{"lowLimitPercent":101}', "lowLimitPercent: 101 is not in 0..100"),
    (its("memory_qos"), '{"wmarkMinAdj":-26}', "wmarkMinAdj: -26 is not in -25..50"),
    (its("cpu_qos"), '{"groupIdentity":7}', "groupIdentity: 7 is not in -1..2"),
    (its("cpu_qos"), '{"groupIdentity":true}', "groupIdentity: True is not a whole number"),
    (its("cpu_qos"), '{"enable":1}', "enable: 1 is neither true nor false"),
    (its("cpu_qos"), "[]", "a list is not an object"),
    (its("cpu_qos"), "", "is not JSON"),
    (its("blkio_qos"), '{"blocks":[{"type":"disk"}]}', "blocks[0].type: 'disk' is not one of device, volumegroup"),
    (its("blkio_qos"), '{"blocks":[{"ioCfg":{"readBPS":-1}}]}', "blocks[0].ioCfg.readBPS: -1 is less than 0"),
    (its("blkio_qos"), '{"blocks":[{"ioCfg":{"ioWeightPercent":0}}]}', "ioCfg.ioWeightPercent: 0 is not in 1..100"),
    (its("network_qos"), '{"ingressLimit":"10Q"}', "ingressLimit: '10Q' is not a quantity: unknown suffix 'Q'"),
    (its("network_qos"), '{"egressLimit":"-1M"}', "egressLimit: '-1M' is negative"),
    (its("oom_score_adj"), "1001", "is not in -1000..1000"),
    (its("oom_score_adj_spec"), '{"db":-1001}', "db: -1001 is not in -1000..1000"),
    (its("oom_score_adj_spec"), "[]", "a list is not an object"),
    (its("resctrl"), '{"llc":{"schemata":{"range":[50,20]}}}', "llc.schemata.range: [50, 20] is not [from, to]"),
    (its("resctrl"), '{"mb":{"schemataPerCache":[{"cacheID":0,"range":[5]}]}}', "schemataPerCache[0].range: [5] is"),
    (its("resctrl"), '{"mb":{"schemataPerCache":[{"percent":5}]}}', "mb.schemataPerCache[0]: an object lacks cacheID"),
    (its("resctrl"), '{"mb":{"schemata":{"percent":101}}}', "mb.schemata.percent: 101 is not in 0..100"),
    (its("extended_resource_spec"), '{"containers":{"m":{"limits":{"kubernetes.io/batch-cpu":"2x"}}}}',
     "containers.m.limits['kubernetes.io/batch-cpu']: '2x' is not a quantity"),
    (its("extended_resource_spec"), '{"initContainers":{"m":{"requests":{"kubernetes.io/batch-cpu":"-1"}}}}',
     "initContainers.m.requests['kubernetes.io/batch-cpu']: '-1' is negative"),
    (its("extended_resource_spec"), '{"containers":{"m":{"requests":{"kubernetes.io/batch-cpu":"-1"}}}}',
     "containers.m.requests['kubernetes.io/batch-cpu']: '-1' is negative"),
    (its("extended_resource_spec"), '{"containers":{"m":{"requests":{"kubernetes.io/batch-memory":"1e30"}}}}',
     "containers.m.requests['kubernetes.io/batch-memory']: '1e30' does not fit 64 bits"),
    (its("resource_status"), '{"cpuset":"3-1"}', "cpuset: '3-1' is not a CPU list: '3-1' runs backwards"),
    (its("resource_status"), '{"cpuset":3}', "cpuset: 3 is not a string"),
    (its("resource_status"), '{"numaNodeResources":[{"node":-1}]}', "numaNodeResources[0].node: -1 is not in"),
    (its("resource_status"), '{"numaNodeResources":[{}]}', "numaNodeResources[0]: an object lacks node"),
    (its("device_allocated"), '{"gpu":[{"minor":-1}]}', "gpu[0].minor: -1 is not in 0..2147483647"),
    (its("device_allocated"), '{"rdma":[{"id":"../../etc"}]}', "rdma[0]: '../../etc' is not a device id"),
    (its("device_allocated"), '{"rdma":[{"extension":{"vfs":[{"busID":".."}]}}]}', "rdma[0]: '..' is not a device id"),
    (its("device_allocated"), '{"gpu":[{"resources":{"koordinator.sh/gpu-core":"-1"}}]}', "'-1' is negative"),
    (its("resctrl"), DEEP, "is nested too deeply"),
    (its("cpu_qos"), "[" * 500_000, "is nested too deeply"),
    (its("cpu_qos"), " " * (1 << 21), "are more than 1048576"),
    (its("cpu_qos"), '{"groupIdentity":' + "9" * 6000 + "}", "is not JSON"),
    (its("cpu_qos"), '{"groupIdentity":1e999}', "is not JSON"),
    (its("cpu_qos"), '"\udcff"', "is not JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "text", "why"), BAD, ids=range(len(BAD)))
def test_a_bad_value_is_named_and_counts_as_absent(key: str, text: str, why: str) -> None:
    found = read(key, text)
    (problem,) = found.problems
    assert isinstance(problem, AnnotationError)
    assert (problem.pod, problem.key) == ("ns/p", key)
    assert str(problem).startswith(f"pod ns/p: {key}: {repr(text[:20])[:-1]}")
    assert why in problem.why
    assert len(str(problem)) < 600
    for field in PodAnnotations.__struct_fields__:
        if field not in ("problems", "eviction_policy"):
            assert leaves(getattr(found, field)) == leaves(getattr(NOTHING, field)), field


def leaves(value: object) -> list[object]:
    """All that ``value`` says, however deep; nothing of what is only empty."""
    if isinstance(value, msgspec.Struct):
        return leaves([getattr(value, field) for field in value.__struct_fields__])
    if isinstance(value, Mapping):
        return leaves(list(value.values()))
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [value] if value else []


PARTLY: list[tuple[str, str, str, object, str]] = [
    (
        its("memory_qos"),
        '{"policy":"auto","wmarkRatio":120,"minLimitPercent":50}',
        "memory_qos",
        values.PodMemoryQOS(policy=values.MemoryPolicy.AUTO, min_limit_percent=50),
        "wmarkRatio: 120 is not in 0..100",
    ),
    (
        its("cpu_burst"),
        '{"policy":"always","cfsQuotaBurstPercent":90}',
        "cpu_burst",
        CPUBurstConfig(cfs_quota_burst_percent=90),
        "policy: 'always' is not one of",
    ),
    (
        its("blkio_qos"),
        '{"enable":true,"blocks":[{"name":"a","type":"disk"},{"name":"b"}]}',
        "blkio_qos",
        BlkIOQOS(enable=True, blocks=(Block(name="b"),)),
        "blocks[0].type: 'disk' is not one of",
    ),
    (its("oom_score_adj_spec"), '{"db":-1001,"web":5}', "oom_score_adj_spec", {"web": 5}, "db: -1001 is not in"),
    (
        its("resctrl"),
        '{"llc":{"schemata":{"range":[50,20],"percent":30}}}',
        "resctrl",
        values.PodResctrl(llc=values.ResctrlResource(schemata=values.Schemata(percent=30))),
        "llc.schemata.range: [50, 20] is not [from, to] with from < to",
    ),
    (
        its("extended_resource_spec"),
        '{"containers":{"a":{"limits":{"cpu":"2x"},"requests":{"cpu":"1"}},"b":{"limits":{"cpu":"-1"}}}}',
        "extended_resource_spec",
        values.ExtendedResourceSpec(
            containers={
                "a": values.ContainerResources(requests={"cpu": quantity.parse("1")}),
                "b": values.ContainerResources(),
            }
        ),
        "containers.a.limits.cpu: '2x' is not a quantity",
    ),
    (
        its("resource_status"),
        '{"cpuset":"0-3","numaNodeResources":[{"node":0,"resources":{"cpu":"-1"}}]}',
        "resource_status",
        values.ResourceStatus(cpuset=CPUSet.of(range(4)), numa_node_resources=(values.NUMANodeResource(node=0),)),
        "numaNodeResources[0].resources.cpu: '-1' is negative",
    ),
]


@pytest.mark.parametrize(("key", "text", "field", "rest", "why"), PARTLY, ids=[case[2] for case in PARTLY])
def test_a_bad_leaf_leaves_the_rest(key: str, text: str, field: str, rest: object, why: str) -> None:
    found = read(key, text)
    assert getattr(found, field) == rest
    assert why in found.problems[0].why


@pytest.mark.parametrize("text", ['{"enable":"yes","groupIdentity":2}', '{"groupIdentity":{}, "enable":[]}', "[2]"])
def test_what_would_switch_off_or_is_no_such_document_counts_for_nothing(text: str) -> None:
    found = read(its("cpu_qos"), text)
    assert found.cpu_qos is None
    assert found.problems


def test_problems_are_few_however_much_is_wrong() -> None:
    found = read(its("oom_score_adj_spec"), json.dumps({f"c{number}": 9999 for number in range(5000)} | {"good": 1}))
    assert found.oom_score_adj_spec == {"good": 1}
    assert len(found.problems) == 9
    assert found.problems[-1].why == "and 4992 more"


def test_one_bad_value_does_not_stop_the_others() -> None:
    labels = dict.fromkeys(LABELS, "{") | {its("qos_class"): "LSR"}
    annotations = dict.fromkeys(ANNOTATIONS, "{") | {its("resource_status"): '{"cpuset":"0-3"}'}
    found = PodAnnotations.read(labels, annotations, "ns/p")
    assert found.qos_class == "LSR"
    assert found.resource_status is not None
    assert str(found.resource_status.cpuset) == "0-3"
    free_text = {its("core_sched_group_id"), its("gpu_isolation_provider")}
    good = free_text | {its("qos_class"), its("resource_status")}
    assert {problem.key for problem in found.problems} == (set(labels) | set(annotations)) - good


def test_absent_means_nothing_and_no_problem() -> None:
    assert PodAnnotations.read({}, {"other": "{"}) == NOTHING
    assert (
        PodAnnotations.read({its("qos_class"): "", its("priority_class"): "", its("core_sched_policy"): ""}, {})
        == NOTHING
    )


@pytest.mark.parametrize(
    ("text", "policy", "allowed"),
    [
        ("[]", (), False), ("{", (), False), ("null", (), False), ('["CPUEvict", 1]', (), False),
        ('["evictByCPUUsage"]', (), False), ('["cpuEvict"]', (), False), ('["AllAlpha"]', (), False),
        ('["MemoryEvict"]', ("MemoryEvict",), False),
        (None, None, True), ('["CPUEvict"]', ("CPUEvict",), True),
        ('["BEMemoryEvict", "CPUEvict"]', ("BEMemoryEvict", "CPUEvict"), True),
        ('["evictByCPUUsage", "CPUEvict"]', ("CPUEvict",), True),
    ],
)  # fmt: skip
def test_an_eviction_policy_names_gates_and_one_without_any_protects_the_pod(
    text: str | None, policy: tuple[str, ...] | None, allowed: bool
) -> None:
    found = NOTHING if text is None else read(its("eviction_policy"), text)
    assert found.eviction_policy == policy
    assert found.may_be_evicted_by("CPUEvict") is allowed


def test_plain_values() -> None:
    labels = {
        its("qos_class"): "BE",
        its("priority_class"): "koord-batch",
        its("priority"): "-7",
        its("eviction_enabled"): "true",
        its("core_sched_group_id"): "",
        its("core_sched_policy"): "exclusive",
        its("gpu_isolation_provider"): "HAMi-core",
    }
    annotations = {
        its("eviction_priority"): "+3",
        its("oom_score_adj"): "200",
        its("oom_score_adj_spec"): '{"db":-500}',
    }
    found = PodAnnotations.read(labels, annotations)
    assert not found.problems
    assert (found.qos_class, found.priority_class, found.priority) == ("BE", "koord-batch", -7)
    assert (found.eviction_enabled, found.eviction_priority) == (True, 3)
    assert (found.core_sched_group_id, found.core_sched_policy) == ("", "exclusive")
    assert found.gpu_isolation_provider == "HAMi-core"
    assert (found.oom_score_adj_of("db"), found.oom_score_adj_of("web")) == (-500, 200)


def test_a_bad_score_map_leaves_the_pods_own_score() -> None:
    found = PodAnnotations.read({}, {its("oom_score_adj"): "200", its("oom_score_adj_spec"): '{"db":"-500"}'})
    assert found.oom_score_adj_of("db") == 200
    assert [problem.key for problem in found.problems] == [its("oom_score_adj_spec")]


@pytest.mark.parametrize(
    "text", ['{"ingresslimit":"10M"}', '{"INGRESSLIMIT":"10M","x":{}}', '{"ingressLimit":10000000}']
)
def test_key_case_unknown_keys_and_bare_numbers_do_not_matter(text: str) -> None:
    limits = read(its("network_qos"), text).network_qos
    assert limits is not None
    assert limits.ingress_limit is not None
    assert (limits.ingress_limit.value(), limits.egress_limit) == (10_000_000, None)


def test_extended_resource_spec() -> None:
    text = (
        '{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"2k","kubernetes.io/batch-memory":"4Gi"},'
        '"requests":{"kubernetes.io/batch-cpu":1500,"koordinator.sh/batch-memory":"1Gi"}},"side":{}}}'
    )
    spec = read(its("extended_resource_spec"), text).extended_resource_spec
    assert spec is not None
    main, side = spec.containers["main"], spec.containers["side"]
    assert (main.limit_milli(BATCH_CPU), main.request_milli(BATCH_CPU)) == (2000, 1500)
    assert (main.limit_bytes(BATCH_MEMORY), main.request_bytes(BATCH_MEMORY)) == (4 << 30, 1 << 30)
    assert (main.limit_milli(MID_CPU), side.limit_milli(BATCH_CPU)) == (None, None)
    assert side.limit_bytes(BATCH_MEMORY) is None


def test_extended_resource_spec_is_written_as_the_webhook_does() -> None:
    spec = values.ExtendedResourceSpec(
        containers={
            "main": values.ContainerResources(
                requests={BATCH_CPU: quantity.of(2000)},
                limits={BATCH_MEMORY: quantity.of(4 << 30, Format.BINARY_SI), BATCH_CPU: quantity.of(2000)},
            ),
            "bare": values.ContainerResources(requests={BATCH_CPU: quantity.of(1500)}),
        }
    )
    assert encode(spec) == (
        '{"containers":{"bare":{"requests":{"kubernetes.io/batch-cpu":"1500"}},'
        '"main":{"limits":{"kubernetes.io/batch-cpu":"2k","kubernetes.io/batch-memory":"4Gi"},'
        '"requests":{"kubernetes.io/batch-cpu":"2k"}}}}'
    )


def test_resource_status() -> None:
    text = '{"cpuset":"0-3,8","numaNodeResources":[{"node":0,"resources":{"cpu":"4","memory":"8Gi"}},{"node":1}]}'
    status = read(its("resource_status"), text).resource_status
    assert status is not None
    assert status.cpuset == CPUSet.of([0, 1, 2, 3, 8])
    assert [(numa.node, numa.has_cpu) for numa in status.numa_node_resources] == [(0, True), (1, False)]
    assert values.milli(status.numa_node_resources[0].resources, "cpu") == 4000
    for nothing in ("{}", "null", '{"cpuset":""}', '{"cpuset":null,"numaNodeResources":null}'):
        assert read(its("resource_status"), nothing).resource_status == values.ResourceStatus()


def test_device_allocated() -> None:
    text = (
        '{"gpu":[{"minor":0,"id":"GPU-8c25ea37","resources":{"koordinator.sh/gpu-memory":"16Gi"}}],'
        '"rdma":[{"minor":1,"id":"0000:1f:00.0","extension":{"vfs":[{"minor":3,"busID":"0000:1f:00.3"}]}}]}'
    )
    devices = read(its("device_allocated"), text).device_allocated
    (gpu,), (rdma,) = devices["gpu"], devices["rdma"]
    assert (gpu.minor, gpu.id, gpu.resources["koordinator.sh/gpu-memory"].value()) == (0, "GPU-8c25ea37", 16 << 30)
    assert [(function.minor, function.bus_id) for function in rdma.extension.vfs] == [(3, "0000:1f:00.3")]


def test_resctrl() -> None:
    text = (
        '{"LLC":{"schemata":{"range":[0,50]},"schemataPerCache":[{"CacheID":1,"range":[0,30]}]},'
        '"mb":{"schemata":{"percent":50},"schemataPerCache":[{"cacheID":1,"percent":20}]}}'
    )
    found = read(its("resctrl"), text).resctrl
    assert found == values.PodResctrl(
        llc=values.ResctrlResource(
            schemata=values.Schemata(range=(0, 50)),
            schemata_per_cache=(values.CacheSchemata(cache_id=1, range=(0, 30)),),
        ),
        mb=values.ResctrlResource(
            schemata=values.Schemata(percent=50),
            schemata_per_cache=(values.CacheSchemata(cache_id=1, percent=20),),
        ),
    )


percents = st.none() | st.integers(0, 100)
bools = st.none() | st.booleans()
names = st.text(max_size=12)
amounts = st.builds(Quantity, st.integers(0, 10**24), st.just(Format.DECIMAL_SI)).map(
    lambda amount: quantity.parse(str(amount))
)
resource_maps = st.dictionaries(st.sampled_from(["cpu", BATCH_CPU, BATCH_MEMORY, "x.io/y"]), amounts, max_size=3)
cpus = st.frozensets(st.integers(0, 255), max_size=20).map(CPUSet.of)
ranges = st.none() | st.tuples(st.integers(0, 49), st.integers(50, 100))
ROUND_TRIPS: list[tuple[Callable[[str], object], st.SearchStrategy[msgspec.Struct]]] = [
    (partial(decode.read, CPUQOS), st.builds(CPUQOS, enable=bools, group_identity=st.none() | st.integers(-1, 2))),
    (partial(decode.read, CPUBurstConfig), st.builds(CPUBurstConfig, policy=st.none() | st.sampled_from(CPUBurstPolicy),
                                 cpu_burst_percent=st.none() | st.integers(1, 10000))),
    (partial(decode.read, values.PodMemoryQOS), st.builds(values.PodMemoryQOS,
                                  policy=st.none() | st.sampled_from(values.MemoryPolicy),
                                  min_limit_percent=percents, page_cache_enable=bools)),
    (decode.network_qos, st.builds(values.PodNetworkQOS, ingress_limit=st.none() | amounts)),
    (partial(decode.read, BlkIOQOS), st.builds(BlkIOQOS, enable=bools, blocks=st.none() | st.lists(
        st.builds(Block, name=names, type=st.sampled_from(BlockType),
                  io_cfg=st.builds(IOCfg, read_iops=percents, read_latency_us=percents)), max_size=3).map(tuple))),
    (decode.resctrl, st.builds(values.PodResctrl, llc=st.none() | st.builds(
        values.ResctrlResource, schemata=st.none() | st.builds(values.Schemata, range=ranges),
        schemata_per_cache=st.lists(st.builds(values.CacheSchemata, cache_id=st.integers(0, 9), percent=percents),
                                    max_size=3).map(tuple)))),
    (decode.extended_resource_spec, st.builds(values.ExtendedResourceSpec, **dict.fromkeys(
        ("containers", "init_containers"), st.dictionaries(
            names, st.builds(values.ContainerResources, limits=resource_maps, requests=resource_maps), max_size=3)))),
    (decode.resource_status, st.builds(values.ResourceStatus, cpuset=cpus, numa_node_resources=st.lists(
        st.builds(values.NUMANodeResource, node=st.integers(0, 7), resources=resource_maps), max_size=3).map(tuple))),
]  # fmt: skip


@pytest.mark.parametrize(("codec", "made"), ROUND_TRIPS, ids=lambda item: getattr(item, "__name__", ""))
def test_round_trip(codec: Callable[[str], object], made: st.SearchStrategy[msgspec.Struct]) -> None:
    @given(made)
    def check(value: msgspec.Struct) -> None:
        assert codec(encode(value)) == value

    check()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


every_key = st.sampled_from([*LABELS, *ANNOTATIONS])


@given(st.dictionaries(every_key, st.text(max_size=30) | json_values.map(json.dumps)))
def test_reading_raises_nothing(texts: dict[str, str]) -> None:
    found = PodAnnotations.read(texts, texts, "ns/p")
    assert {problem.key for problem in found.problems} <= set(texts)
