"""The policy in force: what changes it, and that nothing else does; and what is left to best-effort pods by it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from koord.host.topology import Topology
from koord.model.reservation import Reserved
from qosd.hooks import cpuset
from qosd.hooks.edits import Edit
from qosd.metrics import Metrics
from qosd.model.besteffort import UNBOUNDED, BestEffortLimits, BestEffortScheduling
from qosd.model.pod import HookStage, Resources
from qosd.model.policy import EffectivePolicy, HostFacts, NodeSettings, join
from qosd.model.snapshot import PodView
from qosd.policy.kubeletpolicy import KubeletPolicyInputs
from qosd.policy.scheduling import limits
from qosd.policy.source import EXPECTED_NS, PolicySource
from tests.qosd.podviews import machine, view

MACHINE, NOBODY = machine(), dict[str, str]()
LSE = view("lse", "LSE", "Guaranteed", cpus="0-1")


class Node:
    """A rules file, kubelet and a clock, and the policy that follows from them."""

    def __init__(self, root: Path, **settings: object) -> None:
        self.file, self.now_ns, self.kubelet = root / "rules.yaml", 0, KubeletPolicyInputs()
        self.file.write_text(json.dumps({"node": settings}))
        self.policy = PolicySource(self.file, HostFacts, Metrics(), kubelet=lambda: self.kubelet)
        self.policy.load()

    @property
    def settings(self) -> NodeSettings:
        return self.policy.current.node

    def says(self, **settings: object) -> None:
        """Another file."""
        self.file.write_text(json.dumps({"node": settings}))
        self.policy.load()

    def leaves(self, by_strategy: Mapping[str, BestEffortScheduling]) -> bool:
        """Do the limits of best-effort pods change by it?"""
        before = self.policy.limits
        self.policy.set_best_effort_limits(BestEffortLimits(by_strategy=by_strategy))
        return self.policy.limits is not before

    def edits(self, pod: PodView) -> tuple[Edit, ...]:
        context = pod.context.at(HookStage.CREATE, Resources(), "main", {})
        return cpuset.decide(context, self.policy.current, self.policy.limits).items

    def sees(self, *pods: PodView, topology: Topology = MACHINE) -> EffectivePolicy:
        return self.policy.update(topology, pods, NOBODY, self.now_ns)


def test_before_anything_was_seen_there_are_no_pools(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert not node.policy.expect(LSE.context, 0)
    assert node.settings.ls_pools == ()


def test_the_same_object_until_pools_change(tmp_path: Path) -> None:
    node = Node(tmp_path)
    first = node.sees(view("ls", "LS"))
    assert join(first.node.ls_pools) == "0-15"
    assert node.sees(view("other", "LS")) is first
    assert node.sees(topology=machine()) is first
    second = node.sees(LSE)
    assert (join(second.node.ls_pools), join(second.node.be_pools)) == ("2-15", "2-15")
    assert second is not first
    assert second.slo is first.slo


def test_a_new_file_counts_at_once_with_what_was_last_seen(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.sees(LSE)
    node.says(reservation={"reservedCPUs": "15"})
    assert join(node.settings.ls_pools) == "2-14"
    assert node.policy.current is node.policy.current
    node.says(sharedPools={"ls": [{"cpuset": "8"}]})
    assert (join(node.settings.ls_pools), join(node.settings.be_pools)) == ("8", "2-15")


def test_without_a_known_policy_there_are_no_pools_and_kubelets_cpus_are_still_kept_out_of(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("node: {")
    policy = PolicySource(
        tmp_path / "rules.yaml", HostFacts, Metrics(), kubelet=lambda: KubeletPolicyInputs("static", True)
    )
    policy.load()
    whole = view("whole", "", "Guaranteed")
    pods = (whole, view("ls", "LS"))
    seen = policy.update(MACHINE, pods, {whole.uid: "2-3"}, 0)
    assert "is not YAML" in seen.policy_unknown
    assert (seen.node.ls_pools, seen.node.be_pools, str(seen.node.kubelet_cpus)) == ((), (), "2-3")
    (tmp_path / "rules.yaml").write_text("spec: {}")
    policy.load()
    assert join(policy.current.node.ls_pools) == "0-1,4-15"


def test_what_kubelet_says_counts_at_the_next_reading(tmp_path: Path) -> None:
    node = Node(tmp_path, allocatable={"memory": 600})
    before = node.policy.current
    node.kubelet = KubeletPolicyInputs("static", True, reserved=Reserved(500, 300))
    made = node.policy.current
    assert (made.node.cpu_manager_policy, made.node.kubelet_reserved.cpu_milli) == ("static", 500)
    assert node.policy.current is made
    node.kubelet = KubeletPolicyInputs("none")
    assert node.policy.current == before


def test_warnings_alone_leave_the_rules_as_they_are(tmp_path: Path) -> None:
    node = Node(tmp_path)
    first = node.sees(LSE)
    second = node.sees(LSE, view("thief", "LSE", "Guaranteed", cpus="0-1"))
    assert second is first
    assert node.policy.cpu_warnings


class TestExpectedPods:
    def test_their_cpus_leave_the_pools_before_anybody_sees_them(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        node.sees()
        assert node.policy.expect(LSE.context, 0)
        assert join(node.settings.ls_pools) == "2-15"
        assert not node.policy.expect(LSE.context, 1), "told again changes nothing"

    def test_once_seen_they_are_pods_like_any_other(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        node.sees()
        node.policy.expect(LSE.context, 0)
        before = node.policy.current
        assert node.sees(LSE) is before
        assert join(node.sees().node.ls_pools) == "0-15"

    def test_one_that_never_comes_is_forgotten(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        pods = (view("ls", "LS"),)
        node.sees(*pods)
        node.policy.expect(LSE.context, 0)
        node.now_ns = EXPECTED_NS - 1
        assert join(node.sees(*pods).node.ls_pools) == "2-15"
        node.now_ns = EXPECTED_NS
        assert join(node.sees(*pods).node.ls_pools) == "0-15"

    def test_pods_without_cpus_of_their_own_are_none_of_them(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        node.sees()
        assert not node.policy.expect(view("ls", "LS").context, 0)


class TestWhatIsLeftToBestEffort:
    LEFT = {"suppress": BestEffortScheduling("busy", "4")}  # noqa: RUF012 - a constant

    def test_it_counts_at_once_and_ends_at_once(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        first = node.sees(view("ls", "LS"))
        assert node.leaves(self.LEFT)
        assert node.policy.current is first, "the policy is what it was"
        assert join(node.policy.limits.pools) == "4"
        assert not node.leaves(dict(self.LEFT))
        assert node.leaves({})
        assert node.policy.limits == BestEffortLimits(pools=first.node.be_pools)

    def test_those_that_run_and_those_that_come_are_told_why(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        job = view("job", "BE", "BestEffort")
        node.sees(job)
        node.leaves(self.LEFT)
        (edit,) = node.edits(job)
        assert (edit.value, edit.why) == (
            "4",
            "BE pods use the BE pool (outside LSE), as far as it is left to them (suppress: busy)",
        )

    @pytest.mark.parametrize("band", ["koord-mid", "koord-prod"])
    def test_others_in_kubelets_tier_keep_theirs(self, tmp_path: Path, band: str) -> None:
        node = Node(tmp_path)
        guest = view("guest", "" if band == "koord-mid" else "LS", "BestEffort", band=band)
        node.sees(guest)
        node.leaves(self.LEFT)
        (edit,) = node.edits(guest)
        assert edit.value == "0-15"

    def test_it_counts_before_the_pods_are_known(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        assert node.leaves({"a": BestEffortScheduling("busy", cpu_milli=1500, is_idle=True)})
        before = node.policy.limits
        assert (before.scheduling.cpu_milli, before.tier_milli, before.pools) == (1500, 1500, ())
        node.sees(view("ls", "LS"))
        after = node.policy.limits
        assert (after.scheduling, join(after.pools)) == (before.scheduling, "0-15")
        assert node.leaves({})
        assert node.policy.limits.scheduling == UNBOUNDED

    def test_it_outlasts_pods_and_files(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        assert node.leaves(self.LEFT)
        pools = node.settings.ls_pools, node.policy.limits.pools
        assert [join(each) for each in pools] == ["", "4"], "before the pods are known"
        node.sees(view("ls", "LS"))
        node.sees(LSE)
        assert join(node.policy.limits.pools) == "4"
        node.says(reservation={"reservedCPUs": "15"})
        assert join(node.policy.limits.pools) == "4"

    def test_without_a_known_policy_there_is_nothing_to_narrow(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        node.file.write_text("node: {")
        node.policy = PolicySource(node.file, HostFacts, Metrics())
        node.policy.load()
        node.sees(view("ls", "LS"))
        assert not node.leaves(self.LEFT)
        assert (node.settings.be_pools, node.policy.limits.scheduling) == ((), UNBOUNDED)

    def test_the_object_that_a_tick_made_is_taken_while_it_says_the_same(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        node.sees(view("ls", "LS"))
        made, _ = limits(self.LEFT, node.settings, MACHINE)
        node.policy.set_best_effort_limits(made)
        assert node.policy.limits is made
        node.policy.expect(LSE.context, 0)
        other = BestEffortLimits(by_strategy={"suppress": BestEffortScheduling("busy", "0-3")}, pools=made.pools)
        node.policy.set_best_effort_limits(other)
        assert join(node.policy.limits.pools) == "2-3", "of another instant"
