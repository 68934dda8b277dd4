"""What the NodeResourceTopology says of machines of every shape, in upstream's spelling, and who reads it back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from koord.host.cpumodel import CPUModel
from koord.host.numamemory import NUMAMemory
from koord.host.topology import Topology
from koord.model import cpuset
from koord.model import topologyannotations as documents
from koord.model.kubeletconfig import KubeletConfig
from koord.model.noderesourcetopology import Zone
from koord.model.reservation import Reserved
from koord.overcommit import ratios
from koord.overcommit.ratios import CPUNormalization, ModelRatios
from qosd.cluster.nodetopology import Inputs, desired
from qosd.policy import nodeobject
from tests.qosd.cluster.topologies import (
    GIB,
    MIB,
    NODE,
    ONE_CPU,
    ONE_SOCKET,
    TWO_SOCKETS,
    inputs,
    memory,
    numa,
)
from tests.qosd.podviews import EXITED, NOT_READY, machine, view

NUMA_RESERVATION = "node.koordinator.sh/enable-numa-reservation"
CXL = numa(machine(16), memory_only=(1,))
"""A second NUMA node is memory without CPUs."""

WHOLE, FIRST_LESS = ("0-3,8-11", "4-7,12-15"), ("1-3,9-11", "4-7,12-15")
"""The pools of two sockets: all CPUs; without the first core."""

TERMINATED = view("done", "LSE", "Guaranteed", cpus="0,8", state=NOT_READY, containers=[("main", EXITED)])
STATIC = KubeletConfig(cpu_manager_policy="static", reserved=Reserved(500, 0))


def said(of: Inputs, key: str) -> Any:
    return json.loads(desired(of).annotations[key])


class TestCPUs:
    def test_nothing_is_said_of_a_cpu_but_where_it_is(self) -> None:
        detail = said(inputs(topology=TWO_SOCKETS), "node.koordinator.sh/cpu-topology")["detail"]
        assert [cpu["id"] for cpu in detail] == list(range(16))
        assert detail[0] == {"id": 0, "core": 0, "socket": 0, "node": 0}
        assert detail[13] == {"id": 13, "core": 5, "socket": 1, "node": 1}

    def test_the_text_is_upstream_s(self) -> None:
        text = desired(inputs(topology=ONE_CPU)).annotations["node.koordinator.sh/cpu-topology"]
        assert text == '{"detail":[{"id":0,"core":0,"socket":0,"node":0}]}'

    @pytest.mark.parametrize(
        ("topology", "model", "info"),
        [
            (
                TWO_SOCKETS,
                CPUModel("Xeon", "GenuineIntel", True, 0x7FF),
                '{"cpuModel":"Xeon","hyperThreadEnabled":true,"turboEnabled":true,"catL3CbmMask":"7ff",'
                '"vendorID":"GenuineIntel"}',
            ),
            (ONE_SOCKET, CPUModel("EPYC", "AuthenticAMD"), '{"cpuModel":"EPYC","vendorID":"AuthenticAMD"}'),
            (ONE_CPU, CPUModel(), "{}"),
        ],
        ids=["all", "neither SMT nor turbo nor CAT", "an architecture that tells nothing"],
    )
    def test_what_a_cpu_is(self, topology: Topology, model: CPUModel, info: str) -> None:
        found = desired(inputs(topology=topology, model=model)).annotations
        assert found["node.koordinator.sh/cpu-basic-info"] == info

    def test_the_manager_finds_the_ratio_by_it(self) -> None:
        text = desired(inputs(topology=TWO_SOCKETS)).annotations[documents.CPU_BASIC_INFO]
        by_model = {"Intel(R) Xeon(R) Platinum 8269CY": ModelRatios(hyper_thread_turbo_enabled_ratio=1.5)}
        strategy = CPUNormalization(enable=True, ratio_model=by_model)
        assert ratios.normalization_ratio({}, strategy, text) == 1.5


class TestWhoHasCPUs:
    @pytest.mark.parametrize(
        ("who", "allocs"),
        [
            (view("g", "", "Guaranteed"), {"namespace": "default", "name": "g", "uid": "g", "cpuset": "2-3"}),
            (view("g", "SYSTEM", "Guaranteed"), {"namespace": "default", "name": "g", "uid": "g", "cpuset": "2-3"}),
            (view("other"), {"uid": "g", "cpuset": "2-3"}),  # kubelet's list has not come to us yet
            (view("g", "LS", "Guaranteed"), None),
            (view("g", "BE", "Guaranteed"), None),
            (view("g", "LSR", "Guaranteed", cpus="1"), None),  # the scheduler's, not kubelet's
        ],
        ids=["no class", "system", "unknown", "LS", "BE", "bound"],
    )
    def test_kubelet_s_pods(self, who: Any, allocs: Mapping[str, Any] | None) -> None:
        found = desired(inputs(who, exclusive={"g": "2-3"}, kubelet=STATIC)).annotations[documents.POD_CPU_ALLOCS]
        assert json.loads(found) == (None if allocs is None else [{**allocs, "managedByKubelet": True}])

    def test_they_are_in_the_order_of_their_uids(self) -> None:
        pods = [view(uid, "", "Guaranteed") for uid in ("b", "a")]
        found = said(inputs(*pods, exclusive={"b": "1", "a": "2", "c": ""}, kubelet=STATIC), documents.POD_CPU_ALLOCS)
        assert [alloc["uid"] for alloc in found] == ["a", "b"]

    def test_without_a_static_cpu_manager_nobody_has_any(self) -> None:
        found = desired(inputs(view("g", "", "Guaranteed"))).annotations["node.koordinator.sh/pod-cpu-allocs"]
        assert found == "null"

    @pytest.mark.parametrize(
        ("pods", "exclusive", "section", "ls", "be"),
        [
            ((), None, {}, WHOLE, WHOLE),
            ((view("lse", "LSE", "Guaranteed", cpus="0,8"),), None, {}, FIRST_LESS, FIRST_LESS),
            ((view("lsr", "LSR", "Guaranteed", cpus="0,8"),), None, {}, FIRST_LESS, WHOLE),
            ((), {"g": "0,8"}, {}, FIRST_LESS, FIRST_LESS),
            ((), None, {"reservation": {"reservedCPUs": "0,8"}}, FIRST_LESS, FIRST_LESS),
            ((), None, {"systemQOS": {"cpuset": "0,8"}}, FIRST_LESS, FIRST_LESS),
            ((), None, {"systemQOS": {"cpuset": "0,8", "cpusetExclusive": False}}, WHOLE, WHOLE),
            ((TERMINATED,), None, {}, WHOLE, WHOLE),
        ],
        ids=["nobody", "LSE", "LSR", "kubelet", "reserved", "system", "system, not exclusive", "a pod that has ended"],
    )
    def test_the_pools_are_what_they_leave(
        self, pods: Sequence[Any], exclusive: Any, section: Mapping[str, Any], ls: Sequence[str], be: Sequence[str]
    ) -> None:
        of = inputs(*pods, topology=TWO_SOCKETS, exclusive=exclusive, **section)
        assert said(of, "node.koordinator.sh/cpu-shared-pools") == pools_of(ls)
        assert said(of, "node.koordinator.sh/be-cpu-shared-pools") == pools_of(be)

    def test_cpus_that_kubelet_reserves_stay_in_the_pools(self) -> None:
        static = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus=cpuset.parse("0,8"))
        assert said(inputs(topology=TWO_SOCKETS, kubelet=static), documents.CPU_SHARED_POOLS) == pools_of(WHOLE)


class TestKubelet:
    @pytest.mark.parametrize(
        ("kubelet", "text"),
        [
            (KubeletConfig(), '{"policy":"none"}'),
            (KubeletConfig(reserved=Reserved(2000, 0)), '{"policy":"none"}'),
            (
                KubeletConfig(
                    cpu_manager_policy="static",
                    cpu_manager_policy_options={"full-pcpus-only": "true"},
                    reserved_system_cpus=cpuset.parse("0-1"),
                    reserved=Reserved(2000, 0),
                ),
                '{"policy":"static","options":{"full-pcpus-only":"true"},"reservedCPUs":"0-1"}',
            ),
            (STATIC, '{"policy":"static","reservedCPUs":"0"}'),
            (structs.replace(STATIC, reserved=Reserved(2001, 0)), '{"policy":"static","reservedCPUs":"0-1,8"}'),
            (structs.replace(STATIC, reserved=Reserved(0, 0)), '{"policy":"static"}'),
            (
                structs.replace(
                    STATIC,
                    reserved=Reserved(2000, 0),
                    cpu_manager_policy_options={"distribute-cpus-across-cores": "true"},
                ),
                '{"policy":"static","options":{"distribute-cpus-across-cores":"true"},"reservedCPUs":"0-1"}',
            ),
        ],
        ids=["none", "none, though it reserves", "listed", "500m", "2001m", "nothing reserved", "across cores"],
    )
    def test_its_cpu_manager(self, kubelet: KubeletConfig, text: str) -> None:
        found = desired(inputs(topology=TWO_SOCKETS, kubelet=kubelet))
        assert found.annotations["kubelet.koordinator.sh/cpu-manager-policy"] == text
        assert found.annotations_if_absent == {}

    @pytest.mark.parametrize(
        ("policy", "scope", "word"),
        [
            ("none", "container", "None"),
            ("none", "pod", "None"),
            ("best-effort", "container", "BestEffortContainerLevel"),
            ("best-effort", "pod", "BestEffortPodLevel"),
            ("restricted", "container", "RestrictedContainerLevel"),
            ("restricted", "pod", "RestrictedPodLevel"),
            ("single-numa-node", "container", "SingleNUMANodeContainerLevel"),
            ("single-numa-node", "pod", "SingleNUMANodePodLevel"),
            ("single-numa-node", "of tomorrow", "None"),
        ],
    )
    def test_its_topology_manager(self, policy: str, scope: str, word: str) -> None:
        kubelet = KubeletConfig(topology_manager_policy=policy, topology_manager_scope=scope)
        assert desired(inputs(kubelet=kubelet)).policies == (word,)

    @pytest.mark.parametrize(("exclusive", "text"), [(None, '{"policy":"none"}'), ({}, '{"policy":"static"}')])
    def test_while_it_has_not_told_only_what_is_absent_is_written(self, exclusive: Any, text: str) -> None:
        found = desired(inputs(kubelet=None, exclusive=exclusive))
        assert documents.CPU_MANAGER_POLICY not in found.annotations
        assert found.annotations_if_absent == {documents.CPU_MANAGER_POLICY: text}
        assert found.policies == ()


class TestTheNode:
    @pytest.mark.parametrize(
        ("annotation", "section", "text"),
        [
            (None, {}, "{}"),
            ({"reservedCPUs": "0-2"}, {}, '{"reservedCPUs":"0-2"}'),
            (
                {"resources": {"cpu": "1500m", "memory": "1Gi"}, "applyPolicy": "ReservedCPUsOnly"},
                {},
                '{"resources":{"cpu":"1500m","memory":"1Gi"},"reservedCPUs":"0,8","applyPolicy":"ReservedCPUsOnly"}',
            ),
            (None, {"reservation": {"reservedCPUs": "1"}}, '{"reservedCPUs":"1"}'),
            ({"resources": {"memory": "1Gi"}}, {}, '{"resources":{"memory":"1Gi"}}'),
            ("nonsense", {}, "{}"),
            ({"resources": {"memory": ["1Gi"]}}, {}, "{}"),
        ],
    )
    def test_what_is_reserved(self, annotation: Any, section: Mapping[str, Any], text: str) -> None:
        found = desired(with_annotation("node.koordinator.sh/reservation", annotation, **section))
        assert found.annotations["node.koordinator.sh/reservation"] == text

    @pytest.mark.parametrize(
        ("annotation", "text"),
        [
            (None, "{}"),
            ({"cpuset": "0-3"}, '{"cpuset":"0-3","cpusetExclusive":true}'),
            ({"cpuset": "0-3", "cpusetExclusive": False}, '{"cpuset":"0-3","cpusetExclusive":false}'),
        ],
    )
    def test_what_the_system_has(self, annotation: Any, text: str) -> None:
        found = desired(with_annotation("node.koordinator.sh/system-qos-resource", annotation))
        assert found.annotations["node.koordinator.sh/system-qos-resource"] == text

    @pytest.mark.parametrize(("label", "mirrored"), [({}, None), ({NUMA_RESERVATION: "yes"}, "yes")])
    def test_its_label_is_mirrored(self, label: Mapping[str, str], mirrored: str | None) -> None:
        found = desired(inputs(node=structs.replace(NODE, labels={"zone": "a", **label})))
        assert found.labels == {"app.kubernetes.io/managed-by": "Koordinator", NUMA_RESERVATION: mirrored}
        assert found.owner_uid == "uid-1"


class TestZones:
    @pytest.mark.parametrize(
        ("topology", "of_memory", "zones"),
        [
            (ONE_CPU, memory(512 * MIB), {"node-0": ("1", "512Mi")}),
            (ONE_SOCKET, memory(16 * GIB), {"node-0": ("4", "16Gi")}),
            (TWO_SOCKETS, memory(16 * GIB, 15 * GIB + 4096), {"node-0": ("8", "16Gi"), "node-1": ("8", "15728644Ki")}),
            (
                numa(machine(4), memory_only=(1,)),
                memory(GIB, 64 * GIB),
                {"node-0": ("4", "1Gi"), "node-1": ("0", "64Gi")},
            ),
            (TWO_SOCKETS, memory(GIB), {"node-0": ("8", "1Gi"), "node-1": ("8", "0")}),
            # numbers with gaps, and in the order of numbers rather than of texts
            (
                numa(machine(2), memory_only=(2, 10)),
                (NUMAMemory(0, GIB, {}), NUMAMemory(2, GIB, {}), NUMAMemory(10, GIB, {})),
                {"node-0": ("2", "1Gi"), "node-2": ("0", "1Gi"), "node-10": ("0", "1Gi")},
            ),
        ],
        ids=["one CPU", "one socket", "two sockets", "memory only", "no memory", "gaps"],
    )
    def test_each_numa_node_is_one(
        self, topology: Topology, of_memory: tuple[NUMAMemory, ...], zones: Mapping[str, tuple[str, str]]
    ) -> None:
        found = desired(inputs(topology=topology, memory=of_memory)).zones
        assert {zone.name: (amount(zone, "cpu"), amount(zone, "memory")) for zone in found} == {
            name: ((cpu,) * 3, (text,) * 3) for name, (cpu, text) in zones.items()
        }
        assert [zone.name for zone in found] == list(zones)
        assert {zone.type for zone in found} == {"Node"}

    @pytest.mark.parametrize(
        ("gate", "memory_text", "mib2", "gib1"),
        [(False, "9Gi", "0", "0"), (True, "9Gi", "2Gi", "4Gi")],
    )
    def test_huge_pages_are_no_memory_and_are_told_behind_their_gate(
        self, gate: bool, memory_text: str, mib2: str, gib1: str
    ) -> None:
        huge = {0: {64 << 10: GIB, 2 * MIB: 2 * GIB, GIB: 4 * GIB}}
        (zone,) = desired(inputs(memory=memory(16 * GIB, huge=huge), features={"HugePageReport": gate})).zones
        assert [resource.name for resource in zone.resources] == ["cpu", "hugepages-1Gi", "hugepages-2Mi", "memory"]
        assert amount(zone, "memory") == (memory_text,) * 3
        assert amount(zone, "hugepages-2Mi") == (mib2,) * 3
        assert amount(zone, "hugepages-1Gi") == (gib1,) * 3

    @pytest.mark.parametrize(
        ("label", "topology", "cpu", "memory_texts"),
        [
            ("false", TWO_SOCKETS, ["8", "8"], ["16Gi", "16Gi"]),
            ("true", TWO_SOCKETS, ["7749m", "7749m"], ["15Gi", "15Gi"]),
            # CPU is kept of zones with CPUs alone
            ("true", CXL, ["15499m", "0"], ["15Gi", "15Gi"]),
        ],
        ids=["off", "two sockets", "memory only"],
    )
    def test_what_kubelet_keeps_is_missing_from_allocatable_never_from_capacity(
        self, label: str, topology: Topology, cpu: Sequence[str], memory_texts: Sequence[str]
    ) -> None:
        node = structs.replace(
            NODE,
            labels={NUMA_RESERVATION: label},
            capacity={"cpu": "16", "memory": "33Gi", "hugepages-2Mi": "1Gi"},
            allocatable={"cpu": "15499m", "memory": "30Gi", "hugepages-2Mi": "1Gi"},
        )
        plain = {0: {2 * MIB: GIB}}
        zones = desired(inputs(topology=topology, memory=memory(17 * GIB, 16 * GIB, huge=plain), node=node)).zones
        assert [amount(zone, "cpu")[1:] for zone in zones] == [(text,) * 2 for text in cpu]
        assert [amount(zone, "memory")[1:] for zone in zones] == [(text,) * 2 for text in memory_texts]
        assert [amount(zone, "memory")[0] for zone in zones] == ["16Gi", "16Gi"]
        assert sum(int(amount(zone, "cpu")[0]) for zone in zones) == 16

    def test_of_an_amplified_node_what_kubelet_said_counts(self) -> None:
        node = structs.replace(
            NODE,
            labels={NUMA_RESERVATION: "true"},
            annotations={
                "node.koordinator.sh/raw-allocatable": '{"cpu":"3","memory":"15Gi"}',
                "node.koordinator.sh/resource-amplification-ratio": '{"cpu":1.50,"memory":2.00}',
            },
            capacity={"cpu": "4", "memory": "16Gi"},
            allocatable={"cpu": "6", "memory": "30Gi"},
        )
        (zone,) = desired(inputs(node=node)).zones
        assert amount(zone, "cpu") == ("4", "3", "3")
        assert amount(zone, "memory") == ("16Gi", "15Gi", "15Gi")

    def test_no_more_is_kept_than_there_is(self) -> None:
        node = structs.replace(
            NODE,
            labels={NUMA_RESERVATION: "true"},
            capacity={"cpu": "100", "memory": "100Gi"},
            allocatable={"cpu": "0", "memory": "0"},
        )
        (zone,) = desired(inputs(node=node)).zones
        assert amount(zone, "cpu") == ("4", "0", "0")
        assert amount(zone, "memory") == ("16Gi", "0", "0")


def amount(zone: Zone, name: str) -> tuple[Any, Any, Any]:
    """Capacity, allocatable, available."""
    resource = zone.resource(name)
    assert resource is not None
    return resource.capacity, resource.allocatable, resource.available


def pools_of(cpusets: Sequence[str]) -> list[dict[str, Any]]:
    """The pool of two sockets, which are the NUMA nodes."""
    return [{"socket": number, "node": number, "cpuset": cpus} for number, cpus in enumerate(cpusets)]


def with_annotation(key: str, document: Any, **section: Any) -> Inputs:
    """The Node has the annotation, and the rules have taken it over."""
    if document is None:
        return inputs(topology=TWO_SOCKETS, **section)
    text = document if isinstance(document, str) else json.dumps(document)
    node = structs.replace(NODE, annotations={key: text})
    made = inputs(topology=TWO_SOCKETS, node=node, **section)
    layered = replace(made.policy, node=nodeobject.over(made.policy.node, node, lambda _: None))
    return replace(made, policy=layered)
