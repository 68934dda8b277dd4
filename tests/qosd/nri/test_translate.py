"""Edits as NRI carries them: only what changes something, and the same values that a proxy would bring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from koord.host.files import Target
from koord.model.crifields import Field
from koord.pb.nri import api_pb2 as nri
from qosd.hooks import engine
from qosd.hooks.edits import Edit, Edits
from qosd.hooks.normalization import ANNOTATION
from qosd.model.pod import HookStage, PodContext, Resources
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.nri import translate
from qosd.nri.translate import SpecResources
from tests.qosd.contexts import QOS, policy
from tests.qosd.nri.containers import be, container, ls, lsr, pod, resources, said

MIB = 1 << 20
LS_POOL = {"sharedPools": {"ls": [{"socket": 0, "node": 0, "cpuset": "4-7"}]}}
RATIO: dict[str, Any] = {"cpuNormalizationRatio": "1.2"}
PARENT_CPUS = {"/kubepods/besteffort/poduid": "0-7"}


def parent_sets(target: Target) -> str:
    return PARENT_CPUS.get(target.cgroup, "") if target.name == "cpuset_cpus" else ""


def created(of: nri.PodSandbox, spec: nri.LinuxResources, by: EffectivePolicy) -> nri.ContainerAdjustment | None:
    found = container(of, spec)
    held = SpecResources.of(found)
    context = PodContext.read(translate.create_request(of, found, held))
    rdt = translate.rdt_class(context, by)
    return translate.adjustment(engine.decide(context, by), found, held, rdt, parent_sets)


def updated(
    of: nri.PodSandbox,
    spec: nri.LinuxResources,
    wanted: nri.LinuxResources,
    by: EffectivePolicy,
    annotations: Mapping[str, str] | None = None,
) -> nri.ContainerUpdate | None:
    found = container(of, spec, annotations)
    held = SpecResources.of(found, wanted)
    edits = engine.decide(PodContext.read(translate.update_request(of, found, held, wanted)), by)
    return translate.update(edits, found, held, parent_sets)


@pytest.mark.parametrize(
    ("of", "spec", "node", "want"),
    [
        pytest.param(lsr(), resources("0-7", 2048, 200_000), {}, {"cpus": "2-3", "quota": -1}, id="bound CPUs"),
        pytest.param(lsr(), resources("3,2", 2048, -1), {}, {}, id="already so, spelled otherwise"),
        pytest.param(ls(), resources("", 512, 100_000), LS_POOL, {"cpus": "4-7"}, id="the LS pool"),
        pytest.param(ls(), resources("", 512, 100_000), {}, {}, id="no pool, no opinion"),
        pytest.param(
            be(), resources("", 2), {}, {"shares": 512, "quota": 100_000, "limit": 64 * MIB},
            id="batch, inheriting CPUs",
        ),
        pytest.param(
            be(), resources("0-3", 2), {}, {"shares": 512, "quota": 100_000, "limit": 64 * MIB, "cpus": "0-7"},
            id="batch, the parent's CPUs instead of kubelet's",
        ),
        pytest.param(be(), resources("0-7", 512, 100_000, 64 * MIB), {}, {}, id="batch, already so"),
        pytest.param(pod("BE", "BestEffort", uid="uid"), resources("0-7", 2), {}, {}, id="no amounts"),
    ],
)  # fmt: skip
def test_a_new_container(of: nri.PodSandbox, spec: nri.LinuxResources, node: Any, want: dict[str, object]) -> None:
    found = created(of, spec, policy(HostFacts(), **node))
    assert said(found.linux.resources if found else None) == want
    assert (found is None) == (want == {})


def test_parents_whose_cpus_nobody_knows_are_left_alone() -> None:
    of = be()
    of.linux.cgroup_parent = "/kubepods/besteffort/podother"
    found = created(of, resources("0-3", 512, 100_000, 64 * MIB), policy(HostFacts()))
    assert found is None


def test_a_systemd_parent_is_found_from_the_spec() -> None:
    asked: list[Target] = []
    of = container(be(), resources("0-3", 2))
    of.linux.cgroups_path = "kubepods-besteffort-poduid.slice:cri-containerd:c1"
    edits = Edits((Edit(Field.CPUSET_CPUS, "", "the parent's"),))

    def note(target: Target) -> str:
        asked.append(target)
        return "0-7"

    assert said(translate.resources(edits, SpecResources.of(of), note)) == {"cpus": "0-7"}
    assert asked == [
        Target("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poduid.slice", "cpuset_cpus")
    ]


@pytest.mark.parametrize(
    ("of", "spec", "wanted", "want"),
    [
        pytest.param(lsr(), resources("2-3", 2048, -1), resources(cpus="0-7"), {"cpus": "2-3"}, id="pinned again"),
        pytest.param(
            lsr(), resources("2-3", 2048, -1), resources("", 4096, 400_000, MIB), {"quota": -1}, id="resized"
        ),
        pytest.param(lsr(), resources("2-3", 2048, -1), resources("", 4096), {}, id="kubelet's own fields pass"),
        pytest.param(be(), resources("0-7", 512, 100_000, 64 * MIB), resources("0-3"), {"cpus": "0-7"}, id="BE pinned"),
        pytest.param(
            be(), resources("0-3", 2), nri.LinuxResources(),
            {"cpus": "0-7", "shares": 512, "quota": 100_000, "limit": 64 * MIB}, id="it ran before us",
        ),
    ],
)  # fmt: skip
def test_an_existing_container(
    of: nri.PodSandbox, spec: nri.LinuxResources, wanted: nri.LinuxResources, want: dict[str, object]
) -> None:
    found = updated(of, spec, wanted, policy(HostFacts()))
    if not want:
        assert found is None
        return
    assert found is not None
    assert (found.container_id, found.ignore_failure, said(found.linux.resources)) == ("c1", True, want)


def test_a_scaled_quota_travels_with_its_annotation_or_not_at_all() -> None:
    by = policy(HostFacts(), **RATIO)
    new = created(ls(), resources("", 512, 120_000), by)
    assert new is not None
    assert said(new.linux.resources) == {"quota": 100_000}
    assert dict(new.annotations) == {ANNOTATION: "120000/100000"}
    ours = {ANNOTATION: "120000/100000"}
    scaled = resources("", 512, 100_000)
    assert updated(ls(), scaled, resources("", 1024, 240_000), by, ours) is None
    assert updated(ls(), scaled, nri.LinuxResources(), by, ours) is None
    assert updated(ls(), resources("", 512, 120_000), nri.LinuxResources(), by) is None


def test_an_update_computes_from_kubelets_new_values_and_the_specs_others() -> None:
    wanted = nri.LinuxResources()
    wanted.memory.limit.value = 5
    made = container(ls(), resources("", 512, 100_000, 7))
    found = translate.update_request(ls(), made, SpecResources.of(made, wanted), wanted)
    assert (found.stage, found.requested) == (HookStage.UPDATE, Resources(100_000, None, 5, 512))
    assert (found.namespace, found.name, found.uid, found.container) == ("default", "p", "uid", "main")


def test_unified_values_and_annotations() -> None:
    edits = Edits((
        Edit(Field.UNIFIED, "max", "", key="memory.high"),
        Edit(Field.UNIFIED, "0", "", key="memory.min"),
        Edit(Field.ANNOTATION, "v", "", key="example.com/k"),
    ))  # fmt: skip
    made = container(ls(), resources(memory_min="0"))
    found = translate.adjustment(edits, made, SpecResources.of(made), "", parent_sets)
    assert found is not None
    assert said(found.linux.resources) == {"memory.high": "max"}
    assert dict(found.annotations) == {"example.com/k": "v"}


@pytest.mark.parametrize(
    ("groups", "annotations", "own", "want"),
    [
        ({"LSR", "LS", "BE"}, {}, "", "BE"),
        ({"LSR"}, {}, "", None),
        (set(), {}, "", None),
        ({"BE"}, {"rdt.resources.beta.kubernetes.io/pod": "gold"}, "", None),
        ({"BE"}, {}, "gold", None),
    ],
)
def test_the_rdt_class_needs_no_configuration_of_the_runtime(
    groups: set[str], annotations: dict[str, str], own: str, want: str | None
) -> None:
    enabled = {"resourceQOSStrategy": {"beClass": {"resctrlQOS": {"enable": True}}}}
    by = policy(HostFacts(resctrl_groups=frozenset(groups)), spec=enabled)
    of = pod("BE", "BestEffort", annotations)
    made = container(of)
    context = PodContext.read(translate.create_request(of, made, SpecResources.of(made)))
    if own:
        made.linux.rdt.clos_id.value = own
    found = translate.adjustment(Edits(), made, SpecResources.of(made), translate.rdt_class(context, by), parent_sets)
    assert said(found.linux.resources if found else None).get("rdt_class") == want


def test_a_pod_is_announced_with_what_it_says() -> None:
    context = PodContext.read(translate.pod_request(lsr()))
    assert (context.stage, context.bound_cpus, context.request.labels[QOS]) == (HookStage.RUN_SANDBOX, "2-3", "LSR")
