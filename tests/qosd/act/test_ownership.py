"""Who is heard on a file."""

from __future__ import annotations

from fractions import Fraction

import pytest

from koord.host.files import ROWS, Target
from koord.model.crifields import SCALARS
from qosd.act.ownership import OWNERS, arbitrate
from qosd.decide.decision import Decision, Op, Opinion, Stage
from qosd.decide.runner import EvictionStrategy, StrategyResult, StrategyStatus
from qosd.hooks.table import HOOKS, ROWS_OF_HOOKS, Hook
from qosd.strategies import STRATEGIES
from tests.qosd.act.rig import CPUS, QUOTA, SHARES, wants
from tests.qosd.act.rig import OWNERS as TABLE


def result(name: str, stage: Stage, *opinions: tuple[Target, Opinion], decided: bool = True) -> StrategyResult:
    return StrategyResult(name, stage, StrategyStatus.ACTIVE, Decision("", dict(opinions)), decided=decided)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (result("nobody", Stage.SPEC, (QUOTA, wants(5000))), "not in the table"),
        (result("burst", Stage.SPEC, (QUOTA, wants(5000))), "speaks at stage BURST"),
        (result("burst", Stage.BURST, (SHARES, Opinion.scale(Fraction(2), ""))), "not among its files"),
    ],
)
def test_outside_the_table_is_refused(one: StrategyResult, why: str) -> None:
    target = next(iter(one.opinions))
    arbitration = arbitrate(target, [one], TABLE)
    assert arbitration.accepted == ()
    assert [who for who, _ in arbitration.refused] == [one.name]
    assert why in arbitration.refused[0][1]


def test_stages_are_heard_in_their_order() -> None:
    results = [
        result("suppress", Stage.SUPPRESSION, (QUOTA, Opinion.at_most(1, ""))),
        result("hooks", Stage.SPEC, (QUOTA, wants(5000))),
    ]
    assert [one.strategy for one in arbitrate(QUOTA, results, TABLE).accepted] == ["hooks", "suppress"]


@pytest.mark.parametrize(("before", "owner"), [((), "hooks"), (((Stage.SPEC, "hosts"),), "hosts")])
def test_the_first_owner_stays(before: tuple[tuple[Stage, str], ...], owner: str) -> None:
    results = [result("hooks", Stage.SPEC, (CPUS, wants("0"))), result("hosts", Stage.SPEC, (CPUS, wants("1")))]
    arbitration = arbitrate(CPUS, results, TABLE, before)
    assert [one.strategy for one in arbitration.accepted] == [owner]
    assert [who for who, _ in arbitration.refused] == [{"hooks": "hosts", "hosts": "hooks"}[owner]]


def test_who_has_not_decided_yet_keeps_what_an_earlier_run_left() -> None:
    waiting = result("hooks", Stage.SPEC, decided=False)
    assert arbitrate(CPUS, [waiting], TABLE).accepted == ()
    assert [one.opinion.op for one in arbitrate(CPUS, [waiting], TABLE, (), True).accepted] == [Op.KEEP]
    other = result("hosts", Stage.SPEC, (CPUS, wants("1")))
    assert [one.strategy for one in arbitrate(CPUS, [waiting, other], TABLE, (), True).accepted] == ["hosts"]


def test_every_strategy_owns_rows_that_there_are() -> None:
    assert [*OWNERS] == [*(strategy.name for strategy in STRATEGIES), EvictionStrategy.name]
    assert all(name in ROWS for owner in OWNERS.values() for name in owner.rows)


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
def test_every_row_of_a_hook_is_its_strategys(hook: Hook) -> None:
    """Else what a call carried would never be put right in the kernel."""
    assert hook.rows <= OWNERS[hook.strategy].rows


def test_what_hooks_put_into_unified_has_a_default_to_go_back_to() -> None:
    """Without one, a container that was made with such a value would never be put back."""
    fields = set(SCALARS)
    assert ROWS.keys() >= ROWS_OF_HOOKS, "there are such files"
    assert [name for name in ROWS_OF_HOOKS - fields if ROWS[name].default is None] == []
    numbers = [
        row
        for row in ROWS.values()
        if row.v2 and row.writable and not (row.takes or row.is_one_shot or row.system) and 2 not in row.vendor_on
    ]
    without = {row.name for row in numbers if row.default is None} - fields
    kernels_own_words, parents = {"cpu.uclamp.min", "cpu.uclamp.max"}, {"cpuset.cpus.exclusive"}
    assert without == kernels_own_words | parents | {"cgroup.freeze"}, "no container begins frozen"
