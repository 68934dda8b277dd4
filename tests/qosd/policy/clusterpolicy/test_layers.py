"""The cluster's word lies over the rules file, and the file over the built-in defaults."""

from __future__ import annotations

from koord.model import slo
from qosd.model.policy import EffectivePolicy, NodeSettings
from qosd.policy.clusterpolicy import NODE, NODE_SLO
from qosd.policy.provenance import Origin
from qosd.policy.source import FILE
from tests.qosd.policy.clusterpolicy.machine import ALL_CLUSTER, ALL_FILE, BY_DEFAULT, FILE_SAYS, Machine


class TestPrecedence:
    def test_the_cluster_is_over_the_file_and_that_over_the_defaults(self, machine: Machine) -> None:
        machine.file.write_text(FILE_SAYS)
        machine.source.load()
        machine.take()
        assert machine.burst == ALL_CLUSTER
        assert (machine.policy.node.guaranteed_is_lsr, machine.policy.node.reserved_cpus) == (True, "0")
        assert machine.policy.allocatable_memory_bytes == 6 << 30
        assert machine.origins() == {FILE: Origin.SOURCE, NODE_SLO: Origin.SOURCE, NODE: Origin.SOURCE}
        assert machine.source.warnings == ()
        assert machine.policy.slo_generation == 12

    def test_without_a_file(self, machine: Machine) -> None:
        machine.take()
        assert machine.burst == ("auto", 500, 50)
        assert machine.origins()[FILE] is Origin.DEFAULTS
        assert machine.source.overall.source == "Node worker-1 of the API server"

    def test_without_a_nodeslo_the_file_and_the_defaults_are_the_policy(self, machine: Machine) -> None:
        machine.take(None, 0)
        assert (machine.burst, machine.policy.policy_unknown) == (BY_DEFAULT, "")
        assert machine.origins()[NODE_SLO] is Origin.NONE
        machine.file.write_text(FILE_SAYS)
        machine.source.load()
        assert machine.burst == ALL_FILE
        assert machine.policy.slo_generation == 0

    def test_without_a_cluster_there_are_no_layers(self, machine: Machine) -> None:
        machine.start(is_expected=False)
        assert (machine.source.layers, machine.policy, machine.source.warnings) == ({}, EffectivePolicy(), ())
        assert machine.source.overall == machine.source.file.provenance

    def test_a_node_that_left_the_cluster_does_not_go_by_its_copies(self, machine: Machine) -> None:
        machine.take()
        machine.start(is_expected=False)
        assert machine.policy == EffectivePolicy()

    def test_a_bad_file_is_unknown_whatever_the_cluster_says(self, machine: Machine) -> None:
        machine.take()
        machine.file.write_text("node: {")
        machine.source.load()
        assert machine.policy.policy_unknown.startswith(f"{machine.file}: is not YAML")
        assert (machine.policy.slo, machine.policy.node) == (slo.NodeSLOSpec(), NodeSettings())
