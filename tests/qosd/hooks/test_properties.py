"""Rules that hold for every pod: kubelet's keys stay, and both proxies end up with the same cgroup values."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from koord.model import formulas
from koord.pb.hooks import api_pb2 as hooks
from qosd.hooks import engine
from qosd.hooks.edits import KUBELET_PREFIX
from qosd.hookserver import translate
from qosd.hookserver.server import PROXY_METADATA, SERVICE, HookServer
from qosd.metrics import Metrics
from qosd.model.besteffort import NO_LIMITS
from qosd.model.pod import HookStage, PodContext
from qosd.model.policy import EffectivePolicy
from tests.qosd.contexts import EXTENDED, MEMORY_QOS, PRIORITY, QOS, STATUS, TIERS, V2, V2_VENDOR, policy
from tests.qosd.hooks import merges

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5000) | st.sampled_from(["", "0-3", "1500", "4Gi", "main", "x"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "containers",
                    "main",
                    "requests",
                    "limits",
                    "cpuset",
                    "kubernetes.io/batch-cpu",
                    "kubernetes.io/mid-memory",
                    "policy",
                    "enable",
                    "groupIdentity",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "kubernetes.io/batch-cpu": st.integers(0, 100000).map(str),
        "kubernetes.io/batch-memory": st.sampled_from(["0", "1Mi", "4Gi", "5000"]),
        "kubernetes.io/mid-cpu": st.integers(0, 100000),
        "kubernetes.io/mid-memory": st.sampled_from(["1Mi", "4Gi"]),
    },
)
LABELS = st.fixed_dictionaries(
    {"io.kubernetes.pod.name": st.just("p")},
    optional={
        QOS: st.sampled_from(["LSE", "LSR", "LS", "BE", "SYSTEM", "nonsense"]),
        PRIORITY: st.sampled_from(["koord-prod", "koord-mid", "koord-batch", "koord-free", "?"]),
    },
)
ANNOTATIONS = st.fixed_dictionaries(
    {"io.kubernetes.x": st.just("kubelet's")},
    optional={
        STATUS: st.sampled_from(["0-1", "3", "", "9-"]).map(lambda cpus: json.dumps({"cpuset": cpus}))
        | JSON.map(json.dumps),
        EXTENDED: st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS}).map(
            lambda main: json.dumps({"containers": {"main": main}})
        )
        | JSON.map(json.dumps),
        "koordinator.sh/cpuQOS": JSON.map(json.dumps) | st.text(max_size=5),
        "koordinator.sh/memoryQOS": JSON.map(json.dumps),
    },
)
RESOURCES = st.builds(
    hooks.LinuxContainerResources,
    cpu_period=st.sampled_from([0, 50000, 100000]),
    cpu_quota=st.sampled_from([-1, 0, 1000, 250000]),
    cpu_shares=st.integers(0, 2048),
    memory_limit_in_bytes=st.sampled_from([0, 1 << 30]),
    oom_score_adj=st.integers(-998, 1000),
    cpuset_cpus=st.sampled_from(["", "0-7"]),
    cpuset_mems=st.sampled_from(["", "0"]),
    unified=st.sampled_from([{}, {"memory.min": "1024"}, {"memory.oom.group": "1"}]),
)
REQUESTS = st.builds(
    hooks.ContainerResourceHookRequest,
    container_meta=st.just(hooks.ContainerMetadata(name="main")),
    pod_labels=LABELS,
    pod_annotations=ANNOTATIONS,
    container_resources=RESOURCES,
    container_annotations=st.just({"io.kubernetes.container.hash": "abc"}),
    container_envs=st.dictionaries(st.sampled_from(["A", "B"]), st.binary(max_size=4)),
    pod_cgroup_parent=st.sampled_from([*TIERS.values(), "", "/elsewhere"]),
)
_QOS_ON: dict[str, Any] = {
    "cpuQOS": {"enable": True},
    "memoryQOS": {"enable": True, "minLimitPercent": 20, "throttlingPercent": 80},
}
_SPEC = {"resourceQOSStrategy": {f"{name}Class": _QOS_ON for name in ("lsr", "ls", "be")}}
_POOLS = {"ls": [{"cpuset": "4-7"}], "be": [{"cpuset": "2-7"}]}
RULES = st.sampled_from(
    [
        policy(V2),
        policy(V2_VENDOR, _SPEC, sharedPools=_POOLS, cpuNormalizationRatio=1.3, **MEMORY_QOS),
        policy(V2_VENDOR, _SPEC, cpuManagerPolicy="static", sharedPools=_POOLS, **MEMORY_QOS),
    ]
)


METRICS = Metrics()
OURS, THEIRS = {PROXY_METADATA: b"1"}, {b":path": b"/"}


def context(request: hooks.ContainerResourceHookRequest, stage: HookStage) -> PodContext:
    return PodContext.read(translate.container_request(request, stage))


def answers(server: HookServer, requests: list[hooks.ContainerResourceHookRequest]) -> list[object]:
    """To a creation and an update of each, as both kinds of proxy ask."""
    methods, stages = server.methods(), ("PreCreateContainerHook", "PreUpdateContainerResourcesHook")
    return [
        methods[f"/{SERVICE}/{stage}"](request.SerializeToString(deterministic=True), caller)
        for request in requests
        for stage in stages
        for caller in (OURS, THEIRS)
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(REQUESTS, min_size=1, max_size=4), RULES, RULES)
def test_what_was_decided_before_changes_no_answer(
    requests: list[hooks.ContainerResourceHookRequest], by: EffectivePolicy, before: EffectivePolicy
) -> None:
    twins = [hooks.ContainerResourceHookRequest.FromString(each.SerializeToString()) for each in requests]
    for number, twin in enumerate(twins):
        twin.pod_meta.uid = twin.pod_meta.name = f"p{number}"
        twin.pod_annotations["example.com/seen"] = str(number)
    in_force = [before]
    used = HookServer(lambda: (in_force[0], NO_LIMITS), METRICS)
    answers(used, twins)
    in_force[0] = by
    answers(used, twins)
    fresh = [answer for each in requests for answer in answers(HookServer(lambda: (by, NO_LIMITS), METRICS), [each])]
    assert answers(used, requests) == fresh


@settings(max_examples=200, deadline=None)
@given(REQUESTS, RULES, st.sampled_from([HookStage.CREATE, HookStage.UPDATE]))
def test_both_proxies_reach_the_same_cgroup_values(
    request: hooks.ContainerResourceHookRequest, by: EffectivePolicy, stage: HookStage
) -> None:
    edits = engine.decide(context(request, stage), by)
    base = request.container_resources
    through_go = merges.go(base, translate.echo_container(request, edits).container_resources)
    through_ours = merges.presence(base, translate.sparse_container(edits).container_resources)
    if through_ours["memory_limit_in_bytes"] == -1:  # "no limit" is the one value Koordinator's proxy cannot take
        through_ours["memory_limit_in_bytes"] = base.memory_limit_in_bytes
    assert through_go == through_ours


@settings(max_examples=200, deadline=None)
@given(REQUESTS, RULES, st.sampled_from(list(HookStage)))
def test_kubelets_keys_and_everything_unedited_come_back_as_they_were(
    request: hooks.ContainerResourceHookRequest, by: EffectivePolicy, stage: HookStage
) -> None:
    edits = engine.decide(context(request, stage), by)
    assert not [edit for edit in edits.items if edit.key.startswith(KUBELET_PREFIX)]
    echo = translate.echo_container(request, edits)
    assert echo.container_annotations["io.kubernetes.container.hash"] == "abc"
    assert dict(echo.container_envs) == dict(request.container_envs)
    assert echo.pod_cgroup_parent == request.pod_cgroup_parent
    assert echo.container_resources.oom_score_adj == request.container_resources.oom_score_adj
    assert not translate.sparse_container(edits).HasField("pod_cgroup_parent")


@settings(max_examples=200, deadline=None)
@given(REQUESTS, RULES, st.sampled_from(list(HookStage)))
def test_what_was_computed_can_be_computed_again(
    request: hooks.ContainerResourceHookRequest, by: EffectivePolicy, stage: HookStage
) -> None:
    edits = engine.decide(context(request, stage), by)
    computed = [edit for edit in edits.items if edit.computed]
    assert [str(formulas.recompute(edit.computed)) for edit in computed] == [str(edit.value) for edit in computed]


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.sampled_from([QOS, PRIORITY]), st.text(max_size=8)),
    st.dictionaries(st.sampled_from([STATUS, EXTENDED, "koordinator.sh/memoryQOS"]), st.text() | JSON.map(json.dumps)),
    RULES,
)
def test_no_text_stops_a_pod(labels: dict[str, str], annotations: dict[str, str], by: EffectivePolicy) -> None:
    request = hooks.PodSandboxHookRequest(annotations=annotations, labels=labels, cgroup_parent="/kubepods/pod1")
    edits = engine.decide(PodContext.read(translate.sandbox_request(request, HookStage.RUN_SANDBOX)), by)
    assert translate.echo_sandbox(request, edits).labels == request.labels
