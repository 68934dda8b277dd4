"""Which features need a grant of the unit, by gates and by what NodeSLO makes use of."""

from __future__ import annotations

from typing import Any

import pytest

from koord.model import grants, slo_defaults
from koord.model.featuregates import GATES
from koord.model.grants import GRANTS, GrantInputs
from koord.model.slo import decode_spec

CPU_QOS = {"cpuQOS": {"enable": True}}
SUPPRESSED = {"resourceUsedThresholdWithBE": {"enable": True}}


def wanted(
    spec: dict[str, Any], flags: dict[str, bool], features: dict[str, bool], by_pressure: bool = True
) -> set[str]:
    in_force = GrantInputs(slo_defaults.in_force(decode_spec(spec)), by_pressure)
    return set(grants.wanted(in_force, flags, features))


@pytest.mark.parametrize(
    ("spec", "flags", "features", "expected"),
    [
        ({}, {}, {}, set()),
        # A gate that is off by default is the operator's own word, whatever NodeSLO says now.
        ({}, {}, {"SystemConfig": True}, {"SystemConfig"}),
        ({}, {"SystemConfig": True, "OOMScoreAdj": True}, {}, {"SystemConfig", "OOMScoreAdj"}),
        ({}, {"SystemConfig": True}, {"SystemConfig": False}, set()),
        ({}, {"AllAlpha": True}, {}, {"SystemConfig", "OOMScoreAdj"}),
        # One that is on by default says nothing.
        (SUPPRESSED, {}, {}, {"BECPUSuppress"}),
        (SUPPRESSED, {}, {"BECPUSuppress": False}, set()),
        ({"resourceQOSStrategy": {"lsClass": CPU_QOS}}, {}, {}, {"GroupIdentity"}),
        ({"resourceQOSStrategy": {"beClass": CPU_QOS}}, {"AllBeta": False}, {}, set()),
        ({"resourceQOSStrategy": {"systemClass": CPU_QOS}}, {}, {}, set()),
        ({"resourceQOSStrategy": {"beClass": CPU_QOS, "policies": {"cpuPolicy": "coreSched"}}}, {}, {}, set()),
    ],
)
def test_what_is_wanted(
    spec: dict[str, Any], flags: dict[str, bool], features: dict[str, bool], expected: set[str]
) -> None:
    assert wanted(spec, flags, features) == expected


def test_only_suppression_by_pressure_lengthens_slices() -> None:
    assert wanted(SUPPRESSED, {}, {}, by_pressure=False) == set()


def test_a_grant_is_of_a_gate_and_allows_something() -> None:
    assert GRANTS.keys() <= GATES.keys()
    assert all(grant.capabilities or grant.rows for grant in GRANTS.values())


@pytest.mark.parametrize("name", GRANTS)
def test_a_gate_that_is_on_by_default_grants_only_where_it_is_used(name: str) -> None:
    """Else every node would have the grant."""
    assert (name in wanted({}, {name: True}, {})) != GATES[name].is_on
