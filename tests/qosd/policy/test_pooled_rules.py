"""The rules in force: what changes them, and that nothing else does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from koord.host.topology import Topology
from qosd.hooks import cpuset
from qosd.hooks.edits import Edit
from qosd.model.besteffort import UNBOUNDED, BestEffortLimits, BestEffortScheduling
from qosd.model.pod import HookStage, Resources
from qosd.model.policy import EffectivePolicy, Pool, join
from qosd.model.snapshot import PodView
from qosd.policy.pooledrules import EXPECTED_NS, PooledRules, with_pools
from qosd.policy.pools import Pools
from tests.qosd.contexts import Now, policy
from tests.qosd.podviews import machine, view

MACHINE, NOBODY = machine(), dict[str, str]()
LSE = view("lse", "LSE", "Guaranteed", cpus="0-1")


class Node:
    """A rules file that can be swapped, and a clock."""

    def __init__(self, **node: object) -> None:
        self.file = Now(policy(**node))
        self.now_ns = 0
        self.pooled = PooledRules(self.file)

    def edits(self, pod: PodView) -> tuple[Edit, ...]:
        context = pod.context.at(HookStage.CREATE, Resources(), "main", {})
        return cpuset.decide(context, self.pooled.current, self.pooled.limits).items

    def sees(self, *pods: PodView, topology: Topology = MACHINE) -> EffectivePolicy:
        return self.pooled.update(topology, pods, NOBODY, self.now_ns)


def test_before_anything_was_seen_there_are_no_pools() -> None:
    node = Node()
    assert node.pooled.current is node.file.current
    assert not node.pooled.expect(LSE.context, 0)
    assert node.pooled.current.node.ls_pools == ()


def test_the_same_object_until_pools_change() -> None:
    node = Node()
    first = node.sees(view("ls", "LS"))
    assert join(first.node.ls_pools) == "0-15"
    assert node.sees(view("other", "LS")) is first
    assert node.sees(topology=machine()) is first
    pools = node.pooled.pools
    second = node.sees(LSE)
    assert (join(second.node.ls_pools), join(second.node.be_pools)) == ("2-15", "2-15")
    assert second is not first
    assert second.slo is first.slo
    assert node.pooled.pools is not pools


def test_a_new_file_counts_at_once_with_what_was_last_seen() -> None:
    node = Node()
    node.sees(LSE)
    node.file.current = policy(reservation={"reservedCPUs": "15"})
    assert join(node.pooled.current.node.ls_pools) == "2-14"
    assert node.pooled.current is node.pooled.current
    node.file.current = policy(sharedPools={"ls": [{"cpuset": "8"}]})
    assert (join(node.pooled.current.node.ls_pools), join(node.pooled.current.node.be_pools)) == ("8", "2-15")


def test_without_a_known_policy_there_are_no_pools_and_kubelets_cpus_are_still_kept_out_of() -> None:
    node = Node()
    node.file.current = replace(policy(cpuManagerPolicy="static"), policy_unknown="rules.yaml: is not YAML")
    whole = view("whole", "", "Guaranteed")
    seen = node.pooled.update(MACHINE, (whole, view("ls", "LS")), {whole.uid: "2-3"}, 0).node
    assert (seen.ls_pools, seen.be_pools, str(seen.kubelet_cpus)) == ((), (), "2-3")
    node.file.current = policy(cpuManagerPolicy="static")
    assert join(node.pooled.current.node.ls_pools) == "0-1,4-15"


def test_warnings_alone_leave_the_rules_as_they_are() -> None:
    node = Node()
    first = node.sees(LSE)
    second = node.sees(LSE, view("thief", "LSE", "Guaranteed", cpus="0-1"))
    assert second is first
    assert node.pooled.warnings


class TestExpectedPods:
    def test_their_cpus_leave_the_pools_before_anybody_sees_them(self) -> None:
        node = Node()
        node.sees()
        assert node.pooled.expect(LSE.context, 0)
        assert join(node.pooled.current.node.ls_pools) == "2-15"
        assert not node.pooled.expect(LSE.context, 1), "told again changes nothing"

    def test_once_seen_they_are_pods_like_any_other(self) -> None:
        node = Node()
        node.sees()
        node.pooled.expect(LSE.context, 0)
        before = node.pooled.current
        assert node.sees(LSE) is before
        assert join(node.sees().node.ls_pools) == "0-15"

    def test_one_that_never_comes_is_forgotten(self) -> None:
        node = Node()
        pods = (view("ls", "LS"),)
        node.sees(*pods)
        node.pooled.expect(LSE.context, 0)
        node.now_ns = EXPECTED_NS - 1
        assert join(node.sees(*pods).node.ls_pools) == "2-15"
        node.now_ns = EXPECTED_NS
        assert join(node.sees(*pods).node.ls_pools) == "0-15"

    def test_pods_without_cpus_of_their_own_are_none_of_them(self) -> None:
        node = Node()
        node.sees()
        assert not node.pooled.expect(view("ls", "LS").context, 0)


def test_with_pools_keeps_a_policy_that_has_them() -> None:
    pools = Pools(ls=(Pool(0, 0, "4-13"),), be=(Pool(0, 0, "2-13"),))
    made = with_pools(policy(), pools)
    assert made.node.ls_pools == pools.ls
    assert with_pools(made, pools) is made


class TestWhatIsLeftToBestEffort:
    LEFT = {"suppress": BestEffortScheduling("busy", "4")}  # noqa: RUF012 - a constant

    def test_it_counts_at_once_and_ends_at_once(self) -> None:
        node = Node()
        first = node.sees(view("ls", "LS"))
        assert node.pooled.leave(self.LEFT)
        assert node.pooled.current is first, "the policy is what it was"
        assert join(node.pooled.limits.pools) == "4"
        assert not node.pooled.leave(dict(self.LEFT))
        assert node.pooled.leave({})
        assert node.pooled.limits == BestEffortLimits(pools=first.node.be_pools)

    def test_those_that_run_and_those_that_come_are_told_why(self) -> None:
        node = Node()
        job = view("job", "BE", "BestEffort")
        node.sees(job)
        node.pooled.leave(self.LEFT)
        (edit,) = node.edits(job)
        assert (edit.value, edit.why) == (
            "4",
            "BE pods use the BE pool (outside LSE), as far as it is left to them (suppress: busy)",
        )

    @pytest.mark.parametrize("band", ["koord-mid", "koord-prod"])
    def test_others_in_kubelets_tier_keep_theirs(self, band: str) -> None:
        node = Node()
        guest = view("guest", "" if band == "koord-mid" else "LS", "BestEffort", band=band)
        node.sees(guest)
        node.pooled.leave(self.LEFT)
        (edit,) = node.edits(guest)
        assert edit.value == "0-15"

    def test_it_counts_before_the_pods_are_known(self) -> None:
        node = Node()
        assert node.pooled.leave({"a": BestEffortScheduling("busy", cpu_milli=1500, is_idle=True)})
        before = node.pooled.limits
        assert (before.scheduling.cpu_milli, before.tier_milli, before.pools) == (1500, 1500, ())
        node.sees(view("ls", "LS"))
        after = node.pooled.limits
        assert (after.scheduling, join(after.pools)) == (before.scheduling, "0-15")
        assert node.pooled.leave({})
        assert node.pooled.limits.scheduling == UNBOUNDED

    def test_it_outlasts_pods_and_files(self) -> None:
        node = Node()
        assert node.pooled.leave(self.LEFT)
        pools = node.pooled.current.node.ls_pools, node.pooled.limits.pools
        assert [join(each) for each in pools] == ["", "4"], "before the pods are known"
        node.sees(view("ls", "LS"))
        node.sees(LSE)
        assert join(node.pooled.limits.pools) == "4"
        node.file.current = policy(reservation={"reservedCPUs": "15"})
        assert join(node.pooled.limits.pools) == "4"

    def test_without_a_known_policy_there_is_nothing_to_narrow(self) -> None:
        node = Node()
        node.file.current = replace(policy(), policy_unknown="rules.yaml: is not YAML")
        node.sees(view("ls", "LS"))
        assert not node.pooled.leave(self.LEFT)
        assert node.pooled.current.node.be_pools == ()
