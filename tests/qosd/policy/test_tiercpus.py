"""What the BestEffort tier leaves to new containers on cgroup v1, read from files of a temporary tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from koord.host.cgroup import Tree
from koord.model.qos import KubeQoS
from qosd.policy.tiercpus import TierCPUs

ALL = "0-7"
LOOK_FOR_S = 120
TIERS = {KubeQoS.GUARANTEED: "/kubepods", KubeQoS.BEST_EFFORT: "/kubepods/besteffort"}


class CPUSets:
    """The hierarchy of the controller, of all pods' root, the tier and the pods in it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.tree = Tree(1, root, {"cpuset": root})
        self.set("/kubepods", ALL)

    def set(self, cgroup: str, cpus: str) -> None:
        directory = self._root / cgroup.lstrip("/")
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cpuset.cpus").write_text(f"{cpus}\n")

    def set_below(self, tier: str, *pods: str) -> None:
        self.set(TIERS[KubeQoS.BEST_EFFORT], tier)
        for number, cpus in enumerate(pods):
            self.set(f"{TIERS[KubeQoS.BEST_EFFORT]}/pod{number}", cpus)


@pytest.fixture
def sets(tmp_path: Path) -> CPUSets:
    return CPUSets(tmp_path)


@pytest.mark.parametrize(
    ("tier", "pods", "most"),
    [
        (ALL, [], ""),
        (ALL, [ALL, ALL], ""),
        ("1-2", [], "1-2"),
        ("1-2", ["1"], "1-2"),
        (ALL, ["1-2", ALL], "1-2"),
        (ALL, ["1-2", "2-3"], "2"),
        (ALL, ["1", "2"], ""),
        (ALL, ["", ALL], ""),
        (ALL, ["rubbish", "3"], "3"),
        ("rubbish", [], ""),
    ],
)
def test_the_first_look(sets: CPUSets, tier: str, pods: list[str], most: str) -> None:
    sets.set_below(tier, *pods)
    assert TierCPUs(sets.tree, LOOK_FOR_S).read(TIERS, 0) == most


def test_a_pod_that_was_made_below_a_narrow_tier_counts_until_it_is_widened(sets: CPUSets) -> None:
    cpus = TierCPUs(sets.tree, LOOK_FOR_S)
    sets.set_below("1", "1")
    assert cpus.read(TIERS, 0) == "1"
    sets.set_below(ALL, "1")
    assert cpus.read(TIERS, 1) == "1"
    sets.set_below(ALL, ALL)
    assert cpus.read(TIERS, 2) == ""


def test_who_is_narrow_for_another_reason_counts_no_longer_than_leftovers_are_looked_for(sets: CPUSets) -> None:
    cpus = TierCPUs(sets.tree, LOOK_FOR_S)
    sets.set_below(ALL, "1")
    found = [cpus.read(TIERS, int(at_s * 1e9)) for at_s in (0, LOOK_FOR_S, LOOK_FOR_S + 1)]
    assert found == ["1", "1", ""]


def test_a_whole_tier_costs_no_look_at_pods_again(sets: CPUSets) -> None:
    cpus = TierCPUs(sets.tree, LOOK_FOR_S)
    sets.set_below(ALL)
    assert cpus.read(TIERS, 0) == ""
    sets.set_below(ALL, "1")
    assert cpus.read(TIERS, 1) == ""
