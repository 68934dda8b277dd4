"""CPU pools as tables, what makes no sense, and what always holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.host.topology import Topology
from koord.model import cpuset
from koord.model.cpuset import EMPTY, CPUSet
from qosd.model.pod import Resources
from qosd.model.policy import Pool, join
from qosd.model.snapshot import PodView
from qosd.policy.pools import Pools, compute_pools, reserved
from tests.qosd.contexts import policy
from tests.qosd.podviews import EXITED, NOT_READY, RUNNING, machine, view

LSE, LSR = view("lse", "LSE", "Guaranteed", cpus="0-1"), view("lsr", "LSR", "Guaranteed", cpus="2-3")
SYSTEM_AND_RESERVED: dict[str, Any] = {"systemQOS": {"cpuset": "14"}, "reservation": {"reservedCPUs": "15"}}


def pools(
    *pods: PodView, topology: Topology | None = None, kubelet: Mapping[str, str] | None = None, **node: Any
) -> Pools:
    return compute_pools(topology or machine(), pods, policy(**node).node, kubelet or {})


def both(found: Pools) -> tuple[str, str]:
    return join(found.ls), join(found.be)


class TestTheTable:
    @pytest.mark.parametrize(
        ("pods", "node", "ls", "be"),
        [
            ((), {}, "0-15", "0-15"),
            ((LSE, LSR), SYSTEM_AND_RESERVED, "4-13", "2-13"),
            ((LSE,), {}, "2-15", "2-15"),
            ((LSR,), {}, "0-1,4-15", "0-15"),
            # bound CPUs leave the LS pool whatever the class, and the BE pool only for LSE
            ((view("x", "", "Guaranteed", cpus="2-3"),), {}, "0-1,4-15", "0-15"),
            ((view("x", "BE", "Burstable", cpus="2-3"),), {}, "0-1,4-15", "0-15"),
            # who requests none has none
            ((view("x", "BE", "BestEffort", cpus="2-3"),), {}, "0-15", "0-15"),
            # a pod that has ended has no CPUs
            ((view("x", "LSE", cpus="0-1", state=NOT_READY, containers=[("main", EXITED)]),), {}, "0-15", "0-15"),
            ((view("x", "LSE", cpus="0-1", state=NOT_READY),), {}, "2-15", "2-15"),
            # system-QoS CPUs that are not exclusive
            ((), {"systemQOS": {"cpuset": "14", "cpusetExclusive": False}}, "0-15", "0-15"),
            ((), {"reservation": {"resources": {"cpu": "1500m"}}}, "2-15", "2-15"),
            ((), {"reservation": {"resources": {"cpu": "8"}, "reservedCPUs": "15"}}, "0-14", "0-14"),
        ],
    )
    def test_one_memory_node(self, pods: tuple[PodView, ...], node: dict[str, Any], ls: str, be: str) -> None:
        found = pools(*pods, **node)
        assert both(found) == (ls, be)
        assert found.warnings == ()

    @pytest.mark.parametrize(
        ("shares", "ls"),
        [(2, "0-15"), (10, "0,2-15"), (1024, "0,2-15"), (4096, "0,5-15"), (None, "0")],
        ids=["requests nothing", "10m", "one CPU", "four CPUs", "nobody tells what it requests"],
    )
    def test_who_claims_more_than_he_requests(self, shares: int | None, ls: str) -> None:
        claimant = view("c", "LSE", "Burstable", cpus="1-15", requested=Resources(cpu_shares=shares))
        assert both(pools(claimant)) == (ls, ls)

    @pytest.mark.parametrize(
        ("who", "in_pools"),
        [
            (view("g", "", "Guaranteed"), False),
            (view("g", "LSR", "Guaranteed"), False),
            (view("g", "SYSTEM", "Guaranteed"), False),
            (view("g", "LS", "Guaranteed"), True),
            (view("g", "BE", "Guaranteed"), True),
            (view("g", "", "Guaranteed", band="koord-free"), True),
            (view("other"), False),  # nobody knows the pod that kubelet gave the CPUs: they are not ours to share
        ],
    )
    def test_kubelets_exclusive_cpus(self, who: PodView, in_pools: bool) -> None:
        found = pools(who, kubelet={"g": "4-5"}, cpuManagerPolicy="static")
        assert both(found) == (("0-15", "0-15") if in_pools else ("0-3,6-15", "0-3,6-15"))
        assert found.warnings == ()

    def test_kubelets_cpus_of_a_pod_that_the_scheduler_bound_are_the_schedulers(self) -> None:
        found = pools(view("g", "LSR", "Guaranteed", cpus="6-7"), kubelet={"g": "4-5"}, cpuManagerPolicy="static")
        assert both(found) == ("0-5,8-15", "0-15")

    @pytest.mark.parametrize(
        ("bound", "kubelet", "kept"),
        [
            ({"a": ("LSR", "6-7")}, {"g": "4-5", "a": "2-3"}, "4-5"),
            # nothing is left of what the scheduler bound, so kubelet's own choice for the pod stands, and so on
            ({"a": ("LSR", "4")}, {"g": "4-5", "a": "2-3"}, "2-5"),
            ({"a": ("LSR", "4"), "b": ("LSE", "2-3")}, {"g": "4-5", "a": "2-3", "b": "1"}, "1-5"),
            ({"a": ("LS", "4")}, {"g": "4-5", "a": "2-3"}, "4-5"),
            ({"a": ("LSR", "4-6")}, {"g": "4-5", "a": "2-3"}, "4-5"),
        ],
    )
    def test_what_stays_with_kubelet(
        self, bound: dict[str, tuple[str, str]], kubelet: dict[str, str], kept: str
    ) -> None:
        pods = [view(uid, qos, "Guaranteed", cpus=cpus) for uid, (qos, cpus) in bound.items()]
        found = pools(view("g", "", "Guaranteed"), *pods, kubelet=kubelet, cpuManagerPolicy="static")
        assert str(found.kubelet) == kept
        assert not union(found.be) & found.kubelet

    def test_by_memory_node(self) -> None:
        found = pools(LSE, LSR, topology=machine(16, nodes=2, smt=True))
        assert found.ls == (Pool(0, 0, "8-11"), Pool(1, 1, "4-7,12-15"))
        assert found.be == (Pool(0, 0, "2-3,8-11"), Pool(1, 1, "4-7,12-15"))

    @pytest.mark.parametrize(("milli", "cpus"), [("100m", "0"), ("1", "0"), ("1500m", "0,8"), ("5", "0-2,8-9")])
    def test_a_reserved_quantity_takes_whole_cores_first(self, milli: str, cpus: str) -> None:
        node = policy(reservation={"resources": {"cpu": milli}}).node
        assert str(reserved(machine(16, nodes=2, smt=True), node)) == cpus

    def test_pools_of_the_rules_file_win(self) -> None:
        found = pools(LSR, sharedPools={"ls": [{"cpuset": "8-9"}]})
        assert both(found) == ("8-9", "0-15")


class TestBoundPodsThatAnotherWriterMoves:
    @pytest.mark.parametrize(
        ("qos", "containers", "fought", "ls", "be", "warns"),
        [
            ("LSR", ("main",), {"main": "2-3"}, "0-1", "0-3", "2-3"),
            ("LSE", ("main",), {"main": "2-3"}, "0-1", "0-1", "2-3"),
            ("LSR", ("main", "side"), {"main": "2"}, "3", "0-3", "0-2"),
            ("LSR", ("main",), {"main": "0-1"}, "2-3", "0-3", ""),
            ("LSR", ("main",), {}, "2-3", "0-3", ""),
        ],
    )
    def test_they_have_what_they_are_kept_on(
        self, qos: str, containers: tuple[str, ...], fought: Mapping[str, str], ls: str, be: str, warns: str
    ) -> None:
        pod = view("p", qos, "Guaranteed", cpus="0-1", containers=[(name, RUNNING) for name in containers])
        node = policy().node
        found = compute_pools(
            machine(4), [pod], node, {}, (), {f"{pod.cgroup}/{at}": cpus for at, cpus in fought.items()}
        )
        assert both(found) == (ls, be)
        said = f"default/p ({qos}) is bound to CPUs 0-1, but another writer keeps it on {warns}: it has those"
        assert found.warnings == ((said,) if warns else ())

    def test_others_that_are_fought_for_own_nothing(self) -> None:
        pod = view("p", "LS")
        assert both(compute_pools(machine(4), [pod], policy().node, {}, (), {f"{pod.cgroup}/main": "2"})) == (
            "0-3",
            "0-3",
        )


class TestIsolatedCPUs:
    """The kernel balances no load to them: all threads of a container would share the first of them."""

    @pytest.mark.parametrize(
        ("isolated", "pods", "node", "ls", "be"),
        [
            ("1-3", (), {}, "0", "0"),
            ("2-3", (view("lsr", "LSR", "Guaranteed", cpus="1"),), {}, "0", "0-1"),
            ("2-3", (view("lse", "LSE", "Guaranteed", cpus="2-3"),), {}, "0-1", "0-1"),
            # reserved CPUs are shared before isolated ones
            ("1-3", (), {"reservation": {"reservedCPUs": "0"}}, "0", "0"),
            ("0-3", (), {}, "0-3", "0-3"),
            ("1-3", (), {"sharedPools": {"ls": [{"cpuset": "2"}], "be": [{"cpuset": "3"}]}}, "2", "3"),
        ],
    )
    def test_they_are_in_no_pool(
        self, isolated: str, pods: tuple[PodView, ...], node: dict[str, Any], ls: str, be: str
    ) -> None:
        four = replace(machine(4), isolated=cpuset.parse(isolated))
        found = pools(*pods, topology=four, **node)
        assert both(found) == (ls, be)
        assert f"CPUs {isolated} are isolated (isolcpus), where the kernel balances no load: they are in no pool" in (
            found.warnings
        )


class TestNothingLeft:
    @pytest.mark.parametrize(
        ("bound", "node", "want", "warning"),
        [
            (
                {"LSE": "0-7", "LSR": "8-15"},
                {},
                ("8-15", "8-15"),
                "no CPU is left for the LS pool: it shares CPUs 8-15 of default/LSR (LSR)",
            ),
            (
                {"LSE": "0-13"},
                SYSTEM_AND_RESERVED,
                ("14-15", "14-15"),
                "no CPU is left for the LS and BE pools: they share the reserved and system-QoS CPUs 14-15",
            ),
            (
                {"LSE": "0-15"},
                {},
                ("0-15", "0-15"),
                "no CPU is left for the LS and BE pools: they share the LSE pods' CPUs 0-15 of default/LSE (LSE)",
            ),
        ],
    )
    def test_what_is_left_is_shared_and_named(
        self, bound: dict[str, str], node: dict[str, Any], want: tuple[str, str], warning: str
    ) -> None:
        found = pools(*(view(qos, qos, "Guaranteed", cpus=cpus) for qos, cpus in bound.items()), **node)
        assert both(found) == want
        assert found.warnings == (warning,)

    def test_kubelets_exclusive_cpus_are_shared_last(self) -> None:
        found = pools(LSE, kubelet={"g": "2-15"}, cpuManagerPolicy="static")
        assert both(found) == ("0-1", "0-1")
        assert "the LSE pods' CPUs 0-1 of default/lse (LSE)" in found.warnings[0]
        found = pools(kubelet={"g": "0-15"}, cpuManagerPolicy="static")
        assert both(found) == ("0-15", "0-15")
        assert "the CPUs that kubelet gave exclusively 0-15 of pod g (kubelet)" in found.warnings[0]

    def test_no_topology_is_no_pools(self) -> None:
        assert pools(LSE, topology=Topology()).warnings == ("no CPU is known, so there are no pools",)


class TestNonsense:
    @pytest.mark.parametrize(
        ("pods", "node", "warning"),
        [
            (
                (LSE, view("thief", "LSE", "Guaranteed", cpus="1-2")),
                {},
                "default/thief (LSE) and default/lse (LSE) are both bound to CPUs 1",
            ),
            (
                (LSE, view("thief", "", "Guaranteed", cpus="0")),
                {},
                "default/thief (no class) and default/lse (LSE) are both bound to CPUs 0",
            ),
            (
                (view("far", "LSR", cpus="14-17"),),
                {},
                "default/far (LSR) is bound to CPUs 16-17, which are not online",
            ),
            ((), {"reservation": {"reservedCPUs": "15-16"}}, "reserved CPUs 16 are not online"),
            ((), {"systemQOS": {"cpuset": "20"}}, "system-QoS CPUs 20 are not online"),
            (
                (),
                {"sharedPools": {"be": [{"cpuset": "2-20"}]}},
                "the BE pool of the rules file has CPUs 16-20, which are not online",
            ),
            (
                (LSE,),
                {"sharedPools": {"ls": [{"cpuset": "1-4"}]}},
                "the LS pool of the rules file has CPUs 1 of default/lse (LSE)",
            ),
        ],
    )
    def test_is_a_warning_that_names_it(self, pods: tuple[PodView, ...], node: dict[str, Any], warning: str) -> None:
        assert pools(*pods, **node).warnings == (warning,)

    @pytest.mark.parametrize(
        ("cpus", "gets"),
        [("2-3", "it gets CPUs 2"), ("3", "it counts as not bound")],
    )
    def test_bound_to_a_cpu_that_kubelet_gave_another(self, cpus: str, gets: str) -> None:
        pods = view("lsr", "LSR", "Guaranteed", cpus=cpus), view("g", "", "Guaranteed")
        taken = "kubelet's exclusive CPUs 3 of default/g (kubelet)"
        said = f"default/lsr (LSR) is bound to CPUs {cpus}, with {taken}: {gets}"
        assert pools(*pods, kubelet={"g": "3-4"}, cpuManagerPolicy="static").warnings == (said,)

    def test_a_pool_of_the_rules_file_with_kubelets_cpus(self) -> None:
        shared = {"ls": [{"cpuset": "3-8"}]}
        found = pools(view("g", "", "Guaranteed"), kubelet={"g": "3-4"}, sharedPools=shared, cpuManagerPolicy="static")
        assert found.warnings == ("the LS pool of the rules file has CPUs 3-4 of default/g (kubelet)",)

    def test_be_may_be_bound_to_cpus_of_lsr(self) -> None:
        assert pools(LSR, view("be", "BE", "BestEffort", cpus="2-3")).warnings == ()

    def test_a_pool_of_the_rules_file_without_any_online_cpu_is_not_taken(self) -> None:
        assert both(pools(sharedPools={"ls": [{"cpuset": "99"}]})) == ("0-15", "0-15")

    def test_unreadable_cpus_of_kubelet(self) -> None:
        found = pools(kubelet={"g": "4-x"}, cpuManagerPolicy="static")
        assert both(found) == ("0-15", "0-15")
        assert found.warnings[0].startswith("kubelet's CPUs of pod g: '4-x' is not a CPU list")

    def test_rules_that_do_not_know_of_kubelets_static_policy(self) -> None:
        found = pools(kubelet={"g": "4-5"})
        assert both(found)[0] == "0-3,6-15"
        assert found.warnings == (
            "kubelet's CPU manager is static (it gave exclusive CPUs), the rules say cpuManagerPolicy: none",
        )


CPUS = st.frozensets(st.integers(0, 20), max_size=8).map(CPUSet.of)
BOUND = st.lists(st.tuples(st.sampled_from(["LSE", "LSR", "LS", "BE", ""]), CPUS), max_size=6)
MACHINES = st.tuples(st.integers(1, 20), st.integers(1, 2), st.booleans())


def union(found: tuple[Pool, ...]) -> CPUSet:
    return reduce(or_, (cpuset.parse(pool.cpuset) for pool in found), EMPTY)


@given(BOUND, MACHINES, CPUS, CPUS, CPUS)
def test_what_always_holds(
    bound: list[tuple[str, CPUSet]], size: tuple[int, int, bool], kept: CPUSet, system: CPUSet, kubelets: CPUSet
) -> None:
    cpus, nodes, smt = size
    topology = machine(max(cpus // (nodes * 2), 1) * nodes * 2, nodes, smt)
    pods = [view(f"p{n}", qos, "Guaranteed", cpus=str(its)) for n, (qos, its) in enumerate(bound)]
    node = {"systemQOS": {"cpuset": str(system)}, "reservation": {"reservedCPUs": str(kept)}}
    found = pools(*pods, topology=topology, kubelet={"g": str(kubelets)}, cpuManagerPolicy="static", **node)
    ls, be = union(found.ls), union(found.be)
    lse = reduce(or_, (its for qos, its in bound if qos == "LSE"), EMPTY)
    shared_lse = any("LSE pods' CPUs" in warning for warning in found.warnings)
    shared_all = topology.online <= kubelets
    assert ls
    assert ls <= be <= topology.online
    assert not (be & kubelets) or shared_all
    assert not (be & lse) or shared_lse or shared_all
    assert shared_lse == (topology.online <= lse | kubelets and not shared_all)
    assert len(union(found.ls)) == sum(len(cpuset.parse(pool.cpuset)) for pool in found.ls)
