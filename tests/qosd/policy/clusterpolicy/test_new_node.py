"""A node keeps its policy while its Node is gone, and till a new one has its NodeSLO."""

from __future__ import annotations

import pytest

from qosd.policy.clusterpolicy import NEW_S, NODE, NODE_SLO
from qosd.policy.provenance import Origin
from tests.qosd.policy.clusterpolicy.machine import AWAY, BY_DEFAULT, HAS, QUOTA, RESERVED, RESERVES, Machine, node


def test_a_deleted_node_stays_as_it_was_and_its_nodeslo_with_it(machine: Machine) -> None:
    machine.take()
    before = machine.policy
    machine.cluster.take_node(None)
    machine.cluster.take_slo(None, 0)
    assert machine.policy is before
    assert machine.origins()[NODE] is machine.origins()[NODE_SLO] is Origin.LAST_GOOD
    assert machine.source.layers[NODE].problem == "there is no Node of this name"
    assert machine.source.layers[NODE_SLO].problem == "there is no NodeSLO, and there is no Node of this name"
    machine.start()
    machine.take(None, 0, taken=None)
    assert machine.policy == before
    machine.cluster.take_node(RESERVED)
    assert machine.burst == ("auto", 500, 50), "there is a Node again, and its NodeSLO is made after it"


@pytest.mark.parametrize("is_seen_to_go", [True, False])
def test_a_node_that_registers_again_keeps_its_policy_till_its_nodeslo_is_made(
    machine: Machine, is_seen_to_go: bool
) -> None:
    machine.take()
    before = machine.policy
    if is_seen_to_go:
        machine.cluster.take_node(None)
        machine.cluster.take_slo(None, 0)
    machine.cluster.take_node(node(RESERVES, uid="another", **HAS))
    machine.cluster.take_slo(None, 0)
    for _ in range(2):
        machine.now_s += NEW_S / 2 - 1
        machine.cluster.reached()
        assert machine.policy is before
        assert machine.origins()[NODE_SLO] is Origin.LAST_GOOD
        assert machine.source.layers[NODE_SLO].problem == (
            "there is no NodeSLO, and Node worker-1 is new: it may still be made"
        )
    machine.cluster.take_slo(QUOTA, 1)
    assert (machine.burst[0], machine.origins()[NODE_SLO]) == ("cfsQuotaBurstOnly", Origin.SOURCE)
    machine.cluster.take_slo(None, 0)
    assert machine.burst == ("cfsQuotaBurstOnly", 1000, 50), "it is still new"


def test_a_nodeslo_that_is_not_made_for_a_new_node_in_time_counts_as_none(machine: Machine) -> None:
    machine.take()
    machine.cluster.take_node(None)
    machine.cluster.take_slo(None, 0)
    machine.cluster.take_node(RESERVED)
    machine.now_s += NEW_S
    machine.cluster.lost(AWAY)
    assert machine.burst == ("auto", 500, 50), "nobody is there who says so"
    machine.cluster.reached()
    assert (machine.burst, machine.origins()[NODE_SLO]) == (BY_DEFAULT, Origin.NONE)
    assert machine.source.warnings == ()


def test_a_nodeslo_that_goes_while_nobody_tells_of_the_node_stays(machine: Machine) -> None:
    machine.take()
    machine.cluster.lost(AWAY)
    machine.cluster.take_slo(None, 0)
    assert machine.burst == ("auto", 500, 50)
    machine.cluster.reached()
    assert machine.burst == BY_DEFAULT
