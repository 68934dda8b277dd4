"""What the strategies need of the unit: each grant is in the table, and covers the files that it is for."""

from __future__ import annotations

from typing import Any

import pytest

from koord.host.files import ROWS
from koord.model.grants import GRANTS
from qosd.decide.decision import Strategy
from qosd.decide.gates import what_lacks
from qosd.model.policy import HostFacts
from qosd.strategies import speakers
from qosd.strategies.systemconfig import SystemConfig
from tests.qosd.contexts import policy

STRATEGIES = pytest.mark.parametrize("strategy", speakers(), ids=lambda each: each.name)


@STRATEGIES
def test_every_grant_of_a_strategy_is_in_the_table(strategy: Strategy[Any]) -> None:
    assert set(strategy.grants) <= GRANTS.keys()


@STRATEGIES
def test_what_it_writes_outside_cgroups_is_granted(strategy: Strategy[Any]) -> None:
    outside = {name for name in strategy.rows if ROWS[name].system is not None and ROWS[name].takes != "group/resource"}
    assert outside <= {row for name in strategy.grants for row in GRANTS[name].rows}, "resctrl is the unit's own"


@STRATEGIES
def test_no_grant_is_wanted_of_a_feature_that_it_does_not_stand_behind(strategy: Strategy[Any]) -> None:
    """Else ``koordctl install`` would not see that it is on."""
    assert set(strategy.grants) <= {strategy.gate}


def test_what_lacks_is_said_in_one_sentence() -> None:
    lacking = {"SystemConfig": ("/proc/sys/vm/min_free_kbytes", "CAP_X"), "OOMScoreAdj": ("CAP_DAC_OVERRIDE",)}
    assert what_lacks(SystemConfig(), policy(HostFacts(lacking=lacking))) == "/proc/sys/vm/min_free_kbytes, CAP_X"
    assert what_lacks(SystemConfig(), policy(HostFacts())) == ""


def test_nothing_lacks_for_what_the_rules_do_not_use() -> None:
    class Lengthening(SystemConfig):
        gate, grants = "BECPUSuppress", ("BECPUSuppress",)

    host = HostFacts(lacking={"BECPUSuppress": ("CAP_SYS_NICE",)})
    suppressed = {"resourceUsedThresholdWithBE": {"enable": True}}
    assert what_lacks(Lengthening(), policy(host, suppressed)) == ""
    by_pressure = policy(host, suppressed, cpuSuppress={"policy": "pressure"})
    assert what_lacks(Lengthening(), by_pressure) == "CAP_SYS_NICE"
