"""Pod labels and annotations: bad ones are named and count as absent, good ones survive a round trip."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import quantity
from koord.model.annotations import AnnotationError, PodAnnotations, decode, encode, keys, values
from koord.model.annotations.pod import ANNOTATION_CODECS, LABEL_CODECS
from koord.model.cpuset import CPUSet
from koord.model.priority import BATCH_CPU, BATCH_MEMORY, MID_CPU
from koord.model.qos_settings import CPUQOS, BlkIOQOS, Block, BlockType, CPUBurst, CPUBurstPolicy, IOCfg
from koord.model.quantity import Format, Quantity

DEEP = '{"llc":' * 100_000
NOTHING = PodAnnotations()


def read(key: str, text: str) -> PodAnnotations:
    where = {key: text}
    return PodAnnotations.read(where, {}, "ns/p") if key in LABEL_CODECS else PodAnnotations.read({}, where, "ns/p")


BAD = [
    (keys.QOS_CLASS, "ls", "is not one of LSE, LSR, LS, BE, SYSTEM"),
    (keys.PRIORITY_CLASS, "prod", "is not one of koord-prod, koord-mid, koord-batch, koord-free"),
    (keys.PRIORITY, "1.5", "is not a decimal integer"),
    (keys.PRIORITY, "2147483648", "is not in -2147483648..2147483647"),
    (keys.PRIORITY, "9" * 20, "is not a decimal integer"),
    (keys.PRIORITY, "٣", "is not a decimal integer"),
    (keys.EVICTION_ENABLED, "True", "is neither true nor false"),
    (keys.EVICTION_PRIORITY, " 1", "is not a decimal integer"),
    (keys.CORE_SCHED_POLICY, "all", "is not one of none, exclusive"),
    (keys.EVICTION_POLICY, '"evictByCPUUsage"', "'evictByCPUUsage' is not a list"),
    (keys.EVICTION_POLICY, "[1]", "[0]: 1 is not a string"),
    (keys.EVICTION_POLICY, "null", "None is not a list"),
    (keys.CPU_BURST, '{"policy":"always"}', "policy: 'always' is not one of none, cpuBurstOnly, cfsQuota"),
    (keys.CPU_BURST, '{"cpuBurstPercent":10001}', "cpuBurstPercent: 10001 is not in 1..10000"),
    (keys.CPU_BURST, '{"cpuBurstPercent":"100"}', "cpuBurstPercent: '100' is not a whole number"),
    (keys.CPU_BURST, '{"cfsQuotaBurstPercent":99}', "cfsQuotaBurstPercent: 99 is less than 100"),
    (keys.CPU_BURST, '{"cfsQuotaBurstPeriodSeconds":-2}', "cfsQuotaBurstPeriodSeconds: -2 is less than -1"),
    (keys.MEMORY_QOS, '{"policy":"AUTO"}', "policy: 'AUTO' is not one of default, none, auto"),
    (keys.MEMORY_QOS, '{"lowLimitPercent":101}', "lowLimitPercent: 101 is not in 0..100"),
    (keys.MEMORY_QOS, '{"wmarkMinAdj":-26}', "wmarkMinAdj: -26 is not in -25..50"),
    (keys.CPU_QOS, '{"groupIdentity":7}', "groupIdentity: 7 is not in -1..2"),
    (keys.CPU_QOS, '{"groupIdentity":true}', "groupIdentity: True is not a whole number"),
    (keys.CPU_QOS, '{"enable":1}', "enable: 1 is neither true nor false"),
    (keys.CPU_QOS, "[]", "a list is not an object"),
    (keys.CPU_QOS, "", "is not JSON"),
    (keys.BLKIO_QOS, '{"blocks":[{"type":"disk"}]}', "blocks[0].type: 'disk' is not one of device, volumegroup"),
    (keys.BLKIO_QOS, '{"blocks":[{"ioCfg":{"readBPS":-1}}]}', "blocks[0].ioCfg.readBPS: -1 is less than 0"),
    (keys.BLKIO_QOS, '{"blocks":[{"ioCfg":{"ioWeightPercent":0}}]}', "ioCfg.ioWeightPercent: 0 is not in 1..100"),
    (keys.NETWORK_QOS, '{"ingressLimit":"10Q"}', "ingressLimit: '10Q' is not a quantity: unknown suffix 'Q'"),
    (keys.NETWORK_QOS, '{"egressLimit":"-1M"}', "egressLimit: '-1M' is negative"),
    (keys.OOM_SCORE_ADJ, "1001", "is not in -1000..1000"),
    (keys.OOM_SCORE_ADJ_SPEC, '{"db":-1001}', "db: -1001 is not in -1000..1000"),
    (keys.OOM_SCORE_ADJ_SPEC, "[]", "a list is not an object"),
    (keys.RESCTRL, '{"llc":{"schemata":{"range":[50,20]}}}', "llc.schemata.range: [50, 20] is not [from, to]"),
    (keys.RESCTRL, '{"mb":{"schemataPerCache":[{"cacheID":0,"range":[5]}]}}', "schemataPerCache[0].range: [5] is not"),
    (keys.RESCTRL, '{"mb":{"schemataPerCache":[{"percent":5}]}}', "mb.schemataPerCache[0]: an object lacks cacheID"),
    (keys.RESCTRL, '{"mb":{"schemata":{"percent":101}}}', "mb.schemata.percent: 101 is not in 0..100"),
    (keys.EXTENDED_RESOURCE_SPEC, '{"containers":{"m":{"limits":{"kubernetes.io/batch-cpu":"2x"}}}}',
     "containers.m.limits['kubernetes.io/batch-cpu']: '2x' is not a quantity"),
    (keys.EXTENDED_RESOURCE_SPEC, '{"containers":{"m":{"requests":{"kubernetes.io/batch-cpu":"-1"}}}}',
     "containers.m.requests['kubernetes.io/batch-cpu']: '-1' is negative"),
    (keys.EXTENDED_RESOURCE_SPEC, '{"containers":{"m":{"requests":{"kubernetes.io/batch-memory":"1e30"}}}}',
     "containers.m.requests['kubernetes.io/batch-memory']: '1e30' does not fit 64 bits"),
    (keys.RESOURCE_STATUS, '{"cpuset":"3-1"}', "cpuset: '3-1' is not a CPU list: '3-1' runs backwards"),
    (keys.RESOURCE_STATUS, '{"cpuset":3}', "cpuset: 3 is not a string"),
    (keys.RESOURCE_STATUS, '{"numaNodeResources":[{"node":-1}]}', "numaNodeResources[0].node: -1 is not in"),
    (keys.RESOURCE_STATUS, '{"numaNodeResources":[{}]}', "numaNodeResources[0]: an object lacks node"),
    (keys.DEVICE_ALLOCATED, '{"gpu":[{"minor":-1}]}', "gpu[0].minor: -1 is not in 0..2147483647"),
    (keys.DEVICE_ALLOCATED, '{"rdma":[{"id":"../../etc"}]}', "rdma[0]: '../../etc' is not a device id"),
    (keys.DEVICE_ALLOCATED, '{"rdma":[{"extension":{"vfs":[{"busID":".."}]}}]}', "rdma[0]: '..' is not a device id"),
    (keys.DEVICE_ALLOCATED, '{"gpu":[{"resources":{"koordinator.sh/gpu-core":"-1"}}]}', "'-1' is negative"),
    (keys.RESCTRL, DEEP, "is nested too deeply"),
    (keys.CPU_QOS, "[" * 500_000, "is nested too deeply"),
    (keys.CPU_QOS, " " * (1 << 21), "are more than 1048576"),
    (keys.CPU_QOS, '{"groupIdentity":' + "9" * 6000 + "}", "is not JSON"),
    (keys.CPU_QOS, '{"groupIdentity":1e999}', "is not JSON"),
    (keys.CPU_QOS, '"\udcff"', "is not JSON"),
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
        keys.MEMORY_QOS,
        '{"policy":"auto","wmarkRatio":120,"minLimitPercent":50}',
        "memory_qos",
        values.PodMemoryQOS(policy=values.MemoryPolicy.AUTO, min_limit_percent=50),
        "wmarkRatio: 120 is not in 0..100",
    ),
    (
        keys.CPU_BURST,
        '{"policy":"auto","cpuBurstPercent":0}',
        "cpu_burst",
        CPUBurst(policy=CPUBurstPolicy.AUTO),
        "cpuBurstPercent: 0 is not in 1..10000",
    ),
    (
        keys.BLKIO_QOS,
        '{"enable":true,"blocks":[{"name":"a","type":"disk"},{"name":"b"}]}',
        "blkio_qos",
        BlkIOQOS(enable=True, blocks=(Block(name="b"),)),
        "blocks[0].type: 'disk' is not one of",
    ),
    (keys.OOM_SCORE_ADJ_SPEC, '{"db":-1001,"web":5}', "oom_score_adj_spec", {"web": 5}, "db: -1001 is not in"),
    (
        keys.RESCTRL,
        '{"llc":{"schemata":{"range":[50,20],"percent":30}}}',
        "resctrl",
        values.PodResctrl(llc=values.ResctrlResource(schemata=values.Schemata(percent=30))),
        "llc.schemata.range: [50, 20] is not [from, to] with from < to",
    ),
    (
        keys.EXTENDED_RESOURCE_SPEC,
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
        keys.RESOURCE_STATUS,
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
    found = read(keys.CPU_QOS, text)
    assert found.cpu_qos is None
    assert found.problems


def test_problems_are_few_however_much_is_wrong() -> None:
    found = read(keys.OOM_SCORE_ADJ_SPEC, json.dumps({f"c{number}": 9999 for number in range(5000)} | {"good": 1}))
    assert found.oom_score_adj_spec == {"good": 1}
    assert len(found.problems) == 9
    assert found.problems[-1].why == "and 4992 more"


def test_one_bad_value_does_not_stop_the_others() -> None:
    labels = dict.fromkeys(LABEL_CODECS, "{") | {keys.QOS_CLASS: "LSR"}
    annotations = dict.fromkeys(ANNOTATION_CODECS, "{") | {keys.RESOURCE_STATUS: '{"cpuset":"0-3"}'}
    found = PodAnnotations.read(labels, annotations, "ns/p")
    assert found.qos_class == "LSR"
    assert found.resource_status is not None
    assert str(found.resource_status.cpuset) == "0-3"
    free_text = {keys.CORE_SCHED_GROUP_ID, keys.GPU_ISOLATION_PROVIDER}
    good = free_text | {keys.QOS_CLASS, keys.RESOURCE_STATUS}
    assert {problem.key for problem in found.problems} == (set(labels) | set(annotations)) - good


def test_absent_means_nothing_and_no_problem() -> None:
    assert PodAnnotations.read({}, {"other": "{"}) == NOTHING
    assert PodAnnotations.read({keys.QOS_CLASS: "", keys.PRIORITY_CLASS: "", keys.CORE_SCHED_POLICY: ""}, {}) == NOTHING


@pytest.mark.parametrize(
    ("text", "policy", "allowed"),
    [
        (None, None, True), ('["evictByCPUUsage"]', ("evictByCPUUsage",), True), ('["CPUEvict"]', ("CPUEvict",), False),
        ("[]", (), False), ("{", (), False), ("null", (), False),
    ],
)  # fmt: skip
def test_an_unreadable_eviction_policy_protects_the_pod(
    text: str | None, policy: tuple[str, ...] | None, allowed: bool
) -> None:
    found = NOTHING if text is None else read(keys.EVICTION_POLICY, text)
    assert found.eviction_policy == policy
    assert found.may_be_evicted_by("evictByCPUUsage") is allowed


def test_plain_values() -> None:
    labels = {
        keys.QOS_CLASS: "BE",
        keys.PRIORITY_CLASS: "koord-batch",
        keys.PRIORITY: "-7",
        keys.EVICTION_ENABLED: "true",
        keys.CORE_SCHED_GROUP_ID: "",
        keys.CORE_SCHED_POLICY: "exclusive",
        keys.GPU_ISOLATION_PROVIDER: "HAMi-core",
    }
    annotations = {keys.EVICTION_PRIORITY: "+3", keys.OOM_SCORE_ADJ: "200", keys.OOM_SCORE_ADJ_SPEC: '{"db":-500}'}
    found = PodAnnotations.read(labels, annotations)
    assert not found.problems
    assert (found.qos_class, found.priority_class, found.priority) == ("BE", "koord-batch", -7)
    assert (found.eviction_enabled, found.eviction_priority) == (True, 3)
    assert (found.core_sched_group_id, found.core_sched_policy) == ("", "exclusive")
    assert found.gpu_isolation_provider == "HAMi-core"
    assert (found.oom_score_adj_of("db"), found.oom_score_adj_of("web")) == (-500, 200)


def test_a_bad_score_map_leaves_the_pods_own_score() -> None:
    found = PodAnnotations.read({}, {keys.OOM_SCORE_ADJ: "200", keys.OOM_SCORE_ADJ_SPEC: '{"db":"-500"}'})
    assert found.oom_score_adj_of("db") == 200
    assert [problem.key for problem in found.problems] == [keys.OOM_SCORE_ADJ_SPEC]


@pytest.mark.parametrize(
    "text", ['{"ingresslimit":"10M"}', '{"INGRESSLIMIT":"10M","x":{}}', '{"ingressLimit":10000000}']
)
def test_key_case_unknown_keys_and_bare_numbers_do_not_matter(text: str) -> None:
    limits = read(keys.NETWORK_QOS, text).network_qos
    assert limits is not None
    assert limits.ingress_limit is not None
    assert (limits.ingress_limit.value(), limits.egress_limit) == (10_000_000, None)


def test_extended_resource_spec() -> None:
    text = (
        '{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"2k","kubernetes.io/batch-memory":"4Gi"},'
        '"requests":{"kubernetes.io/batch-cpu":1500,"koordinator.sh/batch-memory":"1Gi"}},"side":{}}}'
    )
    spec = read(keys.EXTENDED_RESOURCE_SPEC, text).extended_resource_spec
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
    status = read(keys.RESOURCE_STATUS, text).resource_status
    assert status is not None
    assert status.cpuset == CPUSet.of([0, 1, 2, 3, 8])
    assert [(numa.node, numa.has_cpu) for numa in status.numa_node_resources] == [(0, True), (1, False)]
    assert values.milli(status.numa_node_resources[0].resources, "cpu") == 4000
    for nothing in ("{}", "null", '{"cpuset":""}', '{"cpuset":null,"numaNodeResources":null}'):
        assert read(keys.RESOURCE_STATUS, nothing).resource_status == values.ResourceStatus()


def test_device_allocated() -> None:
    text = (
        '{"gpu":[{"minor":0,"id":"GPU-8c25ea37","resources":{"koordinator.sh/gpu-memory":"16Gi"}}],'
        '"rdma":[{"minor":1,"id":"0000:1f:00.0","extension":{"vfs":[{"minor":3,"busID":"0000:1f:00.3"}]}}]}'
    )
    devices = read(keys.DEVICE_ALLOCATED, text).device_allocated
    (gpu,), (rdma,) = devices["gpu"], devices["rdma"]
    assert (gpu.minor, gpu.id, gpu.resources["koordinator.sh/gpu-memory"].value()) == (0, "GPU-8c25ea37", 16 << 30)
    assert [(function.minor, function.bus_id) for function in rdma.extension.vfs] == [(3, "0000:1f:00.3")]


def test_resctrl() -> None:
    text = (
        '{"LLC":{"schemata":{"range":[0,50]},"schemataPerCache":[{"CacheID":1,"range":[0,30]}]},'
        '"mb":{"schemata":{"percent":50},"schemataPerCache":[{"cacheID":1,"percent":20}]}}'
    )
    found = read(keys.RESCTRL, text).resctrl
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
    (decode.cpu_qos, st.builds(CPUQOS, enable=bools, group_identity=st.none() | st.integers(-1, 2))),
    (decode.cpu_burst, st.builds(CPUBurst, policy=st.none() | st.sampled_from(CPUBurstPolicy),
                                 cpu_burst_percent=st.none() | st.integers(1, 10000))),
    (decode.memory_qos, st.builds(values.PodMemoryQOS, policy=st.none() | st.sampled_from(values.MemoryPolicy),
                                  min_limit_percent=percents, page_cache_enable=bools)),
    (decode.network_qos, st.builds(values.PodNetworkQOS, ingress_limit=st.none() | amounts)),
    (decode.blkio_qos, st.builds(BlkIOQOS, enable=bools, blocks=st.none() | st.lists(
        st.builds(Block, name=names, type=st.sampled_from(BlockType),
                  io_cfg=st.builds(IOCfg, read_iops=percents, read_latency_us=percents)), max_size=3).map(tuple))),
    (decode.resctrl, st.builds(values.PodResctrl, llc=st.none() | st.builds(
        values.ResctrlResource, schemata=st.none() | st.builds(values.Schemata, range=ranges),
        schemata_per_cache=st.lists(st.builds(values.CacheSchemata, cache_id=st.integers(0, 9), percent=percents),
                                    max_size=3).map(tuple)))),
    (decode.extended_resource_spec, st.builds(values.ExtendedResourceSpec, containers=st.dictionaries(
        names, st.builds(values.ContainerResources, limits=resource_maps, requests=resource_maps), max_size=3))),
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


every_key = st.sampled_from([*LABEL_CODECS, *ANNOTATION_CODECS])


@given(st.dictionaries(every_key, st.text(max_size=30) | json_values.map(json.dumps)))
def test_reading_raises_nothing(texts: dict[str, str]) -> None:
    found = PodAnnotations.read(texts, texts, "ns/p")
    assert {problem.key for problem in found.problems} <= set(texts)
