"""The same word again changes nothing, and a change keeps the objects that it does not concern."""

from __future__ import annotations

import json

import pytest

from tests.qosd.policy.clusterpolicy.machine import AWAY, BURST, HAS, MINUTE_S, RESERVES, Machine, node


class TestIdentity:
    def test_the_same_word_again_changes_nothing_and_calls_nobody(self, machine: Machine) -> None:
        machine.take()
        before, changes = machine.policy, machine.changes
        for _ in range(3):
            machine.now_s += MINUTE_S
            machine.take(json.loads(json.dumps(BURST)), 12, node(dict(RESERVES), **HAS))
            machine.source.load()
        assert machine.policy is before
        assert machine.changes == changes

    def test_an_outage_is_a_change_of_what_is_told_alone(self, machine: Machine) -> None:
        machine.take()
        before, changes = machine.policy, machine.changes
        machine.cluster.lost(AWAY)
        machine.cluster.lost(AWAY)
        assert (machine.policy is before, machine.changes) == (True, changes + 1)
        machine.cluster.reached()
        machine.take()
        assert (machine.policy is before, machine.changes) == (True, changes + 2)

    def test_what_a_node_says_of_other_things_is_no_change(self, machine: Machine) -> None:
        machine.take()
        before = machine.policy
        machine.cluster.take_node(node({**RESERVES, "example.com/x": "y"}, **HAS))
        assert machine.policy is before
        assert machine.cluster.node is not None
        assert machine.cluster.node.annotations["example.com/x"] == "y"

    def test_a_change_of_the_node_keeps_the_object_of_the_slo(self, machine: Machine) -> None:
        machine.take()
        before = machine.policy
        machine.cluster.take_node(node(cpu="4", memory="5Gi"))
        assert machine.policy is not before
        assert machine.policy.slo is before.slo
        assert machine.policy.host is before.host

    def test_a_warning_is_logged_once(self, machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
        for _ in range(3):
            machine.take({"cpuBurstStrategy": {"newer": 1}})
        assert sum("newer: no such key" in record.message for record in caplog.records) == 1
