"""Before the cluster's first word no policy is known, unless a rules file or a NodeSLO stands in."""

from __future__ import annotations

import pytest

from koord.model import slo
from qosd.policy.clusterpolicy import NODE_SLO
from qosd.policy.provenance import Origin
from tests.qosd.policy.clusterpolicy.machine import (
    ALL_CLUSTER,
    ALL_FILE,
    AWAY,
    BROKEN,
    BURST,
    BY_DEFAULT,
    FILE_SAYS,
    RESERVED,
    Machine,
)


class TestBeforeTheFirstWord:
    def test_nothing_is_known_and_nothing_decided(self, machine: Machine) -> None:
        assert machine.policy.policy_unknown == (
            "the cluster's NodeSLO and Node were never known here: the API server has not answered yet"
        )
        assert machine.policy.slo == slo.NodeSLOSpec(), "nothing of it may be written"
        assert machine.source.overall.origin is Origin.UNKNOWN
        assert machine.source.warnings[-1].endswith(
            "no policy is known: every strategy is frozen, and what is set stays"
        )

    @pytest.mark.parametrize("has_file", [True, False])
    def test_a_file_stands_in_once_the_cluster_was_asked_in_vain(self, machine: Machine, has_file: bool) -> None:
        if has_file:
            machine.file.write_text(FILE_SAYS)
            machine.source.load()
        assert machine.policy.policy_unknown, "not yet asked in vain"
        machine.cluster.lost(AWAY)
        assert bool(machine.policy.policy_unknown) is not has_file
        assert machine.origins()[NODE_SLO] is Origin.UNKNOWN
        assert any(AWAY in warning and "were never known here" in warning for warning in machine.source.warnings)
        machine.cluster.reached()
        assert bool(machine.policy.policy_unknown) is not has_file, "it stands in until the word is there"
        machine.take()
        assert machine.burst == (ALL_CLUSTER if has_file else ("auto", 500, 50))

    def test_a_file_that_appears_later_stands_in_too(self, machine: Machine) -> None:
        machine.cluster.lost(AWAY)
        machine.file.write_text(FILE_SAYS)
        machine.source.load()
        assert machine.burst == ALL_FILE

    def test_both_objects_are_waited_for(self, machine: Machine) -> None:
        machine.file.write_text(FILE_SAYS)
        machine.source.load()
        machine.cluster.take_slo(BURST, 12)
        assert machine.policy.policy_unknown.startswith("the cluster's Node was never known here")
        machine.cluster.take_node(RESERVED)
        assert machine.burst == ALL_CLUSTER

    def test_a_nodeslo_that_is_known_stands_in_for_the_node(self, machine: Machine) -> None:
        machine.cluster.take_slo(BURST, 12)
        machine.cluster.lost(AWAY)
        assert machine.burst == ("auto", 500, 50)

    def test_but_no_node_for_its_nodeslo(self, machine: Machine) -> None:
        machine.cluster.take_node(RESERVED)
        machine.cluster.lost(AWAY)
        assert machine.policy.policy_unknown == f"the cluster's NodeSLO was never known here: {AWAY}"

    def test_a_nodeslo_that_was_never_good_is_unknown(self, machine: Machine) -> None:
        machine.take(BROKEN)
        assert "spec.resourceQOSStrategy.beClass.memoryQOS: 5 is not an object" in machine.policy.policy_unknown

    def test_a_node_that_has_not_joined_yet_waits(self, machine: Machine) -> None:
        machine.take(None, 0, taken=None)
        assert "there is no Node of this name" in machine.policy.policy_unknown
        machine.cluster.take_node(RESERVED)
        assert (machine.policy.policy_unknown, machine.burst) == ("", BY_DEFAULT)
