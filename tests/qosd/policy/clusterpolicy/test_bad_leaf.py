"""A bad leaf of a NodeSLO or Node counts as not set and is told, and a bad switch refuses its object."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koord.model import schema, slo, slo_defaults
from qosd.policy.clusterpolicy import NODE_SLO
from qosd.policy.provenance import Origin
from tests.qosd.policy.clusterpolicy.machine import FILE_SAYS, RESERVATION, Machine, node

COMPLETE = schema.parse_json(schema.encode(slo_defaults.defaults()))
assert isinstance(COMPLETE, dict)
LEAVES = [
    each.path for each in slo.every_leaf() if "[]" not in each.path and not each.path.endswith((".enable", ".strategy"))
]


def with_leaf(path: str, value: object) -> dict[str, Any]:
    """``COMPLETE`` with this value there; None: without it."""
    document: dict[str, Any] = json.loads(json.dumps(COMPLETE))
    *parents, name = path.split(".")
    place = document
    for parent in parents:
        place = place.setdefault(parent, {})
    place.pop(name, None)
    if value is not None:
        place[name] = value
    return document


class TestABadLeaf:
    @pytest.mark.parametrize("path", LEAVES)
    def test_counts_as_not_set_and_changes_nothing_else(self, machine: Machine, path: str) -> None:
        machine.take(with_leaf(path, None), 1)
        without = machine.policy.slo
        bad: object = [3] if path.endswith(("schedFeatures", "extensions")) else {"no": "value"}
        machine.cluster.take_slo(with_leaf(path, bad), 1)
        told = [warning for warning in machine.source.warnings if "it counts as not set" in warning]
        if machine.source.layers[NODE_SLO].problem:
            assert path.endswith("schedFeatures"), "of a map nothing can be left out"
        else:
            assert len(told) == 1
            assert told[0].startswith(f"NodeSLO generation 1: spec.{path}: ")
        assert machine.policy.slo == without
        assert machine.policy.node.reserved_cpus == "0"

    def test_shows_what_the_file_says_there(self, machine: Machine) -> None:
        machine.file.write_text(FILE_SAYS)
        machine.source.load()
        machine.take({"cpuBurstStrategy": {"policy": "auto", "sharePoolThresholdPercent": 400}})
        assert machine.burst == ("auto", 1000, 40)
        assert machine.source.warnings == (
            "NodeSLO generation 12: spec.cpuBurstStrategy.sharePoolThresholdPercent: 400 is not in 0..100; "
            "it counts as not set",
        )

    @pytest.mark.parametrize("switch", ["resourceUsedThresholdWithBE", "resourceQOSStrategy.beClass.cpuQOS"])
    def test_but_a_bad_switch_refuses_the_object_and_switches_nothing_off(self, machine: Machine, switch: str) -> None:
        machine.take(with_leaf(f"{switch}.enable", True), 1)
        before = machine.policy
        machine.cluster.take_slo(with_leaf(f"{switch}.enable", "yes"), 2)
        assert machine.policy is before
        assert machine.origins()[NODE_SLO] is Origin.LAST_GOOD

    def test_of_the_node_leaves_the_nodeslo_and_the_other_annotations(self, machine: Machine) -> None:
        machine.take(taken=node({RESERVATION: "{", "node.koordinator.sh/cpu-normalization-ratio": "1.20"}))
        assert machine.burst[0] == "auto"
        assert float(machine.policy.node.cpu_normalization_ratio or 0) == 1.2
        assert [warning.split(": ")[:2] for warning in machine.source.warnings] == [
            ["Node worker-1", f"annotation {RESERVATION}"],
            ["CPU normalization ratio 1.2 has no effect on LS pods", "CPUNormalization is off (default)"],
        ]

    def test_keys_that_nodeslo_lacks_are_told(self, machine: Machine) -> None:
        machine.take({"cpuBurstStrategy": {"newer": 1}})
        assert machine.source.warnings == (
            "NodeSLO generation 12: spec.cpuBurstStrategy.newer: no such key in NodeSLO, ignored",
        )

    def test_what_has_no_effect_is_told_of_all_layers_together(self, machine: Machine) -> None:
        machine.take({"resourceQOSStrategy": {"policies": {"netQOSPolicy": "terway-qos"}}})
        assert len(machine.source.warnings) == 1
        assert machine.source.warnings[0].startswith(
            f"NodeSLO generation 12 over {machine.file}: spec.resourceQOSStrategy.policies.netQOSPolicy: 'terway-qos' "
        )
